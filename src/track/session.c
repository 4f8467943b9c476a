/* Tracking sessions from the side of the commands: see session.h. */
#include "track/session.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "proc/capability.h"
#include "proc/file.h"
#include "proc/stat.h"
#include "sealpoint/write_watch.h"
#include "track/holder.h"
#include "track/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a holder, which has next to nothing to do, may take to answer. */
#define PATIENCE_S 10

/* --- where sessions are found --- */

static int run_directory(char *path, size_t size, struct sp_error *err)
{
	const char *user = getenv("XDG_RUNTIME_DIR");

	if (geteuid() == 0)
		snprintf(path, size, "/run/sealpoint");
	else if (user && *user)
		snprintf(path, size, "%s/sealpoint", user);
	else
		return sp_fail(err, ENOENT,
		               "there is no place for the sockets of tracking sessions: set "
		               "XDG_RUNTIME_DIR to a directory of your own");
	return 0;
}

bool sp_sessions_have_place(void)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];

	return run_directory(path, sizeof(path), NULL) == 0;
}

/* Nobody else may put a socket there. */
static int check_run_directory(const char *path, struct sp_error *err)
{
	struct stat stat;

	if (lstat(path, &stat) < 0)
		return sp_fail_errno(err, errno, "cannot look at %s", path);
	if (!S_ISDIR(stat.st_mode) || stat.st_uid != geteuid() || (stat.st_mode & 022))
		return sp_fail(err, EPERM,
		               "%s, where tracking sessions are found, is not a directory that "
		               "only this user can write to: remove it",
		               path);
	return 0;
}

/*
 * The socket of a process's session is named by process id and pid namespace: a pid means another
 * process in each, and the directory may be seen from several.
 */
static int socket_address(pid_t pid, struct sockaddr_un *address, struct sp_error *err)
{
	char directory[sizeof(address->sun_path)];
	struct stat namespace = {0};
	int printed, rc = run_directory(directory, sizeof(directory), err);

	if (rc < 0)
		return rc;
	if (stat("/proc/self/ns/pid", &namespace) < 0)
		return sp_fail_errno(err, errno, "cannot look at /proc/self/ns/pid");
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	printed = snprintf(address->sun_path, sizeof(address->sun_path), "%s/track-%ju-%d",
	                   directory, (uintmax_t) namespace.st_ino, pid);
	if (printed < 0 || (size_t)printed >= sizeof(address->sun_path))
		return sp_fail_errno(err, ENAMETOOLONG, "cannot name a socket in %s", directory);
	return 0;
}

/* Nobody listens at what a killed holder has left, or one whose pid namespace has ended. */
static void remove_stale(const char *directory)
{
	sp_cleanup_dir DIR *dir = opendir(directory);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		sp_cleanup_close int fd =
		        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		int printed = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
		                       directory, entry->d_name);

		if (fd >= 0 && (size_t)printed < sizeof(address.sun_path) &&
		    !strncmp(entry->d_name, "track-", strlen("track-")) &&
		    connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 &&
		    errno == ECONNREFUSED)
			unlink(address.sun_path);
	}
}

/*
 * Returns it locked, until it is closed: what is bound by one and does not listen yet must not look
 * stale to another.
 */
static int lock_run_directory(struct sp_error *err)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	sp_cleanup_close int fd = -1;
	int rc = run_directory(path, sizeof(path), err);

	if (rc < 0)
		return rc;
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return sp_fail_errno(err, errno, "cannot create %s", path);
	rc = check_run_directory(path, err);
	if (rc < 0)
		return rc;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		return sp_fail_errno(err, errno, "cannot lock %s", path);
	remove_stale(path);
	return sp_steal_fd(&fd);
}

/* --- talking with the holder --- */

static int receive(int socket, struct sp_holder_reply *reply, int *memory)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {reply, sizeof(*reply)};
	struct msghdr message = {
	        .msg_iov = &part,
	        .msg_iovlen = 1,
	        .msg_control = &control,
	        .msg_controllen = sizeof(control),
	};
	ssize_t got;

	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	if (got == 0)
		return -ECONNRESET;
	if (message.msg_controllen >= sizeof(control.header) &&
	    control.header.cmsg_type == SCM_RIGHTS) {
		if (memory)
			memcpy(memory, CMSG_DATA(&control.header), sizeof(*memory));
	}
	if (got != sizeof(*reply) || reply->version != SP_HOLDER_VERSION)
		return -EPROTO;
	return reply->status;
}

static int ask(struct sp_session *session, enum sp_holder_request request, int *memory)
{
	struct sp_holder_message message = {SP_HOLDER_VERSION, request};
	struct sp_holder_reply reply;
	int rc;

	if (send(session->socket, &message, sizeof(message), MSG_NOSIGNAL) < 0)
		return -errno;
	rc = receive(session->socket, &reply, memory);
	if (rc < 0)
		return rc;
	session->generation = reply.generation;
	session->backend = (enum sp_session_backend)reply.backend;
	session->holder = (pid_t)reply.holder;
	memcpy(session->id, reply.id, sizeof(session->id));
	return 0;
}

