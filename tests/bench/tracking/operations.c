/*
 * Finding and protecting the written ones of 8,192 pages: the raw ioctl, the library, and the kernel's
 * generic path, which is taken as soon as more than PAGE_IS_WRITTEN is asked for.
 */
#include "bench.h"

#include "base/kernel_abi.h"
#include "sealpoint/write_watch.h"
#include "track/scan.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#define PAGES ((size_t)8192)
#define ROUNDS 101
#define ROOM 512

static int pagemap;
static char *memory[3]; /* raw, library, generic */
static struct sp_write_watch *watch;

static void scan(char *pages, uint64_t flags, bool generic, bool result)
{
	struct page_region regions[ROOM];
	struct pm_scan_arg args = {
	        .size = sizeof(args),
	        .flags = flags,
	        .start = (uintptr_t)pages,
	        .end = (uintptr_t)pages + PAGES * PAGE,
	        .vec = result ? (uintptr_t)regions : 0,
	        .vec_len = result ? ROOM : 0,
	        .category_mask = PAGE_IS_WRITTEN,
	        .return_mask = PAGE_IS_WRITTEN | (generic ? PAGE_IS_PRESENT : 0),
	};
	int count;

	do {
		count = ioctl(pagemap, PAGEMAP_SCAN, &args);
		die_if(count < 0, "PAGEMAP_SCAN");
		args.start = args.walk_end;
	} while (count == ROOM && args.start < args.end);
}

#define PROTECT (PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC)

static void get_raw(char *pages, bool generic)
{
	scan(pages, 0, generic, true);
}

static void take_raw(char *pages, bool generic)
{
	scan(pages, PROTECT, generic, true);
}

static void protect_raw(char *pages, bool generic)
{
	scan(pages, PROTECT, false, false);
}

static void get_then_protect_raw(char *pages, bool generic)
{
	get_raw(pages, generic);
	protect_raw(pages, generic);
}

static void ranges(char *pages, unsigned flags)
{
	struct sp_span left = {pages, pages + PAGES * PAGE}, written[ROOM];

	while (left.start < left.end)
		die_if(sp_write_watch_ranges(watch, &left, flags, written, ROOM) < 0, "ranges");
}

static void get_library(char *pages)
{
	ranges(pages, 0);
}

static void take_library(char *pages)
{
	ranges(pages, SP_WRITE_WATCH_RESET);
}

static void protect_library(char *pages)
{
	sp_write_watch_reset(watch, (struct sp_span){pages, pages + PAGES * PAGE});
}

static void get_then_protect_library(char *pages)
{
	get_library(pages);
	protect_library(pages);
}

static const struct {
	const char *name;
	void (*raw)(char *pages, bool generic);
	void (*library)(char *pages);
} operations[] = {
        {"get", get_raw, get_library},
        {"protect", protect_raw, protect_library},
        {"get, then protect", get_then_protect_raw, get_then_protect_library},
        {"get and protect", take_raw, take_library},
};

/* The three ways take turns, so that what disturbs the machine disturbs all alike. */
static void measure(size_t operation, size_t step, double *result)
{
	static double times[3][ROUNDS];

	for (size_t round = 0; round < ROUNDS; round++)
		for (int way = 0; way < 3; way++) {
			char *pages = memory[way];
			double start;

			protect_raw(pages, false);
			if (step)
				write_every(pages, PAGES, step);
			start = now_ns();
			if (way == 1)
				operations[operation].library(pages);
			else
				operations[operation].raw(pages, way == 2);
			times[way][round] = now_ns() - start;
		}
	for (int way = 0; way < 3; way++)
		result[way] = median(times[way], ROUNDS) / 1e3;
}

int main(void)
{
	static const struct {
		const char *name;
		size_t step;
	} cases[] = {{"none", 0}, {"1 in 100", 100}, {"every 2nd", 2}, {"all", 1}};
	const size_t rows =
	        sizeof(operations) / sizeof(*operations) * (sizeof(cases) / sizeof(*cases));
	double ratios[sizeof(operations) / sizeof(*operations) * (sizeof(cases) / sizeof(*cases))];
	size_t row = 0;
	bool user_mode_only;
	int uffd = sp_uffd_open(&user_mode_only);

	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	die_if(sp_uffd_enable(uffd, SP_UFFD_ASYNC) < 0, "userfaultfd");
	for (int way = 0; way < 3; way++) {
		struct sp_range range;

		memory[way] = map_populated(PAGES * PAGE, false);
		range = (struct sp_range){(uintptr_t)memory[way],
		                          (uintptr_t)memory[way] + PAGES * PAGE};
		if (way == 1)
			die_if(sp_write_watch_open(
			               &watch,
			               (struct sp_span){(char *)range.start, (char *)range.end},
			               SP_WRITE_WATCH_SCAN) < 0,
			       "watch");
		else
			die_if(sp_uffd_register(uffd, range) < 0, "register");
	}
	printf("8,192 pages of 4 KiB, microseconds (median of %d)\n\n", ROUNDS);
	printf("%-20s %-10s %9s %9s %8s %13s\n", "operation", "written", "raw ioctl", "library",
	       "ratio", "generic path");
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
			double us[3];

			measure(i, cases[k].step, us);
			ratios[row++] = us[1] / us[0];
			printf("%-20s %-10s %9.1f %9.1f %8.2f %13.1f\n", operations[i].name,
			       cases[k].name, us[0], us[1], us[1] / us[0], us[2]);
		}
	printf("\naim: the library takes at most 1.03 of the raw ioctl; median of the rows: %.3f\n",
	       median(ratios, rows));
	sp_write_watch_close(watch);
	return 0;
}
