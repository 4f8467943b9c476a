/*
 * A whole address space is saved from one process (the program) and rebuilt in another (the stub),
 * which then runs on in it. Both are children of the test, so code lies at the same addresses in
 * all three.
 *
 *	struct bench bench;
 *
 *	restore(&bench, set_up, -1);	// set_up() runs in the program
 *	assert_same_memory(&bench);
 *	status = run_in_stub(&bench, check);	// check() runs in what was rebuilt
 *	release_bench(&bench);
 */
#ifndef SEALPOINT_TESTS_MEMORY_FIXTURE_H
#define SEALPOINT_TESTS_MEMORY_FIXTURE_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "mem/memory.h"
#include "unit/scratch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>
#include "unit/skip.h"

/* --- the program --- */

/* Where the program left what its test looks at; the same address in every process. */
static char *subject;

/* Runs `setup` in a child, which then stops: from then on not a byte of it changes. */
static inline pid_t start_program(void (*setup)(void))
{
	int told[2], status;
	pid_t pid;

	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setup();
		if (write(told[1], &subject, sizeof(subject)) < 0)
			_exit(1);
		kill(getpid(), SIGSTOP);
		_exit(1);
	}
	close(told[1]);
	if (read(told[0], &subject, sizeof(subject)) != sizeof(subject))
		fail_msg("the program could not be set up");
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	close(told[0]);
	return pid;
}

static inline void end_process(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* --- saving it --- */

struct bench {
	pid_t program;
	struct scratch scratch;
	struct sp_array vmas; /* of the program */
	struct sp_checkpoint checkpoint;
	Sealpoint__Process record;
	Sealpoint__Vma *records;
	int fds[256]; /* by file id */
	pid_t stub;
	struct sp_process process;
	struct sp_remote remote;
	struct sp_memory_build build;
};

static inline int open_mapped(pid_t pid, const struct sp_vma *vma)
{
	const uint32_t written = SP_VMA_SHARED | SP_VMA_MAY_WRITE;
	sp_cleanup_free char *path = sp_format("/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid,
	                                       vma->range.start, vma->range.end);
	int fd = open(path, (vma->flags & written) == written ? O_RDWR : O_RDONLY);

	if (fd < 0)
		fail_msg("%s (%s): %s", path, vma->path, strerror(errno));
	return fd;
}

static inline void make_records(struct bench *bench)
{
	struct sp_checkpoint *checkpoint = &bench->checkpoint;

	bench->records = sp_alloc_zeroed(bench->vmas.count, sizeof(*bench->records));
	for (size_t i = 0; i < bench->vmas.count; i++) {
		struct sp_vma *vma = sp_array_at(&bench->vmas, i);
		Sealpoint__Vma *record = &bench->records[i];

		if (sp_vma_kind_maps_file(vma->kind)) {
			sp_array_push(&checkpoint->files);
			vma->file = (uint32_t)checkpoint->files.count;
			bench->fds[vma->file] = open_mapped(bench->program, vma);
		}
		sp_vma_to_record(vma, bench->program, record);
		sp_array_append(&checkpoint->vmas, &record);
	}
}

static inline int save(struct bench *bench, struct sp_error *err)
{
	const struct sp_page_writer_options options = {.level = 1};
	struct sp_page_writer *writer;
	int ret = sp_vma_list_read(bench->program, &bench->vmas, err);

	if (ret == 0)
		ret = sp_memory_check(bench->program, &bench->vmas, err);
	if (ret == 0)
		ret = sp_page_writer_open(&writer, bench->scratch.dirfd, &options, err);
	if (ret < 0)
		return ret;
	bench->record.pid = (uint32_t)bench->program;
	bench->record.memory_object = sp_page_writer_new_object(writer);
	ret = sp_memory_save(bench->program, &bench->vmas, NULL, writer,
	                     bench->record.memory_object, err);
	if (ret < 0) {
		sp_page_writer_abandon(writer);
		return ret;
	}
	make_records(bench);
	ret = sp_page_writer_finish(writer, NULL, err);
	return ret < 0 ? ret
	               : sp_page_store_open(&bench->checkpoint.pages, bench->scratch.dirfd, NULL,
	                                    err);
}

/* --- the stub --- */

/* Stands still. `deny`: a system call that fails with EPERM in it, or -1. */
static inline pid_t start_stub(long deny)
{
	struct sock_filter filter[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)deny, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (deny >= 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	                  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0))
		_exit(1);
	for (;;)
		pause();
}