static int cannot_ask(const struct sp_session *session, int code, struct sp_error *err)
{
	const struct sp_process_name name = sp_process_name(session->pid);

	if (code == EPROTO)
		return sp_fail(err, code,
		               "the tracking session of %s belongs to another version of "
		               "sealpoint: end it with that one (sealpoint track stop %d)",
		               name.text, session->pid);
	if (code == EAGAIN)
		return sp_fail(
		        err, ETIMEDOUT,
		        "the holder of the tracking session of %s (a process sealpoint-hold) "
		        "does not answer; let it go on if it is stopped, or end it: the next "
		        "dump stores full contents",
		        name.text);
	return sp_fail_errno(err, code, "the holder of the tracking session of %s does not answer",
	                     name.text);
}

/* Returns 1, or 0 if the holder has ended meanwhile. Closes the session on anything but 1. */
static int greet(struct sp_session *session, struct sp_error *err)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	int rc;

	setsockopt(session->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	rc = ask(session, SP_HOLDER_HELLO, &session->memory);
	if (rc == 0 && session->memory >= 0)
		return 1;
	rc = rc == -ECONNRESET || rc == -EPIPE ? 0 : cannot_ask(session, rc ? -rc : EPROTO, err);
	sp_session_close(session);
	return rc;
}

int sp_session_find(struct sp_session *session, pid_t pid, struct sp_error *err)
{
	struct sockaddr_un address;
	sp_cleanup_close int fd = -1;
	int rc = socket_address(pid, &address, err);

	*session = SP_SESSION_NONE;
	session->pid = pid;
	if (rc == -ENOENT)
		return 0; /* no place, no session */
	if (rc < 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return sp_fail_errno(err, errno, "socket");
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return 0;
		return sp_fail_errno(err, errno, "cannot ask for a tracking session at %s",
		                     address.sun_path);
	}
	if (!sp_holder_peer_is_trusted(fd))
		return sp_fail(err, EPERM, "what answers at %s belongs to another user",
		               address.sun_path);
	session->socket = sp_steal_fd(&fd);
	return greet(session, err);
}

/*
 * Of the ways to ask a userfaultfd, only protection tells a lost address space by an errno of its own.
 * Nothing is mapped at this address; and if it were, one page would count as written. A pagemap ends.
 */
bool sp_session_is_dead(const struct sp_session *session)
{
	const struct sp_range nowhere = {1 << 20, (1 << 20) + SP_PAGE_SIZE};
	uint64_t entry;

	if (session->backend == SP_SESSION_SOFT_DIRTY)
		return pread(session->memory, &entry, sizeof(entry), 0) == 0;
	return sp_uffd_unprotect(session->memory, nowhere) == -ESRCH;
}

int sp_session_find_live(struct sp_session *session, pid_t pid, struct sp_error *err)
{
	int rc = sp_session_find(session, pid, err);

	return rc == 1 && sp_session_is_dead(session) ? sp_session_end(session, err) : rc;
}

/* --- beginning and end --- */

static int begin(struct sp_session *session, pid_t pid, enum sp_session_backend backend, int memory,
                 struct sp_error *err)
{
	*session = (struct sp_session){
	        .pid = pid,
	        .backend = backend,
	        .memory = memory,
	        .socket = -1,
	};
	if (getrandom(session->id, sizeof(session->id), 0) == sizeof(session->id))
		return 0;
	sp_session_close(session);
	return sp_fail_errno(err, errno, "getrandom");
}

int sp_session_begin(struct sp_session *session, pid_t pid, int uffd, struct sp_error *err)
{
	int rc = sp_uffd_enable(uffd, SP_UFFD_ASYNC);

	if (rc == 0)
		return begin(session, pid, SP_SESSION_SCAN, uffd, err);
	close(uffd);
	*session = SP_SESSION_NONE;
	return sp_fail_errno(err, -rc, "asynchronous write protection needs Linux 6.7");
}

int sp_session_begin_soft_dirty(struct sp_session *session, pid_t pid, struct sp_error *err)
{
	int pagemap;

	*session = SP_SESSION_NONE;
	if (sp_write_watch_probe(SP_WRITE_WATCH_SOFT_DIRTY, NULL) < 0)
		return sp_fail(
		        err, EOPNOTSUPP,
		        "this kernel has no soft-dirty bits (MEM_SOFT_DIRTY), which serve where "
		        "asynchronous write protection (Linux 6.7) is missing");
	if (!sp_capability_have(CAP_SYS_ADMIN))
		return sp_fail(err, EPERM,
		               "with soft-dirty bits it takes root, or CAP_SYS_ADMIN: frame "
		               "numbers have to be seen");
	pagemap = sp_proc_open(pid, "pagemap", O_RDONLY, err);
	return pagemap < 0 ? pagemap : begin(session, pid, SP_SESSION_SOFT_DIRTY, pagemap, err);
}

