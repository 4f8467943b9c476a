/*
 * A process that has unmapped its vDSO: there is none to use while it is dumped, and none
 * afterwards.
 */
#include "mapping.h"

/* The first mapping whose name contains `name`, as a range; false if there is none. */
static bool find(const char *name, unsigned long *start, unsigned long *end)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[512];

	subject_need(maps != NULL, "/proc/self/maps");
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, name) && sscanf(line, "%lx-%lx", start, end) == 2;
	fclose(maps);
	return found;
}

int main(void)
{
	static const char *const names[] = {"[vdso]", "[vvar"};
	unsigned long start, end;

	for (size_t i = 0; i < 2; i++)
		while (find(names[i], &start, &end))
			subject_need(munmap((void *)start, end - start) == 0, "munmap %s",
			             names[i]);

	subject_ready();

	for (size_t i = 0; i < 2; i++)
		subject_check(!find(names[i], &start, &end), "there is a %s at %lx", names[i],
		              start);
	return subject_end();
}
