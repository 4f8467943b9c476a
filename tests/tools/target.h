/*
 * A program that tells whether a dump has harmed it, as tests/subjects/working.c does by its
 * heartbeat: a file with a counter for each thread, the first word saying how many. The target must
 * have no tracer, no stopped thread, the same mappings, descriptors and signal masks as at the
 * beginning, and every counter must go on.
 */
#ifndef SEALPOINT_TESTS_TARGET_H
#define SEALPOINT_TESTS_TARGET_H

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX (256 * 1024)
#define COUNTERS_MAX 64
#define EARLY_WORD (4096 / sizeof(uint64_t) - 1)
#define RECOVERY_S 10 /* generous: the machine may be busy; a harmed target never recovers */

struct target {
	pid_t pid;
	const volatile uint64_t *heartbeat;
	char identity[TEXT_MAX]; /* what must not change */
	char maps[TEXT_MAX];
};

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void sleep_ns(uint64_t ns)
{
	nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
}

/* --- what the target looks like --- */

static inline void append_file(char *text, const char *path, const char *const *fields)
{
	size_t used = strlen(text);
	FILE *file = fopen(path, "re");
	char line[1024];

	if (!file)
		return; /* a thread that has ended; the text differs then */
	while (fgets(line, sizeof(line), file)) {
		bool wanted = !fields;

		for (const char *const *field = fields; !wanted && field && *field; field++)
			wanted = strncmp(line, *field, strlen(*field)) == 0;
		if (wanted && used + strlen(line) < TEXT_MAX) {
			strcpy(text + used, line);
			used += strlen(line);
		}
	}
	fclose(file);
}

/* Calls `each` for every entry of a directory below /proc/PID. */
static inline void for_each_entry(pid_t pid, const char *name, char *text,
                                  void (*each)(char *text, const char *path))
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.') {
			snprintf(path, sizeof(path), "/proc/%d/%s/%s", pid, name, entry->d_name);
			each(text, path);
		}
	if (dir)
		closedir(dir);
}

static inline void append_descriptor(char *text, const char *path)
{
	char link[PATH_MAX];
	ssize_t size = readlink(path, link, sizeof(link) - 1);
	size_t used = strlen(text);

	if (size > 0)
		snprintf(text + used, TEXT_MAX - used, "%s %.*s\n", path, (int)size, link);
}

/* SigPnd and the state are not compared here: whether one is stopped is looked at elsewhere. */
static inline void append_thread(char *text, const char *path)
{
	static const char *const fields[] = {
	        "Name:", "Pid:", "TracerPid:", "SigBlk:", "SigIgn:", "SigCgt:", "Seccomp", NULL};
	char status[PATH_MAX + 8];

	snprintf(status, sizeof(status), "%s/status", path);
	append_file(text, status, fields);
}

/* All mappings, but for where the main stack begins: it may grow, as programs make it grow. */
static inline void read_maps(pid_t pid, char *text)
{
	char path[64], *stack;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	text[0] = '\0';
	append_file(text, path, NULL);
	stack = strstr(text, "[stack]");
	while (stack > text && stack[-1] != '\n')
		stack--;
	while (stack && *stack != '-')
		*stack++ = 'x';
}

static inline void read_identity(pid_t pid, char *text)
{
	text[0] = '\0';
	for_each_entry(pid, "fd", text, append_descriptor);
	for_each_entry(pid, "task", text, append_thread);
}

/* Writes a line for each thread that is stopped or traced. */
static inline void append_if_stopped(char *text, const char *path)
{
	static const char *const fields[] = {"State:", NULL};
	char status[PATH_MAX + 8], state[TEXT_MAX];

	snprintf(status, sizeof(status), "%s/status", path);
	state[0] = '\0';
	append_file(state, status, fields);
	if (state[0] && strchr("tTXZ", state[strlen("State:\t")]))
		snprintf(text + strlen(text), TEXT_MAX - strlen(text), "%s %s", path, state);
}

/* --- whether it was harmed --- */

/* The first line of `after` that `before` has not, or the other way round. */
static inline const char *difference(const char *before, const char *after)
{
	static char line[512];
	const char *texts[2] = {after, before};

	for (int i = 0; i < 2; i++)
		for (const char *at = texts[i]; *at; at = strchr(at, '\n') + 1) {
			snprintf(line, sizeof(line), "%.*s", (int)(strchr(at, '\n') - at), at);
			if (!strstr(texts[1 - i], line)) {
				strncat(line, i ? " (missing)" : " (new)",
				        sizeof(line) - strlen(line) - 1);
				return line;
			}
		}
	return "the order";
}

/* Returns NULL if the target is as it was, else what is wrong with it now. */
static inline const char *harm(const struct target *target, const uint64_t *beats)
{
	static char text[TEXT_MAX], message[1024];

	if (kill(target->pid, 0) != 0)
		return "it is dead";
	text[0] = '\0';
	for_each_entry(target->pid, "task", text, append_if_stopped);
	if (text[0]) {
		snprintf(message, sizeof(message), "stopped: %.900s", text);
		return message;
	}
	read_maps(target->pid, text);
	if (strcmp(text, target->maps) != 0) {
		snprintf(message, sizeof(message), "mappings: %s", difference(target->maps, text));
		return message;
	}
	read_identity(target->pid, text);
	if (strcmp(text, target->identity) != 0) {
		snprintf(message, sizeof(message), "%s", difference(target->identity, text));
		return message;
	}
	for (uint64_t i = 1; i <= target->heartbeat[0]; i++)
		if (target->heartbeat[i] == beats[i]) {
			snprintf(message, sizeof(message), "thread %lu makes no progress", i);
			return message;
		}
	return NULL;
}

static inline int remove_entry(const char *path, const struct stat *stat, int type,
                               struct FTW *position)
{
	return position->level > 0 ? remove(path) : 0;
}

static inline void remove_below(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/** Waits until the target is as it was. Returns NULL then, else what is wrong with it. */
static inline const char *target_wait_unharmed(const struct target *target)
{
	uint64_t deadline = now_ns() + RECOVERY_S * 1000000000ULL, beats[COUNTERS_MAX];
	const char *what;

	for (uint64_t i = 1; i <= target->heartbeat[0]; i++)
		beats[i] = target->heartbeat[i];
	while ((what = harm(target, beats)) && now_ns() < deadline)
		sleep_ns(1000000);
	return what;
}

/** Looks at `target->pid` for the first time. */
static inline void target_open(struct target *target, const char *heartbeat)
{
	int fd = open(heartbeat, O_RDONLY | O_CLOEXEC);

	target->heartbeat = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (fd < 0 || target->heartbeat == MAP_FAILED || target->heartbeat[0] >= COUNTERS_MAX)
		errx(2, "%s is no heartbeat", heartbeat);
	/*
	 * A thread that has just been made still blocks all signals; one that counts is on its way.
	 */
	for (uint64_t i = 1; i <= target->heartbeat[0]; i++)
		while (target->heartbeat[i] < 2)
			sleep_ns(1000000);
	read_maps(target->pid, target->maps);
	read_identity(target->pid, target->identity);
}

#endif
