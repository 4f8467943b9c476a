/*
 * The page store as its readers see it: the index, and pages.img mapped as a whole.
 *
 * The mapping is never touched before the kernel was asked to read the part in: a file that was cut
 * off meanwhile, or a disk that fails, is then an error and not a SIGBUS.
 */
#ifndef SEALPOINT_IMAGE_PAGE_STORE_H
#define SEALPOINT_IMAGE_PAGE_STORE_H

#include "image/page_index.h"

struct sp_cached_frame {
	const struct sp_page_store *store; /* whose frame; NULL: empty */
	uint32_t frame;
	uint64_t used; /* the larger, the later */
	const uint8_t *pages;
	struct sp_frame_decoder decoder;
};

#define SP_CACHED_FRAMES 4

struct sp_page_store {
	struct sp_page_store *parent;
	struct sp_page_index index;
	uint8_t *bytes; /* pages.img */
	/* for sp_page_store_read() */
	struct sp_cached_frame cache[SP_CACHED_FRAMES];
	uint64_t uses;
};

/** Where contents of a page really are: the chain of PARENT states is followed. */
struct sp_resolved {
	struct sp_page_store *store;    /* whose run it is */
	const struct sp_index_run *run; /* never PARENT; NULL: these pages were never added */
	uint64_t page, end;             /* for all of these pages it is so */
};

/** Resolves the page at the start of `page` to `end`, and says for how many more it is the same. */
struct sp_resolved sp_page_store_resolve(struct sp_page_store *store, uint32_t object,
                                         uint64_t page, uint64_t end);

/** Brings in a frame as it is stored, checks it, decodes it. `*pages` as sp_frame_decode() says. */
int sp_page_store_frame(const struct sp_page_store *store, uint32_t frame,
                        struct sp_frame_decoder *decoder, const uint8_t **pages,
                        struct sp_error *err);
/** Lets the memory go that reading the frame took; its pages can still be read, a bit slower. */
void sp_page_store_drop(const struct sp_page_store *store, uint32_t frame);

#endif
