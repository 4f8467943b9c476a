/*
 * Contents behind every protection: memory that cannot be read, or not be written, at the time of
 * the dump has contents all the same, and its protection is the same afterwards.
 */
#include "mapping.h"

#define SIZE (8 * PAGE)

static const struct {
	int prot;
	const char *name;
} cases[] = {
        {PROT_NONE, "no access"},
        {PROT_READ, "read-only"},
        {PROT_WRITE, "write-only"},
        {PROT_EXEC, "execute-only"},
        {PROT_READ | PROT_EXEC, "read and execute"},
        {PROT_READ | PROT_WRITE | PROT_EXEC, "everything"},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static void permissions_of(const void *address, char text[5])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	char line[512], seen[5];

	subject_need(maps != NULL, "/proc/self/maps");
	strcpy(text, "gone");
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, seen) == 3 &&
		    start <= (uintptr_t)address && (uintptr_t)address < end)
			memcpy(text, seen, sizeof(seen));
	fclose(maps);
}

int main(void)
{
	uint8_t *start[CASES];
	char before[CASES][5], after[5];

	for (size_t i = 0; i < CASES; i++) {
		start[i] = mapping_new(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
		mapping_fill(start[i], SIZE, 100 + i);
		subject_need(mprotect(start[i], SIZE, cases[i].prot) == 0, "mprotect");
		permissions_of(start[i], before[i]);
	}

	subject_ready();

	for (size_t i = 0; i < CASES; i++) {
		permissions_of(start[i], after);
		subject_check(strcmp(before[i], after) == 0, "%s: was %s, is %s", cases[i].name,
		              before[i], after);
		subject_need(mprotect(start[i], SIZE, PROT_READ) == 0, "mprotect");
		mapping_check(start[i], SIZE, 100 + i, cases[i].name);
	}
	return subject_end();
}
