/*
 * Making a tracking session: a process is stopped for a moment and made to open the userfaultfd. See
 * session.h.
 */
#include "track/session.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "proc/stat.h"
#include "remote/userfaultfd.h"

/* Lets the process, which is seized, make the userfaultfd. */
static int make_userfaultfd(struct sp_process *process, struct sp_foothold *foothold,
                            struct sp_error *err)
{
	struct sp_remote remote = {0};
	int fd = -1;
	int rc = sp_remote_open(&remote, process, sp_process_leader(process), foothold, err);

	if (rc == 0)
		fd = rc = sp_remote_userfaultfd(&remote, err);
	if (rc >= 0)
		rc = sp_remote_close(&remote, err);
	else
		sp_remote_close(&remote, NULL);
	if (rc < 0) {
		sp_close_scope(&fd);
		return rc;
	}
	return fd;
}

int sp_session_make(struct sp_session *session, pid_t pid, bool hold, uint64_t deadline_ns,
                    struct sp_error *err)
{
	struct sp_foothold foothold;
	struct sp_process process = {.pid = pid, .pidfd = -1};
	int rc;

	*session = SP_SESSION_NONE;
	/* Looked for again in the stop, if in vain. */
	sp_foothold_find(pid, (struct sp_range){0}, &foothold, NULL);
	rc = sp_process_seize(&process, pid, deadline_ns, err);
	if (rc == 0) {
		int fd = make_userfaultfd(&process, &foothold, err);

		sp_process_release(&process, SP_RELEASE_RUN);
		rc = fd < 0 ? fd : sp_session_begin(session, pid, fd, err);
		if (rc == 0 && hold)
			rc = sp_session_hold(session, process.pidfd, err);
		if (rc < 0)
			sp_session_close(session);
	}
	sp_process_forget(&process);
	return rc < 0 ? sp_error_context(err, "cannot track the writes of %s",
	                                 sp_process_name(pid).text)
	              : 0;
}
