/*
 * A sample as a table: how much was written, what a pre-copy round would have to send, and the
 * mappings that were written, each with a row of cells that shows where. A frame is made in memory
 * and written at once, so that a terminal shows no half of it.
 */
#include "cli/watch.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "proc/stat.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LEVELS 5

/* From which share of a cell's pages on, in percent; how it looks with and without UTF-8. */
static const struct level {
	unsigned percent;
	const char *words, *block, *plain, *colour;
} levels[LEVELS] = {
        {0, "none", "·", ".", "2"},         {0, "some", "░", "-", "34"},
        {2, "from 2%", "▒", "+", "36"},     {10, "from 10%", "▓", "*", "33"},
        {50, "from 50%", "█", "#", "1;31"},
};

struct frame {
	FILE *out;
	unsigned width, height; /* height 0: no limit */
	unsigned lines;
	bool styled, blocks;
};

static void begin_line(struct frame *frame, const char *style)
{
	fputs(style && frame->styled ? style : "", frame->out);
}

static void end_line(struct frame *frame)
{
	fputs(frame->styled ? "\033[0m\n" : "\n", frame->out);
	frame->lines++;
}

/* Names come from the program: what would steer a terminal is not printed as it is. */
static void print_plain(struct frame *frame, const char *text, size_t room)
{
	size_t length = strlen(text);

	if (length > room && room > 3) {
		fputs("...", frame->out);
		text += length - (room - 3);
	}
	for (; *text; text++)
		putc(iscntrl((unsigned char)*text) ? ' ' : *text, frame->out);
}

const char *sp_watch_what(const struct sp_vma *vma)
{
	return vma->name ? vma->name : vma->path;
}

/* What is not as it was in the sample before, in words, or NULL; `next` begins with 0. */
static const char *news_of(const struct sp_sample *sample, unsigned *next)
{
	static const char *const words[] = {
	        "the program has executed another one, which is watched from here on",
	        "somebody has cut: the written set has begun anew",
	        "the tracking session has ended: watching goes on with one of its own",
	};

	while (*next < SP_COUNT_OF(words)) {
		unsigned bit = (*next)++;

		if (sample->events & 1U << bit)
			return words[bit];
	}
	return NULL;
}

/* --- the heat of a mapping --- */

static unsigned level_of(uint64_t written, uint64_t pages)
{
	unsigned level = written > 0;

	while (level && level + 1 < LEVELS && written * 100 >= levels[level + 1].percent * pages)
		level++;
	return level;
}

static void print_level(struct frame *frame, unsigned level, unsigned before)
{
	if (frame->styled && level != before)
		fprintf(frame->out, "\033[0;%sm", levels[level].colour);
	fputs(frame->blocks ? levels[level].block : levels[level].plain, frame->out);
}

/* In at most `room` columns: where there are not enough, several cells share one. Returns the columns. */
static unsigned print_heat(struct frame *frame, const struct sp_sample_mapping *mapping,
                           unsigned room)
{
	unsigned count = sp_sample_cell_count(mapping->range);
	unsigned columns = count < room ? count : room, before = LEVELS;

	for (unsigned column = 0; column < columns; column++) {
		unsigned from = column * count / columns, to = (column + 1) * count / columns;
		struct sp_range range = {sp_sample_cell(mapping->range, from).start,
		                         sp_sample_cell(mapping->range, to - 1).end};
		uint64_t written = 0;
		unsigned level;

		for (unsigned cell = from; cell < to; cell++)
			written += mapping->cells[cell];
		level = level_of(written, sp_range_size(range) / SP_PAGE_SIZE);
		print_level(frame, level, before);
		before = level;
	}
	fputs(frame->styled ? "\033[0m" : "", frame->out);
	return columns;
}

static void print_legend(struct frame *frame)
{
	fputs("  of each cell's pages were written:", frame->out);
	for (unsigned level = 0; level < LEVELS; level++) {
		fputs("  ", frame->out);
		print_level(frame, level, LEVELS);
		fprintf(frame->out, "%s %s", frame->styled ? "\033[0m" : "", levels[level].words);
	}
	end_line(frame);
}

