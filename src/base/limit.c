/* Raising resource limits: see limit.h. */
#include "base/limit.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

void sp_raise_soft_limit(int resource)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)resource, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit((__rlimit_resource_t)resource, &limit);
}

/* What sealpoint itself opens at a time, at most; with fewer it fails somewhere, and says something else. */
#define NEEDED_ALWAYS 64

/* Those below the first free one: whoever has started sealpoint may have left it many. */
static uint64_t in_use(uint64_t limit)
{
	int free = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);

	if (free < 0)
		return errno == EMFILE ? limit : 0;
	close(free);
	return (uint64_t)free;
}

int sp_raise_descriptor_limit(uint64_t needed, struct sp_error *err)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return sp_fail_errno(err, errno, "cannot read the limit of open files");
	if (needed < NEEDED_ALWAYS + in_use(limit.rlim_cur))
		needed = NEEDED_ALWAYS + in_use(limit.rlim_cur);
	if (limit.rlim_max < needed) {
		struct rlimit higher = {.rlim_cur = needed, .rlim_max = needed};

		if (!setrlimit(RLIMIT_NOFILE, &higher))
			return 0;
		return sp_fail(
		        err, EMFILE,
		        "%llu open files are needed, but sealpoint may have only %llu; raise its "
		        "hard limit (ulimit -Hn %llu, or LimitNOFILE= of its service)",
		        (unsigned long long)needed, (unsigned long long)limit.rlim_max,
		        (unsigned long long)needed);
	}
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return sp_fail_errno(err, errno, "cannot raise the limit of open files");
	return 0;
}
