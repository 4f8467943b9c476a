/*
 * A program that is executed from a memfd, which nothing else holds: nobody may open it for writing. It
 * is sealed against everything.
 *
 * subject: ignore=id
 */
#include "mapping.h"

#define ALL (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

static void copy_itself(int memfd)
{
	static char buffer[1 << 16];
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t got;

	subject_need(self >= 0, "/proc/self/exe");
	while ((got = read(self, buffer, sizeof(buffer))) > 0)
		subject_need(write(memfd, buffer, (size_t)got) == got, "write");
}

static void execute_copy(void)
{
	int memfd = memfd_create("program", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char name[] = "executed", *arguments[] = {name, name, NULL};

	subject_need(memfd >= 0, "memfd_create");
	copy_itself(memfd);
	subject_need(fcntl(memfd, F_ADD_SEALS, ALL) == 0, "seals");
	fexecve(memfd, arguments, environ);
	subject_need(false, "fexecve");
}

int main(int argc, char **argv)
{
	char link[64] = "";
	int self;

	if (argc < 2)
		execute_copy();
	subject_ready();
	subject_check(readlink("/proc/self/exe", link, sizeof(link) - 1) > 0 &&
	                      !strncmp(link, "/memfd:program", 14),
	              "the program is %s", link);
	self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	subject_check(fcntl(self, F_GET_SEALS) == ALL, "its seals are %#x",
	              fcntl(self, F_GET_SEALS));
	return subject_end();
}
