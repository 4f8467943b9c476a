/*
 * A userfaultfd of another process's memory: see userfaultfd.h.
 *
 * We may be killed at any moment, and the target must not keep a descriptor then. So the batch that
 * opens it also closes it, whether or not we are still there. In between the target sleeps for a
 * moment, in which a thread of ours takes the descriptor over. What number it has is known before:
 * all threads stand still, and the kernel gives the lowest that is free.
 */
#include "remote/userfaultfd.h"

#include "remote/room.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/urgent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define SLEEP_FIRST_NS (500ULL * 1000)
#define SLEEP_LAST_NS (500ULL * 1000 * 1000)

/* The lowest number that is no descriptor of the process, which stands still. */
static int lowest_free(pid_t pid)
{
	char path[64];
	int number = -1;

	do
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, ++number);
	while (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	return number;
}

/* --- the thread that takes it over --- */

struct catcher {
	const struct sp_process *process;
	int number;
	int fd; /* what was caught, or -1 */
	atomic_bool give_up;
};

static void *catch_descriptor(void *argument)
{
	struct catcher *catcher = argument;

	while (catcher->fd < 0 && !atomic_load(&catcher->give_up)) {
		catcher->fd = sp_process_duplicate(catcher->process, catcher->number);
		if (catcher->fd < 0)
			sched_yield();
	}
	return NULL;
}

/* --- in the target --- */

/* Opens, sleeps, closes. `*number` becomes the descriptor, or a negative errno. */
static int run_batch(struct sp_remote *remote, int expected, int flags, uint64_t sleep_ns,
                     int64_t *number, struct sp_error *err)
{
	struct timespec duration = {(time_t)(sleep_ns / SP_NS_PER_S),
	                            (long)(sleep_ns % SP_NS_PER_S)};
	size_t opened;
	int rc;

	sp_batch_begin(remote);
	opened = sp_batch_try(remote, "open a userfaultfd", SYS_userfaultfd, (uint64_t)flags, 0, 0,
	                      0, 0, 0);
	/* Not nanosleep(2): it would take the restart block that the thread may need to go on. */
	sp_batch_try(remote, "sleep", SYS_ppoll, 0, 0,
	             sp_batch_put(remote, &duration, sizeof(duration)), 0, 0, 0);
	sp_batch_try(remote, "close the userfaultfd", SYS_close, (uint64_t)expected, 0, 0, 0, 0, 0);
	rc = sp_batch_run(remote, err);
	*number = rc < 0 ? rc : sp_batch_result(remote, opened);
	return rc;
}

/* Before Linux 5.11 there is only the kind that also reports the kernel's faults. */
static int run(struct sp_remote *remote, int expected, int mode, uint64_t sleep_ns, int64_t *number,
               struct sp_error *err)
{
	const int flags = O_CLOEXEC | O_NONBLOCK;
	int rc = run_batch(remote, expected, flags | mode, sleep_ns, number, err);

	if (rc == 0 && mode && *number == -EINVAL)
		rc = run_batch(remote, expected, flags, sleep_ns, number, err);
	return rc;
}

/* The target could not open one. */
static int refuse_open(const struct sp_remote *remote, int code, struct sp_error *err)
{
	pid_t pid = remote->process->pid;

	sp_fail_errno(err, code, "process %d cannot open a userfaultfd", pid);
	return err ? sp_room_explain_descriptors(pid, err) : -code;
}

/* Returns the descriptor, or -EAGAIN if it was not caught. */
static int try_once(struct sp_remote *remote, int mode, uint64_t sleep_ns, struct sp_error *err)
{
	struct catcher catcher = {
	        .process = remote->process,
	        .number = lowest_free(sp_process_living(remote->process)),
	        .fd = -1,
	};
	pthread_t thread;
	int64_t number;
	int rc = pthread_create(&thread, NULL, catch_descriptor, &catcher);

	if (rc)
		return sp_fail_errno(err, rc, "cannot start a thread");
	rc = run(remote, catcher.number, mode, sleep_ns, &number, err);
	atomic_store(&catcher.give_up, true);
	pthread_join(thread, NULL);
	if (rc == 0 && number < 0)
		rc = refuse_open(remote, (int)-number, err);
	if (rc == 0 && number != catcher.number)
		rc = sp_fail(err, EAGAIN,
		             "process %d shares its descriptors with a process that opens some: "
		             "stop that one",
		             remote->process->pid);
	if (rc == 0)
		return catcher.fd < 0 ? -EAGAIN : catcher.fd;
	sp_close_scope(&catcher.fd);
	return rc;
}

