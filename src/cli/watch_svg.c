/*
 * A plot of what was written, as an SVG that stands alone: above, the dirty rate over time; below, a
 * band for each of the mappings that were written most, with time to the right and addresses
 * downward, darker where more of the pages were written. A browser shows it in its light or dark
 * colours; no script is needed.
 *
 * All cells of one shade are one path of short horizontal strokes, which keeps the file small.
 */
#include "cli/watch_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BANDS_DRAWN 14
#define SHADES 6

/* Geometry, in pixels. */
#define WIDTH 1000.0
#define LEFT 190.0
#define RIGHT 90.0
#define PLOT (WIDTH - LEFT - RIGHT)
#define RATE_TOP 70.0
#define RATE_HEIGHT 180.0
#define BANDS_TOP (RATE_TOP + RATE_HEIGHT + 78.0)
#define CELL_HEIGHT 6.0
#define BAND_LEAST 30.0
#define BAND_GAP 10.0

static const char style[] =
        "<style>\n"
        "text { font: 12px system-ui, sans-serif; fill: #24292f }\n"
        ".title { font-size: 16px; font-weight: 600 }\n"
        ".dim { fill: #6e7781 }\n"
        ".end { text-anchor: end } .middle { text-anchor: middle }\n"
        ".page { fill: #fff } .band { fill: #f3f5f7 }\n"
        ".grid { stroke: #8c959f; stroke-opacity: .35; fill: none } .event { stroke: #8250df; "
        "stroke-dasharray: 4 3 }\n"
        ".rate { stroke: #c2410c; stroke-width: 1.5; fill: #c2410c; fill-opacity: .18 }\n"
        ".h1 { stroke: #fde3b5 } .h2 { stroke: #fdc06f } .h3 { stroke: #f98e52 }\n"
        ".h4 { stroke: #e0563b } .h5 { stroke: #b3262e } .h6 { stroke: #6d0f2a }\n"
        "@media (prefers-color-scheme: dark) {\n"
        "text { fill: #e6edf3 } .dim { fill: #8b949e }\n"
        ".page { fill: #0d1117 } .band { fill: #161b22 }\n"
        ".event { stroke: #a371f7 } .rate { stroke: #f0883e; fill: #f0883e }\n"
        ".h1 { stroke: #4d2340 } .h2 { stroke: #7d2342 } .h3 { stroke: #a8323b }\n"
        ".h4 { stroke: #dd5a34 } .h5 { stroke: #f6a03f } .h6 { stroke: #fce38a }\n"
        "}\n"
        "</style>\n";

/* Where the shades begin: shares of a cell's pages. */
static const double shades[SHADES] = {0, 0.02, 0.05, 0.15, 0.4, 0.75};

static void put_text(FILE *file, const char *text, size_t room)
{
	size_t length = strlen(text);

	if (length > room) {
		fputs("...", file);
		text += length - (room - 3);
	}
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte == '&' || byte == '<' || byte == '>')
			fprintf(file, "&#%u;", byte);
		else
			putc(byte < ' ' || byte > '~' ? '?' : byte, file);
	}
}

static double start_of(const struct sp_plot *plot)
{
	return plot->columns ? plot->column[0].end - plot->column[0].seconds : 0;
}

static double x_of(const struct sp_plot *plot, double seconds)
{
	double start = start_of(plot);
	double length = plot->columns ? plot->column[plot->columns - 1].end - start : 1;

	return LEFT + (seconds - start) / length * PLOT;
}

/* The round number (1, 2 or 5 times a power of ten) by which an axis of `count` parts goes on. */
static double round_step(double range, double count)
{
	double step = pow(10, floor(log10(range / count)));

	if (range / step > count * 5)
		return step * 10;
	if (range / step > count * 2)
		return step * 5;
	return range / step > count ? step * 2 : step;
}

