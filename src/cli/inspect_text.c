/*
 * A checkpoint at a glance: who it was, and then a table each of threads, mappings, descriptors and
 * the rest of its state. Made for terminals of 80 columns and more: what is too long loses its
 * middle, not the line.
 */
#include "cli/inspect.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- the header --- */

static void print_field(const char *name, const char *value)
{
	if (!value[0])
		return;
	printf("  %-9s ", name);
	sp_print_sentence(value, sp_room_behind(12));
	putchar('\n');
}

static void print_saved(const Sealpoint__Manifest *manifest)
{
	time_t seconds = (time_t)(manifest->created_unix_ns / SP_NS_PER_S);
	char when[64];
	struct tm local;
	sp_cleanup_free char *text = NULL;

	localtime_r(&seconds, &local);
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S %z", &local);
	text = sp_format("%s on %s, Linux %s, %s", when, manifest->hostname, manifest->kernel,
	                 manifest->arch);
	print_field("saved", text);
}

static void print_parent(const struct sp_inspection *inspection)
{
	const Sealpoint__Manifest *manifest = inspection->checkpoint->manifest;
	sp_cleanup_free char *below = NULL, *text = NULL;

	if (!manifest->parent_path[0])
		return;
	below = inspection->members > 2 ? sp_format(" and %u below it", inspection->members - 2)
	                                : sp_strdup("");
	text = sp_format("%s%s; pages of contents: %s here, %s there", manifest->parent_path, below,
	                 sp_show_count(inspection->pages.pages[SP_PAGE_DATA]).text,
	                 sp_show_count(sp_pages_from_chain(inspection)).text);
	print_field("parent", text);
}

static void print_tracking(const Sealpoint__Manifest *manifest)
{
	sp_cleanup_free char *id =
	        sp_format_hex(manifest->session_id.data, manifest->session_id.len);
	sp_cleanup_free char *text =
	        sp_format("generation %" PRIu64 " of session %s", manifest->generation, id);

	print_field("tracked", id[0] ? text : "");
	print_field("holds", manifest->memory_only ? "memory only, as a parent for others" : "");
}

static void print_name(const Sealpoint__Process *process)
{
	sp_print_heading("%s, process %u%s", process->comm, process->pid,
	                 process->stopped ? ", stopped" : "");
	print_field("command", process->command_line);
	print_field("program", process->executable);
}

static void print_header(const struct sp_inspection *inspection)
{
	const Sealpoint__Manifest *manifest = inspection->checkpoint->manifest;
	sp_cleanup_free char *image =
	        sp_format("%s in %zu files; contents of %s, stored as %s",
	                  sp_show_bytes(inspection->image.bytes).text, inspection->image.files,
	                  sp_show_bytes(inspection->pages.raw_bytes).text,
	                  sp_show_bytes(inspection->pages.stored_bytes).text);

	print_name(inspection->process);
	print_saved(manifest);
	print_field("frozen",
	            manifest->freeze_ns ? sp_show_duration(manifest->freeze_ns).text : "");
	print_field("image", image);
	print_parent(inspection);
	print_tracking(manifest);
}

/* --- processes --- */

static void print_fate(const Sealpoint__Process *process)
{
	uint32_t signal = process->wait_status & 0x7f;

	if (process->stopped)
		printf("  stopped");
	if (process->leader_ended)
		printf("  its main thread ended");
	if (process->ended && signal)
		printf("  ended by signal %u (%s)", signal, strsignal((int)signal));
	else if (process->ended)
		printf("  ended with status %u", process->wait_status >> 8);
}

static void print_terminal(const struct sp_inspection *inspection,
                           const Sealpoint__Process *process)
{
	if (process->terminal)
		printf("  on %s%s", sp_describe_terminal(inspection->checkpoint, process).text,
		       process->pgid == process->foreground ? ", in the foreground" : "");
}

static void print_sharing(const Sealpoint__Process *process)
{
	if (process->memory_of)
		printf("  with the memory of %u", process->memory_of);
	if (process->actions_of)
		printf("  with the signal actions of %u", process->actions_of);
	if (process->descriptors_of)
		printf("  with the descriptors of %u", process->descriptors_of);
	if (process->directories_of)
		printf("  with the directories of %u", process->directories_of);
}

