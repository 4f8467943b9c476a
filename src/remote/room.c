/*
 * Names the limit that a process has reached: see room.h. Nobody but its owner knows whether the
 * limit may be raised for a moment, so sealpoint does not do that by itself; killed at that moment,
 * it would leave it raised.
 */
#include "remote/room.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "proc/status.h"
#include "remote/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *limit; /* in /proc/PID/limits, bytes */
	const char *used;  /* in /proc/PID/status, KiB */
	const char *name, *option, *what;
	uint64_t needed;
} rooms[] = {
        {"Max address space", "VmSize", "RLIMIT_AS", "as", "its address space", SP_REMOTE_SIZE},
        {"Max data size", "VmData", "RLIMIT_DATA", "data", "its data", SP_REMOTE_DATA_SIZE},
        {"Max locked memory", "VmLck", "RLIMIT_MEMLOCK", "memlock",
         "its locked memory, to which mlockall(2) adds all new one,", SP_REMOTE_SIZE},
};

/* The soft limit; one that is not a number ("unlimited") is none. */
static uint64_t soft_limit(const char *limits, const char *name)
{
	const char *line = strstr(limits, name);
	char *end = NULL;
	uint64_t value = line ? strtoull(line + strlen(name), &end, 10) : 0;

	return line && end != line + strlen(name) ? value : UINT64_MAX;
}

int sp_room_explain(pid_t pid, struct sp_error *err)
{
	sp_cleanup_free char *limits = NULL, *status = NULL;

	/* EAGAIN: what is locked. */
	if ((err->code != ENOMEM && err->code != EAGAIN) ||
	    sp_proc_read(pid, "limits", &limits, NULL, NULL) ||
	    sp_status_read(pid, pid, &status, NULL))
		return -err->code;
	for (size_t i = 0; i < SP_COUNT_OF(rooms); i++) {
		uint64_t limit = soft_limit(limits, rooms[i].limit), used_kb, wanted;

		if (sp_status_number(status, rooms[i].used, 10, &used_kb, NULL))
			continue;
		wanted = (used_kb << 10) + rooms[i].needed;
		/* Who has no locks at all is not stopped by their limit. */
		if (wanted <= limit || !used_kb)
			continue;
		return sp_fail(err, ENOMEM,
		               "%s has no room for the %llu KiB that a dump needs for a moment: "
		               "%s has reached %s; raise that limit (prlimit --pid %d "
		               "--%s=%llu:) and dump again",
		               sp_process_name(pid).text, (unsigned long long)rooms[i].needed >> 10,
		               rooms[i].what, rooms[i].name, pid, rooms[i].option,
		               (unsigned long long)(wanted + rooms[i].needed));
	}
	return -err->code;
}

/* At most: while a userfaultfd is made by a device that is handed over (userfaultfd.c). */
#define DESCRIPTORS_NEEDED 4

int sp_room_explain_descriptors(pid_t pid, struct sp_error *err)
{
	sp_cleanup_free char *limits = NULL;
	uint64_t limit;

	if (err->code != EMFILE || sp_proc_read(pid, "limits", &limits, NULL, NULL))
		return -err->code;
	limit = soft_limit(limits, "Max open files");
	return sp_fail(err, EMFILE,
	               "%s has reached RLIMIT_NOFILE, and needs a descriptor for a moment; raise "
	               "that limit "
	               "(prlimit --pid %d --nofile=%llu:) and try again",
	               sp_process_name(pid).text, pid,
	               (unsigned long long)limit + DESCRIPTORS_NEEDED);
}
