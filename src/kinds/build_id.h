/* The build id of a program or library: which build of it a file is, whatever its name, size and time. */
#ifndef SEALPOINT_KINDS_BUILD_ID_H
#define SEALPOINT_KINDS_BUILD_ID_H

#include <stddef.h>
#include <stdint.h>

struct sp_build_id {
	size_t size; /* 0: the file has none, or is no ELF file of 64 bit */
	uint8_t bytes[32];
};

/** Reads it from the file's note (NT_GNU_BUILD_ID, which linkers make); moves no file position. */
struct sp_build_id sp_build_id_read(int fd);
/** In hexadecimal, as file(1) shows it; "none" if there is none. */
void sp_build_id_text(const uint8_t *bytes, size_t size, char text[65]);

#endif
