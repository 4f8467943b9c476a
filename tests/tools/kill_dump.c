/*
 * Kills a dump with SIGKILL, again and again at other moments, and looks each time whether the
 * target has noticed (docs/architecture.md, D3).
 *
 *	kill_dump random ROUNDS PID HEARTBEAT SCRATCH COMMAND [ARGUMENT...]
 *	kill_dump calls ROUNDS PID HEARTBEAT SCRATCH COMMAND [ARGUMENT...]
 *
 * "random": at random times, uniform over the measured length of the command; a round that comes
 * too late, when the command has ended, does not count. "calls": at system
 * calls of the command, traced for that, before and after each one; with fewer ROUNDS than
 * there are such moments, at evenly spread ones. Between two system calls nothing outside the
 * command can change, so that these are all the moments that there are (but for other threads of
 * the command). Only the process that was started is killed, whatever children it has.
 *
 * Each round the command starts with "%" in its arguments replaced by a new name in SCRATCH, which
 * is emptied after the round. When the command is dead, the target must, within seconds, have no
 * tracer, no stopped thread, the same mappings, descriptors, and signal masks as at the beginning,
 * and every counter of its heartbeat (the first word of the file says how many follow it) must go
 * on.
 *
 * The last line tells what the target looked like when the kills came. Exit status 1 with one line
 * for the first target that was harmed.
 */
#include "target.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEASUREMENTS 5

enum phase { RUNNING, SOME_STOPPED, ALL_STOPPED, PAGES_MAPPED, PHASES };
static const char *const phase_names[] = {"running", "some threads stopped", "all threads stopped",
                                          "temporary pages mapped"};

static unsigned long hits[PHASES]; /* what the target looked like when the kills came */

static uint64_t random_below(uint64_t limit)
{
	static uint64_t state = 88172645463325252ULL;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % limit;
}

static size_t count_lines(const char *text)
{
	size_t lines = 0;

	while ((text = strchr(text, '\n'))) {
		lines++;
		text++;
	}
	return lines;
}

static void append_line(char *text, const char *path)
{
	strncat(text, "\n", TEXT_MAX - strlen(text) - 1);
	(void)path;
}

static enum phase look(const struct target *target)
{
	static char stopped[TEXT_MAX], maps[TEXT_MAX], threads[TEXT_MAX];

	read_maps(target->pid, maps);
	if (strcmp(maps, target->maps) != 0)
		return PAGES_MAPPED;
	stopped[0] = threads[0] = '\0';
	for_each_entry(target->pid, "task", stopped, append_if_stopped);
	for_each_entry(target->pid, "task", threads, append_line);
	if (!stopped[0])
		return RUNNING;
	return count_lines(stopped) < strlen(threads) ? SOME_STOPPED : ALL_STOPPED;
}

/* --- rounds --- */

/* Waits until the target is as it was; ends the program if it does not become so. */
static void expect_unharmed(const struct target *target, const char *moment)
{
	const char *what = target_wait_unharmed(target);

	if (what)
		errx(1, "killed %s: the target was harmed: %s", moment, what);
}

static void replace_percent(char **arguments, const char *scratch)
{
	static unsigned long round;
	static char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s/%lu", scratch, round++);
	for (char **argument = arguments; *argument; argument++)
		if (strcmp(*argument, "%") == 0)
			*argument = name;
}

static pid_t start(char **command, const char *scratch, bool traced)
{
	char *arguments[64] = {NULL};
	pid_t pid;

	for (int i = 0; i < 63 && command[i]; i++)
		arguments[i] = command[i];
	replace_percent(arguments, scratch);
	pid = fork();
	if (pid < 0)
		err(2, "fork");
	if (pid > 0)
		return pid;
	int output = open("/dev/null", O_RDWR);

	dup2(output, STDOUT_FILENO);
	if (traced)
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	execv(arguments[0], arguments);
	err(2, "%s", arguments[0]);
}

static unsigned long count_kills(void)
{
	unsigned long kills = 0;

	for (int phase = 0; phase < PHASES; phase++)
		kills += hits[phase];
	return kills;
}

/* Each kill may have ended one wait early, and nothing else may have. */
static void report(const struct target *target)
{
	uint64_t early = target->heartbeat[EARLY_WORD];
	unsigned long kills = count_kills();

	if (early > kills)
		errx(1, "harmed: %lu waits ended early, and %lu dumps were killed", early, kills);
	printf("%lu kills, none harmed:", kills);
	for (int phase = 0; phase < PHASES; phase++)
		printf(" %lu %s,", hits[phase], phase_names[phase]);
	printf(" %lu waits for a time ended early\n", early);
}

