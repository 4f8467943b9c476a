/*
 * `sealpoint criu check`: whether programs can be saved and restored here. What CRIU asks the kernel for is not
 * what sealpoint needs: the answer is about sealpoint's features, and CRIU's names are known for those
 * that mean the same thing.
 */
#include "cli/criu.h"

#include "base/array.h"

#include <string.h>

/*
 * CRIU's names: of a feature that sealpoint needs, too; of one that it does without, and does what it is for; or of
 * one for what it does not do yet, whatever the kernel has.
 */
static const struct {
	const char *name;
	const char *feature; /* NULL: it does without */
	const char *missing; /* what cannot be done yet */
} names[] = {
        {.name = "mem_dirty_track", .feature = "PAGEMAP_SCAN"},
        {.name = "uffd", .feature = "userfaultfd, UFFDIO_COPY"},
        {.name = "seccomp_suspend", .feature = "PTRACE_O_SUSPEND_SECCOMP"},
        {.name = "seccomp_filters", .feature = "PTRACE_SECCOMP_GET_FILTER"},
        {.name = "clone3_set_tid", .feature = "clone3 set_tid"},
        {.name = "timerfd", .feature = "TFD_IOC_SET_TICKS"},
        {.name = "get_rseq_conf", .feature = "PTRACE_GET_RSEQ_CONFIGURATION"},
        {.name = "kcmp_epoll", .feature = "kcmp"},
        {.name = "pidfd_store", .feature = "pidfd_getfd"},
        {.name = "tcp_half_closed", .feature = "TCP_REPAIR"},
        {.name = "nftables", .feature = "nftables"},
        {.name = "network_lock_nftables", .feature = "nftables"},
        {.name = "mnt_id"},
        {.name = "aio_remap"},
        {.name = "fdinfo_lock"},
        {.name = "can_map_vdso"},
        {.name = "sk_unix_file"},
        {.name = "net_diag_raw"},
        {.name = "sockopt_buf_lock"},
        {.name = "memfd_hugetlb"},
        {.name = "openat2"},
        {.name = "has_ipt_legacy"},
        {.name = "uffd-noncoop", .missing = "to restore memory when it is needed (lazy-pages)"},
        {.name = "tun", .missing = "to save tun devices"},
        {.name = "tun_ns", .missing = "to save tun devices"},
        {.name = "userns", .missing = "to save programs in a user namespace of their own"},
        {.name = "cgroupns", .missing = "to save programs in a cgroup namespace of their own"},
        {.name = "timens", .missing = "to save programs in a time namespace of their own"},
        {.name = "ns_pid", .missing = "to save programs in a pid namespace of their own"},
        {.name = "sk_ns", .missing = "to save programs in a network namespace of their own"},
        {.name = "nsid", .missing = "to save programs in a network namespace of their own"},
        {.name = "link_nsid", .missing = "to save programs in a network namespace of their own"},
        {.name = "newifindex", .missing = "to save programs in a network namespace of their own"},
        {.name = "external_net_ns",
         .missing = "to save programs in a network namespace of their own"},
        {.name = "move_mount_set_group",
         .missing = "to save programs in a mount namespace of their own"},
        {.name = "autofs", .missing = "to save programs in a mount namespace of their own"},
        {.name = "apparmor_stacking", .missing = "to restore profiles of security modules"},
        {.name = "loginuid", .missing = "to restore the login uid"},
        {.name = "compat_cr", .missing = "to save 32-bit programs"},
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

static int refuse_feature(struct sp_criu *criu, const char *missing)
{
	sp_criu_tell(criu, SP_CRIU_ERROR, "%s: sealpoint is not able %s yet", criu->feature,
	             missing);
	return SP_EXIT_FAILED;
}

static int check_one(struct sp_criu *criu, const struct sp_array *features)
{
	const struct sp_feature *feature;
	const char *wanted = criu->feature;

	for (size_t i = 0; i < SP_COUNT_OF(names); i++) {
		if (strcmp(names[i].name, criu->feature) != 0)
			continue;
		if (names[i].missing)
			return refuse_feature(criu, names[i].missing);
		if (!names[i].feature)
			return SP_EXIT_OK;
		wanted = names[i].feature;
	}
	feature = find_feature(features, wanted);
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