/* --- totals --- */

static double per_second(uint64_t pages, uint64_t ns)
{
	return ns ? (double)pages * 1e9 / (double)ns : 0;
}

/* Pages that are written seldom are not 0. */
static struct sp_text show_pages(double pages_per_second)
{
	struct sp_text text;

	if (pages_per_second >= 10 || pages_per_second == 0)
		return sp_show_count((uint64_t)pages_per_second);
	snprintf(text.text, sizeof(text.text), "%.2g", pages_per_second);
	return text;
}

static struct sp_text show_rate(double pages_per_second)
{
	struct sp_text text = sp_show_bytes((uint64_t)(pages_per_second * SP_PAGE_SIZE));

	strcat(text.text, "/s");
	return text;
}

static bool is_tree(const struct sp_watch *watch)
{
	return watch->samplers.count > 1 || watch->unwatched;
}

/* Who is meant. */
static void print_names(struct frame *frame, const struct sp_watch *watch)
{
	size_t descendants = watch->samplers.count - 1;

	fprintf(frame->out, "%.50s", sp_process_name(sp_watch_sampler(watch, 0)->pid).text);
	if (descendants)
		fprintf(frame->out, " and %zu descendant%s", descendants,
		        descendants > 1 ? "s" : "");
	if (watch->unwatched)
		fprintf(frame->out, " (%u more cannot be watched)", watch->unwatched);
}

static void print_head(struct frame *frame, const struct sp_watch *watch)
{
	const struct sp_sample *sample = &watch->sum;
	double rate = per_second(sample->dirtied, sample->interval_ns);
	const char *news;
	unsigned next = 0;

	begin_line(frame, "\033[1m");
	print_names(frame, watch);
	fprintf(frame->out, ", %s resident, after %s", sp_show_bytes(sample->resident_bytes).text,
	        sp_show_duration(sample->time_ns).text);
	end_line(frame);
	while ((news = news_of(sample, &next))) {
		fprintf(frame->out, "  %s", news);
		end_line(frame);
	}
	fprintf(frame->out, "  dirty    %s pages/s, %s, in the last %s", show_pages(rate).text,
	        show_rate(rate).text, sp_show_duration(sample->interval_ns).text);
	end_line(frame);
	fprintf(frame->out, "  tracked  %s", sp_show_bytes(sample->tracked_bytes).text);
	if (sample->untracked_bytes)
		fprintf(frame->out, "; not %s, shared or of another userfaultfd",
		        sp_show_bytes(sample->untracked_bytes).text);
	end_line(frame);
}

static void print_rounds(struct frame *frame, const struct sp_sample *sample)
{
	putc('\n', frame->out);
	frame->lines++;
	if (sample->held) {
		fprintf(frame->out,
		        "  the next delta has %s, %s pages written since cut %" PRIu64 ";",
		        sp_show_bytes(sample->written * SP_PAGE_SIZE).text,
		        sp_show_count(sample->written).text, sample->generation);
		end_line(frame);
		fputs("  a session is kept for it, so this only reads: a page counts once",
		      frame->out);
		end_line(frame);
		return;
	}
	begin_line(frame, "\033[1m");
	fprintf(frame->out, "%12s  %10s  %10s  %s", "A ROUND OF", "PAGES", "SENDS",
	        "KEEPS UP FROM");
	end_line(frame);
	for (unsigned i = 0; i < sample->round_count; i++) {
		const struct sp_sample_round *round = &sample->rounds[i];

		fprintf(frame->out, "%12s  %10s  %10s  %s", sp_show_duration(round->length_ns).text,
		        sp_show_count(round->pages).text,
		        sp_show_bytes(round->pages * SP_PAGE_SIZE).text,
		        show_rate(per_second(round->pages, round->length_ns)).text);
		end_line(frame);
	}
}