static inline int open_stub(struct bench *bench, remote_addr code, struct sp_error *err)
{
	struct sp_foothold foothold = {0};
	int ret = sp_foothold_find(bench->stub, (struct sp_range){0}, &foothold, err);

	if (ret == 0)
		ret = sp_process_seize(&bench->process, bench->stub, sp_now_ns() + 10 * SP_NS_PER_S,
		                       err);
	if (ret == 0)
		ret = sp_remote_open_stub(&bench->remote, &bench->process, foothold.instruction,
		                          code, err);
	return ret;
}

static inline int rebuild(struct bench *bench, long deny, struct sp_error *err)
{
	struct sp_memory_build *build = &bench->build;
	remote_addr place;
	int ret = sp_memory_find_free(&bench->checkpoint, SP_REMOTE_SIZE + sp_vdso_size(), &place,
	                              err);

	if (ret < 0)
		return ret;
	bench->stub = start_stub(deny);
	ret = open_stub(bench, place, err);
	*build = (struct sp_memory_build){
	        .checkpoint = &bench->checkpoint,
	        .process = &bench->record,
	        .remote = &bench->remote,
	        .fds = bench->fds,
	};
	return ret ?: sp_vdso_park(build, place + SP_REMOTE_SIZE, err) ?:
	       sp_memory_empty(build, (struct sp_range){place, place + SP_REMOTE_SIZE}, err) ?:
	       sp_memory_map(build, err) ?:
	       sp_memory_fill(build, err) ?:
	       sp_memory_make_resident(build, err) ?:
	       sp_vdso_place(build, err) ?:
	       sp_memory_finish(build, err) ?:
	       sp_memory_seal(build, err) ?:
	       sp_remote_close(&bench->remote, err);
}

/* Saves what `setup` makes and rebuilds it, in a stub in which the system call `deny` fails. */
static inline void restore(struct bench *bench, void (*setup)(void), long deny)
{
	struct sp_error err = {0};

	memset(bench, 0, sizeof(*bench));
	bench->scratch = scratch_make();
	bench->checkpoint.vmas = SP_ARRAY_OF(Sealpoint__Vma *);
	bench->checkpoint.files = SP_ARRAY_OF(Sealpoint__OpenFile *);
	bench->checkpoint.threads = SP_ARRAY_OF(Sealpoint__Thread *);
	bench->program = start_program(setup);
	if (save(bench, &err) < 0 || rebuild(bench, deny, &err) < 0)
		fail_msg("%s", err.message);
}

static inline void release_bench(struct bench *bench)
{
	/* Before it is let go: its registers are its own, its memory is the program's. */
	end_process(bench->stub);
	sp_process_forget(&bench->process);
	end_process(bench->program);
	for (size_t i = 1; i <= bench->checkpoint.files.count; i++)
		close(bench->fds[i]);
	sp_page_store_close(bench->checkpoint.pages);
	sp_array_release(&bench->checkpoint.vmas);
	sp_array_release(&bench->checkpoint.files);
	sp_vma_list_release(&bench->vmas);
	free(bench->records);
	scratch_remove(&bench->scratch);
}

/*
 * For programs that this machine cannot make, and that leave `subject` NULL for the one `reason`;
 * whatever else fails in them ends them, and the test with it.
 */
static inline void skip_unless_made(struct bench *bench, const char *reason)
{
	if (subject)
		return;
	release_bench(bench); /* a skip leaves no chance to clean up */
	skip_because(reason);
}

/* --- comparing both --- */

static inline void read_memory(pid_t pid, uint64_t from, void *buffer, size_t size)
{
	sp_cleanup_free char *path = sp_format("/proc/%d/mem", pid);
	sp_cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (pread(fd, buffer, size, (off_t)from) != (ssize_t)size)
		fail_msg("cannot read 0x%" PRIx64 " of %d", from, pid);
}

static inline bool readable(const struct sp_vma *vma)
{
	return vma->kind != SP_VMA_VVAR && vma->kind != SP_VMA_VSYSCALL &&
	       !(vma->flags & SP_VMA_SHARED);
}

/* The address at which every program of these tests keeps its guard region, if it has one. */
static uint64_t guard_page;

