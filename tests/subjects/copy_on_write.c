/*
 * Memory that processes have in common since fork(2): a parent, four children and a grandchild, each of
 * which has written to some pages of its own, grown, or let go of some. All contents are right, and
 * what was in common still is: together they need no more memory than before.
 */
#include "mapping.h"

#include <signal.h>
#include <sys/wait.h>

#define SIZE (2048 * PAGE)
#define CHILDREN 4
#define MINE 64 /* one page in so many is written */

static uint8_t *memory, *gone;

/* Anonymous memory in KiB, a page that is common to n processes counted 1/n for each. */
static long proportional_size(pid_t pid)
{
	char path[64], line[128];
	long size = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	file = fopen(path, "r");
	while (file && size < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "Pss_Anon: %ld", &size);
	if (file)
		fclose(file);
	return size;
}

static void write_mine(unsigned who)
{
	for (size_t page = who; page < SIZE / PAGE; page += MINE)
		mapping_fill(memory + page * PAGE, PAGE, who);
}

/* Pages of `who`, and of those whose writes it has inherited. */
static bool is_right(unsigned who, unsigned inherited)
{
	for (size_t page = 0; page < SIZE / PAGE; page++) {
		size_t writer = page % MINE;
		uint64_t seed =
		        writer == who || (writer && writer == inherited) ? writer : page + 1000;

		if (mapping_difference(memory + page * PAGE, PAGE, seed) != PAGE)
			return false;
	}
	return true;
}

/* Waits for a byte, checks, and tells by its exit status. */
static void live(int trigger, unsigned who, unsigned inherited, pid_t child)
{
	int status = 0;
	char byte;
	bool right;

	while (read(trigger, &byte, 1) == -1 && errno == EINTR)
		;
	right = is_right(who, inherited);
	write_mine(who + 10);
	if (child)
		right = waitpid(child, &status, 0) == child && status == 0 && right;
	_exit(right ? 0 : 1);
}

static pid_t beget(int trigger, int ready, unsigned who)
{
	pid_t child = fork();

	if (child)
		return child;
	write_mine(who);
	if (who == 1)
		madvise(gone, 16 * PAGE, MADV_DONTNEED);
	if (who == 2)
		munmap(gone, 16 * PAGE);
	if (who == 3)
		mprotect(gone, 16 * PAGE, PROT_READ);
	child = who == 4 ? fork() : -1;
	if (child == 0) {
		write_mine(5);
		if (write(ready, "r", 1) == 1)
			live(trigger, 5, 4, 0);
	}
	if (write(ready, "r", 1) == 1)
		live(trigger, who, 0, child > 0 ? child : 0);
	_exit(2);
}

static long sum(const pid_t *children)
{
	long total = proportional_size(getpid());

	for (unsigned i = 0; i < CHILDREN; i++)
		total += proportional_size(children[i]);
	return total;
}

int main(void)
{
	pid_t children[CHILDREN];
	int trigger[2], ready[2], status;
	long before, after;
	char byte;

	memory = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	madvise(memory, SIZE, MADV_NOHUGEPAGE);
	gone = mapping_new(16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	mapping_fill(gone, 16 * PAGE, 7);
	for (size_t page = 0; page < SIZE / PAGE; page++)
		mapping_fill(memory + page * PAGE, PAGE, page + 1000);
	subject_need(pipe(trigger) == 0 && pipe(ready) == 0, "pipe");
	for (unsigned i = 0; i < CHILDREN; i++)
		children[i] = beget(trigger[0], ready[1], i + 1);
	for (unsigned i = 0; i <= CHILDREN; i++)
		subject_need(read(ready[0], &byte, 1) == 1, "a child");
	write_mine(0);
	before = sum(children);
	subject_need(before > 0, "Pss_Anon");

	subject_ready();

	/* But for what the parent has written since: that the children had in common with each other. */
	after = sum(children);
	subject_check(after <= before + before / 10, "all need %ld KiB together, %ld before", after,
	              before);
	mapping_check(gone, 16 * PAGE, 7, "what the children let go of");
	subject_check(is_right(0, 0), "the parent's memory differs");
	for (unsigned i = 0; i <= CHILDREN; i++)
		subject_check(write(trigger[1], "go", 1) == 1, "write");
	for (unsigned i = 0; i < CHILDREN; i++)
		subject_check(waitpid(children[i], &status, 0) == children[i] && status == 0,
		              "child %u ends with %x", i + 1, status);
	return subject_end();
}