static void draw_time_axis(const struct sp_plot *plot, double top, double bottom, FILE *file)
{
	double start = start_of(plot);
	double end = plot->columns ? plot->column[plot->columns - 1].end : 1;
	double step = round_step(end - start, 10);

	for (double at = ceil(start / step) * step; at <= end; at += step) {
		double x = x_of(plot, at);

		fprintf(file, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", x, top, bottom);
		fprintf(file, "<text class=\"dim middle\" x=\"%.1f\" y=\"%.1f\">%.10g s</text>\n",
		        x, bottom + 16, fabs(at) < step / 2 ? 0 : at);
	}
	for (unsigned i = 0; i < plot->events; i++)
		fprintf(file,
		        "<path class=\"event\" d=\"M%.1f %.1fV%.1f\"><title>another program was "
		        "executed</title></path>\n",
		        x_of(plot, plot->event[i]), top, bottom);
}

/* "12.8k": for an axis. */
static struct sp_text show_pages(double pages)
{
	struct sp_text text;

	if (pages >= 1e6)
		snprintf(text.text, sizeof(text.text), "%.4gM", pages / 1e6);
	else if (pages >= 1e3)
		snprintf(text.text, sizeof(text.text), "%.4gk", pages / 1e3);
	else
		snprintf(text.text, sizeof(text.text), "%.3g", pages);
	return text;
}

static double column_rate(const struct column *column)
{
	return column->seconds > 0 ? (double)column->dirtied / column->seconds : 0;
}

static void draw_rate(const struct sp_plot *plot, FILE *file)
{
	static const char *const units[] = {"KiB/s", "MiB/s", "GiB/s"};
	double bottom = RATE_TOP + RATE_HEIGHT, most = 1, scale = 1024, step, top;
	unsigned unit = 0;

	for (unsigned i = 0; i < plot->columns; i++)
		most = fmax(most, column_rate(&plot->column[i]) * SP_PAGE_SIZE);
	for (; most / scale >= 1024 && unit + 1 < SP_COUNT_OF(units); unit++)
		scale *= 1024;
	step = round_step(most / scale, 4);
	top = ceil(most / scale / step) * step;
	draw_time_axis(plot, RATE_TOP, bottom, file);
	for (double at = 0; at < top + step / 2; at += step) {
		double y = bottom - at / top * RATE_HEIGHT;

		fprintf(file, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>", LEFT, y, PLOT);
		fprintf(file, "<text class=\"dim end\" x=\"%.1f\" y=\"%.1f\">%.10g %s</text>",
		        LEFT - 8, y + 4, at, units[unit]);
		fprintf(file, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
		        LEFT + PLOT + 8, y + 4, show_pages(at * scale / SP_PAGE_SIZE).text);
	}
	fprintf(file, "<path class=\"rate\" d=\"M%.1f %.1f", LEFT, bottom);
	for (unsigned i = 0; i < plot->columns; i++)
		fprintf(file, "V%.1fH%.1f",
		        bottom - column_rate(&plot->column[i]) * SP_PAGE_SIZE / scale / top *
		                         RATE_HEIGHT,
		        x_of(plot, plot->column[i].end));
	fprintf(file, "V%.1fZ\"/>\n", bottom);
}

/* --- bands --- */

static int by_dirtied(const void *left, const void *right)
{
	const struct band *a = *(struct band *const *)left, *b = *(struct band *const *)right;

	return sp_compare(b->dirtied, a->dirtied);
}

static int by_address(const void *left, const void *right)
{
	return sp_range_compare(*(struct band *const *)left, *(struct band *const *)right);
}

static unsigned band_cells(const struct band *band)
{
	return (unsigned)((band->range.end - band->base + band->cell_size - 1) / band->cell_size);
}

static double band_height(const struct band *band)
{
	return fmax(BAND_LEAST, band_cells(band) * CELL_HEIGHT);
}

/* 0: nothing was written there. */
static unsigned shade_of(const struct sp_plot *plot, const struct band *band, unsigned column,
                         unsigned cell)
{
	uint64_t start = band->base + cell * band->cell_size, end = start + band->cell_size;
	double pages = (double)((end < band->range.end ? end : band->range.end) -
	                        (start > band->range.start ? start : band->range.start)) /
	               SP_PAGE_SIZE * plot->column[column].samples;
	unsigned shade = band->cells[column][cell] > 0;

	while (shade && shade < SHADES && band->cells[column][cell] >= shades[shade] * pages)
		shade++;
	return shade;
}

/* The strokes of one shade in a band: columns in a row that have it are one. */
static void draw_shade(const struct sp_plot *plot, const struct band *band, double top,
                       unsigned shade, FILE *file)
{
	double height = band_height(band) / band_cells(band);

	fprintf(file, "<path class=\"h%u\" stroke-width=\"%.2f\" d=\"", shade, height);
	for (unsigned cell = 0; cell < band_cells(band); cell++) {
		for (unsigned i = 0, end; i < plot->columns; i = end) {
			double from = i ? plot->column[i - 1].end : start_of(plot);

			for (end = i; end < plot->columns; end++)
				if (shade_of(plot, band, end, cell) != shade)
					break;
			if (end > i)
				fprintf(file, "M%.1f %.1fH%.1f", x_of(plot, from),
				        top + (cell + 0.5) * height,
				        x_of(plot, plot->column[end - 1].end));
			else
				end = i + 1;
		}
	}
	fputs("\"/>\n", file);
}

/* Of a descendant, whose it is. */
static void put_what(const struct sp_plot *plot, const struct band *band, size_t room, FILE *file)
{
	if (band->pid != plot->root)
		fprintf(file, "%d: ", band->pid);
	put_text(file, band->what, band->pid != plot->root ? room - 9 : room);
}

static void draw_band(const struct sp_plot *plot, const struct band *band, double top, FILE *file)
{
	double height = band_height(band);

	fprintf(file, "<g><title>");
	put_what(plot, band, 4096, file);
	fprintf(file, ", %" PRIx64 "-%" PRIx64 "</title>", band->range.start, band->range.end);
	fprintf(file, "<rect class=\"band\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
	        LEFT, top, PLOT, height);
	fprintf(file, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">", LEFT - 8, top + 12);
	put_what(plot, band, 27, file);
	fprintf(file, "</text><text class=\"dim end\" x=\"%.1f\" y=\"%.1f\">%" PRIx64 ", %s</text>",
	        LEFT - 8, top + 26, band->range.start,
	        sp_show_bytes(sp_range_size(band->range)).text);
	fprintf(file, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">%.1f%%</text>\n", LEFT + PLOT + 8,
	        top + 12,
	        plot->dirtied ? 100.0 * (double)band->dirtied / (double)plot->dirtied : 0);
	for (unsigned shade = 1; shade <= SHADES; shade++)
		draw_shade(plot, band, top, shade, file);
	fputs("</g>\n", file);
}

static void draw_legend(double y, FILE *file)
{
	fprintf(file, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">share of pages written:</text>",
	        LEFT, y + 4);
	for (unsigned shade = 1; shade <= SHADES; shade++) {
		double x = LEFT + 40 + 105 * (shade - 1) + 110;

		fprintf(file, "<path class=\"h%u\" stroke-width=\"12\" d=\"M%.1f %.1fh18\"/>",
		        shade, x, y);
		fprintf(file, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">", x + 24, y + 4);
		if (shade == 1)
			fputs("some</text>\n", file);
		else
			fprintf(file, "from %.0f%%</text>\n", 100 * shades[shade - 1]);
	}
}

static void draw_title(const struct sp_plot *plot, const char *title, FILE *file)
{
	fprintf(file, "<text class=\"title\" x=\"20\" y=\"28\">");
	put_text(file, title, 100);
	fprintf(file, "</text><text class=\"dim\" x=\"20\" y=\"48\">Dirty rate over time");
	if (plot->held)
		fputs("; with a held session, a page counts when it is first written since the cut",
		      file);
	else
		fputs("; a page counts once in each interval", file);
	fprintf(file, "</text><text class=\"dim\" x=\"%.1f\" y=\"%.1f\">pages/s</text>",
	        LEFT + PLOT + 8, RATE_TOP - 10);
	fprintf(file,
	        "<text class=\"dim\" x=\"20\" y=\"%.1f\">Address space: the most written mappings, "
	        "low "
	        "addresses above; at the right, their share of all pages dirtied</text>\n",
	        BANDS_TOP - 18);
}

void sp_plot_write(const struct sp_plot *plot, const char *title, FILE *file)
{
	struct band *drawn[BANDS];
	unsigned count = plot->bands < BANDS_DRAWN ? plot->bands : BANDS_DRAWN;
	double bottom = BANDS_TOP, top = BANDS_TOP;

	memcpy(drawn, plot->band, sizeof(drawn));
	qsort(drawn, plot->bands, sizeof(*drawn), by_dirtied);
	qsort(drawn, count, sizeof(*drawn), by_address);
	for (unsigned i = 0; i < count; i++)
		bottom += band_height(drawn[i]) + BAND_GAP;
	fprintf(file,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
	        "width=\"%.0f\" height=\"%.0f\">\n%s<rect class=\"page\" width=\"100%%\" "
	        "height=\"100%%\"/>\n",
	        WIDTH, bottom + 70, WIDTH, bottom + 70, style);
	draw_title(plot, title, file);
	if (plot->columns)
		draw_rate(plot, file);
	for (unsigned i = 0; i < count; i++) {
		draw_band(plot, drawn[i], top, file);
		top += band_height(drawn[i]) + BAND_GAP;
	}
	if (plot->columns)
		draw_time_axis(plot, BANDS_TOP, bottom, file);
	draw_legend(bottom + 40, file);
	fputs("</svg>\n", file);
}