/* Binds the socket. */
static int open_listener(const struct sp_session *session, struct sp_error *err)
{
	struct sockaddr_un address;
	sp_cleanup_close int fd = -1;
	sp_cleanup_session struct sp_session other = SP_SESSION_NONE;
	sp_cleanup_close int lock = lock_run_directory(err);
	int rc = lock;

	if (rc >= 0)
		rc = socket_address(session->pid, &address, err);
	if (rc == 0)
		rc = sp_session_find(&other, session->pid, err);
	if (rc < 0)
		return rc;
	if (rc == 1)
		return sp_fail(err, EEXIST, "%s has a tracking session already",
		               sp_process_name(session->pid).text);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, 0600) < 0 || listen(fd, 8) < 0)
		return sp_fail_errno(err, errno, "cannot listen at %s", address.sun_path);
	return sp_steal_fd(&fd);
}

/* In the new process: nothing stays of the command that started it but four descriptors. */
static void become_holder(const struct sp_session *session, int listener, int pidfd, int maker)
        __attribute__((noreturn));

static void become_holder(const struct sp_session *session, int listener, int pidfd, int maker)
{
	struct sp_session held = *session;
	int null = open("/dev/null", O_RDWR), first = 10;
	int kept[] = {listener, pidfd, maker, session->memory};
	sigset_t none;

	prctl(PR_SET_NAME, "sealpoint-hold");
	setsid();
	for (size_t i = 0; i < SP_COUNT_OF(kept); i++)
		kept[i] = fcntl(kept[i], F_DUPFD_CLOEXEC, first + (int)SP_COUNT_OF(kept));
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	for (size_t i = 0; i < SP_COUNT_OF(kept); i++)
		kept[i] = dup3(kept[i], first + (int)i, O_CLOEXEC);
	close_range(3, (unsigned)first - 1, 0);
	close_range((unsigned)first + SP_COUNT_OF(kept), ~0U, 0);
	for (int signal_number = 1; signal_number < SIGRTMIN; signal_number++)
		signal(signal_number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGHUP, SIG_IGN);
	if (chdir("/") < 0)
		_exit(1);
	held.memory = kept[3];
	sp_holder_run(&held, kept[0], kept[1], kept[2]);
}

int sp_session_hold(struct sp_session *session, int pidfd, struct sp_error *err)
{
	sp_cleanup_close int listener = open_listener(session, err);
	sp_cleanup_close int maker = -1;
	int ends[2];
	pid_t child;
	int rc;

	if (listener < 0)
		return listener;
	/* Connected from the beginning: whenever this command is killed, the holder sees it. */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return sp_fail_errno(err, errno, "cannot talk with the holder of the session");
	session->socket = ends[0];
	maker = ends[1];
	child = fork();
	if (child < 0)
		return sp_fail_errno(err, errno, "cannot start the holder of the session");
	if (child == 0) {
		if (fork() == 0) /* init's child, whom nobody has to wait for */
			become_holder(session, listener, pidfd, maker);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	close(sp_steal_fd(&maker));
	close(sp_steal_fd(&session->memory));
	rc = greet(session, err);
	if (rc == 0)
		return sp_fail(err, EIO, "the holder of the tracking session of %s ended at once",
		               sp_process_name(session->pid).text);
	return rc < 0 ? rc : 0;
}

int sp_session_keep(struct sp_session *session, struct sp_error *err)
{
	int rc = ask(session, SP_HOLDER_KEEP, NULL);

	return rc < 0 ? cannot_ask(session, -rc, err) : 0;
}

void sp_session_close(struct sp_session *session)
{
	sp_close_scope(&session->memory);
	sp_close_scope(&session->socket);
	session->memory = session->socket = -1;
}

int sp_session_end(struct sp_session *session, struct sp_error *err)
{
	struct sp_holder_reply reply;
	int rc = ask(session, SP_HOLDER_END, NULL);

	/* It hangs up when it ends. */
	if (rc == 0 && receive(session->socket, &reply, NULL) != -ECONNRESET)
		rc = -EPROTO;
	sp_session_close(session);
	return rc < 0 ? cannot_ask(session, -rc, err) : 0;
}

/* --- cuts --- */

int sp_session_cut(struct sp_session *session, struct sp_error *err)
{
	int rc;

	if (session->socket < 0) {
		session->generation++;
		return 0;
	}
	rc = ask(session, SP_HOLDER_CUT, NULL);
	if (rc == -EBUSY)
		return sp_fail(err, EBUSY,
		               "another command is just saving what %s has written: wait until it "
		               "has ended",
		               sp_process_name(session->pid).text);
	return rc < 0 ? cannot_ask(session, -rc, err) : 0;
}
