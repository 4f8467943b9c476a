/*
 * A process that stands in for one that is gone: what is open about it, while it lives, is open
 * about a process that has ended when it has ended. It must not take an id that a process of the
 * checkpoint needs, so it is made when all of those exist.
 */
#ifndef SEALPOINT_KINDS_STAND_IN_H
#define SEALPOINT_KINDS_STAND_IN_H

#include "kinds/kind.h"

struct sp_stand_in {
	pid_t pid;
	int leash; /* it ends when this is closed */
};

/**
 * Begins one that will end in the way that `wait_status` tells (wait(2)), with this id if it is free;
 * 0: any.
 */
int sp_stand_in_begin(struct sp_stand_in *process, pid_t id, uint32_t wait_status,
                      struct sp_error *err);
/** Lets it end, and waits until it is gone. */
void sp_stand_in_end(struct sp_stand_in *process);

#endif