/* --- processes --- */

#define PROCESSES_SHOWN 8

static int by_process(const void *left, const void *right)
{
	const struct sp_sampler *a = *(struct sp_sampler *const *)left;
	const struct sp_sampler *b = *(struct sp_sampler *const *)right;
	int order = sp_compare(b->sample.dirtied, a->sample.dirtied);

	return order ? order : sp_compare(a->pid, b->pid);
}

/* Of a tree, those that write most. */
static void print_processes(struct frame *frame, const struct sp_watch *watch)
{
	sp_cleanup_array struct sp_array chosen = SP_ARRAY_OF(struct sp_sampler *);

	if (!is_tree(watch))
		return;
	for (size_t i = 0; i < watch->samplers.count; i++) {
		const struct sp_sampler *sampler = sp_watch_sampler(watch, i);

		sp_array_append(&chosen, &sampler);
	}
	sp_array_sort(&chosen, by_process);
	putc('\n', frame->out);
	begin_line(frame, "\033[1m");
	fprintf(frame->out, "%12s  %10s  %10s  NAME", "PID", "PAGES/S", "RESIDENT");
	frame->lines++;
	end_line(frame);
	for (size_t i = 0; i < chosen.count && i < PROCESSES_SHOWN; i++) {
		const struct sp_sampler *sampler = sp_array_pointer(&chosen, i);
		const struct sp_sample *sample = &sampler->sample;
		struct sp_stat stat = {.comm = ""};

		sp_stat_read(sampler->pid, sampler->pid, &stat, NULL);
		fprintf(frame->out, "%12d  %10s  %10s  ", sampler->pid,
		        show_pages(per_second(sample->dirtied, sample->interval_ns)).text,
		        sp_show_short_bytes(sample->resident_bytes).text);
		print_plain(frame, stat.comm, frame->width > 60 ? frame->width - 40 : 20);
		end_line(frame);
	}
	if (chosen.count > PROCESSES_SHOWN) {
		fprintf(frame->out, "%12s", "...");
		end_line(frame);
	}
}

/* --- mappings --- */

/* One that is to be shown. */
struct shown {
	const struct sp_sampler *sampler;
	const struct sp_sample_mapping *mapping;
};

static int by_dirtied(const void *left, const void *right)
{
	const struct shown *a = left, *b = right;
	int order = sp_compare(b->mapping->dirtied, a->mapping->dirtied);

	order = order ? order : sp_compare(a->sampler->pid, b->sampler->pid);
	return order ? order : sp_compare(a->mapping->range.start, b->mapping->range.start);
}

/* Those to be shown, the most written first. Returns how many there are that were not written. */
static size_t choose_mappings(const struct sp_watch *watch, struct sp_array *chosen)
{
	size_t all = 0;

	for (size_t i = 0; i < watch->samplers.count; i++) {
		const struct sp_sampler *sampler = sp_watch_sampler(watch, i);
		const struct sp_array *mappings = &sampler->sample.mappings;

		all += mappings->count;
		for (size_t j = 0; j < mappings->count; j++) {
			struct shown shown = {sampler, sp_array_at(mappings, j)};

			if (shown.mapping->written)
				sp_array_append(chosen, &shown);
		}
	}
	sp_array_sort(chosen, by_dirtied);
	return all - chosen->count;
}

static void print_mapping(struct frame *frame, const struct shown *shown, unsigned cells,
                          bool of_tree)
{
	const struct sp_sample_mapping *mapping = shown->mapping;
	double rate = per_second(mapping->dirtied, shown->sampler->sample.interval_ns);
	const char *what = sp_watch_what(mapping->vma);
	unsigned used;
	char prot[5];

	sp_vma_describe_prot(mapping->vma->prot, mapping->vma->flags, prot);
	if (of_tree)
		fprintf(frame->out, "%7d", shown->sampler->pid);
	fprintf(frame->out, "%12" PRIx64 "  %s %6s %10s  ", mapping->range.start, prot,
	        sp_show_short_bytes(sp_range_size(mapping->range)).text, show_pages(rate).text);
	used = print_heat(frame, mapping, cells);
	if (what[0]) {
		fprintf(frame->out, "%*s", (int)(cells - used) + 2, "");
		print_plain(frame, what, frame->width - (of_tree ? 47 : 40) - cells);
	}
	end_line(frame);
}

