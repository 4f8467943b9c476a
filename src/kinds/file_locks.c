/* Reading locks out of fdinfo, and taking them again: see file_locks.h. */
#include "kinds/file_locks.h"

#include "kinds/file_build.h"
#include "proc/fdinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>

/* --- reading --- */

static const struct lock_name {
	const char *name;
	Sealpoint__FileLock__Type type;
} lock_names[] = {
        {"POSIX", SEALPOINT__FILE_LOCK__TYPE__POSIX},
        {"OFDLCK", SEALPOINT__FILE_LOCK__TYPE__OFD},
        {"FLOCK", SEALPOINT__FILE_LOCK__TYPE__FLOCK},
        {"LEASE", SEALPOINT__FILE_LOCK__TYPE__LEASE},
};

static const struct lock_name *find_name(const char *name)
{
	for (size_t i = 0; i < SP_COUNT_OF(lock_names); i++)
		if (!strcmp(lock_names[i].name, name))
			return &lock_names[i];
	return NULL;
}

/* "1: POSIX ADVISORY WRITE 4242 08:01:131 0 EOF", the format of /proc/locks (proc_locks(5)). */
static int parse_lock(struct sp_file_lock *lock, pid_t pid, const char *line, struct sp_error *err)
{
	const struct lock_name *name;
	char kind[16], state[16], mode[16], end[24];
	unsigned long long start;

	if (sscanf(line, "%*d: %15s %15s %15s %*d %*s %llu %23s", kind, state, mode, &start, end) !=
	    5)
		return sp_fail(err, EPROTO, "a file lock has an unknown format: %.*s",
		               (int)strcspn(line, "\n"), line);
	name = find_name(kind);
	if (!name)
		return sp_fail(err, ENOTSUP,
		               "it has a lock of a kind that sealpoint does not know (%s); let the "
		               "program give it up first",
		               kind);
	if (!strcmp(state, "BREAKING"))
		return sp_fail(
		        err, SP_NOT_YET,
		        "another process waits for it to give up its lease on the file; let it "
		        "do so before the dump (fcntl F_SETLEASE, F_UNLCK)");
	lock->type = name->type;
	lock->pid = name->type == SEALPOINT__FILE_LOCK__TYPE__POSIX ? pid : 0;
	lock->exclusive = !strcmp(mode, "WRITE");
	lock->start = start;
	lock->length = strcmp(end, "EOF") ? strtoull(end, NULL, 10) - start + 1 : 0;
	return 0;
}

int sp_file_locks_read(struct sp_array *locks, uint32_t file, pid_t pid, const char *fdinfo,
                       bool first_holder, struct sp_error *err)
{
	for (const char *line = sp_fdinfo_find(fdinfo, "lock:"); line;
	     line = sp_fdinfo_find(line, "lock:")) {
		struct sp_file_lock lock = {.file = file};
		int rc = parse_lock(&lock, pid, line, err);

		if (rc)
			return rc;
		if (first_holder || lock.type == SEALPOINT__FILE_LOCK__TYPE__POSIX)
			sp_array_append(locks, &lock);
	}
	return 0;
}

/* --- taking them again --- */

static struct flock record_lock(const Sealpoint__FileLock *lock)
{
	return (struct flock){.l_type = lock->exclusive ? F_WRLCK : F_RDLCK,
	                      .l_whence = SEEK_SET,
	                      .l_start = (off_t)lock->start,
	                      .l_len = (off_t)lock->length};
}

static int take_posix(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                      const Sealpoint__FileLock *lock, int64_t *result, struct sp_error *err)
{
	const struct flock record = record_lock(lock);
	remote_addr address;

	sp_batch_begin(builder->remote);
	address = sp_batch_put(builder->remote, &record, sizeof(record));
	return sp_remote_try(builder->remote, result, err, "take a file lock", SYS_fcntl,
	                     (uint64_t)builder->numbers[file->id], F_SETLK, address, 0, 0, 0);
}

/* Its signals tell the number, so the process itself has to ask for them. */
static int take_lease(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                      const Sealpoint__FileLock *lock, int64_t *result, struct sp_error *err)
{
	sp_batch_begin(builder->remote);
	return sp_remote_try(builder->remote, result, err, "take a file lease", SYS_fcntl,
	                     (uint64_t)builder->numbers[file->id], F_SETLEASE,
	                     lock->exclusive ? F_WRLCK : F_RDLCK, 0, 0, 0);
}

static int64_t take_own(int fd, const Sealpoint__FileLock *lock)
{
	struct flock record = record_lock(lock);
	int rc;

	if (lock->type == SEALPOINT__FILE_LOCK__TYPE__OFD)
		rc = fcntl(fd, F_OFD_SETLK, &record);
	else
		rc = flock(fd, (lock->exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
	return rc ? -errno : 0;
}

static int refuse_lock(const Sealpoint__FileLock *lock, int64_t code, struct sp_error *err)
{
	if (code == -EAGAIN && lock->type == SEALPOINT__FILE_LOCK__TYPE__LEASE)
		return sp_fail(
		        err, EAGAIN,
		        "it had a %s lease on the file, which is now open in another process "
		        "(lsof names it); end that first",
		        lock->exclusive ? "write" : "read");
	if (code == -EAGAIN || code == -EACCES)
		return sp_fail(err, EAGAIN,
		               "the %s lock from byte %llu on is now held by another process "
		               "(lslocks names it); end that first",
		               lock->exclusive ? "exclusive" : "shared",
		               (unsigned long long)lock->start);
	return sp_fail_errno(err, (int)-code, "cannot take the %s lock from byte %llu on again",
	                     lock->exclusive ? "exclusive" : "shared",
	                     (unsigned long long)lock->start);
}

int sp_file_locks_take(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, bool whole,
                       struct sp_error *err)
{
	for (size_t i = 0; i < file->n_locks; i++) {
		const Sealpoint__FileLock *lock = file->locks[i];
		bool posix = lock->type == SEALPOINT__FILE_LOCK__TYPE__POSIX;
		int64_t result = 0;
		int failed = 0;

		if (posix && (pid_t)lock->pid == builder->pid)
			failed = take_posix(builder, file, lock, &result, err);
		else if (lock->type == SEALPOINT__FILE_LOCK__TYPE__LEASE && whole)
			failed = take_lease(builder, file, lock, &result, err);
		else if (!posix && whole)
			result = take_own(builder->fds[file->id], lock);
		if (failed)
			return failed;
		if (result)
			return refuse_lock(lock, result, err);
	}
	return 0;
}
