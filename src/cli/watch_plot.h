/*
 * What a plot of `sealpoint watch` is made of: watch_plot.c collects it, watch_svg.c draws it. Time is
 * in columns, and the addresses of a mapping are in cells.
 */
#ifndef SEALPOINT_CLI_WATCH_PLOT_H
#define SEALPOINT_CLI_WATCH_PLOT_H

#include "cli/watch.h"

#define COLUMNS 240
#define BANDS 64
#define CELLS 16
#define EVENTS 16

struct column {
	double end, seconds;
	uint64_t dirtied;
	unsigned samples;
};

/* A mapping through all its changes of size, in cells that double when it outgrows them. */
struct band {
	pid_t pid;
	struct sp_range range;
	bool closed;   /* of a program that is no more */
	uint64_t base; /* where the first cell begins: at the range, or in front of it */
	uint64_t cell_size;
	uint64_t dirtied;
	char *what;
	uint32_t cells[COLUMNS][CELLS]; /* pages written */
};

struct sp_plot {
	pid_t root;               /* bands of other processes tell which */
	unsigned columns, stride; /* a column has so many samples */
	struct column column[COLUMNS];
	unsigned bands;
	struct band *band[BANDS];
	uint64_t dirtied;
	bool held;
	unsigned events;
	double event[EVENTS]; /* when another program was executed */
};

#endif
