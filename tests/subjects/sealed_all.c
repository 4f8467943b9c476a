/*
 * A whole sealed address space: every mapping that the process has, text, libraries, heap, stacks,
 * vDSO. A second thread works on in it.
 */
#include "sealed.h"

#include <pthread.h>

#define MAPPINGS_MAX 128

static struct area areas[MAPPINGS_MAX];
static size_t area_count;

static void list_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	char line[512];

	subject_need(maps != NULL, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps) && area_count < MAPPINGS_MAX)
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && !strstr(line, "[vsyscall]"))
			areas[area_count++] = (struct area){
			        .name = "mapping", .start = (void *)start, .size = end - start};
	fclose(maps);
}

static void *work(void *memory)
{
	for (uint64_t seed = 0; subject_running(); seed++) {
		mapping_fill(memory, PAGE, seed);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		mapping_check(memory, PAGE, seed, "the thread's memory");
	}
	return NULL;
}

int main(void)
{
	uint8_t *memory = mapping_new(4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	pthread_t thread;
	char flags[128];

	subject_need(pthread_create(&thread, NULL, work, memory) == 0, "pthread_create");
	list_mappings();
	for (size_t i = 0; i < area_count; i++)
		seal(&areas[i]);

	subject_ready();

	pthread_join(thread, NULL);
	for (size_t i = 0; i < area_count; i++) {
		mapping_smaps(areas[i].start, "VmFlags:", flags, sizeof(flags));
		subject_check(strstr(flags, " sl") != NULL, "%p: not sealed:%s", areas[i].start,
		              flags);
	}
	check_sealed(&(struct area){"anonymous", memory, 4 * PAGE, PROT_READ | PROT_WRITE});
	return subject_end();
}
