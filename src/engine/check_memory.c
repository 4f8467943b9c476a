/*
 * Trials of what acts on memory: finding out which pages matter, filling them from outside, and the
 * properties that a mapping can have.
 */
#include "engine/check_probe.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/kernel_abi.h"
#include "base/range.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>

#define TRIAL_PAGES 4

static char *map_pages(void)
{
	return mmap(NULL, TRIAL_PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Scans the trial pages for `category`; returns the number of regions or -1. */
static int scan(char *pages, uint64_t category, struct page_region *region)
{
	sp_cleanup_close int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct pm_scan_arg arg = {
	        .size = sizeof(arg),
	        .start = (uintptr_t)pages,
	        .end = (uintptr_t)pages + TRIAL_PAGES * SP_PAGE_SIZE,
	        .vec = (uintptr_t)region,
	        .vec_len = 1,
	        .category_mask = category,
	        .return_mask = category,
	};

	return ioctl(fd, PAGEMAP_SCAN, &arg);
}

static void probe_pagemap_scan(struct sp_probe_result *result)
{
	struct page_region region = {0};
	char *pages = map_pages();

	pages[SP_PAGE_SIZE] = 1;
	sp_probe_outcome(result, scan(pages, PAGE_IS_PRESENT, &region) == 1 &&
	                                 region.start == (uintptr_t)pages + SP_PAGE_SIZE);
	if (!result->present)
		sp_probe_detail(result, "%s; /proc/PID/pagemap is read instead, which takes longer",
		                strerror(errno));
}

static void probe_guard_install(struct sp_probe_result *result)
{
	sp_probe_outcome(result, madvise(map_pages(), SP_PAGE_SIZE, MADV_GUARD_INSTALL) == 0);
}

static void probe_guard_scan(struct sp_probe_result *result)
{
	struct page_region region = {0};
	char *pages = map_pages();

	if (madvise(pages, SP_PAGE_SIZE, MADV_GUARD_INSTALL) < 0)
		sp_probe_outcome(result, false);
	else
		sp_probe_outcome(result, scan(pages, PAGE_IS_GUARD, &region) == 1);
}

static bool open_userfaultfd(int *fd, uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	*fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	return *fd >= 0 && ioctl(*fd, UFFDIO_API, &api) == 0;
}

static bool register_pages(int fd, char *pages, uint64_t mode)
{
	struct uffdio_register range = {
	        .range = {.start = (uintptr_t)pages, .len = TRIAL_PAGES * SP_PAGE_SIZE},
	        .mode = mode,
	};

	return ioctl(fd, UFFDIO_REGISTER, &range) == 0;
}

static void probe_uffd_copy(struct sp_probe_result *result)
{
	static char contents[SP_PAGE_SIZE] __attribute__((aligned(SP_PAGE_SIZE))) = "sealpoint";
	char *pages = map_pages();
	struct uffdio_copy copy = {
	        .dst = (uintptr_t)pages,
	        .src = (uintptr_t)contents,
	        .len = SP_PAGE_SIZE,
	};
	sp_cleanup_close int fd = -1;

	sp_probe_outcome(result, open_userfaultfd(&fd, 0) &&
	                                 register_pages(fd, pages, UFFDIO_REGISTER_MODE_MISSING) &&
	                                 ioctl(fd, UFFDIO_COPY, &copy) == 0 &&
	                                 !strcmp(pages, contents));
	if (!result->present)
		sp_probe_detail(result, "%s; memory is populated first instead, which takes longer",
		                strerror(errno));
}

static void probe_mseal(struct sp_probe_result *result)
{
	char *pages = map_pages();

	if (syscall(SYS_mseal, pages, SP_PAGE_SIZE, 0) < 0)
		sp_probe_outcome(result, false);
	else
		sp_probe_outcome(result, munmap(pages, SP_PAGE_SIZE) < 0 && errno == EPERM);
}

static void probe_populate_write(struct sp_probe_result *result)
{
	sp_probe_outcome(result, madvise(map_pages(), SP_PAGE_SIZE, MADV_POPULATE_WRITE) == 0);
}

static void probe_anon_name(struct sp_probe_result *result)
{
	sp_probe_outcome(result, prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, map_pages(), SP_PAGE_SIZE,
	                               "trial") == 0);
	if (!result->present)
		sp_probe_detail(result, "%s; such names are lost", strerror(errno));
}

/* Opens the file behind the first mapping of ours that has one. */
static void probe_map_files(struct sp_probe_result *result)
{
	sp_cleanup_dir DIR *directory = opendir("/proc/self/map_files");
	sp_cleanup_close int fd = -1;
	struct dirent *entry;

	while (directory && fd < 0 && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			fd = openat(dirfd(directory), entry->d_name, O_RDONLY | O_CLOEXEC);
	sp_probe_outcome(result, fd >= 0);
}

static void probe_protection_keys(struct sp_probe_result *result)
{
	sp_probe_outcome(result, pkey_alloc(0, 0) >= 0);
	if (!result->present)
		sp_probe_detail(result, "not on this processor");
}

static void probe_huge_pages(struct sp_probe_result *result)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
	sp_cleanup_free char *text = NULL;
	const char *chosen;

	if (sp_read_file(AT_FDCWD, path, &text, NULL, NULL)) {
		sp_probe_outcome(result, false);
		return;
	}
	chosen = strchr(text, '[');
	result->present = chosen && strncmp(chosen, "[never]", 7) != 0;
	if (chosen)
		sp_probe_detail(result, "%.*s", (int)strcspn(chosen + 1, "]"), chosen + 1);
}

const struct sp_probe sp_memory_probes[] = {
        {"PAGEMAP_SCAN", SP_NEEDED_SOMETIMES, "finding the pages that matter quickly", "Linux 6.7",
         probe_pagemap_scan},
        {"userfaultfd, UFFDIO_COPY", SP_NEEDED_SOMETIMES, "filling memory quickly", "Linux 4.3",
         probe_uffd_copy},
        {"MADV_POPULATE_WRITE", SP_NEEDED_ALWAYS, "filling huge pages and file mappings",
         "Linux 5.14", probe_populate_write},
        {"map_files", SP_NEEDED_ALWAYS, "the files behind mappings, deleted ones too",
         "Linux 3.3, CAP_CHECKPOINT_RESTORE", probe_map_files},
        {"mseal", SP_NEEDED_SOMETIMES, "sealing again what was sealed", "Linux 6.10", probe_mseal},
        {"MADV_GUARD_INSTALL", SP_NEEDED_SOMETIMES, "restoring guard pages", "Linux 6.13",
         probe_guard_install},
        {"PAGE_IS_GUARD", SP_NEEDED_SOMETIMES, "finding guard pages", "Linux 6.15",
         probe_guard_scan},
        {"anonymous VMA names", SP_NEEDED_SOMETIMES, "names of anonymous mappings",
         "Linux 5.17, ANON_VMA_NAME", probe_anon_name},
        {"transparent huge pages", SP_NEEDED_SOMETIMES, "huge pages that come back huge",
         "Linux 2.6.38", probe_huge_pages},
        {"protection keys", SP_NEEDED_SOMETIMES, "programs that use pkey_mprotect(2)",
         "Linux 4.9, on a processor that has them", probe_protection_keys},
        {0},
};