static inline void assert_same_bytes(const struct bench *bench, const struct sp_vma *vma)
{
	char expected[SP_PAGE_SIZE], got[SP_PAGE_SIZE];

	for (uint64_t at = vma->range.start; readable(vma) && at < vma->range.end;
	     at += SP_PAGE_SIZE) {
		if (at == guard_page)
			continue;
		read_memory(bench->program, at, expected, sizeof(expected));
		read_memory(bench->stub, at, got, sizeof(got));
		if (memcmp(expected, got, sizeof(got)) != 0)
			fail_msg("the page at 0x%" PRIx64 " differs (%s)", at, vma->path);
	}
}

static inline bool same_file(const struct sp_vma *left, const struct sp_vma *right)
{
	return !sp_vma_kind_maps_file(left->kind) ||
	       (left->inode == right->inode && left->dev_minor == right->dev_minor);
}

/* Neighbours may have become one mapping or two; every property must be that of before. */
static inline void assert_same_mappings(const struct bench *bench)
{
	sp_cleanup(sp_vma_list_release) struct sp_array now = {0};
	struct sp_error err = {0};
	uint64_t before_total = 0, now_total = 0;

	assert_int_equal(sp_vma_list_read(bench->stub, &now, &err), 0);
	for (size_t i = 0; i < now.count; i++)
		now_total += sp_range_size(((struct sp_vma *)sp_array_at(&now, i))->range);
	for (size_t i = 0; i < bench->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&bench->vmas, i);

		before_total += sp_range_size(vma->range);
		for (uint64_t at = vma->range.start; at < vma->range.end;) {
			const struct sp_vma *other = sp_vma_find(&now, at);

			if (!other)
				fail_msg("nothing is mapped at 0x%" PRIx64 " (%s)", at, vma->path);
			if (other->prot != vma->prot || other->flags != vma->flags ||
			    other->page_shift != vma->page_shift ||
			    other->protection_key != vma->protection_key || !same_file(vma, other))
				fail_msg("mapping at 0x%" PRIx64
				         " (%s): prot %d for %d, flags %x for %x",
				         at, vma->path, other->prot, vma->prot, other->flags,
				         vma->flags);
			at = other->range.end;
		}
	}
	assert_int_equal(now_total, before_total);
}

static inline long resident_kb(pid_t pid, const char *what)
{
	sp_cleanup_free char *path = sp_format("/proc/%d/status", pid);
	sp_cleanup_file FILE *file = fopen(path, "r");
	char line[128];

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, what, strlen(what)) == 0)
			return strtol(line + strlen(what) + 1, NULL, 10);
	}
	fail_msg("no %s in %s", what, path);
	return 0;
}

static inline void assert_same_resident_size(const struct bench *bench)
{
	static const char *const parts[] = {"RssAnon", "RssFile", "RssShmem", "VmRSS"};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		long before = resident_kb(bench->program, parts[i]);
		long now = resident_kb(bench->stub, parts[i]);

		if (labs(now - before) > before / 100)
			fail_msg("%s is %ld kB, was %ld kB", parts[i], now, before);
	}
}

/* The resident size first: reading a hole of a file mapping fills it. */
static inline void assert_same_memory(const struct bench *bench)
{
	assert_same_mappings(bench);
	assert_same_resident_size(bench);
	for (size_t i = 0; i < bench->vmas.count; i++)
		assert_same_bytes(bench, sp_array_at(&bench->vmas, i));
}

/*
 * Lets the stub run `check` in the restored address space, on the program's own stack; 0 is
 * success.
 */
static inline int run_in_stub(struct bench *bench, void (*check)(void))
{
	struct user_regs_struct general;
	struct sp_error err = {0};
	int status;

	if (sp_general_get(bench->stub, &general, &err) < 0)
		fail_msg("%s", err.message);
	general.orig_rax = (unsigned long long)-1;
	general.rip = (uintptr_t)check;
	general.rsp = ((general.rsp - 4096) & ~15ULL) - 8;
	if (sp_general_set(bench->stub, &general, &err) < 0)
		fail_msg("%s", err.message);
	sp_process_release(&bench->process, SP_RELEASE_RUN);
	assert_int_equal(waitpid(bench->stub, &status, 0), bench->stub);
	bench->stub = 0;
	return status;
}

#endif
