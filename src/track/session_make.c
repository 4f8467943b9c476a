/* Making a tracking session, with the best backend that the kernel has: see session.h. */
#include "track/session.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limit.h"
#include "proc/stat.h"
#include "remote/userfaultfd.h"
#include "sealpoint/write_watch.h"

#include <errno.h>
#include <string.h>
#include <sys/pidfd.h>

static const char *const backend_names[] = {
        [SP_SESSION_ANY] = "any",
        [SP_SESSION_SCAN] = "scan",
        [SP_SESSION_SOFT_DIRTY] = "soft-dirty",
};

const char *sp_session_backend_name(enum sp_session_backend backend)
{
	return backend_names[backend];
}

int sp_session_backend_by_name(const char *name)
{
	for (size_t i = 0; i < SP_COUNT_OF(backend_names); i++)
		if (!strcmp(name, backend_names[i]))
			return (int)i;
	return -1;
}

/* The process is stopped for a moment, and made to open the userfaultfd. */
static int make_with_scan(struct sp_session *session, pid_t pid, uint64_t deadline_ns,
                          struct sp_error *err)
{
	struct sp_foothold foothold = {0};
	int rc;

	/* Looked for again in the stop, if in vain. */
	sp_foothold_find(sp_living_thread(pid), (struct sp_range){0}, &foothold, NULL);
	rc = sp_userfaultfd_of(pid, &foothold, sp_remote_userfaultfd, deadline_ns, err);
	return rc < 0 ? rc : sp_session_begin(session, pid, rc, err);
}

int sp_session_make(struct sp_session *session, pid_t pid, enum sp_session_backend backend,
                    bool hold, uint64_t deadline_ns, struct sp_error *err)
{
	sp_cleanup_close int pidfd = pidfd_open(pid, 0);
	int rc;

	*session = SP_SESSION_NONE;
	if (pidfd < 0)
		return sp_fail_errno(err, errno, "cannot track the writes of process %d", pid);
	rc = sp_raise_descriptor_limit(0, err); /* the holder's too */
	if (rc < 0)
		return rc;
	if (backend == SP_SESSION_ANY)
		backend = sp_write_watch_probe(SP_WRITE_WATCH_SCAN, NULL) == -EOPNOTSUPP
		                  ? SP_SESSION_SOFT_DIRTY
		                  : SP_SESSION_SCAN;
	rc = backend == SP_SESSION_SCAN ? make_with_scan(session, pid, deadline_ns, err)
	                                : sp_session_begin_soft_dirty(session, pid, err);
	if (rc == 0 && hold) {
		rc = sp_session_hold(session, pidfd, err);
		if (rc < 0)
			sp_session_close(session);
	}
	return rc < 0 ? sp_error_context(err, "cannot track the writes of %s",
	                                 sp_process_name(pid).text)
	              : 0;
}