static int make(struct sp_remote *remote, int mode, struct sp_error *err)
{
	for (uint64_t sleep_ns = SLEEP_FIRST_NS; sleep_ns <= SLEEP_LAST_NS; sleep_ns *= 10) {
		struct sp_error reason = {0};
		int fd = try_once(remote, mode, sleep_ns, &reason);

		if (fd >= 0)
			return fd;
		if (reason.code) {
			*err = reason;
			return fd;
		}
	}
	return sp_fail(err, EBUSY,
	               "cannot take over a userfaultfd of process %d in time: the machine is too "
	               "busy",
	               remote->process->pid);
}

/* A stub that we made ends with us: it may have the descriptor for a moment. */
static int take_from_stub(struct sp_remote *remote, struct sp_error *err)
{
	uint64_t flags = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;
	sp_cleanup_close int fd = -1;
	int64_t number;
	int rc = sp_remote_call(remote, &number, err, "open a userfaultfd", SYS_userfaultfd, flags,
	                        0, 0, 0, 0, 0);

	if (rc == -EINVAL) /* before Linux 5.11 */
		rc = sp_remote_call(remote, &number, err, "open a userfaultfd", SYS_userfaultfd,
		                    flags & ~(uint64_t)UFFD_USER_MODE_ONLY, 0, 0, 0, 0, 0);
	if (rc < 0)
		return rc;
	fd = sp_process_duplicate(remote->process, (int)number);
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot take over a userfaultfd of process %d",
		                     remote->process->pid);
	rc = sp_remote_call(remote, NULL, err, "close the userfaultfd", SYS_close, (uint64_t)number,
	                    0, 0, 0, 0, 0);
	return rc < 0 ? rc : sp_steal_fd(&fd);
}

int sp_remote_userfaultfd(struct sp_remote *remote, struct sp_error *err)
{
	return remote->heals ? make(remote, UFFD_USER_MODE_ONLY, err) : take_from_stub(remote, err);
}

/* --- through the device --- */

/* Sends `fd` through a socket that is the target's number `socket`. */
static int send_descriptor(struct sp_remote *remote, int socket, int fd, struct sp_error *err)
{
	sp_cleanup_close int ours = sp_process_duplicate(remote->process, socket);
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.header = {
	                     .cmsg_len = CMSG_LEN(sizeof(int)),
	                     .cmsg_level = SOL_SOCKET,
	                     .cmsg_type = SCM_RIGHTS,
	             }};
	char byte = 0;
	struct iovec part = {&byte, sizeof(byte)};
	struct msghdr message = {
	        .msg_iov = &part,
	        .msg_iovlen = 1,
	        .msg_control = &control,
	        .msg_controllen = sizeof(control),
	};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	if (ours < 0 || sendmsg(ours, &message, MSG_NOSIGNAL) != sizeof(byte))
		return sp_fail_errno(err, errno, "cannot hand a descriptor to process %d",
		                     remote->process->pid);
	return 0;
}

/* Lets the target receive it. Returns its number there. */
static int receive_descriptor(struct sp_remote *remote, int socket, struct sp_error *err)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	remote_addr control_room, byte_room, part_room, message_room;
	int rc, fd = -1;

	sp_batch_begin(remote);
	control_room = sp_batch_room(remote, CMSG_SPACE(sizeof(int)));
	byte_room = sp_batch_room(remote, 1);
	part_room = sp_batch_put(remote, &(struct iovec){(void *)(uintptr_t)byte_room, 1},
	                         sizeof(struct iovec));
	message_room = sp_batch_put(remote,
	                            &(struct msghdr){
	                                    .msg_iov = (void *)(uintptr_t)part_room,
	                                    .msg_iovlen = 1,
	                                    .msg_control = (void *)(uintptr_t)control_room,
	                                    .msg_controllen = CMSG_SPACE(sizeof(int)),
	                            },
	                            sizeof(struct msghdr));
	sp_batch_call(remote, "receive a descriptor", SYS_recvmsg, (uint64_t)socket, message_room,
	              MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0);
	rc = sp_batch_run(remote, err);
	if (rc == 0)
		rc = sp_batch_read(remote, control_room, &control, sizeof(control), err);
	if (rc == 0 && control.header.cmsg_len >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	if (rc == 0 && fd < 0)
		rc = refuse_open(remote, EMFILE, err);
	return rc < 0 ? rc : fd;
}