/* Of a tree: who there is. */
static void print_processes(const struct sp_inspection *inspection)
{
	const struct sp_array *processes = &inspection->checkpoint->processes;

	if (processes->count < 2)
		return;
	putchar('\n');
	sp_print_heading("PROCESSES  %zu", processes->count);
	printf("  %7s  %7s  %7s  %7s  NAME\n", "PID", "PARENT", "GROUP", "SESSION");
	for (size_t i = 0; i < processes->count; i++) {
		const Sealpoint__Process *process = sp_array_pointer(processes, i);

		printf("  %7u  %7u  %7u  %7u  ", process->pid, process->ppid, process->pgid,
		       process->sid);
		sp_print_plain(process->comm, strlen(process->comm));
		print_terminal(inspection, process);
		print_sharing(process);
		print_fate(process);
		putchar('\n');
	}
}

/* --- threads --- */

static void print_blocked(uint64_t mask)
{
	const char *separator = " ";

	if (__builtin_popcountll(mask) > 16) {
		printf(" %d signals", __builtin_popcountll(mask));
		return;
	}
	for (int signal = 1; signal <= 64; signal++) {
		const char *name = sigabbrev_np(signal);

		if (!(mask >> (signal - 1) & 1))
			continue;
		if (name)
			printf("%s%s", separator, name);
		else
			printf("%s%d", separator, signal);
	}
}

static void print_threads(const struct sp_inspection *inspection)
{
	const struct sp_array *threads = inspection->threads;

	putchar('\n');
	sp_print_heading("THREADS  %zu", threads->count);
	printf("  %7s  %-16s %s\n", "TID", "NAME", "BLOCKED SIGNALS");
	for (size_t i = 0; i < threads->count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(threads, i);

		printf("  %7u  ", thread->tid);
		sp_print_plain(thread->comm, strlen(thread->comm));
		if (thread->signal_mask)
			printf("%*s", 16 - (int)strlen(thread->comm), "");
		print_blocked(thread->signal_mask);
		putchar('\n');
	}
}

/* --- mappings --- */

/* The states a reader compares, in the order of the columns. */
static const enum sp_page_state columns[] = {SP_PAGE_DATA, SP_PAGE_ZERO, SP_PAGE_FILE, SP_PAGE_HOLE,
                                             SP_PAGE_GUARD};
static const char *const column_titles[] = {"DATA", "ZERO", "FILE", "HOLE", "GUARD"};

#define COLUMN_COUNT SP_COUNT_OF(columns)

/* One line of the table: a mapping, or several in a row of one file. */
struct row {
	const Sealpoint__Vma *vma; /* the first one */
	size_t count;
	uint64_t bytes;
	uint64_t pages[SP_PAGE_STATES];
};

static void add_to_row(struct row *row, const struct sp_mapping_summary *summary)
{
	row->count++;
	row->bytes += summary->vma->end - summary->vma->start;
	for (int state = 0; state < SP_PAGE_STATES; state++)
		row->pages[state] += summary->pages[state];
}

/* A shared library has five mappings: seen together they are one thing. */
static bool belongs_to_row(const struct row *row, const Sealpoint__Vma *vma)
{
	const uint32_t hidden = SP_VMA_MAY_WRITE;

	return vma->path[0] == '/' && !strcmp(row->vma->path, vma->path) &&
	       row->vma->kind == vma->kind && (row->vma->flags & ~hidden) == (vma->flags & ~hidden);
}

static void make_rows(const struct sp_inspection *inspection, struct sp_array *rows,
                      struct row *total)
{
	for (size_t i = 0; i < inspection->mappings->count; i++) {
		const struct sp_mapping_summary *summary = sp_array_at(inspection->mappings, i);
		struct row *row = rows->count ? sp_array_at(rows, rows->count - 1) : NULL;

		add_to_row(total, summary);
		/* The kernel's own page, in every process the same, is not worth a line. */
		if (summary->vma->kind == SP_VMA_VSYSCALL)
			continue;
		if (!row || inspection->all || !belongs_to_row(row, summary->vma)) {
			row = sp_array_push(rows);
			row->vma = summary->vma;
		}
		add_to_row(row, summary);
	}
}

/* Guard pages are rare: their column is there only with them. Returns the columns used. */
static size_t print_page_cells(const uint64_t *pages, const struct row *total)
{
	size_t used = 0;

	for (size_t i = 0; i < COLUMN_COUNT; i++) {
		if (columns[i] == SP_PAGE_GUARD && !total->pages[SP_PAGE_GUARD])
			continue;
		if (pages && pages[columns[i]])
			used += (size_t)printf(" %7" PRIu64, pages[columns[i]]);
		else
			used += (size_t)printf(" %7s", pages ? "-" : column_titles[i]);
	}
	return used;
}

