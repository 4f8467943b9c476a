/* The ways in which `sealpoint watch` shows a sample: a table, a line of JSON, a plot. */
#ifndef SEALPOINT_CLI_WATCH_H
#define SEALPOINT_CLI_WATCH_H

#include "cli/cli.h"
#include "engine/watch.h"

/* --- the table (watch_table.c) --- */

/** What stands on the terminal, to be drawn over. Zeroed at first. */
struct sp_watch_screen {
	unsigned lines, width;
};

/** Shows a sample: over the one before where stdout is a terminal, else below it. */
int sp_watch_show(struct sp_watch_screen *screen, const struct sp_watch *watch);
/** What a mapping is: its file, its name, or "" for nameless memory. */
const char *sp_watch_what(const struct sp_vma *vma);

/* --- the plot (watch_plot.c, watch_svg.c) --- */

/** Collects samples, in bounded memory. */
struct sp_plot;

struct sp_plot *sp_plot_new(void);
void sp_plot_add(struct sp_plot *plot, const struct sp_watch *watch);
/** Writes an SVG; `title` says of what. */
void sp_plot_write(const struct sp_plot *plot, const char *title, FILE *file);
void sp_plot_free(struct sp_plot *plot);

#endif
