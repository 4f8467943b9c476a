/* `sealpoint diff`: what changed between two checkpoints. */
#include "cli/cli.h"

#include "base/cleanup.h"
#include "cli/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct sp_option options[] = {
        {'p', "pid", "PID", "which process of a tree"},
        {0},
};

/* --- mappings --- */

/* What happened to a stretch, in one word. */
static const char *mapping_word(const struct sp_mapping_change *change)
{
	if (!change->before)
		return "new";
	if (!change->after)
		return "gone";
	return change->moved_from != change->range.start ? "moved" : "changed";
}

static const Sealpoint__Vma *mapping_subject(const struct sp_mapping_change *change)
{
	return change->after ? change->after : change->before;
}

static const char *subject_name(const Sealpoint__Vma *vma)
{
	if (vma->kind == SP_VMA_SHARED_ANON)
		return "shared anonymous";
	return vma->path[0] ? vma->path : vma->name;
}

/* "(was rw-p at 7f0000000000)": what a number of pages does not tell. */
static char *mapping_history(const struct sp_mapping_change *change)
{
	char before[5], after[5];

	if (!change->before || !change->after)
		return sp_strdup("");
	sp_vma_describe_prot((int)change->before->prot, change->before->flags, before);
	sp_vma_describe_prot((int)change->after->prot, change->after->flags, after);
	if (change->moved_from != change->range.start)
		return sp_format(" (was %s at %" PRIx64 ")", before, change->moved_from);
	if (strcmp(before, after) != 0)
		return sp_format(" (was %s)", before);
	return sp_strdup(change->before->flags != change->after->flags ? " (other flags)" : "");
}

static size_t print_count(uint64_t count)
{
	return (size_t)(count ? printf(" %8" PRIu64, count) : printf(" %8s", "-"));
}

static void print_mapping(const struct sp_mapping_change *change)
{
	const Sealpoint__Vma *vma = mapping_subject(change);
	sp_cleanup_free char *history = mapping_history(change);
	const char *subject = subject_name(vma);
	size_t used, room, length = strlen(history);
	char prot[5];

	sp_vma_describe_prot((int)vma->prot, vma->flags, prot);
	used = (size_t)printf("  %12" PRIx64 "  %s %6s  %-7s", change->range.start, prot,
	                      sp_show_short_bytes(sp_range_size(change->range)).text,
	                      mapping_word(change));
	used += print_count(change->pages.contents) + print_count(change->pages.states) + 2;
	room = sp_room_behind(used);
	fputs(subject[0] ? "  " : length ? " " : "", stdout);
	sp_print_path(subject, room > length + 8 ? room - length : 8);
	puts(history);
}

static void print_mappings(const struct sp_difference *difference)
{
	if (!difference->mappings.count)
		return;
	putchar('\n');
	sp_print_heading("MAPPINGS  %s pages have other contents, %s are in another state",
	                 sp_show_count(difference->memory.contents).text,
	                 sp_show_count(difference->memory.states).text);
	printf("  %12s  PERM   SIZE  CHANGE   CONTENTS    STATE  WHAT\n", "START");
	for (size_t i = 0; i < difference->mappings.count; i++)
		print_mapping(sp_array_at(&difference->mappings, i));
}

/* --- threads --- */

static char *thread_words(const struct sp_thread_change *change)
{
	const Sealpoint__Thread *a = change->before, *b = change->after;

	if (!a || !b)
		return sp_strdup(a ? "gone" : "new");
	return sp_format("%s%s%s", change->registers ? " registers" : "",
	                 a->signal_mask != b->signal_mask ? " blocked-signals" : "",
	                 strcmp(a->comm, b->comm) != 0 ? " name" : "");
}

static void print_threads(const struct sp_difference *difference)
{
	if (!difference->threads.count)
		return;
	putchar('\n');
	sp_print_heading("THREADS  %zu", difference->threads.count);
	for (size_t i = 0; i < difference->threads.count; i++) {
		const struct sp_thread_change *change = sp_array_at(&difference->threads, i);
		const Sealpoint__Thread *thread = change->after ? change->after : change->before;
		sp_cleanup_free char *words = thread_words(change);

		printf("  %7u  ", thread->tid);
		sp_print_plain(thread->comm, strlen(thread->comm));
		printf("%*s %s\n", thread->comm[0] ? 16 - (int)strlen(thread->comm) : 16, "",
		       words[0] == ' ' ? words + 1 : words);
	}
}

/* --- descriptors and the rest --- */

static const Sealpoint__OpenFile *file_before(const struct sp_difference *difference,
                                              const struct sp_descriptor_change *change)
{
	return change->before ? sp_checkpoint_file(difference->before, change->before->file) : NULL;
}

