/*
 * The verbs: what a command asks for, and the order in which things happen. Each verb takes its
 * options and fills in a result; messages are the command's business (errors come back in struct
 * sp_error).
 *
 * A verb runs in one thread of a process that does nothing else; it may raise its own soft limit of
 * open files and block signals while a target is under its hands.
 */
#ifndef SEALPOINT_ENGINE_ENGINE_H
#define SEALPOINT_ENGINE_ENGINE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/cut.h"
#include "image/pages.h"
#include "kinds/kind.h"
#include "remote/process.h"

#include <limits.h>
#include <sys/types.h>

/** Moments of a dump or a restore at which somebody else may have something to do. The program stands still. */
enum sp_moment {
	SP_MOMENT_NETWORK_LOCK,   /* dump: before TCP connections are locked, if they are saved */
	SP_MOMENT_NETWORK_UNLOCK, /* before they may go on, after a dump that has failed, too */
	SP_MOMENT_SAVED,          /* dump: the checkpoint is on disk, and stays */
	SP_MOMENT_BORN,           /* restore: the processes exist, and nothing else */
	SP_MOMENT_RESTORED,       /* restore: all is done but the last step */
};

/**
 * Called at each of these moments with the root process. If it fails, the verb fails, and the program is let go
 * accordingly; but a dump that ends only warns. `call` NULL: nothing is called.
 */
struct sp_hook {
	int (*call)(void *context, enum sp_moment moment, pid_t pid, struct sp_error *err);
	void *context;
};

static inline int sp_hook_call(const struct sp_hook *hook, enum sp_moment moment, pid_t pid,
                               struct sp_error *err)
{
	return hook->call ? hook->call(hook->context, moment, pid, err) : 0;
}

/* --- dump --- */

#define SP_DUMP_TIMEOUT_NS (10 * SP_NS_PER_S)
#define SP_DUMP_UNLINKED_LIMIT (1ULL << 30)

struct sp_dump_options {
	pid_t pid;
	const char *directory;
	bool replace; /* what is there is a checkpoint, and this one takes its place in one step */
	enum sp_release after;       /* SP_RELEASE_KILL, SP_RELEASE_RUN or SP_RELEASE_STOP */
	int compression;             /* zstd level or SP_COMPRESS_NONE */
	uint64_t timeout_ns;         /* for stopping the threads */
	enum sp_cut_session session; /* whether its writes are tracked */
	const char *parent; /* a checkpoint to stand on, if the session allows it; NULL: none */
	struct sp_cuts
	        *chain; /* go on from dump to dump (snapshots); NULL: cuts of this dump's own */
	struct sp_array *room; /* likewise, for what is read: see sp_page_room_free(); or NULL */
	bool memory_only;    /* a pre-dump: the program is not stopped, and `after` means nothing */
	struct sp_hook hook; /* a program that is to run on waits for SP_MOMENT_SAVED */
	const char *
	        freeze_cgroup; /* the directory of a control group that is frozen first; NULL: none */
	struct sp_kind_options kinds;
	struct sp_log *log;
};

/** Where the freeze went, in nanoseconds; the parts do not have to add up to the whole. */
struct sp_freeze {
	uint64_t total_ns;
	uint64_t stop_ns;  /* stopping the threads, registers */
	uint64_t state_ns; /* facets of process and threads */
	uint64_t descriptors_ns;
	uint64_t mappings_ns; /* the list of mappings */
	uint64_t memory_ns;   /* page states, and contents until all were read */
};

struct sp_dump_result {
	struct sp_freeze freeze;
	uint64_t held_bytes;      /* saved after the freeze, as they were in it */
	uint64_t protected_bytes; /* of these, in the freeze and not before */
	uint64_t held_writes;     /* of the program, that waited for their page to be copied */
	struct sp_page_stats pages;
	uint64_t image_bytes; /* all files of the checkpoint */
	uint64_t total_ns;
	unsigned processes, threads, mappings, descriptors;
	unsigned connections; /* that are locked until they are restored */
};

/**
 * Saves a process with all its descendants to a new checkpoint directory. With a tracking session,
 * memory is saved in rounds while the program runs, and the freeze only covers what was written since;
 * if that is much, and the program is to run on, it is held as it is (track/hold.h) and saved after
 * the freeze. On failure the target runs on as before and the directory does not exist. The target is
 * killed (or left stopped) only after the commit.
 */
int sp_dump(const struct sp_dump_options *options, struct sp_dump_result *result,
            struct sp_error *err);

