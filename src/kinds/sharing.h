/*
 * What processes may share that fork(2) gives each of them for itself: memory, descriptors,
 * directories, signal actions (clone(2)). Each is saved with the first of those who share it; the others
 * name that one.
 */
#ifndef SEALPOINT_KINDS_SHARING_H
#define SEALPOINT_KINDS_SHARING_H

#include <stdbool.h>
#include <sys/types.h>

struct sp_array;
struct sp_error;

struct sp_sharer {
	pid_t pid;
	pid_t living; /* a thread of it that has not ended: the one that is compared */
};

/** With whom a process shares, who comes before it in the tree; 0: with nobody. */
struct sp_sharing {
	pid_t memory;      /* CLONE_VM */
	pid_t descriptors; /* CLONE_FILES */
	pid_t directories; /* CLONE_FS: root, working directory and umask */
	pid_t actions;     /* CLONE_SIGHAND: what signals do */
};

/**
 * Refuses a process that shares anything of this with its parent, which is not saved along, by the names of
 * both: restored, it would have one of its own.
 */
int sp_sharing_check_parent(pid_t pid, struct sp_error *err);
/**
 * Finds out what these processes (struct sp_sharer, each after its parent), which all stand still, share:
 * `sharing` gets a struct sp_sharing for each. Refuses by name what no order of clones could bring back.
 */
int sp_sharing_find(const struct sp_array *processes, struct sp_array *sharing,
                    struct sp_error *err);
/** True if a clone by `bearer`, which shares `has`, can give `pid` all that it wants to share. */
bool sp_sharing_serves(pid_t bearer, struct sp_sharing has, pid_t pid, struct sp_sharing wanted);
/** Only `memory`, of processes that run; refuses nothing. */
void sp_sharing_find_memory(const struct sp_array *processes, struct sp_array *sharing);
bool sp_sharing_is_none(struct sp_sharing sharing);

#endif
