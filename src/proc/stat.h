/*
 * Fields of /proc/PID/task/TID/stat that are found nowhere else: parentage, terminal, exit status,
 * and the address space's landmarks. See proc_pid_stat(5); the addresses need PTRACE_MODE_READ and are 0
 * without it.
 */
#ifndef SEALPOINT_PROC_STAT_H
#define SEALPOINT_PROC_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_error;

struct sp_stat {
	char comm[64]; /* kernel threads have long ones */
	char state;    /* R, S, D, T, t, Z, X, I */
	int32_t ppid, pgrp, session;
	int32_t tty;         /* device number of the controlling terminal; 0: none */
	int32_t foreground;  /* the process group that has that terminal; -1: none */
	uint32_t flags;      /* PF_* */
	int32_t exit_signal; /* that its parent gets at its end; 0: none; -1: not the leader */
	int32_t exit_code; /* needs PTRACE_MODE_READ: of one that has ended, as wait(2) gives it */
	uint64_t start_time; /* clock ticks since boot: with the pid, the identity of a process */
	uint64_t start_code, end_code, start_stack;
	uint64_t start_data, end_data, start_brk;
	uint64_t arg_start, arg_end, env_start, env_end;
};

/** True for a task that runs no more and only waits for its parent to collect its status. */
static inline bool sp_stat_has_ended(const struct sp_stat *stat)
{
	return stat->state == 'Z' || stat->state == 'X';
}

#define SP_PF_EXITING 0x00000004u /* in sp_stat.flags: it is ending */
#define SP_PF_KTHREAD 0x00200000u /* in sp_stat.flags: a kernel thread */

/**
 * ENOENT or ESRCH (from the kernel) if there is no such thread; EBADMSG if the text is not
 * understood.
 */
int sp_stat_read(pid_t pid, pid_t tid, struct sp_stat *stat, struct sp_error *err);
/** The same of a process as a whole: `exit_code` is what its parent will hear, not how the main thread has ended. */
int sp_stat_read_process(pid_t pid, struct sp_stat *stat, struct sp_error *err);
/** The same from a text. */
int sp_stat_parse(const char *text, struct sp_stat *stat, struct sp_error *err);

/**
 * The thread of a process by whose id /proc and system calls show what all its threads have in common:
 * the main one, or, where that has ended before the others, one of these. `pid` if all have ended.
 */
pid_t sp_living_thread(pid_t pid);

/** "process 4242 (redis-server)": how messages name a process; without its name when it is gone. */
struct sp_process_name {
	char text[96];
};
struct sp_process_name sp_process_name(pid_t pid);

#endif
