/*
 * Where sealpoint keeps the files of a checkpoint between opening them and putting them in place in
 * the restored processes, which inherit them at the same numbers.
 *
 * A file is parked at the number that it is to have, if all processes that use the number mean that
 * file; otherwise at one that nobody needs. So a descriptor that is put in place never overwrites a
 * file that is still to be placed, and most are in place already.
 */
#ifndef SEALPOINT_KINDS_PARKING_H
#define SEALPOINT_KINDS_PARKING_H

#include "base/array.h"

#include <stdint.h>

struct sp_error;

struct sp_parking {
	struct sp_array reserved; /* numbers that processes need, and for which file */
	struct sp_array homes;    /* int by file: the number to park it at, -1 if there is none */
	int parked;               /* numbers that nobody needs are taken up to here */
};

void sp_parking_init(struct sp_parking *parking);
void sp_parking_release(struct sp_parking *parking);
/** A process needs `file` (OpenFile.id) at `number`. */
void sp_parking_reserve(struct sp_parking *parking, uint32_t number, uint32_t file);
/** All has been reserved that is needed; `files` is the highest id. */
void sp_parking_plan(struct sp_parking *parking, uint32_t files);
/** The number of descriptors that sealpoint has to be able to have, beside `others` of its own. */
uint64_t sp_parking_size(const struct sp_parking *parking, uint64_t others);
/** Moves descriptor `*fd`, which is that of `file`, to where it can stay. */
int sp_parking_park(struct sp_parking *parking, uint32_t file, int *fd, struct sp_error *err);

#endif
