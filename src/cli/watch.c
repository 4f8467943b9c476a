/* `sealpoint watch`: which memory of a running program is written, and how fast. */
#include "cli/watch.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/worker.h"
#include "engine/engine.h"
#include "proc/stat.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define INTERVAL_LEAST_NS (10 * SP_NS_PER_MS)

enum { OPTION_PLOT = SP_OPTION_LONG };

static const struct sp_option options[] = {
        {'i', "interval", "TIME", "how long to gather: \"500ms\", \"2s\", \"0.2\"; default 1s"},
        {'n', "count", "N", "end after so many intervals; default: at Ctrl-C"},
        {OPTION_PLOT, "plot", "FILE",
         "at the end, draw the dirty rate over time and over\naddress space as an SVG"},
        {0},
};

struct watch {
	struct sp_cli *cli;
	pid_t pid;
	uint64_t interval_ns;
	long count;
	const char *plot_path;
	struct sp_plot *plot;
	FILE *plot_file;
	char *title;
	struct sp_watch_screen screen;
};

/* --- JSON --- */

static json_t *cells_array(const struct sp_sample_mapping *mapping)
{
	json_t *cells = json_array();

	for (unsigned i = 0; i < sp_sample_cell_count(mapping->range); i++)
		json_array_append_new(cells, json_integer(mapping->cells[i]));
	return cells;
}

static json_t *mapping_object(pid_t pid, const struct sp_sample_mapping *mapping)
{
	char prot[5];

	sp_vma_describe_prot(mapping->vma->prot, mapping->vma->flags, prot);
	return json_pack("{s:i, s:o, s:o, s:s, s:s, s:o, s:I, s:I, s:o}", "pid", (int)pid, "start",
	                 sp_json_address(mapping->range.start), "end",
	                 sp_json_address(mapping->range.end), "permissions", prot, "kind",
	                 sp_vma_kind_name(mapping->vma->kind), "what",
	                 sp_json_text(sp_watch_what(mapping->vma)), "dirtied_pages",
	                 (json_int_t)mapping->dirtied, "written_pages",
	                 (json_int_t)mapping->written, "cells", cells_array(mapping));
}

static void add_mappings(json_t *mappings, const struct sp_sampler *sampler)
{
	for (size_t i = 0; i < sampler->sample.mappings.count; i++) {
		const struct sp_sample_mapping *mapping = sp_array_at(&sampler->sample.mappings, i);

		if (mapping->written)
			json_array_append_new(mappings, mapping_object(sampler->pid, mapping));
	}
}

static json_t *rounds_array(const struct sp_sample *sample)
{
	json_t *rounds = json_array();

	for (unsigned i = 0; i < sample->round_count; i++)
		json_array_append_new(rounds,
		                      json_pack("{s:f, s:I}", "length_s",
		                                (double)sample->rounds[i].length_ns / 1e9, "pages",
		                                (json_int_t)sample->rounds[i].pages));
	return rounds;
}

static json_t *events_array(const struct sp_sample *sample)
{
	json_t *events = json_array();

	if (sample->events & SP_SAMPLE_EXEC)
		json_array_append_new(events, json_string("exec"));
	if (sample->events & SP_SAMPLE_CUT)
		json_array_append_new(events, json_string("cut"));
	if (sample->events & SP_SAMPLE_ENDED)
		json_array_append_new(events, json_string("session ended"));
	return events;
}

/* What is told of one process, and of all. */
static json_t *sample_object(pid_t pid, const struct sp_sample *sample)
{
	double seconds = (double)sample->interval_ns / 1e9;

	return json_pack("{s:i, s:f, s:f, s:o, s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:i, s:i}",
	                 "pid", (int)pid, "time_s", (double)sample->time_ns / 1e9, "interval_s",
	                 seconds, "events", events_array(sample), "session",
	                 sample->held ? "held" : "own", "generation",
	                 (json_int_t)sample->generation, "dirtied_pages",
	                 (json_int_t)sample->dirtied, "written_pages", (json_int_t)sample->written,
	                 "pages_per_second", seconds > 0 ? (double)sample->dirtied / seconds : 0.0,
	                 "resident_bytes", (json_int_t)sample->resident_bytes, "tracked_bytes",
	                 (json_int_t)sample->tracked_bytes, "untracked_bytes",
	                 (json_int_t)sample->untracked_bytes, "appeared", (int)sample->appeared,
	                 "vanished", (int)sample->vanished);
}

static int print_watch(const struct sp_watch *watch)
{
	json_t *all = sample_object(sp_watch_sampler(watch, 0)->pid, &watch->sum);
	json_t *processes = json_array(), *mappings = json_array();

	for (size_t i = 0; i < watch->samplers.count; i++) {
		const struct sp_sampler *sampler = sp_watch_sampler(watch, i);

		json_array_append_new(processes, sample_object(sampler->pid, &sampler->sample));
		add_mappings(mappings, sampler);
	}
	json_object_set_new(all, "rounds", rounds_array(&watch->sum));
	json_object_set_new(all, "begun", json_integer(watch->begun));
	json_object_set_new(all, "ended", json_integer(watch->ended));
	json_object_set_new(all, "unwatched", json_integer(watch->unwatched));
	json_object_set_new(all, "processes", processes);
	json_object_set_new(all, "mappings", mappings);
	return sp_print_json_line(all);
}

/* --- the run --- */

