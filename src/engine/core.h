/*
 * What the two parts of writing a core file share: core.c lays out and fills the file, core_notes.c
 * describes the process.
 */
#ifndef SEALPOINT_ENGINE_CORE_H
#define SEALPOINT_ENGINE_CORE_H

#include "engine/engine.h"

/**
 * Appends all notes of the process to `notes` (bytes): for the process NT_PRPSINFO, NT_FILE and
 * what its facets have to tell (NT_AUXV); for each thread NT_PRSTATUS and, following it, its
 * register sets.
 */
int sp_core_notes(const struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                  struct sp_array *notes, struct sp_error *err);

#endif
