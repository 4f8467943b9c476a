/*
 * Layers of the page index laid over each other.
 *
 * A program that runs while it is saved is saved in rounds: each adds, in a layer of its own, the
 * pages that were written since the round before. Of each page the topmost layer counts, and PARENT
 * there means "as below": it counts only where no layer has anything else.
 *
 * One sweep over the runs, sorted by object, page and layer, with the open run of each layer. A
 * visible piece ends where its run ends or where the next run begins: so there are at most two for
 * each run, and each is found with a bit operation, whatever the number of layers.
 */
#include "image/page_index.h"

#define LAYER_BIT(run) (1ULL << (run)->layer)

_Static_assert(SP_PAGE_LAYERS <= 64, "a bit for each layer");

struct sweep {
	struct sp_array flat;
	const struct sp_index_run *open[SP_PAGE_LAYERS]; /* of each layer; may have ended */
	uint64_t telling;                                /* layers with an open run, not PARENT */
	uint64_t parent;                                 /* layers with an open PARENT run */
};

static bool goes_on(const struct sp_index_run *before, const struct sp_index_run *run)
{
	if (before->object != run->object || before->page + before->pages != run->page ||
	    before->state != run->state)
		return false;
	if (run->state == SP_PAGE_COMMON || run->state == SP_PAGE_PARENT)
		return before->origin == run->origin;
	return run->state != SP_PAGE_DATA ||
	       (before->frame == run->frame && before->place + before->pages == run->place);
}

void sp_page_runs_append(struct sp_array *runs, const struct sp_index_run *run, uint64_t page,
                         uint64_t end)
{
	struct sp_index_run *before = runs->count ? sp_array_at(runs, runs->count - 1) : NULL;
	struct sp_index_run piece = sp_index_run_part(run, page, end);

	if (before && goes_on(before, &piece))
		before->pages += piece.pages;
	else
		sp_array_append(runs, &piece);
}

/* The open run of the topmost of `layers` that goes on behind `page`, or NULL. */
static const struct sp_index_run *topmost(const struct sweep *sweep, uint64_t *layers,
                                          uint64_t page)
{
	while (*layers) {
		unsigned layer = 63 - (unsigned)__builtin_clzll(*layers);
		const struct sp_index_run *run = sweep->open[layer];

		if (run->page + run->pages > page)
			return run;
		*layers &= ~(1ULL << layer);
	}
	return NULL;
}

/* Appends what is visible from `page` to `end`, where no run begins in between. */
static void sweep_to(struct sweep *sweep, uint64_t page, uint64_t end)
{
	while (page < end) {
		const struct sp_index_run *run = topmost(sweep, &sweep->telling, page);
		uint64_t run_end;

		if (!run)
			run = topmost(sweep, &sweep->parent, page);
		if (!run)
			return;
		run_end = run->page + run->pages;
		if (run_end > end)
			run_end = end;
		sp_page_runs_append(&sweep->flat, run, page, run_end);
		page = run_end;
	}
}

static void open_run(struct sweep *sweep, const struct sp_index_run *run)
{
	sweep->open[run->layer] = run;
	sweep->telling &= ~LAYER_BIT(run);
	sweep->parent &= ~LAYER_BIT(run);
	*(run->state == SP_PAGE_PARENT ? &sweep->parent : &sweep->telling) |= LAYER_BIT(run);
}

void sp_page_layers_flatten(struct sp_array *runs)
{
	struct sweep sweep = {.flat = SP_ARRAY_OF(struct sp_index_run)};

	for (size_t i = 0; i < runs->count; i++) {
		const struct sp_index_run *run = sp_array_at(runs, i), *next = run + 1;
		bool last = i + 1 == runs->count || next->object != run->object;

		open_run(&sweep, run);
		sweep_to(&sweep, run->page, last ? SP_INDEX_PAGES_END : next->page);
		if (last)
			sweep.telling = sweep.parent = 0;
	}
	sp_array_release(runs);
	*runs = sweep.flat;
}
