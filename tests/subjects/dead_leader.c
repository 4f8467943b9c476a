/*
 * A process whose main thread has ended (pthread_exit(3)) while others run on, and which has all that
 * they share; and a child of the same kind that is another user's. Only its last thread ends it.
 */
#include "subject.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { STATUS = 42, USER = 65534 };

/* Common to parent and child. */
static struct common {
	atomic_bool go;
	atomic_int alive; /* threads of the child that wait */
} * common;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* the last thread holds it */
static atomic_ulong steps;                                /* of one that works */
static atomic_bool enough;                                /* work */
static pid_t child;

static void read_status(pid_t pid, char *text, size_t size)
{
	char path[64];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY);
	got = fd < 0 ? -1 : read(fd, text, size - 1);
	text[got > 0 ? got : 0] = '\0';
	close(fd);
}

static bool says(pid_t pid, const char *line)
{
	char text[4096];

	read_status(pid, text, sizeof(text));
	return strstr(text, line) != NULL;
}

static void wait_for(pid_t pid, const char *line)
{
	while (!says(pid, line))
		usleep(1000);
}

/* --- the child --- */

static void *wait_and_end(void *argument)
{
	atomic_fetch_add(&common->alive, 1);
	while (!common->go)
		usleep(1000);
	syscall(SYS_exit, STATUS);
	return argument;
}

__attribute__((noreturn)) static void live_as_child(void)
{
	pthread_t thread;

	prctl(PR_SET_NAME, "dead child");
	if (setresgid(USER, USER, USER) || setresuid(USER, USER, USER))
		_exit(1);
	for (int i = 0; i < 2; i++)
		pthread_create(&thread, NULL, wait_and_end, NULL);
	syscall(SYS_exit, STATUS);
	__builtin_unreachable();
}

static void check_child(void)
{
	int status;

	subject_check(says(child, "State:\tZ"), "the main thread of the child lives");
	subject_check(waitpid(child, &status, WNOHANG) == 0, "the child has ended");
	subject_check(says(child, "Name:\tdead child\n"), "the child has another name");
	subject_check(says(child, "Uid:\t65534\t65534\t65534\t65534"),
	              "the child has another user");
	subject_check(says(child, "Threads:\t3"), "the child has lost threads");
	common->go = true;
	subject_check(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
	subject_check(WIFEXITED(status) && WEXITSTATUS(status) == STATUS, "the child ends with %#x",
	              status);
}

/* --- the process itself --- */

static void *work(void *argument)
{
	while (!enough)
		atomic_fetch_add(&steps, 1);
	return argument;
}

static void *lead(void *worker)
{
	pid_t pid = getpid();
	unsigned long before;

	pthread_mutex_lock(&mutex);
	wait_for(pid, "State:\tZ");
	wait_for(child, "State:\tZ");
	while (common->alive < 2)
		usleep(1000);
	before = steps;
	subject_ready();
	wait_for(pid, "State:\tZ");
	subject_check(getpid() == pid && gettid() != pid, "it is the main thread");
	subject_check(says(pid, "Threads:\t3"), "it has not three threads");
	subject_check(pthread_mutex_trylock(&mutex) == EBUSY, "the mutex is free");
	enough = true;
	subject_check(pthread_join(*(pthread_t *)worker, NULL) == 0, "pthread_join");
	subject_check(steps > before, "a thread does not work");
	check_child();
	_exit(subject_end());
}

int main(void)
{
	static pthread_t worker, last;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	subject_need(common != MAP_FAILED, "mmap");
	child = fork();
	if (child == 0)
		live_as_child();
	subject_need(!pthread_create(&worker, NULL, work, NULL), "a thread");
	subject_need(!pthread_create(&last, NULL, lead, &worker), "a thread");
	pthread_exit(NULL);
}
