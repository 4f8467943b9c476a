/*
 * The page store as its readers see it: an index of all that a chain of checkpoints says together,
 * and pages.img, open.
 *
 * Where the index of a store says PARENT, what the store below it says is put in its place, and so
 * on down the chain. So a page is found in one step, however long the chain is, and of the stores
 * below nothing is needed any more but their frames.
 *
 * pages.img is read and never mapped: the kernel maps as much as it likes around a page that is
 * touched, and memory would grow with the file; and one that is cut off meanwhile is an error, not a
 * SIGBUS.
 */
#ifndef SEALPOINT_IMAGE_PAGE_STORE_H
#define SEALPOINT_IMAGE_PAGE_STORE_H

#include "image/page_index.h"

/** A frame of one of the stores of a chain. */
struct sp_chain_frame {
	const struct sp_page_store *store;
	uint32_t number; /* in that store */
};

struct sp_cached_frame {
	bool used_before;     /* has a decoder */
	uint32_t frame;       /* of the chain */
	uint64_t used;        /* the larger, the later */
	const uint8_t *pages; /* NULL: could not be read */
	struct sp_frame_decoder decoder;
};

#define SP_CACHED_FRAMES 16

struct sp_page_store {
	struct sp_page_index index; /* its DATA runs have frames by their numbers in `frames` */
	struct sp_array frames;     /* struct sp_chain_frame: its own first, then those below */
	struct sp_page_stats stats; /* of what this store alone says, once `counted` */
	bool counted;
	int fd;                 /* pages.img */
	uint64_t device, inode; /* of pages.img */
	/* for sp_page_store_read() */
	struct sp_cached_frame cache[SP_CACHED_FRAMES];
	uint64_t uses;
};

/** Opens a store and checks it. PARENT pages are not resolved yet. */
int sp_page_store_open_alone(struct sp_page_store **store, int dirfd, struct sp_error *err);
/**
 * Puts what `below`, the parent of the store (or of the one that was looked through last) says in
 * the place of PARENT. That must live as long. Fails if it does not know such a page.
 */
int sp_page_store_look_through(struct sp_page_store *store, const struct sp_page_store *below,
                               struct sp_error *err);
/** Fails if there is a PARENT page left: all of the chain was looked through. */
int sp_page_store_check_whole(const struct sp_page_store *store, struct sp_error *err);
/** Frees all but what those that have looked through it need. */
void sp_page_store_retire(struct sp_page_store *store);

/** A frame of the chain that the store is the youngest of. */
static inline const struct sp_chain_frame *sp_page_store_chain_frame(
        const struct sp_page_store *store, uint32_t frame)
{
	return sp_array_at(&store->frames, frame);
}

/** Reads a frame, checks it, decodes it. `*pages` are the decoder's, until it is used again. */
int sp_chain_frame_read(const struct sp_chain_frame *frame, struct sp_frame_decoder *decoder,
                        const uint8_t **pages, struct sp_error *err);

#endif
