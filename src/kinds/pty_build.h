/* Making pseudoterminals anew: see pty_build.c. */
#ifndef SEALPOINT_KINDS_PTY_BUILD_H
#define SEALPOINT_KINDS_PTY_BUILD_H

#include "kinds/kind.h"

#include "pty.pb-c.h"

Sealpoint__Pty *sp_pty_unpack(ProtobufCBinaryData body, struct sp_error *err);
/** Opens all files of the pair that this one belongs to, and fills in builder->fds. */
int sp_pty_open(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                struct sp_error *err);
/** The last of it, when nobody has to open it any more. */
int sp_pty_settle(int master, const Sealpoint__Pty__Pair *pair, struct sp_error *err);

#endif
