/*
 * `sealpoint criu check`: whether programs can be saved and restored here. What CRIU asks the kernel for is not
 * what sealpoint needs: the answer is about sealpoint's features, and CRIU's names are known for those
 * that mean the same thing.
 */
#include "cli/criu.h"

#include "base/array.h"

#include <string.h>

/* Names of CRIU's for features that sealpoint needs, too. */
static const struct {
	const char *name, *feature;
} names[] = {
        {"mem_dirty_track", "PAGEMAP_SCAN"},
        {"uffd", "userfaultfd, UFFDIO_COPY"},
        {"uffd-noncoop", "userfaultfd, UFFDIO_COPY"},
        {"seccomp_suspend", "PTRACE_O_SUSPEND_SECCOMP"},
        {"seccomp_filters", "PTRACE_SECCOMP_GET_FILTER"},
        {"clone3_set_tid", "clone3 set_tid"},
        {"timerfd", "TFD_IOC_SET_TICKS"},
        {"get_rseq_conf", "PTRACE_GET_RSEQ_CONFIGURATION"},
};

static void list_names(const struct sp_array *features)
{
	for (size_t i = 0; i < SP_COUNT_OF(names); i++)
		printf("%s\n", names[i].name);
	for (size_t i = 0; i < features->count; i++)
		printf("%s\n", ((const struct sp_feature *)sp_array_at(features, i))->name);
}

static const struct sp_feature *find_feature(const struct sp_array *features, const char *name)
{
	for (size_t i = 0; i < SP_COUNT_OF(names); i++)
		if (!strcmp(names[i].name, name))
			name = names[i].feature;
	for (size_t i = 0; i < features->count; i++) {
		const struct sp_feature *feature = sp_array_at(features, i);

		if (!strcmp(feature->name, name))
			return feature;
	}
	return NULL;
}

static void tell_missing(struct sp_criu *criu, enum sp_criu_level level,
                         const struct sp_feature *feature)
{
	sp_criu_tell(criu, level, "%s is missing (%s): %s%s(since %s)", feature->name,
	             feature->purpose, feature->detail, feature->detail[0] ? " " : "",
	             feature->since);
}

static int check_one(struct sp_criu *criu, const struct sp_array *features)
{
	const struct sp_feature *feature = find_feature(features, criu->feature);

	if (!strcmp(criu->feature, "list")) {
		list_names(features);
		return SP_EXIT_OK;
	}
	if (!feature) {
		sp_criu_tell(criu, SP_CRIU_ERROR,
		             "sealpoint knows no feature %s; \"--feature list\" lists them",
		             criu->feature);
		return SP_EXIT_FAILED;
	}
	if (!feature->present)
		tell_missing(criu, SP_CRIU_ERROR, feature);
	return feature->present ? SP_EXIT_OK : SP_EXIT_FAILED;
}

/* Tells what is missing of those that are needed so, and returns how many they are. */
static unsigned check_all(struct sp_criu *criu, const struct sp_array *features, enum sp_need need)
{
	unsigned missing = 0;

	for (size_t i = 0; i < features->count; i++) {
		const struct sp_feature *feature = sp_array_at(features, i);

		if (feature->present || feature->need != need)
			continue;
		missing++;
		tell_missing(criu, need == SP_NEEDED_ALWAYS ? SP_CRIU_ERROR : SP_CRIU_WARNING,
		             feature);
	}
	return missing;
}

int sp_criu_check(struct sp_criu *criu)
{
	sp_cleanup_array struct sp_array features = SP_ARRAY_OF(struct sp_feature);
	struct sp_error err = {0};
	unsigned missing, limited = 0;

	if (sp_check_features(&features, &err) < 0) {
		sp_criu_tell(criu, SP_CRIU_ERROR, "%s", err.message);
		return SP_EXIT_FAILED;
	}
	if (criu->feature)
		return check_one(criu, &features);
	missing = check_all(criu, &features, SP_NEEDED_ALWAYS);
	if (criu->extra || criu->all)
		limited = check_all(criu, &features, SP_NEEDED_SOMETIMES);
	puts(missing   ? "Does not look good."
	     : limited ? "Looks good but some programs need more than is here."
	               : "Looks good.");
	return missing || limited ? SP_EXIT_FAILED : SP_EXIT_OK;
}