static const Sealpoint__OpenFile *file_after(const struct sp_difference *difference,
                                             const struct sp_descriptor_change *change)
{
	return change->after ? sp_checkpoint_file(difference->after, change->after->file) : NULL;
}

/* "new: X", "gone: X", "X -> Y", or "X, changed" where both are told in the same words. */
static char *change_words(const char *before, const char *after)
{
	if (!before)
		return sp_format("new: %s", after);
	if (!after)
		return sp_format("gone: %s", before);
	if (strcmp(before, after) != 0)
		return sp_format("%s -> %s", before, after);
	return sp_format("%s%schanged", before, before[0] ? ", " : "");
}

static char *file_words(const Sealpoint__OpenFile *file)
{
	struct sp_line what = sp_describe_file(file);

	return sp_format("%s%s%s", sp_file_title(file), what.text[0] ? " " : "", what.text);
}

static void print_descriptors(const struct sp_difference *difference)
{
	if (!difference->descriptors.count)
		return;
	putchar('\n');
	sp_print_heading("DESCRIPTORS  %zu", difference->descriptors.count);
	for (size_t i = 0; i < difference->descriptors.count; i++) {
		const struct sp_descriptor_change *change =
		        sp_array_at(&difference->descriptors, i);
		const Sealpoint__OpenFile *old = file_before(difference, change);
		const Sealpoint__OpenFile *new = file_after(difference, change);
		sp_cleanup_free char *before = old ? file_words(old) : NULL;
		sp_cleanup_free char *after = new ? file_words(new) : NULL;
		sp_cleanup_free char *words = change_words(before, after);
		size_t used = (size_t)printf("  %7u  ", change->after ? change->after->number
		                                                      : change->before->number);

		sp_print_sentence(words, sp_room_behind(used));
		putchar('\n');
	}
}

static void print_facets(const struct sp_difference *difference)
{
	if (!difference->facets.count)
		return;
	putchar('\n');
	sp_print_heading("STATE  %zu", difference->facets.count);
	for (size_t i = 0; i < difference->facets.count; i++) {
		const struct sp_facet_change *change = sp_array_at(&difference->facets, i);
		const Sealpoint__Facet *facet = change->after ? change->after : change->before;
		struct sp_line before = {""}, after = {""};
		sp_cleanup_free char *words = NULL;
		char whose[16] = "process";
		size_t used;

		if (change->before)
			before = sp_describe_facet(change->before);
		if (change->after)
			after = sp_describe_facet(change->after);
		words = change_words(change->before ? before.text : NULL,
		                     change->after ? after.text : NULL);
		if (change->tid)
			snprintf(whose, sizeof(whose), "%u", change->tid);
		used = (size_t)printf("  %7s  %-23s ", whose, sp_facet_title(facet));
		sp_print_sentence(words, sp_room_behind(used));
		putchar('\n');
	}
}

/* --- the answer --- */

static bool is_same(const struct sp_difference *difference)
{
	return !difference->mappings.count && !difference->threads.count &&
	       !difference->descriptors.count && !difference->facets.count &&
	       !difference->files.contents && !difference->files.states;
}

static void print_people(const struct sp_difference *difference)
{
	if (is_same(difference)) {
		printf("%s and %s say the same\n", difference->before->path,
		       difference->after->path);
		return;
	}
	sp_print_heading("from %s to %s", difference->before->path, difference->after->path);
	print_mappings(difference);
	if (difference->files.contents || difference->files.states)
		printf("\n  in files without a name and in shared memory: %s pages have other "
		       "contents, %s are in another state\n",
		       sp_show_count(difference->files.contents).text,
		       sp_show_count(difference->files.states).text);
	print_threads(difference);
	print_descriptors(difference);
	print_facets(difference);
}

static json_t *access_of(const Sealpoint__Vma *vma)
{
	char prot[5];

	if (!vma)
		return json_null();
	sp_vma_describe_prot((int)vma->prot, vma->flags, prot);
	return json_string(prot);
}

static json_t *mapping_list(const struct sp_difference *difference)
{
	json_t *list = json_array();

	for (size_t i = 0; i < difference->mappings.count; i++) {
		const struct sp_mapping_change *change = sp_array_at(&difference->mappings, i);

		json_array_append_new(
		        list,
		        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "change",
		                  mapping_word(change), "start",
		                  sp_json_address(change->range.start), "end",
		                  sp_json_address(change->range.end), "moved_from",
		                  change->moved_from != change->range.start
		                          ? sp_json_address(change->moved_from)
		                          : json_null(),
		                  "protection_before", access_of(change->before),
		                  "protection_after", access_of(change->after), "name",
		                  sp_json_text(subject_name(mapping_subject(change))),
		                  "pages_with_other_contents", (json_int_t)change->pages.contents,
		                  "pages_in_another_state", (json_int_t)change->pages.states));
	}
	return list;
}

