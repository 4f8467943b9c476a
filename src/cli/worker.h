/*
 * A process that does the work of a command, so that it can end in an orderly way when the one that
 * was started is killed. Nothing can be done in a process that kill -9 has hit, but its child hears
 * of it: as of a SIGTERM (base/interrupt.h).
 *
 * The worker has a process group of its own: a kill of the whole group leaves it the time to clean
 * up, too. Somebody who kills the worker itself takes what comes.
 */
#ifndef SEALPOINT_CLI_WORKER_H
#define SEALPOINT_CLI_WORKER_H

#include <stdbool.h>
#include <sys/types.h>

/**
 * To be called before a command drives `target`. If that could be harmed by a kill, or `always`, a
 * worker begins: this returns true in it, and it goes on with the command. In the process that was
 * started it stands in for the worker (cli/foreground.h) and returns false when that has ended, with
 * its exit status. If no worker is needed, or there can be none, it returns true, and the process goes on
 * without. Whoever goes on watches for the signals that ask it to end (base/interrupt.h).
 */
bool sp_worker_begin(pid_t target, bool always, int *status);

#endif
