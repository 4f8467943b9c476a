/*
 * What a write-watch backend is: a way to find out which pages of one's own memory were written.
 * write_watch.c checks arguments, merges mirrors and gives results their form; a backend arms memory
 * and reports the written pages of one mapping, with or without a reset. Everything here belongs to
 * libsealpoint-watch: it needs nothing but libc.
 */
#ifndef SEALPOINT_TRACK_BACKEND_H
#define SEALPOINT_TRACK_BACKEND_H

#include "base/kernel_abi.h"
#include "base/range.h"
#include "sealpoint/write_watch.h"

#include <pthread.h>

/** One mapping of the watched memory. */
struct sp_watch_area {
	struct sp_range range;
	uint64_t *written; /* a bit for each page, for backends that keep their own account */
};

struct sp_write_watch {
	const struct sp_watch_backend *backend;
	unsigned guarantees;
	uint64_t page_size;
	/* On a page that fork(2) clears: false in a child. */
	const bool *own_process;

	/* Of the backends, as they need it; -1: none. */
	int uffd;
	int pagemap;
	int clear_refs;
	int stop;
	pthread_t thread;
	bool has_thread;
	bool unmapped; /* a part was, and may be mapped anew */
	pthread_mutex_t lock;
	struct sp_write_watch *next; /* watch_list.h */

	size_t count;
	size_t armed; /* so many areas are this watch's for certain */
	struct sp_watch_area areas[];
};

struct sp_watch_backend {
	enum sp_write_watch_backend id;
	const char *name;
	/** Keeps account in sp_watch_area.written. */
	bool accounts;
	/** Prepares, and sets the guarantees. -EOPNOTSUPP: this kernel cannot do it. */
	int (*open)(struct sp_write_watch *watch);
	/**
	 * Starts to watch pages of an area. -EINVAL: not in parts of this size, pages are larger.
	 */
	int (*arm)(struct sp_write_watch *watch, struct sp_range range);
	/**
	 * Undoes open and arm, however far they came: areas that were not armed may be somebody
	 * else's in part. In a child of fork(2) only what belongs to the child may be touched.
	 */
	void (*close)(struct sp_write_watch *watch);
	/**
	 * Reports written pages of an area as regions and moves `range->start` on, as sp_scan_written()
	 * and sp_scan_take(); `max_pages` counts pages of `page_size`, 0 means no limit. It may report
	 * nothing and leave `range` as it was: then it wants to be called again.
	 */
	int (*get)(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
	           bool reset, struct page_region *regions, size_t room, uint64_t max_pages);
	/** As get with a reset, for nothing but the reset. NULL: get does it. */
	int (*reset)(struct sp_write_watch *watch, struct sp_range range);
};

extern const struct sp_watch_backend sp_watch_backend_scan;       /* backend_scan.c */
extern const struct sp_watch_backend sp_watch_backend_userfault;  /* backend_userfault.c */
extern const struct sp_watch_backend sp_watch_backend_soft_dirty; /* backend_soft_dirty.c */
extern const struct sp_watch_backend sp_watch_backend_mprotect;   /* backend_mprotect.c */

/* --- the account of written pages; the caller holds the lock that guards it --- */

/** The area that contains an address, or NULL. */
struct sp_watch_area *sp_watch_area_at(struct sp_write_watch *watch, uint64_t address);

/** Notes pages as written: what of `range` lies in the areas of the watch. */
void sp_watch_note(struct sp_write_watch *watch, struct sp_range range);

/** Reports noted pages as sp_watch_backend.get; `forget` takes them out of the account. */
int sp_watch_noted(struct sp_write_watch *watch, struct sp_watch_area *area, struct sp_range *range,
                   bool forget, struct page_region *regions, size_t room, uint64_t max_pages);

#endif