static const char *row_subject(const struct row *row)
{
	const Sealpoint__Vma *vma = row->vma;

	if (vma->kind == SP_VMA_SHARED_ANON)
		return "shared anonymous";
	return vma->path[0] ? vma->path : vma->name;
}

/* What may be done with the mapping, or how many share the line. */
static struct sp_text row_permissions(const struct row *row)
{
	struct sp_text result;
	char prot[5];

	sp_vma_describe_prot((int)row->vma->prot, row->vma->flags, prot);
	if (row->count == 1)
		snprintf(result.text, sizeof(result.text), "%s", prot);
	else
		snprintf(result.text, sizeof(result.text), "(%zu)", row->count);
	return result;
}

static char *flag_words(uint32_t flags)
{
	char *words = sp_strdup("");
	const char *flag;
	size_t next = 0;

	while ((flag = sp_mapping_flag(flags, &next))) {
		char *longer = sp_format("%s %s", words, flag);

		free(words);
		words = longer;
	}
	return words;
}

static void print_row(const struct row *row, const struct row *total)
{
	const char *subject = row_subject(row);
	/* A path says itself that its file was deleted. */
	sp_cleanup_free char *words = flag_words(row->vma->flags & ~(uint32_t)SP_VMA_DELETED);
	size_t used, room, length = strlen(words);

	used = (size_t)printf("  %12" PRIx64 "  %4s %6s", row->vma->start,
	                      row_permissions(row).text, sp_show_short_bytes(row->bytes).text);
	used += print_page_cells(row->pages, total);
	if (subject[0] || words[0]) {
		room = sp_room_behind(used + 2);
		printf("  ");
		sp_print_path(subject, room > length + 8 ? room - length : 8);
		fputs(subject[0] ? words : words + 1, stdout);
	}
	putchar('\n');
}

static void print_mappings(const struct sp_inspection *inspection)
{
	sp_cleanup_array struct sp_array rows = SP_ARRAY_OF(struct row);
	struct row total = {0};

	make_rows(inspection, &rows, &total);
	putchar('\n');
	sp_print_heading("MAPPINGS  %zu, %s, in pages of 4 KiB", total.count,
	                 sp_show_bytes(total.bytes).text);
	printf("  %12s  PERM   SIZE", "START");
	print_page_cells(NULL, &total);
	printf("  WHAT\n");
	for (size_t i = 0; i < rows.count; i++)
		print_row(sp_array_at(&rows, i), &total);
	printf("  %12s       %6s", "all", sp_show_short_bytes(total.bytes).text);
	print_page_cells(total.pages, &total);
	putchar('\n');
}

/* --- descriptors --- */

/* The first descriptor of the same open file, if this is not it. */
static const Sealpoint__Descriptor *duplicated_from(const struct sp_array *descriptors,
                                                    size_t index)
{
	const Sealpoint__Descriptor *descriptor = sp_array_pointer(descriptors, index);

	for (size_t i = 0; i < index; i++) {
		const Sealpoint__Descriptor *earlier = sp_array_pointer(descriptors, i);

		if (earlier->file == descriptor->file && earlier->pid == descriptor->pid)
			return earlier;
	}
	return NULL;
}

static void print_descriptor(const struct sp_inspection *inspection, size_t index)
{
	const struct sp_array *descriptors = inspection->descriptors;
	const Sealpoint__Descriptor *descriptor = sp_array_pointer(descriptors, index);
	const Sealpoint__Descriptor *original = duplicated_from(descriptors, index);
	const Sealpoint__OpenFile *file =
	        sp_checkpoint_file(inspection->checkpoint, descriptor->file);
	struct sp_line what = sp_describe_file(file);
	size_t used = (size_t)printf("  %5u  ", descriptor->number);

	if (original) {
		printf("same as %u\n", original->number);
		return;
	}
	used += (size_t)printf(what.text[0] ? "%-22s " : "%s", sp_file_title(file));
	sp_print_sentence(what.text, sp_room_behind(used));
	putchar('\n');
}

static void print_descriptors(const struct sp_inspection *inspection)
{
	const struct sp_array *descriptors = inspection->descriptors;

	if (!descriptors->count)
		return;
	putchar('\n');
	sp_print_heading("DESCRIPTORS  %zu", descriptors->count);
	printf("  %5s  %-22s WHAT\n", "FD", "KIND");
	for (size_t i = 0; i < descriptors->count; i++)
		print_descriptor(inspection, i);
}