/**
 * False if the target, or a descendant of it, could be harmed should the calling process be killed
 * while it drives the target, as most of these functions do (docs/architecture.md): then somebody
 * should stand in front of that process. (dump_tree.c)
 */
bool sp_target_survives(pid_t pid);

/* --- snapshots (snapshot.c) --- */

struct sp_snapshot_options {
	struct sp_dump_options dump; /* pid, compression, timeout, kinds, log; the rest is set */
	const char *store;           /* a directory of its own; made if it is not there */
	uint64_t every_ns;           /* from one freeze to the next; 0: as fast as it goes */
	unsigned share; /* percent of all processors, and of the program's time, that it may take */
	unsigned count; /* how many to make; 0: until the program ends, or an interrupt */
	unsigned keep;  /* how many stay restorable, at least 1 */
	unsigned max_chain; /* how many older ones may pile up before they are merged */
	/* Told of each snapshot when it is safe on disk; may be NULL. */
	void (*made)(void *context, const char *path, const struct sp_dump_result *result);
	void *context;
};

struct sp_snapshot_result {
	unsigned made, skipped; /* skipped: memory was being changed just then, see the warnings */
	char newest[PATH_MAX];  /* "" if there is none */
	bool program_ended;
};

/**
 * Makes checkpoints of a running program at intervals, each standing on the one before, in a store:
 * directories 00000001, 00000002, ... and a link "latest" to the newest. Old ones are merged into
 * one and removed, in the background. Whatever happens, the power too, the newest complete one can
 * be restored. Goes on with the numbers of a store that is there. EBUSY: another process is making
 * snapshots in this store.
 */
int sp_snapshot(const struct sp_snapshot_options *options, struct sp_snapshot_result *result,
                struct sp_error *err);

/* --- tracking (tracking.c) --- */

struct sp_tracking_status {
	pid_t pid;
	bool tracked;
	enum sp_session_backend backend;
	uint8_t id[SP_SESSION_ID_SIZE];
	uint64_t generation; /* of the last cut */
	pid_t holder;
	uint64_t tracked_bytes; /* mappings that are in the session */
	uint64_t written_bytes; /* in them, since the last cut: populated pages only */
};

/*
 * These are about a process and all its descendants, as they are found while they run. A struct
 * sp_tracking_status of each is appended to `statuses`, which may be NULL: that of the process first,
 * those of descendants behind their parents'.
 */

/**
 * Begins to track the writes of each: makes a session, and takes once, so that all mappings are in it.
 * EEXIST if all have a session already. On failure there are no more sessions than before.
 */
int sp_tracking_start(pid_t pid, enum sp_session_backend backend, struct sp_array *statuses,
                      struct sp_error *err);
int sp_tracking_read_status(pid_t pid, struct sp_array *statuses, struct sp_error *err);
/** Ends the session of each. ENOENT if there is none. */
int sp_tracking_stop(pid_t pid, struct sp_array *statuses, struct sp_error *err);
/** True if this one process has a session. */
bool sp_tracking_is_on(pid_t pid);

/* --- restore --- */

struct sp_restore_options {
	const char *directory;
	bool leave_stopped;  /* with SIGSTOP, before the first instruction of the program */
	bool sibling;        /* the root becomes a child of our parent, not of us */
	const char *pidfile; /* written before the program runs; may be NULL */
	struct sp_hook hook;
	struct sp_kind_options kinds;
	struct sp_log *log;
};

struct sp_restore_result {
	pid_t pid;                  /* of the root */
	struct sp_page_stats pages; /* of the whole chain */
	uint64_t total_ns;
	uint64_t memory_ns; /* mapping and filling */
	unsigned processes, threads, mappings, descriptors;
};

/**
 * Brings the processes of a checkpoint back, the root as a child of the calling process or its sibling, and lets
 * them run. On failure no process is left and the checkpoint is untouched.
 */
int sp_restore(const struct sp_restore_options *options, struct sp_restore_result *result,
               struct sp_error *err);

/* --- unlock (unlock.c) --- */

/** Does a lock wait here for the restore of this checkpoint? */
bool sp_checkpoint_has_lock(const char *directory);
/** Gives up the connections of the checkpoint that a dump has locked. ENOENT: they are not locked. */
int sp_unlock_checkpoint(const char *directory, struct sp_error *err);
/**
 * Lets a running program have its connections again that a killed dump has left in repair mode. `*count`
 * is how many there were.
 */
int sp_unlock_process(pid_t pid, unsigned *count, struct sp_error *err);

/* --- check --- */

enum sp_need { SP_NEEDED_ALWAYS, SP_NEEDED_SOMETIMES };

