/*
 * What a program has told the kernel about its mappings: locks, advice, growth, names. Each mapping
 * has the same flags in smaps afterwards, and the two that can be tried out still do what they say.
 */
#include "mapping.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#define SIZE (4 * PAGE)
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

struct flagged {
	const char *name;
	int advice; /* MADV_*; 0: none */
	int mmap_flags;
	int lock; /* 1: mlock; 2: mlock2 on fault */
	uint8_t *start;
	char flags[128];
};

static struct flagged cases[] = {
        {.name = "plain"},
        {.name = "huge pages wanted", .advice = MADV_HUGEPAGE},
        {.name = "no huge pages", .advice = MADV_NOHUGEPAGE},
        {.name = "not inherited", .advice = MADV_DONTFORK},
        {.name = "not in cores", .advice = MADV_DONTDUMP},
        {.name = "wiped on fork", .advice = MADV_WIPEONFORK},
        {.name = "mergeable", .advice = MADV_MERGEABLE},
        {.name = "sequential", .advice = MADV_SEQUENTIAL},
        {.name = "random", .advice = MADV_RANDOM},
        {.name = "no swap reserved", .mmap_flags = MAP_NORESERVE},
        {.name = "grows down", .mmap_flags = MAP_GROWSDOWN},
        {.name = "locked", .lock = 1},
        {.name = "locked on fault", .lock = 2},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* Each mapping stands alone between guards, so that no two are merged. */
static uint8_t *place(int mmap_flags)
{
	uint8_t *reserved = mapping_new(SIZE + 512 * PAGE, PROT_NONE, MAP_PRIVATE);
	uint8_t *start = reserved + 500 * PAGE;

	munmap(reserved, SIZE + 512 * PAGE);
	start = mmap(start, SIZE, PROT_READ | PROT_WRITE,
	             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | mmap_flags, -1, 0);
	subject_need(start != MAP_FAILED, "mmap");
	return start;
}

static void make(struct flagged *it)
{
	it->start = place(it->mmap_flags);
	if (it->advice && madvise(it->start, SIZE, it->advice) != 0)
		subject_need(errno == EINVAL, "madvise: %s", it->name); /* the kernel has it not */
	mapping_fill(it->start, SIZE / 2, (uintptr_t)it->name);
	if (it->lock)
		subject_need(mlock2(it->start, SIZE, it->lock == 2 ? MLOCK_ONFAULT : 0) == 0,
		             "mlock2: %s", it->name);
	mapping_smaps(it->start, "VmFlags:", it->flags, sizeof(it->flags));
}

static void check_inheritance(const struct flagged *dont_fork, const struct flagged *wiped)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(!mapping_readable(dont_fork->start) && mapping_is_zero(wiped->start, SIZE)
		              ? 0
		              : 1);
	subject_check(waitpid(child, &status, 0) == child && status == 0,
	              "a child inherits what it must not");
}

static void check_growth(const uint8_t *start)
{
	subject_check(!mapping_readable(start - PAGE), "the stack has grown by itself");
	*(volatile uint8_t *)(start - PAGE) = 1;
	subject_check(mapping_readable(start - PAGE), "the stack does not grow");
}

int main(void)
{
	uint8_t *named = place(0);
	char flags[128];

	mapping_fill(named, SIZE, 9);
	/*
	 * Without CONFIG_ANON_VMA_NAME this fails; with it, the comparison of maps shows the name.
	 */
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, named, SIZE, "a subject's");
	for (size_t i = 0; i < CASES; i++)
		make(&cases[i]);

	subject_ready();

	for (size_t i = 0; i < CASES; i++) {
		const struct flagged *it = &cases[i];

		mapping_smaps(it->start, "VmFlags:", flags, sizeof(flags));
		subject_check(strcmp(flags, it->flags) == 0, "%s: flags were%.*s, are%s", it->name,
		              (int)strcspn(it->flags, "\n"), it->flags, flags);
		mapping_check(it->start, SIZE / 2, (uintptr_t)it->name, it->name);
	}
	mapping_check(named, SIZE, 9, "named");
	check_inheritance(&cases[3], &cases[5]);
	check_growth(cases[10].start);
	return subject_end();
}
