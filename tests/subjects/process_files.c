/*
 * Files and directories of /proc about the process itself, a thread, a child, and a child that is
 * gone: read in parts, as a working directory, written to.
 */
#include "subject.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static atomic_int thread_id;

static void *sleep_on(void *unused)
{
	atomic_store(&thread_id, (int)syscall(SYS_gettid));
	while (subject_running())
		pause();
	return unused;
}

static pid_t sleeping_child(void)
{
	pid_t child = fork();

	subject_need(child >= 0, "fork");
	while (!child)
		pause();
	return child;
}

static int open_of(pid_t pid, const char *name, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, flags);
	subject_need(fd >= 0, "open %s", path);
	return fd;
}

static bool begins_with_number(int fd, int number)
{
	char text[512] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 0 && atoi(text) == number;
}

static bool has_position(int fd, off_t position)
{
	return lseek(fd, 0, SEEK_CUR) == position;
}

int main(void)
{
	pid_t child = sleeping_child(), gone = sleeping_child();
	int status = open("/proc/self/status", O_RDONLY), self = open("/proc/self", O_PATH);
	int memory = open("/proc/self/mem", O_RDWR), of_child = open_of(child, "stat", O_RDONLY);
	int child_directory = open_of(child, "", O_RDONLY | O_DIRECTORY);
	int of_gone = open_of(gone, "stat", O_RDONLY), gone_directory = open_of(gone, "", O_RDONLY);
	int of_thread, word = 1, other = 2;
	char name[64], text[16];
	DIR *descriptors = opendir("/proc/self/fd");
	pthread_t thread;

	subject_need(status >= 0 && self >= 0 && memory >= 0 && descriptors, "open");
	subject_need(!pthread_create(&thread, NULL, sleep_on, NULL), "pthread_create");
	while (!atomic_load(&thread_id))
		usleep(1000);
	snprintf(name, sizeof(name), "task/%d/stat", atomic_load(&thread_id));
	of_thread = open_of(getpid(), name, O_RDONLY);
	subject_need(read(status, text, 7) == 7 && readdir(descriptors), "read");
	subject_need(!kill(gone, SIGKILL) && waitpid(gone, NULL, 0) == gone, "kill");
	subject_need(!chdir("/proc/self/fdinfo"), "chdir");

	subject_ready();

	subject_check(has_position(status, 7), "status: another position");
	subject_check(faccessat(self, "task", F_OK, 0) == 0, "the directory of the process");
	subject_check(pwrite(memory, &other, sizeof(other), (off_t)&word) == sizeof(other) &&
	                      *(volatile int *)&word == 2,
	              "its memory cannot be written");
	subject_check(begins_with_number(of_thread, atomic_load(&thread_id)), "the thread");
	subject_check(begins_with_number(of_child, child), "the child");
	subject_check(faccessat(child_directory, "stat", F_OK, 0) == 0, "the child's directory");
	subject_check(read(of_gone, text, 1) < 0 && errno == ESRCH, "the child that is gone");
	subject_check(faccessat(gone_directory, "stat", F_OK, 0) && errno == ESRCH,
	              "the directory of the child that is gone: %s", strerror(errno));
	subject_check(readdir(descriptors) != NULL, "the list of descriptors");
	subject_check(access("0", F_OK) == 0, "the working directory");
	kill(child, SIGKILL);
	return subject_end();
}