/* --- the rest of its state --- */

/* What has nothing to tell is not shown: it is there, and as every program has it. */
static void print_facet(const char *whose, const Sealpoint__Facet *facet)
{
	struct sp_line line = sp_describe_facet(facet);
	size_t used;

	if (!line.text[0])
		return;
	used = (size_t)printf("  %7s  %-23s ", whose, sp_facet_title(facet));
	sp_print_sentence(line.text, sp_room_behind(used));
	putchar('\n');
}

/* Does this thread have the very same to tell? */
static bool has_facet(const Sealpoint__Thread *thread, const Sealpoint__Facet *wanted)
{
	for (size_t i = 0; i < thread->n_facets; i++) {
		const Sealpoint__Facet *facet = thread->facets[i];

		if (!strcmp(facet->name, wanted->name))
			return !strcmp(sp_describe_facet(facet).text,
			               sp_describe_facet(wanted).text);
	}
	return false;
}

static bool all_have_facet(const struct sp_array *threads, const Sealpoint__Facet *facet)
{
	for (size_t i = 0; i < threads->count; i++)
		if (!has_facet(sp_array_pointer(threads, i), facet))
			return false;
	return true;
}

/*
 * What all threads have in common stands there once, with the first; their names stand elsewhere.
 */
static void print_thread_facet(const struct sp_array *threads, size_t index,
                               const Sealpoint__Facet *facet)
{
	const Sealpoint__Thread *thread = sp_array_pointer(threads, index);
	char tid[16];

	if (!strcmp(sp_describe_facet(facet).text, thread->comm))
		return;
	snprintf(tid, sizeof(tid), "%u", thread->tid);
	if (!all_have_facet(threads, facet))
		print_facet(tid, facet);
	else if (index == 0)
		print_facet(threads->count > 1 ? "threads" : "thread", facet);
}

static void print_thread_state(const struct sp_array *threads)
{
	for (size_t i = 0; i < threads->count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(threads, i);

		for (size_t j = 0; j < thread->n_facets; j++)
			print_thread_facet(threads, i, thread->facets[j]);
	}
}

static void print_state(const struct sp_inspection *inspection)
{
	const Sealpoint__Process *process = inspection->process;

	putchar('\n');
	sp_print_heading("STATE");
	for (size_t i = 0; i < process->n_facets; i++)
		print_facet("process", process->facets[i]);
	print_thread_state(inspection->threads);
}

/* --- what stands in the way of a dump --- */

/* A sentence in lines of the terminal's width, under a mark. */
static void print_refusal(const char *sentence)
{
	size_t room = sp_room_behind(4), length = strlen(sentence);

	fputs("  - ", stdout);
	while (length > room) {
		size_t end = room;

		while (end > 0 && sentence[end] != ' ')
			end--;
		if (end == 0)
			end = room;
		sp_print_plain(sentence, end);
		fputs("\n    ", stdout);
		end += sentence[end] == ' ';
		sentence += end;
		length -= end;
	}
	sp_print_plain(sentence, length);
	putchar('\n');
}

static void print_refusals(const struct sp_array *refusals)
{
	putchar('\n');
	if (refusals->count == 0) {
		printf("Nothing stands in the way of a dump.\n");
		return;
	}
	sp_print_heading("IN THE WAY OF A DUMP  %zu", refusals->count);
	for (size_t i = 0; i < refusals->count; i++)
		print_refusal(((const struct sp_error *)sp_array_at(refusals, i))->message);
}

void sp_print_survey(const struct sp_inspection *inspection, pid_t pid)
{
	const struct sp_survey *survey = inspection->survey;

	if (!survey->checkpoint) {
		sp_print_heading("process %d", pid);
		print_refusals(&survey->refusals);
		return;
	}
	print_name(inspection->process);
	print_field("frozen", sp_show_duration(survey->stopped_ns).text);
	print_refusals(&survey->refusals);
	print_processes(inspection);
	print_threads(inspection);
	print_mappings(inspection);
	print_descriptors(inspection);
	print_state(inspection);
}

void sp_print_inspection(const struct sp_inspection *inspection)
{
	bool memory_only = inspection->checkpoint->manifest->memory_only;

	print_header(inspection);
	print_processes(inspection);
	if (!memory_only)
		print_threads(inspection);
	print_mappings(inspection);
	if (memory_only)
		return;
	print_descriptors(inspection);
	print_state(inspection);
}