static int show(struct watch *watch, const struct sp_watch *seen)
{
	if (watch->plot)
		sp_plot_add(watch->plot, seen);
	if (watch->cli->json)
		return print_watch(seen);
	if (sp_watch_show(&watch->screen, seen) == 0)
		return SP_EXIT_OK;
	fprintf(stderr, "sealpoint: cannot write the answer: %s\n", strerror(errno));
	return SP_EXIT_FAILED;
}

static int say_ended(const struct watch *watch)
{
	if (watch->cli->json)
		return sp_print_json_line(
		        json_pack("{s:i, s:[s]}", "pid", (int)watch->pid, "events", "ended"));
	printf("process %d has ended\n", watch->pid);
	return SP_EXIT_OK;
}

static int finish_plot(struct watch *watch)
{
	if (!watch->plot_file)
		return SP_EXIT_OK;
	sp_plot_write(watch->plot, watch->title, watch->plot_file);
	if (!fflush(watch->plot_file) && !ferror(watch->plot_file))
		return SP_EXIT_OK;
	fprintf(stderr, "sealpoint: cannot write %s: %s\n", watch->plot_path, strerror(errno));
	return SP_EXIT_FAILED;
}

/* Whoever watches ends it with Ctrl-C: that is no failure. */
static int watch_process(struct watch *watch)
{
	sp_cleanup_watch struct sp_watch seen;
	struct sp_error err = {0};
	int rc, status = SP_EXIT_OK;

	rc = sp_watch_open(&seen, watch->pid, &err);
	if (rc < 0)
		return sp_command_failed(watch->cli, &err);
	for (long i = 0; i < watch->count && status == SP_EXIT_OK; i++) {
		rc = sp_watch_next(&seen, watch->interval_ns, &err);
		if (rc <= 0)
			break;
		status = show(watch, &seen);
	}
	if (status == SP_EXIT_OK)
		status = finish_plot(watch);
	if (rc < 0 && rc != -EINTR)
		return sp_command_failed(watch->cli, &err);
	return rc == 0 && status == SP_EXIT_OK ? say_ended(watch) : status;
}

static bool open_plot(struct watch *watch)
{
	if (!watch->plot_path)
		return true;
	watch->plot = sp_plot_new();
	watch->title = sp_format("Memory written by %s", sp_process_name(watch->pid).text);
	watch->plot_file = fopen(watch->plot_path, "we");
	return watch->plot_file;
}

static bool parse_interval(struct watch *watch)
{
	struct sp_cli *cli = watch->cli;

	if (!sp_parse_duration(cli, "--interval", cli->argument, &watch->interval_ns))
		return false;
	if (watch->interval_ns >= INTERVAL_LEAST_NS)
		return true;
	sp_usage_error(cli, "--interval takes at least 10ms, not \"%s\"", cli->argument);
	return false;
}

static bool parse_options(struct watch *watch)
{
	struct sp_cli *cli = watch->cli;
	int option;

	while ((option = sp_next_option(cli)) != SP_OPTION_END) {
		if (option == SP_OPTION_WRONG)
			return false;
		if (option == 'i' && !parse_interval(watch))
			return false;
		if (option == 'n' &&
		    !sp_parse_number(cli, "--count", cli->argument, 1, LONG_MAX, &watch->count))
			return false;
		if (option == OPTION_PLOT)
			watch->plot_path = cli->argument;
	}
	return true;
}

static int run(struct sp_cli *cli)
{
	struct watch watch = {.cli = cli, .interval_ns = SP_NS_PER_S, .count = LONG_MAX};
	struct sp_error err = {0};
	char **operands;
	int status;

	if (!parse_options(&watch))
		return SP_EXIT_USAGE;
	operands = sp_operands(cli, (const char *const[]){"PID", NULL});
	if (!operands || !sp_parse_pid(cli, operands[0], &watch.pid))
		return SP_EXIT_USAGE;
	if (!sp_worker_begin(watch.pid, false, &status))
		return status;
	if (open_plot(&watch)) {
		status = watch_process(&watch);
	} else {
		sp_fail_errno(&err, errno, "cannot create %s", watch.plot_path);
		status = sp_command_failed(cli, &err);
	}
	if (watch.plot_file)
		fclose(watch.plot_file);
	sp_plot_free(watch.plot);
	free(watch.title);
	return status;
}

const struct sp_command sp_command_watch = {
        .name = "watch",
        .synopsis = "PID [--interval TIME] [--plot FILE]",
        .summary = "show which memory of a running program is written",
        .description =
                "Shows, interval by interval, how many pages process PID and its descendants\n"
                "write a second, to which mappings and where in them, and how much a round of a\n"
                "live migration or\n"
                "of a dump ahead of the freeze would have to send: all that was written within\n"
                "10 ms, 100 ms, ... A round keeps up if it is sent faster than written.\n\n"
                "The program is stopped for a moment at the beginning, and then runs; the first\n"
                "write to each page in an interval costs it about a microsecond. If a\n"
                "tracking session is kept for it (sealpoint track status), deltas stand on that:\n"
                "then nothing is taken from it, and watch tells how the set of pages that have\n"
                "been written since the last cut grows.\n\n"
                "Ctrl-C ends it, and leaves the program as it was.",
        .options = options,
        .examples = "  sealpoint watch 4242\n"
                    "  sealpoint watch 4242 --interval 200ms --count 50 --plot written.svg\n"
                    "  sealpoint watch 4242 --json | jq .pages_per_second",
        .run = run,
};