static void close_number(struct sp_remote *remote, int number)
{
	if (number >= 0)
		sp_remote_try(remote, NULL, NULL, "close a descriptor", SYS_close, (uint64_t)number,
		              0, 0, 0, 0, 0);
}

static int create_from_device(struct sp_remote *remote, int64_t *number, struct sp_error *err)
{
	sp_cleanup_close int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int sockets[2] = {-1, -1}, received = -1;
	remote_addr room;
	int rc;

	if (device < 0)
		return sp_fail_errno(err, errno, "cannot open /dev/userfaultfd");
	sp_batch_begin(remote);
	room = sp_batch_room(remote, sizeof(sockets));
	sp_batch_call(remote, "make a pair of sockets", SYS_socketpair, AF_UNIX,
	              SOCK_SEQPACKET | SOCK_CLOEXEC, 0, room, 0, 0);
	rc = sp_batch_run(remote, err);
	if (rc == -EMFILE)
		return refuse_open(remote, EMFILE, err);
	if (rc == 0)
		rc = sp_batch_read(remote, room, sockets, sizeof(sockets), err);
	if (rc == 0)
		rc = send_descriptor(remote, sockets[0], device, err);
	if (rc == 0)
		received = rc = receive_descriptor(remote, sockets[1], err);
	if (rc >= 0)
		rc = sp_remote_try(remote, number, err, "open a userfaultfd", SYS_ioctl,
		                   (uint64_t)received, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK,
		                   0, 0, 0);
	close_number(remote, received);
	close_number(remote, sockets[0]);
	close_number(remote, sockets[1]);
	return rc;
}

/* Takes over descriptor `number` of the target, and closes the target's. */
static int take_over(struct sp_remote *remote, int64_t number, struct sp_error *err)
{
	sp_cleanup_close int fd = -1;
	int rc;

	if (number < 0)
		return refuse_open(remote, (int)-number, err);
	fd = sp_process_duplicate(remote->process, (int)number);
	rc = sp_remote_call(remote, NULL, err, "close the userfaultfd", SYS_close, (uint64_t)number,
	                    0, 0, 0, 0, 0);
	if (rc < 0)
		return rc;
	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot take over a userfaultfd of process %d",
		                     remote->process->pid);
	return sp_steal_fd(&fd);
}

int sp_remote_userfaultfd_for_kernel(struct sp_remote *remote, struct sp_error *err)
{
	struct sp_error refusal = {0};
	int64_t number;
	int rc = make(remote, 0, &refusal);

	if (rc == -EPERM) {
		rc = create_from_device(remote, &number, err);
		return rc < 0 ? rc : take_over(remote, number, err);
	}
	if (rc < 0 && err)
		*err = refusal;
	return rc;
}

int sp_userfaultfd_of(pid_t pid, const struct sp_foothold *foothold,
                      int (*drive)(struct sp_remote *remote, struct sp_error *err),
                      uint64_t deadline_ns, struct sp_error *err)
{
	struct sp_process process;
	struct sp_remote remote = {0};
	sp_cleanup_close int fd = -1;
	struct sp_usual_turn usual = sp_urgent_begin();
	int rc = sp_process_seize(&process, pid, deadline_ns, err);

	if (!rc)
		rc = sp_remote_open(&remote, &process, sp_process_leader(&process), foothold, err);
	if (!rc)
		fd = rc = drive(&remote, err);
	if (rc >= 0)
		rc = sp_remote_close(&remote, err);
	else
		sp_remote_close(&remote, NULL);
	sp_process_forget(&process);
	sp_urgent_end(&usual);
	return rc < 0 ? rc : sp_steal_fd(&fd);
}
