/*
 * A program that locks its future mappings as they are touched (mlockall): what was mapped before is not locked, and
 * what is mapped after the restore is.
 */
#include "mapping.h"

static bool has_flag(const void *address, const char *flag)
{
	char flags[128];

	mapping_smaps(address, "VmFlags:", flags, sizeof(flags));
	return strstr(flags, flag) != NULL;
}

static void check_flags(const void *address, bool locked, const char *what)
{
	subject_check(has_flag(address, " lo") == locked, "%s is%s locked", what,
	              locked ? " not" : "");
	subject_check(has_flag(address, " lf") == locked, "%s is%s locked on fault", what,
	              locked ? " not" : "");
}

int main(void)
{
	void *before = mapping_new(16 * PAGE, PROT_READ, MAP_PRIVATE), *between, *after;

	subject_need(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0, "mlockall");
	between = mapping_new(16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);

	subject_ready();

	after = mapping_new(16 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE);
	check_flags(before, false, "the mapping from before");
	check_flags(between, true, "the mapping from after mlockall");
	check_flags(after, true, "a new mapping");
	subject_check(!mapping_populated(after), "a new mapping is populated at once");
	return subject_end();
}
