/*
 * Twins that several threads write as fast as they can, in more places than can be copied before they
 * change again. What else it does is said by its arguments:
 *
 *	discard	gives pages back (MADV_DONTNEED)
 *	read	lets the kernel write (read(2)), which must not fail
 *	thread	has threads come and go whose stacks, and the words that tell of their end, are in that memory
 *	remap	unmaps, maps anew, and moves parts of it
 *	fork	has children come and go, who see the memory as it was
 *
 * subject: modes=none
 */
#include "twins.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#define THREADS 2
#define TWIN_PAGES 16384UL
#define CHUNK_PAGES 128UL
#define STACK_SIZE (64UL << 10)

static struct twins twins[THREADS];
static uint8_t *elsewhere[THREADS]; /* of each, a free place for a chunk */
static uint8_t *stack;
static int file;
static bool discards, reads, threads, remaps, forks;

static void read_both(struct twins *pair, uint64_t page)
{
	ssize_t got = pread(file, pair->left + page * PAGE, PAGE, (off_t)(page % 4 * PAGE));

	subject_check(got == PAGE, "read: %zd, %s", got, strerror(errno));
	got = pread(file, pair->right + page * PAGE, PAGE, (off_t)(page % 4 * PAGE));
	subject_check(got == PAGE, "read: %zd, %s", got, strerror(errno));
}

static void map_anew(void *at)
{
	subject_check(mmap(at, CHUNK_PAGES * PAGE, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at,
	              "mmap: %s", strerror(errno));
}

static void move_there_and_back(struct twins *pair, uint8_t *at)
{
	uint8_t *away = elsewhere[pair - twins];
	size_t size = CHUNK_PAGES * PAGE;

	subject_need(mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away, "mremap");
	subject_need(mremap(away, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at,
	             "mremap back");
	mmap(away, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void remap_both(struct twins *pair, uint64_t page)
{
	size_t offset = page / CHUNK_PAGES * CHUNK_PAGES * PAGE;

	if (page % 2) {
		munmap(pair->left + offset, CHUNK_PAGES * PAGE);
		map_anew(pair->left + offset);
		map_anew(pair->right + offset);
	} else {
		move_there_and_back(pair, pair->left + offset);
		move_there_and_back(pair, pair->right + offset);
	}
}

static void step(struct twins *pair)
{
	uint64_t choice = twins_random(pair);
	uint64_t page = twins_random(pair) % (TWIN_PAGES - 16), count = 1 + choice % 16;

	choice = choice / 16 % 256;
	if (discards && choice < 8) {
		twins_discard(pair, page, count);
	} else if (reads && choice < 16) {
		read_both(pair, page);
	} else if (remaps && choice == 16) {
		remap_both(pair, page);
	} else {
		for (uint64_t i = 0; i < count; i++)
			twins_write(pair, page + i);
	}
}

static void *writing(void *argument)
{
	while (subject_running())
		step(argument);
	return NULL;
}

static void *short_life(void *argument)
{
	usleep(20000);
	return argument;
}

/* Whoever is joined has left word of its end in memory that may have been held. */
static void *starting(void *argument)
{
	pthread_attr_t attributes;
	pthread_t thread;
	void *result;

	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack, STACK_SIZE);
	while (threads && subject_running()) {
		subject_need(!pthread_create(&thread, &attributes, short_life, stack), "a thread");
		pthread_join(thread, &result);
		subject_check(result == stack, "a thread returned %p", result);
	}
	return argument;
}

static void *forking(void *argument)
{
	struct twins *pair = argument;

	while (forks && subject_running()) {
		int status = 0;
		pid_t child = fork();

		if (child == 0) {
			for (uint64_t page = 0; page < TWIN_PAGES; page += 64)
				twins_write(pair, page);
			_exit(7);
		}
		waitpid(child, &status, 0);
		subject_check(WIFEXITED(status) && WEXITSTATUS(status) == 7,
		              "a child ended with %#x", status);
		usleep(200000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t writers[THREADS], starter, forker;

	for (int i = 1; i < argc; i++) {
		discards |= !strcmp(argv[i], "discard");
		reads |= !strcmp(argv[i], "read");
		threads |= !strcmp(argv[i], "thread");
		remaps |= !strcmp(argv[i], "remap");
		forks |= !strcmp(argv[i], "fork");
	}
	file = open("/proc/self/exe", O_RDONLY);
	subject_need(file >= 0, "a file");
	for (size_t i = 0; i < THREADS; i++) {
		twins[i] = twins_new(TWIN_PAGES, STACK_SIZE, i + 1);
		elsewhere[i] = mapping_new(CHUNK_PAGES * PAGE, PROT_NONE, MAP_PRIVATE);
		for (uint64_t page = 0; page < TWIN_PAGES; page++)
			twins_write(&twins[i], page);
		subject_need(!pthread_create(&writers[i], NULL, writing, &twins[i]), "a thread");
	}
	stack = twins[0].left + TWIN_PAGES * PAGE;
	subject_need(!pthread_create(&starter, NULL, starting, NULL), "a thread");
	subject_need(!pthread_create(&forker, NULL, forking, &twins[0]), "a thread");
	subject_ready();
	pthread_join(starter, NULL);
	pthread_join(forker, NULL);
	for (size_t i = 0; i < THREADS; i++) {
		pthread_join(writers[i], NULL);
		twins_check(&twins[i]);
	}
	return subject_end();
}
