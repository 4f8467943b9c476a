/*
 * What the parts of random_tree share: chance, names, descriptors to choose from, and steps. A step is something
 * that a process does at random: it makes an object, or changes something about itself. To add a kind of object is
 * to add a step to a table, and to observe.py what can be seen of it from outside.
 */
#ifndef SEALPOINT_TESTS_RANDOM_H
#define SEALPOINT_TESTS_RANDOM_H

#include "subjects/subject.h"

#include <stdint.h>
#include <sys/types.h>

enum { HOURS = 100000 }; /* in seconds: so long that nothing happens */
enum { PROCESSES_MAX = 18, DEPTH_MAX = 4 };

struct step {
	const char *name;
	void (*take)(void);
	unsigned weight;
};

/* Each ends with one that has no name. */
extern const struct step attribute_steps[], file_steps[], terminal_steps[], socket_steps[],
        event_steps[], memory_steps[], ipc_steps[];

/* In memory that all processes share. */
struct family {
	atomic_uint processes, names;
	atomic_bool waits[PROCESSES_MAX];
	_Atomic pid_t pids[PROCESSES_MAX];
};

extern struct family *family;

/* --- chance: each process has its own, which its parent's begins --- */

void begin_chance(uint64_t seed);
uint64_t draw(void);
unsigned below(unsigned n);
bool chance(unsigned percent);

/** "thing.17", which no other process takes. */
const char *new_name(const char *thing);
/** The number of a new name. */
unsigned new_number(void);

/* --- descriptors --- */

/** Notes a new descriptor for any_file(), and returns it; ends the subject if there is none. */
int keep(int fd, const char *what);
void keep_or_close(int fd, unsigned percent_kept);
/** One that is open: of those kept, or the pipe that all wait for. */
int any_file(void);
/** Closes one of those kept, if there are any. */
void close_any(void);

/** Writes something to a descriptor that does not block: nothing, or up to three times. */
void fill(int fd);
void write_pages(char *memory, size_t pages);

#endif
