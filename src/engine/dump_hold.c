/*
 * Memory that is held as it was, and saved while the program runs again: see dump_parts.h.
 *
 * Pages are protected while the program still runs, in rounds, each of which protects again what was
 * written during the one before. So the freeze has only the last of them to do. What is to be saved of
 * a page, its contents or that there is nothing, is looked up behind its protection: it is true as long
 * as the page stays protected, and what does not stay so is looked at again by the next round.
 */
#include "engine/dump_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "mem/memory.h"
#include "mem/page_scan.h"
#include "remote/userfaultfd.h"
#include "track/hold.h"

#include <errno.h>
#include <inttypes.h>

/* Copying more than this takes longer than to make the program wait for its first writes. */
#define HOLD_MIN (8ULL << 20)
/* When rounds of protecting end: the freeze can do the rest in no time. */
#define PROTECT_ENOUGH (1ULL << 20)
#define PROTECT_ROUNDS 8

bool sp_dump_is_worth_holding(const struct dump *dump, uint64_t size)
{
	return dump->may_hold && size > HOLD_MIN;
}

static void tell_why_not(const struct dump *dump, const struct sp_error *why)
{
	sp_verbose(dump->options->log, "all memory is saved in the freeze: %s", why->message);
}

static int open_hold(struct dump *dump, int uffd, const struct sp_array *areas,
                     struct sp_error *err)
{
	const struct sp_hold_request request = {
	        .pid = sp_dump_root(dump)->process.pid,
	        .uffd = uffd,
	        .asynchronous = dump->cut->session.memory,
	        .stash = &dump->stash,
	        .areas = areas,
	};

	return sp_hold_open(&dump->hold, &request, err);
}

/* --- in advance --- */

void sp_dump_disarm(struct dump *dump)
{
	if (!dump->armed)
		return;
	dump->armed = false;
	sp_array_clear(&dump->cut->aside);
	sp_array_clear(&dump->held.pages);
	dump->stash = sp_hold_take_stash(dump->hold);
	sp_hold_end(sp_steal_ptr(&dump->hold));
}

/* A thread that ends leaves word of it in memory, which must not be protected: see track/hold.h. */
static void thread_is_ending(void *context)
{
	sp_dump_disarm(context);
}

static bool attend(void *context)
{
	struct dump *dump = context;

	return sp_process_attend(&sp_dump_root(dump)->process) && dump->armed;
}

static int add_populated(void *context, struct sp_range run, uint64_t categories,
                         struct sp_error *err)
{
	sp_ranges_add(context, run);
	return 0;
}

/* Only pages that are there: to protect one that is not takes a page table. */
static int protect_populated(struct dump *dump, const struct sp_array *written,
                             struct sp_error *err)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	sp_cleanup_array struct sp_array populated = SP_ARRAY_OF(struct sp_range);
	int rc = sp_page_scan_open(&scan, sp_dump_root(dump)->process.pid, err);

	for (size_t i = 0; i < written->count && rc >= 0; i++)
		rc = sp_page_scan_walk(&scan, *(struct sp_range *)sp_array_at(written, i),
		                       add_populated, &populated, err);
	if (rc < 0)
		return rc;
	sp_ranges_normalize(&populated);
	rc = sp_hold_protect(dump->hold, &populated, attend, dump);
	return rc < 0 ? sp_fail_errno(err, -rc, "cannot protect memory") : 0;
}

/* What is there of the pages that were written, as a layer; those with contents are to be held. */
static int list_written(struct dump *dump, const struct sp_array *written,
                        struct sp_memory_list *list, struct sp_error *err)
{
	struct task *root = sp_dump_root(dump);
	const struct sp_memory_selection selection = {
	        .changed = written,
	        .changed_only = true,
	        .running = !dump->frozen,
	        .list = list,
	        .aside = &dump->cut->aside,
	        .aside_only = true,
	};
	/* In the freeze, what else there is has just been added to this layer. */
	int rc = dump->frozen ? sp_page_writer_next_layer(dump->writer.pages, err) : 0;

	if (!rc)
		rc = sp_memory_save(root->process.pid, &root->vmas, &selection, dump->writer.pages,
		                    root->memory_object, err);
	sp_ranges_subtract(&dump->held.pages, written);
	sp_ranges_add_all(&dump->held.pages, &list->pages);
	sp_ranges_normalize(&dump->held.pages);
	return rc || dump->frozen ? rc : sp_page_writer_next_layer(dump->writer.pages, err);
}

/* Protects again what was written since the last round. `*size` becomes its bytes. */
static int protect_round(struct dump *dump, const struct sp_array *written, uint64_t *size,
                         struct sp_error *err)
{
	struct sp_memory_list list = {SP_ARRAY_OF(struct sp_range), SP_ARRAY_OF(struct sp_range)};
	int rc = dump->frozen ? 0 : protect_populated(dump, written, err);

	if (!rc)
		rc = list_written(dump, written, &list, err);
	if (!rc && dump->frozen) {
		rc = sp_hold_protect(dump->hold, &list.pages, NULL, NULL);
		if (rc < 0)
			sp_fail_errno(err, -rc, "cannot protect memory");
	}
	*size = sp_ranges_total(&list.pages);
	sp_array_release(&list.pages);
	sp_array_release(&list.areas);
	return rc;
}