static void expect_success(int status)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		errx(2, "the command fails when it is not killed: status %x", status);
}

static uint64_t measure(struct target *target, char **command, const char *scratch)
{
	uint64_t longest = 0;
	int status;

	for (int i = 0; i < MEASUREMENTS; i++) {
		uint64_t begin = now_ns(), took;
		pid_t pid = start(command, scratch, false);

		waitpid(pid, &status, 0);
		took = now_ns() - begin;
		expect_success(status);
		expect_unharmed(target, "not at all");
		if (took > longest)
			longest = took;
		remove_below(scratch);
	}
	if (target->heartbeat[EARLY_WORD])
		errx(1, "harmed: a dump that was not killed has ended a wait early");
	return longest;
}

static void kill_at_random(struct target *target, unsigned long rounds, char **command,
                           const char *scratch)
{
	uint64_t length = measure(target, command, scratch);
	char moment[128];

	printf("a dump takes up to %.1f ms\n", (double)length / 1e6);
	while (count_kills() < rounds) {
		uint64_t delay = random_below(length);
		pid_t pid = start(command, scratch, false);
		int status;

		sleep_ns(delay);
		if (waitpid(pid, &status, WNOHANG) == pid) {
			expect_success(status);
		} else {
			hits[look(target)]++;
			kill(pid, SIGKILL);
			while (waitpid(-1, &status, 0) > 0) /* its children, too, are ours now */
				;
		}
		snprintf(moment, sizeof(moment), "%.3f ms after its start", (double)delay / 1e6);
		expect_unharmed(target, moment);
		remove_below(scratch);
	}
}

/*
 * Runs the command under trace and kills it at its system call stop number `last` (an entry or an
 * exit, of any of its threads and children). Returns the number of stops there were when all have
 * ended.
 */
static unsigned long run_to_call(struct target *target, unsigned long last, char **command,
                                 const char *scratch)
{
	pid_t pid = start(command, scratch, true);
	unsigned long stops = 0;
	int status;

	waitpid(pid, &status, 0); /* the stop at exec */
	if (ptrace(PTRACE_SETOPTIONS, pid, NULL,
	           PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
	                   PTRACE_O_EXITKILL) != 0)
		err(2, "PTRACE_SETOPTIONS");
	ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
	for (;;) {
		pid_t stopped = waitpid(-1, &status, __WALL);
		int signal = 0;

		if (stopped < 0)
			return stops; /* it is gone, with its threads and children */
		if (!WIFSTOPPED(status)) {
			if (stopped == pid && last == ULONG_MAX)
				expect_success(status);
			continue;
		}
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			if (++stops == last) {
				hits[look(target)]++;
				kill(pid, SIGKILL);
			}
		} else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
			signal = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, stopped, NULL, (void *)(intptr_t)signal);
	}
}

static void kill_at_calls(struct target *target, unsigned long rounds, char **command,
                          const char *scratch)
{
	unsigned long stops = run_to_call(target, ULONG_MAX, command, scratch);
	char moment[128];

	remove_below(scratch);
	if (rounds > stops)
		rounds = stops;
	printf("a dump has %lu system call entries and exits\n", stops);
	for (unsigned long round = 0; round < rounds;) {
		unsigned long last = 1 + round * stops / rounds;
		unsigned long reached = run_to_call(target, last, command, scratch);

		if (reached < last) /* it had less to wait for */
			stops = reached;
		else
			round++;
		snprintf(moment, sizeof(moment), "at system call stop %lu", last);
		expect_unharmed(target, moment);
		remove_below(scratch);
	}
}

int main(int argc, char **argv)
{
	static struct target target;
	unsigned long rounds;

	if (argc < 7)
		errx(2, "usage: kill_dump random|calls ROUNDS PID HEARTBEAT SCRATCH COMMAND...");
	setvbuf(stdout, NULL, _IOLBF, 0);
	rounds = strtoul(argv[2], NULL, 10);
	target.pid = atoi(argv[3]);
	target_open(&target, argv[4]);

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (strcmp(argv[1], "calls") == 0)
		kill_at_calls(&target, rounds, argv + 6, argv[5]);
	else
		kill_at_random(&target, rounds, argv + 6, argv[5]);

	report(&target);
	return 0;
}
