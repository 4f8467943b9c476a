/*
 * What a program may have found out about its processor, and goes by after a restore: see processor.h. Whatever is
 * more here does not matter, with one exception, which is warned of.
 */
#include "engine/processor.h"

#include "arch/arch.h"
#include "base/cleanup.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool has_feature(const char *name)
{
	const char *const *here = sp_cpu_features();

	for (size_t i = 0; here[i]; i++)
		if (!strcmp(here[i], name))
			return true;
	return false;
}

/*
 * Bound registers (MPX): processors that have them offer their state, but no kernel since 5.6 lets
 * a program use them. A thread that has something in them all the same is refused when its
 * registers are set.
 */
#define XCR0_BOUND_REGISTERS (3ULL << 3)

int sp_processor_check(const Sealpoint__Manifest *saved, struct sp_error *err)
{
	uint64_t missing = saved->cpu_xfeatures & ~sp_cpu_xfeatures() & ~XCR0_BOUND_REGISTERS;

	for (size_t i = 0; i < saved->n_cpu_features; i++)
		if (!has_feature(saved->cpu_features[i]))
			return sp_fail(err, ENOTSUP,
			               "this processor lacks %s, which the program may use; "
			               "restore it on one with the features of %s",
			               saved->cpu_features[i], saved->hostname);
	if (missing)
		return sp_fail(
		        err, ENOTSUP,
		        "this processor or kernel does not offer the register state (XCR0 bits "
		        "0x%llx) that the program was saved with; restore it on one like %s",
		        (unsigned long long)missing, saved->hostname);
	return 0;
}

/*
 * With XSAVE, which has no compact form, a C library that binds functions at their first call saves
 * all registers that the processor has, in room that was measured on the processor where the
 * program started.
 */
void sp_processor_warn(const Sealpoint__Manifest *saved, struct sp_log *log)
{
	for (size_t i = 0; i < saved->n_cpu_features; i++)
		if (!strcmp(saved->cpu_features[i], "xsavec"))
			return;
	if (sp_cpu_xfeatures() & ~saved->cpu_xfeatures)
		sp_warn(log,
		        "this processor has more registers than that of %s, which has no XSAVEC: "
		        "a program that was not started with LD_BIND_NOW=1 may crash when it "
		        "calls a function for the first time",
		        saved->hostname);
}

static int open_directory(const char *path, struct sp_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? sp_fail_errno(err, errno, "cannot open %s", path) : fd;
}

int sp_processor_save(const char *directory, struct sp_error *err)
{
	sp_cleanup_close int dirfd = open_directory(directory, err);

	return dirfd < 0 ? dirfd : sp_machine_write(dirfd, SP_PROCESSOR_FILE, err);
}

int sp_processor_compare(const char *directory, const char *name, struct sp_log *log,
                         struct sp_error *err)
{
	sp_cleanup_close int dirfd = open_directory(directory, err);
	Sealpoint__Manifest *saved;
	int rc = dirfd < 0 ? dirfd : sp_machine_read(dirfd, name, &saved, err);

	if (rc < 0)
		return rc;
	rc = sp_processor_check(saved, err);
	if (rc == 0)
		sp_processor_warn(saved, log);
	sealpoint__manifest__free_unpacked(saved, NULL);
	return rc;
}