struct sp_feature {
	const char *name; /* "PAGEMAP_SCAN" */
	bool present;
	enum sp_need need;
	const char *purpose; /* what it is needed for */
	const char *since;   /* "Linux 6.7", "CAP_CHECKPOINT_RESTORE" */
	char detail[128];    /* why not, or what was found; may be empty */
};

/** Tries out each kernel feature and capability. `features` holds struct sp_feature. */
int sp_check_features(struct sp_array *features, struct sp_error *err);

/* --- inspect --- */

struct sp_mapping_summary {
	const Sealpoint__Vma *vma;
	uint64_t pages[SP_PAGE_STATES]; /* of 4 KiB, whatever the mapping's page size */
};

/**
 * Counts the page states of each mapping of a process. `summaries` holds struct sp_mapping_summary.
 */
int sp_summarize_mappings(struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                          struct sp_array *summaries, struct sp_error *err);

/* --- survey --- */

struct sp_survey_options {
	pid_t pid;
	struct sp_kind_options kinds; /* what a dump with these would refuse */
	struct sp_log *log;
};

struct sp_survey {
	struct sp_array refusals; /* struct sp_error: all that stands in the way of a dump */
	/* What a dump would have, without manifest and pages; NULL if the process cannot be stopped. */
	struct sp_checkpoint *checkpoint;
	struct sp_array mappings; /* struct sp_mapping_summary: pages of the running process */
	uint64_t stopped_ns;      /* how long it stood still */
};

/**
 * Looks at a running process as a dump would, and lets it run on. Fails only if it cannot be looked at: what
 * a dump would refuse is part of the result.
 */
int sp_survey(const struct sp_survey_options *options, struct sp_survey *survey,
              struct sp_error *err);
void sp_survey_release(struct sp_survey *survey);

/* --- merge --- */

struct sp_merge_options {
	const char *directory;
	const char *output; /* a new directory; NULL: the result takes the place of `directory` */
	int compression;    /* zstd level or SP_COMPRESS_NONE */
	struct sp_log *log;
};

struct sp_merge_result {
	struct sp_page_stats pages;
	uint64_t image_bytes; /* all files of the new checkpoint */
	uint64_t total_ns;
	unsigned checkpoints; /* how many have become one */
};

/**
 * Writes a checkpoint and all that it stands on as one that stands alone. It is the same checkpoint
 * in another form, and has the same id: those that stand on the one can stand on the other.
 */
int sp_merge(const struct sp_merge_options *options, struct sp_merge_result *result,
             struct sp_error *err);

/* --- diff --- */

/** A stretch of addresses that is not the same in both; `before` or `after` is NULL if it was not there. */
struct sp_mapping_change {
	const Sealpoint__Vma *before, *after;
	struct sp_range range; /* afterwards; before, of what is gone */
	uint64_t moved_from;   /* where it began before; the same address if it was not moved */
	struct sp_page_comparison pages;
};

/** A thread, descriptor or facet that is not the same in both; one of them may be NULL. */
struct sp_thread_change {
	const Sealpoint__Thread *before, *after;
	bool registers; /* it is in both, and these are not the same */
};
struct sp_descriptor_change {
	const Sealpoint__Descriptor *before, *after;
};
struct sp_facet_change {
	const Sealpoint__Facet *before, *after;
	uint32_t tid; /* 0: of the process */
};

struct sp_difference {
	struct sp_checkpoint *before, *after;
	const Sealpoint__Process *process_before, *process_after;
	struct sp_array mappings;         /* struct sp_mapping_change */
	struct sp_array threads;          /* struct sp_thread_change */
	struct sp_array descriptors;      /* struct sp_descriptor_change */
	struct sp_array facets;           /* struct sp_facet_change */
	struct sp_page_comparison memory; /* of mappings that are in both */
	struct sp_page_comparison files;  /* of files without a name, and of shared memory */
};

/**
 * Compares a process in two checkpoints, of one chain or not, by what their chains say. `pid` 0 is the
 * only one that there is: ENOTSUP for a tree.
 */
int sp_diff(const char *before, const char *after, pid_t pid, struct sp_difference *difference,
            struct sp_error *err);
void sp_difference_release(struct sp_difference *difference);

/* --- core --- */

/**
 * Writes an ELF core file of a process of the checkpoint: all threads, registers, mappings and
 * memory.
 */
int sp_write_core(struct sp_checkpoint *checkpoint, const Sealpoint__Process *process,
                  const char *path, struct sp_log *log, struct sp_error *err);

#endif
