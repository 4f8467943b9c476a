/*
 * Collecting samples for a plot, in bounded memory: see watch_plot.h. When there are more samples than
 * columns, each two columns become one; when a mapping outgrows its cells, each two cells do.
 */
#include "cli/watch_plot.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

struct sp_plot *sp_plot_new(void)
{
	struct sp_plot *plot = sp_alloc_zeroed(1, sizeof(*plot));

	plot->stride = 1;
	return plot;
}

void sp_plot_free(struct sp_plot *plot)
{
	if (!plot)
		return;
	for (unsigned i = 0; i < plot->bands; i++) {
		free(plot->band[i]->what);
		free(plot->band[i]);
	}
	free(plot);
}

/* Each two columns become one. */
static void halve_columns(struct sp_plot *plot)
{
	for (unsigned i = 0; i < COLUMNS; i += 2) {
		const struct column *a = &plot->column[i], *b = &plot->column[i + 1];

		plot->column[i / 2] =
		        (struct column){b->end, a->seconds + b->seconds, a->dirtied + b->dirtied,
		                        a->samples + b->samples};
	}
	for (unsigned i = 0; i < plot->bands; i++) {
		struct band *band = plot->band[i];

		for (unsigned j = 0; j < COLUMNS; j++)
			for (unsigned cell = 0; cell < CELLS; cell++) {
				uint32_t pages = band->cells[j][cell];

				band->cells[j][cell] = 0;
				band->cells[j / 2][cell] += pages;
			}
	}
	plot->columns = COLUMNS / 2;
	plot->stride *= 2;
}

static void double_cells(struct band *band)
{
	for (unsigned i = 0; i < COLUMNS; i++)
		for (unsigned cell = 0; cell < CELLS; cell++) {
			uint32_t pages = band->cells[i][cell];

			band->cells[i][cell] = 0;
			band->cells[i][cell / 2] += pages;
		}
	band->cell_size *= 2;
}

/* Lets the band begin so many cells earlier; the last ones are not in use. */
static void shift_cells(struct band *band, uint64_t count)
{
	for (unsigned i = 0; i < COLUMNS && count; i++) {
		uint32_t *cells = band->cells[i];

		memmove(cells + count, cells, (CELLS - count) * sizeof(*cells));
		memset(cells, 0, count * sizeof(*cells));
	}
	band->base -= count * band->cell_size;
}

/* Memory grows upward (the heap), downward (a stack), or by a neighbour that becomes one with it. */
static void extend(struct band *band, struct sp_range range)
{
	uint64_t below;

	band->range.start = range.start < band->range.start ? range.start : band->range.start;
	band->range.end = range.end > band->range.end ? range.end : band->range.end;
	for (;;) {
		below = band->range.start < band->base ? band->base - band->range.start : 0;
		below = (below + band->cell_size - 1) / band->cell_size;
		if (below * band->cell_size + (band->range.end - band->base) <=
		    CELLS * band->cell_size)
			break;
		double_cells(band);
	}
	shift_cells(band, below);
}

static const char *name_of(const struct sp_sample_mapping *mapping)
{
	const char *what = sp_watch_what(mapping->vma);

	return *what ? what : "anonymous";
}

/* Where there are too many, the one that was written least makes room; the rate has its pages. */
static struct band *new_band(struct sp_plot *plot, pid_t pid,
                             const struct sp_sample_mapping *mapping)
{
	uint64_t pages = sp_range_size(mapping->range) / SP_PAGE_SIZE;
	struct band *band = plot->band[0];

	if (plot->bands < BANDS) {
		band = plot->band[plot->bands++] = sp_alloc(sizeof(*band));
	} else {
		for (unsigned i = 1; i < BANDS; i++)
			band = plot->band[i]->dirtied < band->dirtied ? plot->band[i] : band;
		free(band->what);
	}
	memset(band, 0, sizeof(*band));
	band->pid = pid;
	band->range = mapping->range;
	band->base = mapping->range.start;
	band->cell_size = (pages + CELLS - 1) / CELLS * SP_PAGE_SIZE;
	band->what = sp_strdup(name_of(mapping));
	return band;
}

static bool belongs_to(const struct band *band, pid_t pid, const struct sp_sample_mapping *mapping)
{
	bool touches =
	        band->range.end == mapping->range.start || mapping->range.end == band->range.start;

	return !band->closed && band->pid == pid &&
	       (sp_range_overlaps(band->range, mapping->range) ||
	        (touches && !strcmp(band->what, name_of(mapping))));
}

static struct band *band_of(struct sp_plot *plot, pid_t pid,
                            const struct sp_sample_mapping *mapping)
{
	for (unsigned i = 0; i < plot->bands; i++) {
		if (!belongs_to(plot->band[i], pid, mapping))
			continue;
		extend(plot->band[i], mapping->range);
		return plot->band[i];
	}
	return new_band(plot, pid, mapping);
}

static void add_to_band(struct sp_plot *plot, pid_t pid, const struct sp_sample_mapping *mapping)
{
	struct band *band = band_of(plot, pid, mapping);
	uint32_t *cells = band->cells[plot->columns - 1];

	band->dirtied += mapping->dirtied;
	for (unsigned i = 0; i < sp_sample_cell_count(mapping->range); i++) {
		struct sp_range cell = sp_sample_cell(mapping->range, i);
		uint64_t middle = cell.start / 2 + cell.end / 2;

		cells[(middle - band->base) / band->cell_size] += mapping->cells[i];
	}
}

/* The mappings of the old program end here. */
static void note_exec(struct sp_plot *plot, pid_t pid, double when)
{
	if (plot->events < EVENTS)
		plot->event[plot->events++] = when;
	for (unsigned i = 0; i < plot->bands; i++)
		plot->band[i]->closed |= plot->band[i]->pid == pid;
}

static void add_process(struct sp_plot *plot, const struct sp_sampler *sampler, double begun)
{
	const struct sp_array *mappings = &sampler->sample.mappings;

	if (sampler->sample.events & SP_SAMPLE_EXEC)
		note_exec(plot, sampler->pid, begun);
	for (size_t i = 0; i < mappings->count; i++) {
		const struct sp_sample_mapping *mapping = sp_array_at(mappings, i);

		if (mapping->written)
			add_to_band(plot, sampler->pid, mapping);
	}
}

void sp_plot_add(struct sp_plot *plot, const struct sp_watch *watch)
{
	struct column *column = plot->columns ? &plot->column[plot->columns - 1] : NULL;
	const struct sp_sample *sum = &watch->sum;

	if (!column || column->samples == plot->stride) {
		if (plot->columns == COLUMNS)
			halve_columns(plot);
		column = &plot->column[plot->columns++];
		*column = (struct column){0};
	}
	column->end = (double)sum->time_ns / 1e9;
	column->seconds += (double)sum->interval_ns / 1e9;
	column->dirtied += sum->dirtied;
	column->samples++;
	plot->dirtied += sum->dirtied;
	plot->held = sum->held;
	plot->root = sp_watch_sampler(watch, 0)->pid;
	for (size_t i = 0; i < watch->samplers.count; i++)
		add_process(plot, sp_watch_sampler(watch, i), column->end - column->seconds);
}
