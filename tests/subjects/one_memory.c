/*
 * Processes that have one memory as threads have (CLONE_VM), some also one set of signal actions (CLONE_SIGHAND), and
 * are processes all the same: each with a number, descriptors, a user and signals of its own. They share with
 * their parent, a grandparent, or a brother alone; and one has a child of fork(2), which does not.
 */
#include "subject.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum member { ROOT, MEMORY, GRANDCHILD, ACTIONS, FORKED, OWN, BROTHER, MEMBERS };

static const char *const names[] = {"root",   "memory", "grandchild", "actions",
                                    "forked", "own",    "brother"};
static const int types[] = {KCMP_VM, KCMP_FILES, KCMP_SIGHAND};

enum { USER = 65534, STACK_SIZE = 1 << 16, PAGES = 8, TYPES = 3 };

/* In memory that even those share who share nothing else. */
static struct family {
	_Atomic pid_t pids[MEMBERS];
	atomic_bool act, leave;
	atomic_int ready, acted;
	int seen[MEMBERS];   /* of `private`, by each */
	int user[MEMBERS];   /* of each */
	int number[MEMBERS]; /* the descriptor that each has opened */
} * family;

static int private[MEMBERS]; /* each writes its own, which those see who have its memory */
static char *pages;          /* written before anybody was born */

static void wait_until_set(atomic_bool *flag)
{
	while (!*flag)
		syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int count_private(void)
{
	int count = 0;

	for (int i = 0; i < MEMBERS; i++)
		count += private[i];
	for (int i = 0; i < PAGES; i++)
		count += pages[i * 4096] == 'a' ? 0 : 100;
	return count;
}

/* No C library: those who have one memory have its variables for a thread in common, too. */
static void act(enum member me)
{
	private[me]++;
	family->user[me] = (int)syscall(SYS_getuid);
	family->number[me] = (int)syscall(SYS_dup, 0);
	family->acted++;
	while (family->acted < MEMBERS)
		syscall(SYS_sched_yield);
	family->seen[me] = count_private();
}

__attribute__((noreturn)) static void live(enum member me)
{
	family->ready++;
	wait_until_set(&family->act);
	if (syscall(SYS_getpid) == family->pids[me])
		act(me);
	wait_until_set(&family->leave);
	syscall(SYS_exit_group, 0);
	__builtin_unreachable();
}

static void beget(enum member who, unsigned long flags);

static int begin(void *argument)
{
	enum member me = (enum member)(uintptr_t)argument;

	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
	family->pids[me] = (pid_t)syscall(SYS_getpid);
	if (me == MEMORY) {
		beget(GRANDCHILD, CLONE_VM | CLONE_FILES);
		beget(FORKED, 0);
		syscall(SYS_setresuid, USER, USER, USER);
	}
	if (me == OWN)
		beget(BROTHER, CLONE_VM | CLONE_PARENT);
	live(me);
}

static void beget(enum member who, unsigned long flags)
{
	char *stack =
	        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	subject_need(stack != MAP_FAILED, "a stack");
	subject_need(clone(begin, stack + STACK_SIZE, (int)(flags | SIGCHLD),
	                   (void *)(uintptr_t)who) > 0,
	             "clone");
}

/* What kcmp(2) has to say of any two. */
static bool before[MEMBERS][MEMBERS][TYPES];

static bool is_shared(int a, int b, int type)
{
	return syscall(SYS_kcmp, family->pids[a], family->pids[b], types[type], 0, 0) == 0;
}

static void check_two(int a, int b)
{
	for (int type = 0; type < TYPES; type++)
		subject_check(is_shared(a, b, type) == before[a][b][type],
		              "%s and %s: kcmp of type %d tells something else", names[a], names[b],
		              types[type]);
}

static void note_two(int a, int b)
{
	for (int type = 0; type < TYPES; type++)
		before[a][b][type] = is_shared(a, b, type);
}

static void for_each_two(void (*look)(int a, int b))
{
	for (int a = 0; a < MEMBERS; a++)
		for (int b = 0; b < MEMBERS; b++)
			look(a, b);
}

static atomic_int caught; /* by whoever has the root's memory and signal actions */

static void catch (int signal)
{
	caught += signal;
}

static void check_signals(void)
{
	kill(family->pids[ACTIONS], SIGUSR1);
	while (!caught)
		sched_yield();
	subject_check(caught == SIGUSR1, "%d was caught", caught);
}

static void check_seen(void)
{
	const int expected[MEMBERS] = {4, 4, 4, 4, 1, 2, 2};

	for (int i = 0; i < MEMBERS; i++) {
		int user = i == MEMORY && !getuid() ? USER : (int)getuid();

		subject_check(family->seen[i] == expected[i], "%s sees %d writes, not %d", names[i],
		              family->seen[i], expected[i]);
		subject_check(family->user[i] == user, "%s is user %d", names[i], family->user[i]);
	}
	subject_check(family->number[MEMORY] != family->number[GRANDCHILD],
	              "two with the same descriptors have opened the same number");
}

int main(void)
{
	static char stack[1 << 14] __attribute__((aligned(16)));
	int status;

	signal(SIGUSR1, catch);
	pages = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	             0);
	family = mmap(NULL, sizeof(*family), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	subject_need(pages != MAP_FAILED && family != MAP_FAILED, "mmap");
	for (int i = 0; i < PAGES; i++)
		pages[i * 4096] = 'a';
	family->pids[ROOT] = getpid();
	beget(OWN, 0);
	beget(MEMORY, CLONE_VM);
	subject_need(clone(begin, stack + sizeof(stack),
	                   CLONE_VM | CLONE_SIGHAND | CLONE_FS | SIGCHLD,
	                   (void *)(uintptr_t)ACTIONS) > 0,
	             "clone");
	while (family->ready < MEMBERS - 1)
		sched_yield();
	for_each_two(note_two);
	subject_need(before[ROOT][GRANDCHILD][0] && before[OWN][BROTHER][0] &&
	                     !before[ROOT][FORKED][0] && before[ROOT][ACTIONS][2],
	             "they do not share what they should");
	subject_ready();
	for_each_two(check_two);
	check_signals();
	family->act = true;
	act(ROOT);
	while (!family->seen[BROTHER] || !family->seen[FORKED] || !family->seen[GRANDCHILD] ||
	       !family->seen[MEMORY] || !family->seen[ACTIONS] || !family->seen[OWN])
		sched_yield();
	check_seen();
	family->leave = true;
	for (int i = 0; i < 4; i++)
		subject_check(wait(&status) > 0 && status == 0, "a child ends with %#x", status);
	return subject_end();
}