#define LINES_BEHIND 3 /* the mappings: what is not shown, the legend, the cursor */

static void print_mappings(struct frame *frame, const struct sp_watch *watch)
{
	sp_cleanup_array struct sp_array chosen = SP_ARRAY_OF(struct shown);
	unsigned cells = frame->width > 80 ? (frame->width - 40) / 2 : 20;
	const struct sp_sample *sum = &watch->sum;
	size_t rows, others = choose_mappings(watch, &chosen);
	bool of_tree = is_tree(watch);

	cells = cells < SP_SAMPLE_CELLS ? cells : SP_SAMPLE_CELLS;
	cells -= of_tree && cells < SP_SAMPLE_CELLS ? 4 : 0;
	putc('\n', frame->out);
	begin_line(frame, "\033[1m");
	fputs(of_tree ? "    PID" : "", frame->out);
	fprintf(frame->out, "%12s  PERM   SIZE    PAGES/S  %-*s  WHAT", "START", (int)cells,
	        "WHERE");
	frame->lines++;
	end_line(frame);
	rows = chosen.count;
	if (frame->height && rows + frame->lines + LINES_BEHIND > frame->height)
		rows = frame->height > frame->lines + LINES_BEHIND
		               ? frame->height - frame->lines - LINES_BEHIND
		               : 0;
	for (size_t i = 0; i < rows; i++)
		print_mapping(frame, sp_array_at(&chosen, i), cells, of_tree);
	fprintf(frame->out, "  %zu more written, %zu not", chosen.count - rows, others);
	if (sum->appeared || sum->vanished)
		fprintf(frame->out, "; mappings: %u came, %u went", sum->appeared, sum->vanished);
	if (watch->begun || watch->ended)
		fprintf(frame->out, "; processes: %u came, %u went", watch->begun, watch->ended);
	end_line(frame);
	print_legend(frame);
}

/* --- frames --- */

static bool shows_utf8(void)
{
	const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	for (size_t i = 0; i < SP_COUNT_OF(names); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
	}
	return false;
}

static void print_frame(struct frame *frame, const struct sp_watch *watch)
{
	print_head(frame, watch);
	print_rounds(frame, &watch->sum);
	print_processes(frame, watch);
	print_mappings(frame, watch);
}

/*
 * On a terminal the cursor goes up over the frame before. After its width has changed nobody knows
 * where that begins. No line is wrapped, so that a frame has as many lines as it says.
 */
int sp_watch_show(struct sp_watch_screen *screen, const struct sp_watch *watch)
{
	bool terminal = isatty(STDOUT_FILENO);
	sp_cleanup_free char *text = NULL;
	size_t size = 0;
	struct frame frame = {
	        .out = open_memstream(&text, &size),
	        .width = sp_output_width(),
	        .height = terminal ? sp_output_height() : 0,
	        .styled = sp_output_styled(),
	        .blocks = terminal && shows_utf8(),
	};

	if (!frame.out)
		return -errno;
	print_frame(&frame, watch);
	fclose(frame.out);
	if (!terminal)
		printf("%s", screen->lines ? "\n" : "");
	else if (screen->lines && screen->width == frame.width)
		printf("\033[%uA\r\033[J", screen->lines);
	else if (screen->lines)
		printf("\033[H\033[2J");
	fputs(terminal ? "\033[?7l" : "", stdout);
	fwrite(text, 1, size, stdout);
	fputs(terminal ? "\033[?7h" : "", stdout);
	screen->lines = frame.lines;
	screen->width = frame.width;
	return fflush(stdout) ? -errno : 0;
}
