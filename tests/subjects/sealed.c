/*
 * Sealed parts of a program: text, read-only data, data, relro and the stack as an allocator or a C
 * library seals them, anonymous memory of each protection, and one page between two free
 * neighbours.
 */
#include "sealed.h"

#include <link.h>

static const char constant[3 * PAGE] __attribute__((aligned(4096))) = {1};
static char data[3 * PAGE] __attribute__((aligned(4096))) = {1};
static char uninitialised[3 * PAGE] __attribute__((aligned(4096)));

/* The mapping that contains an address, or the first whose line contains `name`. */
static struct area find(const char *label, const void *address, const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct area area = {.name = label};
	unsigned long start, end;
	char line[512], permissions[5];

	subject_need(maps != NULL, "/proc/self/maps");
	while (!area.start && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %4s", &start, &end, permissions) != 3)
			continue;
		if (name ? strstr(line, name) != NULL
		         : start <= (uintptr_t)address && (uintptr_t)address < end)
			area = (struct area){label, (void *)start, end - start,
			                     (permissions[0] == 'r' ? PROT_READ : 0) |
			                             (permissions[1] == 'w' ? PROT_WRITE : 0) |
			                             (permissions[2] == 'x' ? PROT_EXEC : 0)};
	}
	fclose(maps);
	subject_need(area.start != NULL, "find %s", label);
	return area;
}

static struct area anonymous(const char *label, int prot)
{
	struct area area = {label, NULL, 4 * PAGE, prot};

	area.start = mapping_new(area.size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	mapping_fill(area.start, area.size, 1);
	subject_need(mprotect(area.start, area.size, prot) == 0, "mprotect");
	return area;
}

/* Called for the main program first: what its loader has made read-only after relocation. */
static int relro_of_main(struct dl_phdr_info *info, size_t size, void *result)
{
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
			*(uintptr_t *)result = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
	return 1;
}

static struct area relro(void)
{
	uintptr_t address = 0;

	dl_iterate_phdr(relro_of_main, &address);
	return find("relro", (void *)address, NULL);
}

static void check_neighbours(uint8_t *start, const struct area *between)
{
	check_sealed(between);
	mapping_check(start, PAGE, 5, "neighbour below");
	mapping_check(between->start, PAGE, 6, "sealed page");
	mapping_check(start + 2 * PAGE, PAGE, 7, "neighbour above");
	subject_check(mprotect(start, PAGE, PROT_READ) == 0, "neighbour below: mprotect");
	subject_check(munmap(start, PAGE) == 0, "neighbour below: munmap");
	subject_check(munmap(start + 2 * PAGE, PAGE) == 0, "neighbour above: munmap");
}

enum { WRITABLE = 6, READ_ONLY = 7 }; /* their places among the areas */

int main(void)
{
	uint8_t *three = mapping_new(3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	struct area between = {"page between neighbours", three + PAGE, PAGE,
	                       PROT_READ | PROT_WRITE};
	struct area areas[] = {
	        find("text", (void *)find, NULL),
	        find("read-only data", constant, NULL),
	        relro(),
	        find("data", data, NULL),
	        find("uninitialised data", uninitialised, NULL),
	        find("stack", NULL, "[stack]"),
	        anonymous("anonymous, writable", PROT_READ | PROT_WRITE),
	        anonymous("anonymous, read-only", PROT_READ),
	        anonymous("anonymous, executable", PROT_READ | PROT_EXEC),
	        anonymous("anonymous, no access", PROT_NONE),
	};
	const size_t count = sizeof(areas) / sizeof(areas[0]);

	for (int i = 0; i < 3; i++)
		mapping_fill(three + (size_t)i * PAGE, PAGE, 5 + (uint64_t)i);
	memset(uninitialised, 7, PAGE);
	seal(&between);
	for (size_t i = 0; i < count; i++)
		seal(&areas[i]);

	subject_ready();

	check_neighbours(three, &between);
	for (size_t i = 0; i < count; i++)
		check_sealed(&areas[i]);
	check_not_discardable(&areas[READ_ONLY]);
	mapping_check(areas[WRITABLE].start, areas[WRITABLE].size, 1, areas[WRITABLE].name);
	mapping_check(areas[READ_ONLY].start, areas[READ_ONLY].size, 1, areas[READ_ONLY].name);
	subject_check(constant[0] == 1 && data[0] == 1 && uninitialised[PAGE - 1] == 7,
	              "data differ");
	data[1] = 2; /* writing is not what a seal forbids */
	return subject_end();
}
