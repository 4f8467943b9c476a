/* The holder of a tracking session: track/holder.h. It holds no userfaultfd here. */
#include "base/cleanup.h"
#include "base/kernel_abi.h"
#include "track/holder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct held {
	pid_t holder;
	int maker; /* this end of the connection */
	struct sockaddr_un address;
	socklen_t size;
};

/* The program is this process. */
static struct held start_holder(void)
{
	struct held held = {.address.sun_family = AF_UNIX, .size = sizeof(held.address)};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0), ends[2];
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	assert_true(pidfd >= 0);
	/* A name that only the kernel knows, and no file. */
	assert_int_equal(bind(listener, (struct sockaddr *)&held.address, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(listener, 8), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&held.address, &held.size), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	held.holder = fork();
	if (held.holder == 0) {
		close(ends[0]);
		sp_holder_run(&SP_SESSION_NONE, listener, pidfd, ends[1]);
	}
	close(listener);
	close(pidfd);
	close(ends[1]);
	held.maker = ends[0];
	return held;
}

static void ask(int socket, enum sp_holder_request request)
{
	struct sp_holder_message message = {SP_HOLDER_VERSION, request};
	struct sp_holder_reply reply;

	assert_int_equal(send(socket, &message, sizeof(message), 0), sizeof(message));
	assert_int_equal(recv(socket, &reply, sizeof(reply), 0), sizeof(reply));
	assert_int_equal(reply.status, 0);
}

static void expect_end(const struct held *held)
{
	int status = -1;

	assert_int_equal(waitpid(held->holder, &status, 0), held->holder);
	assert_int_equal(status, 0);
}

/* As one that is killed before it has said what becomes of the session. */
static void a_session_ends_with_a_maker_that_says_nothing(void **state)
{
	struct held held = start_holder();

	close(held.maker);
	expect_end(&held);
}

static void a_session_that_is_kept_ends_when_it_is_told_to(void **state)
{
	struct held held = start_holder();
	sp_cleanup_close int other = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	ask(held.maker, SP_HOLDER_KEEP);
	close(held.maker);
	assert_int_equal(connect(other, (struct sockaddr *)&held.address, held.size), 0);
	ask(other, SP_HOLDER_CUT);
	ask(other, SP_HOLDER_END);
	expect_end(&held);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_session_ends_with_a_maker_that_says_nothing),
	        cmocka_unit_test(a_session_that_is_kept_ends_when_it_is_told_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
