/*
 * tiny8: an emulator of a small 8-bit machine that can go back in time.
 *
 *	tiny8 run 100 shot a.png save now.state run 50 back 50 shot b.png
 *
 * After each frame it captures the machine (sp_rewind_capture()), and draws again only those parts of
 * the picture whose video memory has changed (sp_rewind_changed()). Going back is a capture undone, and
 * the picture follows in the same way.
 */
#include "cpu.h"
#include "program.h"

#include <fcntl.h>
#include <png.h>
#include <sealpoint/rewind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ZOOM 3
#define WIDTH (ZOOM * VIDEO_WIDTH)
#define HEIGHT (ZOOM * VIDEO_HEIGHT)
#define HISTORY (8 << 20) /* bytes for the past */

struct machine {
	struct cpu cpu;
	uint8_t *memory;
	struct sp_rewind *rewind;
	unsigned char (*picture)[WIDTH][3];
	unsigned long frames, pixels_drawn;
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "tiny8: %s: %s\n", what, why);
	return 1;
}

/* --- the picture --- */

/* Six hues in a circle, from one to the next in equal steps. */
static void color_of(uint8_t value, unsigned char color[3])
{
	static const unsigned char corners[7][3] = {{230, 80, 80},  {230, 200, 80}, {90, 200, 90},
	                                            {70, 190, 210}, {90, 110, 230}, {200, 90, 210},
	                                            {230, 80, 80}};
	int hue = (value >> 1 & 0x3f) * 6, corner = hue / 64, part = hue % 64;

	for (int i = 0; i < 3; i++)
		color[i] = (unsigned char)((corners[corner][i] * (64 - part) +
		                            corners[corner + 1][i] * part) /
		                           64);
	if (value & 0x80)
		memset(color, 245, 3);
	else if (!value)
		memcpy(color, (unsigned char[]){16, 18, 28}, 3);
}

static void draw_pixel(struct machine *machine, int x, int y)
{
	unsigned char color[3];

	color_of(machine->memory[VIDEO + y * VIDEO_WIDTH + x], color);
	for (int row = y * ZOOM; row < (y + 1) * ZOOM; row++)
		for (int column = x * ZOOM; column < (x + 1) * ZOOM; column++)
			memcpy(machine->picture[row][column], color, 3);
	machine->pixels_drawn++;
}

static void draw_changes(struct machine *machine)
{
	char *video = (char *)machine->memory + VIDEO;
	struct sp_span left = {video, video + VIDEO_WIDTH * VIDEO_HEIGHT}, changed[8];

	while (left.start < left.end) {
		ssize_t count = sp_rewind_changed(machine->rewind, &left, SP_WRITE_WATCH_RESET,
		                                  changed, 8);

		for (ssize_t i = 0; i < count; i++)
			for (char *at = changed[i].start; at < changed[i].end; at++)
				draw_pixel(machine, (int)(at - video) % VIDEO_WIDTH,
				           (int)(at - video) / VIDEO_WIDTH);
	}
}

static int shot(struct machine *machine, const char *path)
{
	png_image image = {
	        .version = PNG_IMAGE_VERSION,
	        .width = WIDTH,
	        .height = HEIGHT,
	        .format = PNG_FORMAT_RGB,
	};

	if (!png_image_write_to_file(&image, path, 0, machine->picture, 0, NULL))
		return complain(path, image.message);
	return 0;
}

/* --- the machine --- */

static int start(struct machine *machine)
{
	struct sp_span ram;
	int rc;

	machine->memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE,
	                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	machine->picture = calloc(HEIGHT, sizeof(*machine->picture));
	if (machine->memory == MAP_FAILED || !machine->picture)
		return complain("start", "out of memory");
	program_load(machine->memory);
	machine->cpu = (struct cpu){.pc = PROGRAM_START, .sp = 0xff};
	for (int pixel = 0; pixel < VIDEO_WIDTH * VIDEO_HEIGHT; pixel++)
		draw_pixel(machine, pixel % VIDEO_WIDTH, pixel / VIDEO_WIDTH);
	machine->pixels_drawn = 0;
	ram = (struct sp_span){(char *)machine->memory, (char *)machine->memory + MEMORY_SIZE};
	rc = sp_rewind_open(&machine->rewind, ram, &machine->cpu, sizeof(machine->cpu), HISTORY,
	                    SP_WRITE_WATCH_AUTO);
	return rc < 0 ? complain("sp_rewind_open", strerror(-rc)) : 0;
}

static int run(struct machine *machine, long frames)
{
	while (frames-- > 0) {
		int rc;

		if (!cpu_run_frame(&machine->cpu, machine->memory))
			return complain("run", "the program executes an unknown instruction");
		rc = sp_rewind_capture(machine->rewind);
		if (rc < 0)
			return complain("sp_rewind_capture", strerror(-rc));
		draw_changes(machine);
		machine->frames++;
	}
	return 0;
}

static int back(struct machine *machine, long frames)
{
	while (frames-- > 0) {
		int rc = sp_rewind_back(machine->rewind, 1);

		if (rc < 0)
			return complain("sp_rewind_back", strerror(-rc));
		draw_changes(machine);
	}
	return 0;
}

static int save(struct machine *machine, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int rc = fd < 0 ? -1 : sp_rewind_save(machine->rewind, fd);

	close(fd);
	return rc < 0 ? complain(path, "cannot be saved") : 0;
}

static int load(struct machine *machine, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -1 : sp_rewind_load(machine->rewind, fd);

	close(fd);
	draw_changes(machine);
	return rc < 0 ? complain(path, "cannot be loaded") : 0;
}

static void tell(const struct machine *machine)
{
	struct sp_rewind_stats stats;

	sp_rewind_stats(machine->rewind, &stats);
	printf("%lu frames run; %.1f %% of the picture drawn for each; %zu frames back in %zu bytes\n",
	       machine->frames,
	       machine->frames ? 100.0 * (double)machine->pixels_drawn /
	                                 (double)machine->frames / VIDEO_WIDTH / VIDEO_HEIGHT
	                       : 0,
	       stats.frames, stats.bytes);
}

static int execute(struct machine *machine, const char *command, const char *argument)
{
	if (!strcmp(command, "run"))
		return run(machine, atol(argument));
	if (!strcmp(command, "back"))
		return back(machine, atol(argument));
	if (!strcmp(command, "shot"))
		return shot(machine, argument);
	if (!strcmp(command, "save"))
		return save(machine, argument);
	if (!strcmp(command, "load"))
		return load(machine, argument);
	return complain(command, "no such command");
}

int main(int argc, char **argv)
{
	struct machine machine = {0};
	int status;

	if (argc < 3 || argc % 2 == 0) {
		fprintf(stderr, "usage: tiny8 {run FRAMES|back FRAMES|shot PNG|save FILE|load FILE}...\n");
		return 2;
	}
	status = start(&machine);
	for (int i = 1; status == 0 && i < argc; i += 2)
		status = execute(&machine, argv[i], argv[i + 1]);
	if (status == 0)
		tell(&machine);
	sp_rewind_close(machine.rewind);
	free(machine.picture);
	return status;
}
