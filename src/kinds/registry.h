/* The declarations of all kinds, for registry.c alone: one line per kind. */
#ifndef SEALPOINT_KINDS_REGISTRY_H
#define SEALPOINT_KINDS_REGISTRY_H

#include "kinds/kind.h"

#endif
