/*
 * Watching which pages of a running program are written, interval by interval (sealpoint watch): of a process and
 * all its descendants, as a dump would save them.
 *
 *	sp_watch_open()		stops each process for a moment, if a session has to be made
 *	sp_watch_next()		waits for the end of an interval; what was written is in the samples
 *	sp_watch_close()
 *
 * Each process has a sampler (watch.c), and the watch sees to it that all look at the same moments (watch_tree.c). A
 * child that begins is found at the end of an interval, and is watched from then on.
 *
 * A process without a tracking session gets one for its sampler alone: at the end of each interval
 * what was written is taken, and protected again. Within the interval the set that has been written so
 * far is only read, after 10 ms, 100 ms, ...: so large would a pre-copy round of that length be.
 *
 * On the session that a holder keeps stands somebody's chain of checkpoints, and to take from it would
 * make the next delta a full dump. There the sampler only reads, and tells how the set that has been
 * written since the last cut grows: a page counts once, when it is written first.
 *
 * Only pages with contents count: no holes, and no pages that still are a file's or all zero. Pages
 * are of 4 KiB, whatever the mapping's page size. Memory is bounded by the number of mappings.
 */
#ifndef SEALPOINT_ENGINE_WATCH_H
#define SEALPOINT_ENGINE_WATCH_H

#include "mem/vma.h"
#include "track/session.h"

struct page_region;

#define SP_SAMPLE_CELLS 64
#define SP_SAMPLE_ROUNDS 5

/** A mapping whose writes are seen. */
struct sp_sample_mapping {
	struct sp_range range; /* first: mappings are searched by address */
	const struct sp_vma *vma;
	uint64_t
	        dirtied; /* pages written in the interval; with a held session: for the first time */
	uint64_t written; /* the written set: of the interval, or since the last cut */
	uint32_t cells[SP_SAMPLE_CELLS]; /* the written set by address: see sp_sample_cell() */
};

/** How much a pre-copy round of this length would have to send. */
struct sp_sample_round {
	uint64_t length_ns; /* as measured */
	uint64_t pages;
};

enum sp_sample_event {
	SP_SAMPLE_EXEC = 1, /* it has executed another program; watched is the new one */
	SP_SAMPLE_CUT = 2,  /* somebody has cut: the written set has begun anew */
	SP_SAMPLE_ENDED =
	        4, /* the session that a holder had has ended; now there is one of our own */
};

struct sp_sample {
	uint64_t time_ns;          /* since the watch began */
	uint64_t interval_ns;      /* as measured */
	unsigned events;           /* enum sp_sample_event */
	bool held;                 /* the session is a holder's */
	uint64_t generation;       /* of the held session */
	uint64_t dirtied, written; /* pages, of all mappings */
	uint64_t resident_bytes, tracked_bytes;
	uint64_t untracked_bytes; /* shared memory, or registered by another */
	struct sp_sample_round rounds[SP_SAMPLE_ROUNDS]; /* of all; none with a held session */
	unsigned round_count;
	unsigned appeared, vanished; /* mappings, in the interval */
	struct sp_array mappings;    /* struct sp_sample_mapping, ascending */
};

/** One process. */
struct sp_sampler {
	pid_t pid;
	int pidfd, pagemap;
	struct sp_session session; /* our own, or none */
	uint8_t held_id[SP_SESSION_ID_SIZE];
	uint64_t opened_ns;
	uint64_t begun_ns; /* the interval */
	char *maps;        /* the text from which `vmas` was made */
	struct sp_array vmas;
	struct page_region *regions;
	struct sp_sample sample;
};

struct sp_watch {
	struct sp_array samplers; /* struct sp_sampler *: the root's first */
	unsigned begun, ended;    /* descendants, since the last sample */
	unsigned unwatched;       /* descendants that could not be watched just now */
	struct sp_sample sum;     /* of all; it has no mappings */
};

#define sp_cleanup_watch __attribute__((cleanup(sp_watch_close)))

static inline struct sp_sampler *sp_watch_sampler(const struct sp_watch *watch, size_t index)
{
	return sp_array_pointer(&watch->samplers, index);
}

/** Can be closed, also when it failed. */
int sp_watch_open(struct sp_watch *watch, pid_t root, struct sp_error *err);
/**
 * Waits until `interval_ns` have passed since the last call and samples. Returns 1; 0 if the root has
 * ended. EINTR when a signal that asks to end has come (base/interrupt.h).
 */
int sp_watch_next(struct sp_watch *watch, uint64_t interval_ns, struct sp_error *err);
/** Ends the sessions that were made for it. */
void sp_watch_close(struct sp_watch *watch);

/* --- one process --- */

/** Can be closed, also when it failed. */
int sp_sampler_open(struct sp_sampler *sampler, pid_t pid, struct sp_error *err);
/** Brings the list of mappings up to date, and counts the pages written so far; nothing is taken. */
int sp_sampler_look(struct sp_sampler *sampler, uint64_t *pages, struct sp_error *err);
/**
 * Ends an interval. If it has executed another program, or the session that was held has ended, that is an
 * event, nothing else is known, and the next interval is of what there is now.
 */
int sp_sampler_take(struct sp_sampler *sampler, struct sp_error *err);
/** True if the process ends within this time. */
bool sp_sampler_ends_within(const struct sp_sampler *sampler, int ms);
void sp_sampler_close(struct sp_sampler *sampler);

/** How many cells a mapping has: SP_SAMPLE_CELLS, or one for each page. */
unsigned sp_sample_cell_count(struct sp_range mapping);
/** The addresses of a cell: all cells of a mapping are equally large, as far as whole pages allow. */
struct sp_range sp_sample_cell(struct sp_range mapping, unsigned cell);

#endif
