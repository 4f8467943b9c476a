/*
 * Action scripts: programs of the user's that run at certain moments of a dump or a restore, and say by
 * their exit status whether it may go on. Each is told by its environment which moment it is.
 */
#include "cli/criu.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

/* sealpoint blocks signals while a program is under its hands; a script is an ordinary process. */
static int spawn(pid_t *child, const char *script)
{
	char *const argv[] = {(char *)script, NULL};
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int code;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	code = posix_spawnp(child, script, NULL, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	return code;
}

static int run(const char *script, const char *action, struct sp_error *err)
{
	pid_t child, ended;
	int status, code = spawn(&child, script);

	if (code)
		return sp_fail_errno(err, code, "cannot run the action script %s", script);
	do
		ended = waitpid(child, &status, 0);
	while (ended < 0 && errno == EINTR);
	if (ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (ended == child && WIFEXITED(status))
		return sp_fail(err, ECANCELED,
		               "the action script %s has failed at %s, with status %d", script,
		               action, WEXITSTATUS(status));
	return sp_fail(err, ECANCELED, "the action script %s was ended at %s by a signal", script,
	               action);
}

int sp_criu_run_scripts(struct sp_criu *criu, const char *action, pid_t pid, struct sp_error *err)
{
	sp_cleanup_free char *number = sp_format("%d", pid);
	int rc = 0;

	setenv("CRTOOLS_SCRIPT_ACTION", action, 1);
	setenv("CRTOOLS_IMAGE_DIR", criu->images, 1);
	if (pid)
		setenv("CRTOOLS_INIT_PID", number, 1);
	for (size_t i = 0; i < criu->scripts.count && !rc; i++) {
		const char *script = sp_array_pointer(&criu->scripts, i);

		sp_criu_tell(criu, SP_CRIU_INFO, "Running %s script %s", action, script);
		rc = run(script, action, err);
	}
	return rc;
}

/* A script at pre-resume must not fail: what it is told of cannot be taken back. */
int sp_criu_run_scripts_at(void *context, enum sp_moment moment, pid_t pid, struct sp_error *err)
{
	static const char *const actions[] = {
	        [SP_MOMENT_NETWORK_LOCK] = "network-lock",
	        [SP_MOMENT_NETWORK_UNLOCK] = "network-unlock",
	        [SP_MOMENT_SAVED] = "post-dump",
	        [SP_MOMENT_BORN] = "setup-namespaces",
	        [SP_MOMENT_RESTORED] = "post-restore",
	};
	struct sp_error late = {0};
	int rc = sp_criu_run_scripts(context, actions[moment], pid, err);

	if (!rc && moment == SP_MOMENT_BORN)
		rc = sp_criu_run_scripts(context, "post-setup-namespaces", pid, err);
	if (!rc && moment == SP_MOMENT_RESTORED &&
	    sp_criu_run_scripts(context, "pre-resume", pid, &late) < 0)
		sp_criu_tell(context, SP_CRIU_WARNING, "%s", late.message);
	return rc;
}