static int protect_written(struct dump *dump, uint64_t *size, struct sp_error *err)
{
	sp_cleanup_array struct sp_array written = SP_ARRAY_OF(struct sp_range);
	int rc = sp_hold_written(dump->hold, &written);

	return rc < 0 ? sp_fail_errno(err, -rc, "cannot look for written memory")
	              : protect_round(dump, &written, size, err);
}

static int protect_in_rounds(struct dump *dump, struct sp_error *err)
{
	uint64_t size = 0, before;
	int rounds = 1, rc = protect_round(dump, &dump->cut->aside, &size, err);

	do {
		before = size;
		if (!rc && !attend(dump))
			rc = sp_fail(err, ECANCELED, "the program ends a thread");
		if (!rc)
			rc = protect_written(dump, &size, err);
		if (!rc)
			sp_verbose(dump->options->log, "round %d of protecting: %" PRIu64 " KiB",
			           ++rounds, size >> 10);
	} while (!rc && size > PROTECT_ENOUGH && size < before && rounds < PROTECT_ROUNDS);
	return rc;
}

static int arm(struct dump *dump, const struct sp_array *areas, struct sp_error *err)
{
	struct task *root = sp_dump_root(dump);
	pid_t pid = root->process.pid;
	uint64_t deadline = sp_now_ns() + dump->options->timeout_ns;
	int rc = sp_userfaultfd_of(pid, &root->foothold, sp_remote_userfaultfd_for_kernel, deadline,
	                           err);

	if (rc >= 0)
		rc = open_hold(dump, rc, areas, err);
	if (rc < 0)
		return rc;
	dump->armed = true;
	sp_ranges_add_all(&dump->cut->aside, areas);
	rc = sp_process_watch(&root->process, pid, err);
	root->process.ending = thread_is_ending;
	root->process.ending_context = dump;
	return rc < 0 ? rc : protect_in_rounds(dump, err);
}

bool sp_dump_arm(struct dump *dump)
{
	sp_cleanup_array struct sp_array areas = SP_ARRAY_OF(struct sp_range);
	struct task *root = sp_dump_root(dump);
	struct sp_error failure = {0};

	for (size_t i = 0; i < root->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&root->vmas, i);

		if (sp_memory_is_worth_holding(vma, &dump->cut->changed))
			sp_array_append(&areas, &vma->range);
	}
	if (!areas.count)
		return false;
	sp_cut_not_saved(dump->cut);
	if (arm(dump, &areas, &failure) < 0) {
		sp_verbose(dump->options->log, "memory is protected in the freeze: %s",
		           failure.message);
		sp_dump_disarm(dump);
	}
	return true;
}

/* --- in the freeze --- */

/*
 * Before the pages are looked at: whether much has to be read. What cannot be held is read in the
 * freeze.
 */
void sp_dump_prepare_hold(struct dump *dump)
{
	struct sp_error failure = {0};

	if (dump->armed || !sp_dump_is_worth_holding(dump, sp_ranges_total(&dump->cut->changed)))
		return;
	dump->hold_uffd = sp_remote_userfaultfd_for_kernel(&sp_dump_root(dump)->remote, &failure);
	if (dump->hold_uffd < 0)
		tell_why_not(dump, &failure);
}

/* The pages are protected, unless that was not begun in advance. */
static int protect_all(struct dump *dump, struct sp_error *err)
{
	uint64_t *size = &dump->result->protected_bytes;
	int rc;

	if (dump->armed)
		return protect_written(dump, size, err);
	*size = sp_ranges_total(&dump->held.pages);
	rc = open_hold(dump, sp_steal_fd(&dump->hold_uffd), &dump->held.areas, err);
	if (rc == 0)
		rc = sp_hold_protect(dump->hold, &dump->held.pages, NULL, NULL);
	return rc < 0 && !err->code ? sp_fail_errno(err, -rc, "cannot protect memory") : rc;
}

static bool begin_hold(struct dump *dump)
{
	struct sp_error failure = {0};
	int rc = protect_all(dump, &failure);

	dump->armed = false;
	sp_array_clear(&dump->cut->aside);
	if (rc == 0)
		rc = sp_hold_begin(dump->hold, &dump->held.pages, &sp_dump_root(dump)->last_words,
		                   &failure);
	if (rc == 0)
		return true;
	tell_why_not(dump, &failure);
	sp_hold_end(sp_steal_ptr(&dump->hold));
	return false;
}

/* Holds the pages that were listed if they are many, or else saves them now. */
int sp_dump_hold_pages(struct dump *dump, struct sp_error *err)
{
	const struct task *root = sp_dump_root(dump);
	bool held =
	        (dump->armed || sp_ranges_total(&dump->held.pages) > HOLD_MIN) && begin_hold(dump);
	int rc = dump->held.pages.count ? sp_page_writer_next_layer(dump->writer.pages, err) : 0;

	return rc || held ? rc
	                  : sp_memory_save_listed(root->process.pid, &dump->held.pages, NULL,
	                                          dump->writer.pages, root->memory_object, err);
}

/* --- while the program runs --- */

int sp_dump_save_held(struct dump *dump, struct sp_error *err)
{
	const struct task *root = sp_dump_root(dump);
	const struct sp_page_source source = {.read = sp_hold_read, .context = dump->hold};
	int rc = sp_memory_save_listed(root->process.pid, &dump->held.pages, &source,
	                               dump->writer.pages, root->memory_object, err);

	dump->result->held_bytes = sp_ranges_total(&dump->held.pages);
	dump->result->held_writes = sp_hold_faults(dump->hold);
	sp_hold_end(sp_steal_ptr(&dump->hold));
	return rc;
}
