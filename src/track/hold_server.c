/*
 * The thread that serves held memory: see hold_server.h.
 *
 * It has three sorts of work, in this order: faults, for which threads wait; discards, which have to be
 * found out before the message that announces them is read; and messages of what has happened already.
 */
#include "track/hold_server.h"

#include "base/cleanup.h"
#include "proc/file.h"
#include "track/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- messages --- */

static void serve(struct sp_hold_server *server, const struct uffd_msg *message)
{
	struct sp_held_pages *held = server->held;
	uint64_t from = message->arg.remap.from;

	switch (message->event) {
	case UFFD_EVENT_PAGEFAULT:
		server->faults++;
		sp_held_write(held, message->arg.pagefault.address);
		break;
	case UFFD_EVENT_REMOVE:
	case UFFD_EVENT_UNMAP:
		sp_held_gone(held,
		             (struct sp_range){message->arg.remove.start, message->arg.remove.end});
		break;
	case UFFD_EVENT_REMAP:
		sp_held_gone(held, (struct sp_range){from, from + message->arg.remap.len});
		break;
	}
}

/* How many threads wait with a fault that was not read yet. */
static unsigned long pending_faults(const struct sp_hold_server *server)
{
	char text[256];
	ssize_t size = pread(server->fdinfo, text, sizeof(text) - 1, 0);
	const char *line;

	text[size > 0 ? size : 0] = '\0';
	line = strstr(text, "pending:");
	return line ? strtoul(line + strlen("pending:"), NULL, 10) : 0;
}

/*
 * Serves all faults that are there; if there are none, as many other messages. Faults are read
 * first, and with the lock held nobody else resolves one, so that no more is read than faults: else a
 * message about a discard could be read too early.
 */
static unsigned long serve_faults(struct sp_hold_server *server, unsigned long others)
{
	unsigned long faults, left;
	struct uffd_msg message;

	pthread_mutex_lock(&server->lock);
	faults = pending_faults(server);
	for (left = faults ? faults : others;
	     left > 0 && read(server->held->uffd, &message, sizeof(message)) == sizeof(message);
	     left--)
		serve(server, &message);
	pthread_mutex_unlock(&server->lock);
	return faults;
}

/* --- discards --- */

/* Puts aside what is about to be discarded. Writes are served meanwhile. */
static void put_all_aside(struct sp_hold_server *server, struct sp_range range)
{
	int rc = 0;

	while (range.start < range.end && rc == 0) {
		pthread_mutex_lock(&server->lock);
		rc = sp_held_put_aside(server->held, &range);
		pthread_mutex_unlock(&server->lock);
		serve_faults(server, 0);
	}
}

/* A thread that discards waits for us inside its call, whose arguments the kernel shows. */
static void look_at_discard(struct sp_hold_server *server, pid_t tid)
{
	sp_cleanup_free char *text = NULL;
	uint64_t start, size;
	long number;

	if (sp_proc_read_thread(server->held->pid, tid, "syscall", &text, NULL, NULL) == 0 &&
	    sscanf(text, "%ld %" SCNx64 " %" SCNx64, &number, &start, &size) == 3 &&
	    number == SYS_madvise && start + size >= start)
		put_all_aside(server,
		              (struct sp_range){sp_page_down(start), sp_page_up(start + size)});
}

/*
 * The kernel lets a thread that discards go on as soon as the message is read, so what it says has
 * to be found out before. A message that is there though no fault is pending is one of these.
 */
static void look_ahead(struct sp_hold_server *server)
{
	sp_cleanup_dir DIR *tasks = NULL;
	char path[32];
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%d/task", server->held->pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks)))
		if (atoi(entry->d_name) > 0)
			look_at_discard(server, atoi(entry->d_name));
}

/* --- the thread --- */

static void *serve_all(void *context)
{
	struct sp_hold_server *server = context;
	struct pollfd fds[] = {{.fd = server->held->uffd, .events = POLLIN},
	                       {.fd = server->stop, .events = POLLIN}};

	/* The program waits for this thread. Without the privilege it takes its turn. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), -20);
	for (;;) {
		poll(fds, 2, -1);
		if (fds[1].revents)
			return NULL;
		if (serve_faults(server, 0) == 0) {
			look_ahead(server);
			serve_faults(server, 1);
		}
	}
}

void sp_hold_server_init(struct sp_hold_server *server, struct sp_held_pages *held)
{
	*server = (struct sp_hold_server){.held = held, .fdinfo = -1, .stop = -1};
	pthread_mutex_init(&server->lock, NULL);
}

int sp_hold_server_open(struct sp_hold_server *server, struct sp_error *err)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", server->held->uffd);
	server->fdinfo = open(path, O_RDONLY | O_CLOEXEC);
	server->stop = eventfd(0, EFD_CLOEXEC);
	if (server->stop < 0 || server->fdinfo < 0)
		return sp_fail_errno(err, errno, "cannot serve a userfaultfd");
	return 0;
}

int sp_hold_server_start(struct sp_hold_server *server)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&server->thread, NULL, serve_all, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	server->runs = rc == 0;
	return -rc;
}

void sp_hold_server_end(struct sp_hold_server *server)
{
	if (server->runs) {
		eventfd_write(server->stop, 1);
		pthread_join(server->thread, NULL);
	}
	sp_close_scope(&server->fdinfo);
	sp_close_scope(&server->stop);
	pthread_mutex_destroy(&server->lock);
}
