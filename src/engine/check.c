/*
 * What the kernel and our privileges allow: each feature is tried out, not looked up, because a
 * kernel version, a configuration, a security module and a container each have a say.
 *
 * The probes stand in tables (check_process.c, check_memory.c, check_capability.c). Each runs in a
 * child that reports through a shared page; a child that dies or takes too long reports nothing,
 * and the feature counts as absent.
 */
#include "engine/check_probe.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_SECONDS 10

void sp_probe_outcome(struct sp_probe_result *result, bool ok)
{
	result->present = ok;
	if (!ok)
		sp_probe_detail(result, "%s",
		                errno ? strerror(errno) : "it does not do what it should");
}

void sp_probe_detail(struct sp_probe_result *result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(result->detail, sizeof(result->detail), format, args);
	va_end(args);
}

static void run_in_child(const struct sp_probe *probe, struct sp_probe_result *result)
{
	/* Its own group: what a probe starts is not reached by a Ctrl-C half way through. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(PROBE_SECONDS);
	errno = 0;
	probe->run(result);
	_exit(0);
}

static int try_out(const struct sp_probe *probe, struct sp_probe_result *shared,
                   struct sp_error *err)
{
	pid_t child;
	int status;

	*shared = (struct sp_probe_result){0};
	child = fork();
	if (child < 0)
		return sp_fail_errno(err, errno, "cannot start a process to try out %s",
		                     probe->name);
	if (child == 0)
		run_in_child(probe, shared);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return sp_fail_errno(err, errno, "cannot wait for the trial of %s",
			                     probe->name);
	if (WIFSIGNALED(status)) {
		shared->present = false;
		sp_probe_detail(shared, "the trial ended with signal %d (%s)", WTERMSIG(status),
		                strsignal(WTERMSIG(status)));
	}
	return 0;
}

static int try_all(const struct sp_probe *probes, struct sp_probe_result *shared,
                   struct sp_array *features, struct sp_error *err)
{
	for (const struct sp_probe *probe = probes; probe->name; probe++) {
		struct sp_feature *feature;
		int rc = try_out(probe, shared, err);

		if (rc < 0)
			return rc;
		feature = sp_array_push(features);
		*feature = (struct sp_feature){
		        .name = probe->name,
		        .present = shared->present,
		        .need = probe->need,
		        .purpose = probe->purpose,
		        .since = probe->since,
		};
		memcpy(feature->detail, shared->detail, sizeof(feature->detail));
	}
	return 0;
}

int sp_check_features(struct sp_array *features, struct sp_error *err)
{
	struct sp_probe_result *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
	                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (shared == MAP_FAILED)
		return sp_fail_errno(err, errno, "cannot get memory for the trials");
	rc = try_all(sp_process_probes, shared, features, err);
	if (rc == 0)
		rc = try_all(sp_memory_probes, shared, features, err);
	if (rc == 0)
		rc = try_all(sp_tracking_probes, shared, features, err);
	if (rc == 0)
		rc = try_all(sp_capability_probes, shared, features, err);
	munmap(shared, sizeof(*shared));
	return rc;
}
