/*
 * Refuses threads that see another system than sealpoint does, or that do not share with their
 * process what threads share: namespaces, descriptors, directories. Nothing is saved; a facet,
 * because it is asked about every thread.
 */
#include "kinds/registry.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *file, *title;
	const char *option; /* of nsenter(1) */
} namespaces[] = {
        {"mnt", "mount", "m"},     {"pid", "pid", "p"},   {"pid_for_children", "pid", "p"},
        {"net", "network", "n"},   {"ipc", "IPC", "i"},   {"uts", "UTS", "u"},
        {"user", "user", "U"},     {"time", "time", "T"}, {"time_for_children", "time", "T"},
        {"cgroup", "cgroup", "C"},
};

/** Two links such as "mnt:[4026531841]" that are read, not followed: the kernel need not open either. */
static int compare_namespace(const struct sp_facet_saver *saver, int ours, int theirs, size_t which,
                             struct sp_error *err)
{
	char our_link[64] = "", their_link[64] = "";

	if (readlinkat(ours, namespaces[which].file, our_link, sizeof(our_link) - 1) < 0)
		return 0; /* a kernel without it: there is only one */
	if (readlinkat(theirs, namespaces[which].file, their_link, sizeof(their_link) - 1) < 0)
		return sp_fail_errno(err, errno, "cannot read its %s namespace",
		                     namespaces[which].title);
	if (!strcmp(our_link, their_link))
		return 0;
	return sp_fail(err, ENOTSUP,
	               "it is in another %s namespace than sealpoint: run sealpoint in the same "
	               "one (nsenter -t %d -%s sealpoint ...)",
	               namespaces[which].title, saver->process->pid, namespaces[which].option);
}

static int compare_namespaces(const struct sp_facet_saver *saver, struct sp_error *err)
{
	sp_cleanup_close int ours = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);
	sp_cleanup_close int theirs = -1;
	char path[64];
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/ns", saver->process->pid,
	         saver->thread->tid);
	theirs = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (ours < 0 || theirs < 0)
		return sp_fail_errno(err, errno, "cannot read its namespaces");
	for (size_t i = 0; i < SP_COUNT_OF(namespaces) && !rc; i++)
		rc = compare_namespace(saver, ours, theirs, i, err);
	return rc;
}

static int compare_shared(const struct sp_facet_saver *saver, struct sp_error *err)
{
	static const struct {
		int type;
		const char *what;
	} shared[] = {{KCMP_FILES, "descriptors"}, {KCMP_FS, "directories"}};
	pid_t pid = saver->process->pid, tid = saver->thread->tid;

	for (size_t i = 0; tid != pid && i < SP_COUNT_OF(shared); i++)
		if (syscall(SYS_kcmp, pid, tid, shared[i].type, 0, 0) > 0)
			return sp_fail(err, ENOTSUP,
			               "thread %d has %s of its own (unshare(2)), apart from its "
			               "process: sealpoint does not support that",
			               tid, shared[i].what);
	return 0;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	int rc = compare_namespaces(saver, err);

	return rc ? rc : compare_shared(saver, err);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_fail(err, EBADMSG, "no checkpoint of this version holds namespaces");
}

const struct sp_facet sp_facet_namespaces = {
        .name = "namespaces",
        .title = "namespaces",
        .scope = SP_FACET_THREAD,
        .phase = SP_PHASE_STUB,
        .save = save,
        .rebuild = rebuild,
};
