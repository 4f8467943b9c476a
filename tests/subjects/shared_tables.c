/*
 * Processes that share their descriptors (CLONE_FILES), or their directories and umask (CLONE_FS), or both:
 * with their parent, a grandparent, or a brother alone. kcmp(2) says the same of any two of them as
 * before, and what one opens or sets the others have. A pseudoterminal is among what they share.
 */
#include "subject.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum member { ROOT, FILES, GRANDCHILD, FS, BOTH, OWN, BROTHER, MEMBERS };

static const char *const names[] = {"root", "files", "grandchild", "fs", "both", "own", "brother"};

/* In memory that all of them share. */
static struct family {
	_Atomic pid_t pids[MEMBERS];
	atomic_bool act, leave;
	atomic_int acted;
} * family;

enum { OPENED = 50 }; /* and up: by each member */

/* Opens something at a number of its own, and those with the root's directories change them. */
static void act(enum member me)
{
	int fd = memfd_create(names[me], 0);

	subject_check(dup2(fd, OPENED + (int)me) >= 0, "%s cannot open", names[me]);
	close(fd);
	if (me == FS)
		umask(0123);
	if (me == BOTH)
		subject_check(chdir("/proc") == 0, "chdir");
	atomic_fetch_add(&family->acted, 1);
}

__attribute__((noreturn)) static void live(enum member me)
{
	while (!family->act)
		usleep(1000);
	act(me);
	while (!family->leave)
		usleep(1000);
	_exit(atomic_load(&subject_failures) != 0);
}

static pid_t beget(enum member who, unsigned long flags)
{
	pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0);

	subject_need(pid >= 0, "clone");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	family->pids[who] = getpid();
	if (who == FILES)
		beget(GRANDCHILD, CLONE_FILES);
	if (who == OWN)
		beget(BROTHER, CLONE_FILES | CLONE_FS | CLONE_PARENT);
	live(who);
}

static bool is_shared(enum member a, enum member b, int type)
{
	return syscall(SYS_kcmp, family->pids[a], family->pids[b], type, 0, 0) == 0;
}

static bool has_descriptor_of(enum member me, enum member other)
{
	char path[64];
	struct stat stat;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", family->pids[me], OPENED + (int)other);
	return lstat(path, &stat) == 0;
}

/* What kcmp(2) has to say: made in main(). */
static bool files_before[MEMBERS][MEMBERS], fs_before[MEMBERS][MEMBERS];

static void check_two(enum member a, enum member b)
{
	subject_check(is_shared(a, b, KCMP_FILES) == files_before[a][b],
	              "descriptors of %s and %s: %s", names[a], names[b],
	              files_before[a][b] ? "not shared any more" : "shared now");
	subject_check(is_shared(a, b, KCMP_FS) == fs_before[a][b], "directories of %s and %s: %s",
	              names[a], names[b], fs_before[a][b] ? "not shared any more" : "shared now");
	subject_check(has_descriptor_of(a, b) == files_before[a][b], "%s has%s what %s opened",
	              names[a], files_before[a][b] ? " not" : "", names[b]);
}

static void for_each_two(void (*look)(enum member a, enum member b))
{
	for (int a = 0; a < MEMBERS; a++)
		for (int b = 0; b < MEMBERS; b++)
			look((enum member)a, (enum member)b);
}

static void note_two(enum member a, enum member b)
{
	files_before[a][b] = is_shared(a, b, KCMP_FILES);
	fs_before[a][b] = is_shared(a, b, KCMP_FS);
}

static void check_directories(void)
{
	char path[64] = "";

	subject_check(getcwd(path, sizeof(path)) && !strcmp(path, "/proc"),
	              "the working directory is %s", path);
	subject_check(umask(0) == 0123, "the umask is another");
}

int main(void)
{
	int status;

	family = mmap(NULL, sizeof(*family), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	subject_need(family != MAP_FAILED, "mmap");
	family->pids[ROOT] = getpid();
	subject_need(posix_openpt(O_RDWR | O_NOCTTY) >= 0, "posix_openpt");
	beget(FILES, CLONE_FILES);
	beget(FS, CLONE_FS);
	beget(BOTH, CLONE_FS | CLONE_FILES);
	beget(OWN, 0);
	for (int i = 0; i < MEMBERS; i++)
		while (!family->pids[i])
			sched_yield();
	for_each_two(note_two);
	subject_need(files_before[ROOT][GRANDCHILD] && files_before[OWN][BROTHER] &&
	                     !files_before[ROOT][BROTHER] && fs_before[ROOT][BOTH],
	             "they do not share what they should");
	subject_ready();
	family->act = true;
	act(ROOT);
	while (family->acted < MEMBERS)
		usleep(1000);
	for_each_two(check_two);
	check_directories();
	family->leave = true;
	for (int i = 0; i < 5; i++)
		subject_check(wait(&status) > 0 && status == 0, "a child ends with %#x", status);
	return subject_end();
}
