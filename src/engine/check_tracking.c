/* Trials of the ways to find written pages: those of the write watch (sealpoint/write_watch.h). */
#include "engine/check_probe.h"

#include "base/array.h"
#include "sealpoint/write_watch.h"

#include <errno.h>
#include <stdio.h>

/* What a backend does not guarantee, in a few words. */
static const struct {
	enum sp_write_watch_guarantee guarantee;
	const char *without;
} shortcomings[] = {
        {SP_WRITE_WATCH_ATOMIC, "not atomic"},
        {SP_WRITE_WATCH_KERNEL_WRITES, "writes of the kernel fail"},
        {SP_WRITE_WATCH_DISCARDS, "discards not seen"},
        {SP_WRITE_WATCH_REMAPS, "new mappings not seen"},
        {SP_WRITE_WATCH_LOCAL, "resets the whole process"},
        {SP_WRITE_WATCH_NO_SIGNALS, "handles SIGSEGV"},
};

static void try_backend(struct sp_probe_result *result, enum sp_write_watch_backend backend)
{
	unsigned guarantees = 0;
	size_t length = 0;
	int rc = sp_write_watch_probe(backend, &guarantees);

	errno = -rc;
	sp_probe_outcome(result, rc == 0);
	for (size_t i = 0; rc == 0 && i < SP_COUNT_OF(shortcomings); i++)
		if (!(guarantees & shortcomings[i].guarantee) && length < sizeof(result->detail))
			length += (size_t)snprintf(result->detail + length,
			                           sizeof(result->detail) - length, "%s%s",
			                           length ? ", " : "", shortcomings[i].without);
}

static void probe_scan(struct sp_probe_result *result)
{
	try_backend(result, SP_WRITE_WATCH_SCAN);
}

static void probe_userfault(struct sp_probe_result *result)
{
	try_backend(result, SP_WRITE_WATCH_USERFAULT);
}

static void probe_soft_dirty(struct sp_probe_result *result)
{
	try_backend(result, SP_WRITE_WATCH_SOFT_DIRTY);
}

static void probe_mprotect(struct sp_probe_result *result)
{
	try_backend(result, SP_WRITE_WATCH_MPROTECT);
}

const struct sp_probe sp_tracking_probes[] = {
        {"tracking: scan", SP_NEEDED_SOMETIMES, "tracking writes, with PAGEMAP_SCAN", "Linux 6.7",
         probe_scan},
        {"tracking: userfault", SP_NEEDED_SOMETIMES, "the same, with a thread that serves faults",
         "Linux 6.4", probe_userfault},
        {"tracking: soft-dirty", SP_NEEDED_SOMETIMES, "the same, with bits of the page table",
         "Linux 3.11, MEM_SOFT_DIRTY", probe_soft_dirty},
        {"tracking: mprotect", SP_NEEDED_SOMETIMES, "the same, for a program's own memory only",
         "any Linux", probe_mprotect},
        {0},
};