static const char *existence(const void *before, const void *after)
{
	return !before ? "new" : !after ? "gone" : "changed";
}

static json_t *thread_list(const struct sp_difference *difference)
{
	json_t *list = json_array();

	for (size_t i = 0; i < difference->threads.count; i++) {
		const struct sp_thread_change *change = sp_array_at(&difference->threads, i);
		const Sealpoint__Thread *a = change->before, *b = change->after;

		json_array_append_new(list, json_pack("{s:s, s:I, s:b}", "change", existence(a, b),
		                                      "tid", (json_int_t)(b ? b->tid : a->tid),
		                                      "registers", change->registers));
	}
	return list;
}

static json_t *file_text(const Sealpoint__OpenFile *file)
{
	sp_cleanup_free char *words = file ? file_words(file) : NULL;

	return words ? sp_json_text(words) : json_null();
}

static json_t *descriptor_list(const struct sp_difference *difference)
{
	json_t *list = json_array();

	for (size_t i = 0; i < difference->descriptors.count; i++) {
		const struct sp_descriptor_change *change =
		        sp_array_at(&difference->descriptors, i);

		json_array_append_new(
		        list, json_pack("{s:s, s:I, s:o, s:o}", "change",
		                        existence(change->before, change->after), "number",
		                        (json_int_t)(change->after ? change->after->number
		                                                   : change->before->number),
		                        "before", file_text(file_before(difference, change)),
		                        "after", file_text(file_after(difference, change))));
	}
	return list;
}

static json_t *facet_text(const Sealpoint__Facet *facet)
{
	return facet ? sp_json_text(sp_describe_facet(facet).text) : json_null();
}

static json_t *facet_list(const struct sp_difference *difference)
{
	json_t *list = json_array();

	for (size_t i = 0; i < difference->facets.count; i++) {
		const struct sp_facet_change *change = sp_array_at(&difference->facets, i);
		const Sealpoint__Facet *facet = change->after ? change->after : change->before;

		json_array_append_new(
		        list,
		        json_pack("{s:s, s:o, s:o, s:o, s:o}", "change",
		                  existence(change->before, change->after), "tid",
		                  change->tid ? json_integer(change->tid) : json_null(), "name",
		                  sp_json_text(facet->name), "before", facet_text(change->before),
		                  "after", facet_text(change->after)));
	}
	return list;
}

static json_t *page_counts(const struct sp_page_comparison *pages)
{
	return json_pack("{s:I, s:I}", "with_other_contents", (json_int_t)pages->contents,
	                 "in_another_state", (json_int_t)pages->states);
}

static int print_json(const struct sp_difference *difference)
{
	return sp_print_json(json_pack(
	        "{s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "before",
	        sp_json_text(difference->before->path), "after",
	        sp_json_text(difference->after->path), "same", is_same(difference), "pages",
	        page_counts(&difference->memory), "file_pages", page_counts(&difference->files),
	        "mappings", mapping_list(difference), "threads", thread_list(difference),
	        "descriptors", descriptor_list(difference), "state", facet_list(difference)));
}

static int run(struct sp_cli *cli)
{
	struct sp_difference difference;
	struct sp_error err = {0};
	int status = SP_EXIT_OK;
	char **operands;
	pid_t pid = 0;
	int option;

	while ((option = sp_next_option(cli)) != SP_OPTION_END)
		if (option != 'p' || !sp_parse_pid(cli, cli->argument, &pid))
			return SP_EXIT_USAGE;
	operands = sp_operands(cli, (const char *const[]){"A", "B", NULL});
	if (!operands)
		return SP_EXIT_USAGE;
	if (sp_diff(operands[0], operands[1], pid, &difference, &err) < 0)
		return sp_command_failed(cli, &err);
	if (cli->json)
		status = print_json(&difference);
	else
		print_people(&difference);
	sp_difference_release(&difference);
	return status;
}

const struct sp_command sp_command_diff = {
        .name = "diff",
        .synopsis = "A B [--pid PID] [--json]",
        .summary = "tell what changed between two checkpoints",
        .description =
                "Compares what was saved in A with what was saved in B: mappings that are new,\n"
                "gone, or were moved, those whose protection or pages are not the same,\n"
                "threads, descriptors, and the rest of the state. The two may be of one chain,\n"
                "or have nothing to do with each other; pages that both have from the same\n"
                "checkpoint are not read. Of trees of processes --pid names the one to compare.\n\n"
                "CONTENTS counts pages with other contents, STATE those that have none of their\n"
                "own (zero, never touched, a page of a file, a guard page) before and after,\n"
                "but are not what they were.",
        .options = options,
        .examples = "  sealpoint diff /backup/redis.6 /backup/redis.7\n"
                    "  sealpoint diff before after --json | jq .pages",
        .run = run,
};
