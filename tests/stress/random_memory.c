/* Steps: memory. */
#include "random.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { SCRATCH_PAGES = 128 };

/* What is written to again and again: in a delta that is found, and nothing else. */
static char scratch[SCRATCH_PAGES * 4096] __attribute__((aligned(4096)));

static void write_scratch(void)
{
	unsigned first = below(SCRATCH_PAGES), count = below(SCRATCH_PAGES - first);

	write_pages(scratch + first * 4096, count);
	if (chance(30))
		madvise(scratch + 4096 * below(SCRATCH_PAGES), 4096, MADV_DONTNEED);
}

/* Moves what is written, so that nothing is known of it any more. */
static void move_memory(void)
{
	size_t pages = 4 + below(16);
	char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE,
	                    -1, 0);

	subject_need(memory != MAP_FAILED, "mmap");
	write_pages(memory, pages);
	memory = mremap(memory, pages * 4096, 64 * 4096, MREMAP_MAYMOVE);
	subject_need(memory != MAP_FAILED, "mremap");
	write_pages(memory, 64);
}

static void make_memory(void)
{
	static const int protections[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE,
	                                  PROT_READ | PROT_EXEC};
	static const int advice[] = {MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP,
	                             MADV_RANDOM,   MADV_HUGEPAGE,   MADV_NOHUGEPAGE,
	                             MADV_DONTNEED, MADV_SEQUENTIAL};
	size_t pages = 1 + below(64);
	char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE,
	                    MAP_ANONYMOUS | (chance(70) ? MAP_PRIVATE : MAP_SHARED), -1, 0);

	subject_need(memory != MAP_FAILED, "mmap");
	write_pages(memory, pages);
	if (chance(40))
		madvise(memory + 4096 * below((unsigned)pages), 4096, advice[below(8)]);
	if (chance(15))
		mlock(memory, 4096);
	if (chance(30))
		prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory, 4096, "a name");
	if (chance(50))
		mprotect(memory + 4096 * below((unsigned)pages), 4096, protections[below(4)]);
	if (chance(20))
		munmap(memory + 4096 * below((unsigned)pages), 4096);
}

static void map_file(void)
{
	const char *name = new_name("mapped");
	int fd = open(name, O_RDWR | O_CREAT, 0600);
	char *memory;

	subject_need(fd >= 0 && ftruncate(fd, 10 * 4096) == 0, "open");
	memory = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, chance(50) ? MAP_PRIVATE : MAP_SHARED,
	              fd, chance(50) ? 4096 : 0);
	subject_need(memory != MAP_FAILED, "mmap");
	write_pages(memory, 8);
	if (chance(30))
		mprotect(memory, 4096, PROT_READ);
	if (chance(30))
		unlink(name);
	keep_or_close(fd, 50);
}

static void make_memfd(void)
{
	int fd = keep(memfd_create(new_name("memfd"), MFD_ALLOW_SEALING), "memfd");
	char *memory;

	subject_need(ftruncate(fd, 16 * 4096) == 0, "ftruncate");
	memory = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE,
	              chance(70) ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	subject_need(memory != MAP_FAILED, "mmap");
	write_pages(memory, 16);
	lseek(fd, (off_t)below(10000), SEEK_SET);
	if (chance(40))
		fcntl(fd, F_ADD_SEALS, chance(50) ? F_SEAL_SHRINK : F_SEAL_GROW);
	if (chance(30))
		munmap(memory, 16 * 4096);
}

static void use_heap(void)
{
	char *memory = malloc(50000 + below(400000));

	subject_need(memory != NULL, "malloc");
	write_pages(memory, 10);
}

const struct step memory_steps[] = {
        {"scratch", write_scratch, 8},
        {"memory", make_memory, 8},
        {"moved", move_memory, 3},
        {"mapped", map_file, 5},
        {"memfd", make_memfd, 4},
        {"heap", use_heap, 3},
        {NULL, NULL, 0},
};
