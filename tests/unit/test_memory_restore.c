/*
 * A whole address space is saved from one process (the program) and rebuilt in another (the stub),
 * which then runs on in it. Both are children of the test, so code lies at the same addresses in
 * all three.
 *
 * not sanitized: the program is a copy of the test, and would bring terabytes of shadow memory along
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "mem/memory.h"
#include "mem/page_scan.h"
#include "unit/scratch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>
#include "unit/skip.h"

#define SECONDS 1000000000ULL

/* --- the program --- */

/* Where the program left what its test looks at; the same address in every process. */
static char *subject;

/* Runs `setup` in a child, which then stops: from then on not a byte of it changes. */
static pid_t start_program(void (*setup)(void))
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
	assert_int_equal(read(told[0], &subject, sizeof(subject)), sizeof(subject));
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	close(told[0]);
	close(told[1]);
	return pid;
}

static void end_process(pid_t pid)
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

static int open_mapped(pid_t pid, const struct sp_vma *vma)
{
	const uint32_t written = SP_VMA_SHARED | SP_VMA_MAY_WRITE;
	sp_cleanup_free char *path = sp_format("/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid,
	                                       vma->range.start, vma->range.end);
	int fd = open(path, (vma->flags & written) == written ? O_RDWR : O_RDONLY);

	if (fd < 0)
		fail_msg("%s (%s): %s", path, vma->path, strerror(errno));
	return fd;
}

static void make_records(struct bench *bench)
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

static int save(struct bench *bench, struct sp_error *err)
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
	ret = sp_memory_save(bench->program, &bench->vmas, writer, bench->record.memory_object,
	                     err);
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
static pid_t start_stub(long deny)
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

static int open_stub(struct bench *bench, remote_addr code, struct sp_error *err)
{
	struct sp_foothold foothold = {0};
	int ret = sp_foothold_find(bench->stub, (struct sp_range){0}, &foothold, err);

	if (ret == 0)
		ret = sp_process_seize(&bench->process, bench->stub, sp_now_ns() + 10 * SECONDS,
		                       err);
	if (ret == 0)
		ret = sp_remote_open_stub(&bench->remote, &bench->process, foothold.instruction,
		                          code, err);
	return ret;
}

static int rebuild(struct bench *bench, long deny, struct sp_error *err)
{
	struct sp_memory_build *build = &bench->build;
	remote_addr place;
	int ret = sp_memory_find_free(&bench->checkpoint, &bench->record,
	                              SP_REMOTE_SIZE + sp_vdso_size(), &place, err);

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
	       sp_vdso_place(build, err) ?:
	       sp_memory_finish(build, err) ?:
	       sp_memory_seal(build, err) ?:
	       sp_remote_close(&bench->remote, err);
}

/* Saves what `setup` makes and rebuilds it, in a stub in which the system call `deny` fails. */
static void restore(struct bench *bench, void (*setup)(void), long deny)
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

static void release_bench(struct bench *bench)
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

/* For programs that this machine cannot make. A skip leaves the test without its clean-up. */
static void skip_unless_made(struct bench *bench)
{
	if (subject)
		return;
	release_bench(bench);
	skip_because("the program under test cannot be made on this machine");
}

/* --- comparing both --- */

static void read_memory(pid_t pid, uint64_t from, void *buffer, size_t size)
{
	sp_cleanup_free char *path = sp_format("/proc/%d/mem", pid);
	sp_cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (pread(fd, buffer, size, (off_t)from) != (ssize_t)size)
		fail_msg("cannot read 0x%" PRIx64 " of %d", from, pid);
}

static bool readable(const struct sp_vma *vma)
{
	return vma->kind != SP_VMA_VVAR && vma->kind != SP_VMA_VSYSCALL &&
	       !(vma->flags & SP_VMA_SHARED);
}

/* The address at which every program of these tests keeps its guard region, if it has one. */
static uint64_t guard_page;

static void assert_same_bytes(const struct bench *bench, const struct sp_vma *vma)
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

static bool same_file(const struct sp_vma *left, const struct sp_vma *right)
{
	return !sp_vma_kind_maps_file(left->kind) ||
	       (left->inode == right->inode && left->dev_minor == right->dev_minor);
}

/* Neighbours may have become one mapping or two; every property must be that of before. */
static void assert_same_mappings(const struct bench *bench)
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

static long resident_kb(pid_t pid, const char *what)
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

static void assert_same_resident_size(const struct bench *bench)
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
static void assert_same_memory(const struct bench *bench)
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
static int run_in_stub(struct bench *bench, void (*check)(void))
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

/* --- programs --- */

#define PAGES 64
#define MANY (2 * SP_HUGE_PAGE_SIZE)

static char *map_at(void *hint, size_t size, int prot, int flags, int fd)
{
	char *memory = mmap(hint, size, prot, flags, fd, 0);

	if (memory == MAP_FAILED)
		_exit(1);
	return memory;
}

static char *map_small(int prot, int flags)
{
	char *memory = map_at(NULL, PAGES * SP_PAGE_SIZE, prot, flags | MAP_ANONYMOUS, -1);

	madvise(memory, PAGES * SP_PAGE_SIZE, MADV_NOHUGEPAGE);
	return memory;
}

static void fill(char *memory, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		memset(memory + i * SP_PAGE_SIZE, (int)i + 1, SP_PAGE_SIZE);
}

/* Data, holes and zero pages in anonymous memory of every protection. */
static void anonymous_memory(void)
{
	static const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
	                            PROT_READ | PROT_EXEC, PROT_EXEC};

	for (size_t i = 0; i < sizeof(prots) / sizeof(prots[0]); i++) {
		char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);

		fill(memory, i, 20);
		memset(memory + 30 * SP_PAGE_SIZE, 0, 10 * SP_PAGE_SIZE);
		for (size_t page = 41; page < PAGES; page += 2)
			fill(memory, page, 1);
		if (mprotect(memory, PAGES * SP_PAGE_SIZE, prots[i]) < 0)
			_exit(1);
	}
}

static void file_memory(void)
{
	int fd = memfd_create("contents", MFD_CLOEXEC);
	char *private, *shared;

	if (ftruncate(fd, PAGES * SP_PAGE_SIZE) < 0)
		_exit(1);
	shared = map_at(NULL, PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	fill(shared, 0, 40);
	private = map_at(NULL, PAGES * SP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	fill(private, 5, 3);
	memset(private + 9 * SP_PAGE_SIZE, 0, SP_PAGE_SIZE);
	madvise(private + 20 * SP_PAGE_SIZE, 20 * SP_PAGE_SIZE, MADV_POPULATE_READ);
	madvise(private + 22 * SP_PAGE_SIZE, 2 * SP_PAGE_SIZE, MADV_DONTNEED);
	if (mprotect(private, PAGES * SP_PAGE_SIZE, PROT_READ) < 0)
		_exit(1);
	fill(map_small(PROT_READ | PROT_WRITE, MAP_SHARED), 3, 30);
	map_small(PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void advised_memory(void)
{
	static const int advices[] = {MADV_DONTFORK,   MADV_DONTDUMP, MADV_WIPEONFORK,
	                              MADV_SEQUENTIAL, MADV_RANDOM,   MADV_MERGEABLE,
	                              MADV_HUGEPAGE};

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);

		fill(memory, 7, 2);
		madvise(memory, PAGES * SP_PAGE_SIZE, advices[i]);
	}
}

static void locked_memory(void)
{
	char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *inaccessible = map_small(PROT_NONE, MAP_PRIVATE);

	fill(memory, 1, 1);
	if (mlock2(memory, 4 * SP_PAGE_SIZE, MLOCK_ONFAULT) < 0 ||
	    mlock(memory + 8 * SP_PAGE_SIZE, 4 * SP_PAGE_SIZE) < 0)
		_exit(1);
	mlock(inaccessible, SP_PAGE_SIZE);
}

static void guarded_memory(void)
{
	subject = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	fill(subject, 0, 10);
	if (madvise(subject + 5 * SP_PAGE_SIZE, SP_PAGE_SIZE, MADV_GUARD_INSTALL) < 0)
		subject = NULL;
}

static void growing_stack(void)
{
	char *memory = map_at(NULL, 512 * SP_PAGE_SIZE, PROT_NONE,
	                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

	subject = memory + 500 * SP_PAGE_SIZE;
	if (munmap(memory + 100 * SP_PAGE_SIZE, 412 * SP_PAGE_SIZE) < 0)
		_exit(1);
	map_at(subject, 10 * SP_PAGE_SIZE, PROT_READ | PROT_WRITE,
	       MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1);
	fill(subject - 10 * SP_PAGE_SIZE, 9, 10); /* one page grown */
}

static void sealed_memory(void)
{
	char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);

	fill(memory, 0, PAGES);
	if (mprotect(memory, 8 * SP_PAGE_SIZE, PROT_READ) < 0)
		_exit(1);
	subject = syscall(SYS_mseal, memory, 16 * SP_PAGE_SIZE, 0) < 0 ? NULL : memory;
}

/*
 * Keys 1 and 3 are the program's; the kernel takes 2 for execute-only memory, which `subject` is.
 */
static void keyed_memory(void)
{
	char *memory = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *readable = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *executable = map_small(PROT_READ | PROT_WRITE, MAP_PRIVATE);
	bool keys = pkey_alloc(0, 0) == 1;

	fill(memory, 0, PAGES);
	fill(executable, 0, PAGES);
	keys = keys && mprotect(executable, PAGES * SP_PAGE_SIZE, PROT_EXEC) == 0 &&
	       pkey_alloc(0, 0) == 3 &&
	       pkey_mprotect(memory, 8 * SP_PAGE_SIZE, PROT_READ, 1) == 0 &&
	       pkey_mprotect(readable, 8 * SP_PAGE_SIZE, PROT_READ, 3) == 0;
	subject = keys ? executable : NULL;
}

static char *huge_area(size_t size)
{
	char *memory = map_at(NULL, size + SP_HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS, -1);

	return (char *)(((uintptr_t)memory + SP_HUGE_PAGE_SIZE - 1) & ~(SP_HUGE_PAGE_SIZE - 1));
}

/*
 * Huge pages of data, of zeros, small pages among holes, nothing at all; and a huge page without
 * the advice. khugepaged, which turns small pages into huge ones when it likes, is kept away from
 * the small ones. `subject` is NULL if this machine gives no huge pages.
 */
static void huge_memory(void)
{
	char *memory = huge_area(8 * SP_HUGE_PAGE_SIZE);
	char *small = memory + 2 * SP_HUGE_PAGE_SIZE;
	char *collapsed = memory + 4 * SP_HUGE_PAGE_SIZE;

	madvise(memory, 4 * SP_HUGE_PAGE_SIZE, MADV_HUGEPAGE);
	madvise(small, SP_HUGE_PAGE_SIZE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < SP_HUGE_PAGE_SIZE; i += 8 * SP_PAGE_SIZE)
		small[i] = 1;
	for (size_t i = 0; i < SP_HUGE_PAGE_SIZE; i += 64)
		memory[i] = (char)i;
	memory[SP_HUGE_PAGE_SIZE] = 0;
	for (size_t i = 0; i < SP_HUGE_PAGE_SIZE; i += SP_PAGE_SIZE)
		collapsed[i] = 2;
	subject = madvise(collapsed, SP_HUGE_PAGE_SIZE, MADV_COLLAPSE) < 0 ? NULL : memory;
}

static void hugetlb_memory(void)
{
	char *memory = mmap(NULL, 2 * SP_HUGE_PAGE_SIZE, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	subject = memory == MAP_FAILED ? NULL : memory;
	if (subject)
		memset(subject, 3, SP_PAGE_SIZE);
}

/* Another build of the vDSO, as far as anybody can tell: one byte of its build id differs. */
static void foreign_vdso(void)
{
	static const char owner[] = "GNU";
	char *image = (char *)getauxval(AT_SYSINFO_EHDR);

	subject = NULL;
	if (!image || mprotect(image, 2 * SP_PAGE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC) < 0)
		return;
	subject = memmem(image, SP_PAGE_SIZE, owner, sizeof(owner));
	if (subject)
		subject[sizeof(owner)] ^= 1;
	if (mprotect(image, 2 * SP_PAGE_SIZE, PROT_READ | PROT_EXEC) < 0)
		subject = NULL;
}

static void no_vdso(void)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};

	sp_vma_list_read(getpid(), &vmas, NULL);
	for (size_t i = 0; i < vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&vmas, i);

		if (vma->kind == SP_VMA_VDSO || vma->kind == SP_VMA_VVAR)
			munmap((void *)(uintptr_t)vma->range.start, sp_range_size(vma->range));
	}
}

/* --- checks that the restored program makes --- */

/* The clocks of the vDSO and of the kernel must agree: reads of one between two of the other. */
static void clock_is_right(void)
{
	struct timespec before, now, after;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &before);
	clock_gettime(CLOCK_MONOTONIC, &now);
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &after);
	_exit((now.tv_sec < before.tv_sec) || (now.tv_sec > after.tv_sec) ||
	      time(NULL) < 1000000000);
}

/* The kernel takes its key away from execute-only memory that becomes readable. */
static void execute_only_memory_can_be_made_readable(void)
{
	if (mprotect(subject, PAGES * SP_PAGE_SIZE, PROT_READ) < 0)
		_exit(2);
	_exit(subject[0] != 1);
}

/* --- tests --- */

static void anonymous_memory_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, anonymous_memory, -1);
	assert_same_memory(&bench);
}

static void it_does_without_a_userfaultfd(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, anonymous_memory, SYS_userfaultfd);
	assert_same_memory(&bench);
}

static void file_memory_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, file_memory, -1);
	assert_same_memory(&bench);
}

static void advice_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, advised_memory, -1);
	assert_same_memory(&bench);
}

static void locks_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, locked_memory, -1);
	assert_same_memory(&bench);
}

static void a_stack_still_grows_down(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, growing_stack, -1);
	assert_same_memory(&bench);
}

static int note_guard(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	if (categories & PAGE_IS_GUARD)
		*(struct sp_range *)context = run;
	return 0;
}

static void guard_regions_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	struct sp_range guard = {0};
	struct sp_range all;

	restore(&bench, guarded_memory, -1);
	skip_unless_made(&bench);
	guard_page = (uintptr_t)subject + 5 * SP_PAGE_SIZE;
	all = (struct sp_range){(uintptr_t)subject, (uintptr_t)subject + PAGES * SP_PAGE_SIZE};
	assert_same_memory(&bench);
	assert_int_equal(sp_page_scan_open(&scan, bench.stub, NULL), 0);
	assert_int_equal(sp_page_scan_walk(&scan, all, note_guard, &guard, NULL), 0);
	assert_int_equal(guard.start, guard_page);
	assert_int_equal(guard.end, guard_page + SP_PAGE_SIZE);
	guard_page = 0;
}

static void seals_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, sealed_memory, -1);
	skip_unless_made(&bench);
	assert_same_memory(&bench);
}

static void protection_keys_come_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, keyed_memory, -1);
	skip_unless_made(&bench);
	assert_same_memory(&bench);
	assert_int_equal(run_in_stub(&bench, execute_only_memory_can_be_made_readable), 0);
}

static int add_huge(void *context, struct sp_range run, uint64_t categories, struct sp_error *err)
{
	if ((categories & PAGE_IS_HUGE) && (categories & PAGE_IS_PRESENT))
		*(uint64_t *)context += sp_range_size(run);
	return 0;
}

static uint64_t huge_bytes(pid_t pid, struct sp_range range)
{
	sp_cleanup(sp_page_scan_close) struct sp_page_scan scan = {.pagemap = -1};
	uint64_t huge = 0;

	assert_int_equal(sp_page_scan_open(&scan, pid, NULL), 0);
	assert_int_equal(sp_page_scan_walk(&scan, range, add_huge, &huge, NULL), 0);
	return huge;
}

static void assert_huge_memory(long deny)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, huge_memory, deny);
	skip_unless_made(&bench);
	assert_same_memory(&bench);
	for (size_t i = 0; i < 8; i++) {
		uint64_t start = (uintptr_t)subject + i * SP_HUGE_PAGE_SIZE;
		struct sp_range range = {start, start + SP_HUGE_PAGE_SIZE};

		if (huge_bytes(bench.stub, range) != huge_bytes(bench.program, range))
			fail_msg("2 MiB number %zu", i);
	}
}

static void huge_pages_come_back_huge(void **state)
{
	assert_huge_memory(-1);
}

static void holes_stay_holes_among_huge_pages_without_a_userfaultfd(void **state)
{
	assert_huge_memory(SYS_userfaultfd);
}

static void hugetlb_memory_comes_back(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, hugetlb_memory, -1);
	skip_unless_made(&bench);
	assert_same_memory(&bench);
}

static void the_same_vdso_goes_home(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, anonymous_memory, -1);
	assert_same_memory(&bench);
	assert_int_equal(run_in_stub(&bench, clock_is_right), 0);
}

static void a_foreign_vdso_is_redirected(void **state)
{
	sp_cleanup(release_bench) struct bench bench;
	sp_cleanup(sp_vma_list_release) struct sp_array now = {0};

	restore(&bench, foreign_vdso, -1);
	skip_unless_made(&bench);
	assert_int_equal(sp_vma_list_read(bench.stub, &now, NULL), 0);
	assert_int_equal(sp_vma_find(&now, getauxval(AT_SYSINFO_EHDR))->kind, SP_VMA_ANONYMOUS);
	assert_int_equal(run_in_stub(&bench, clock_is_right), 0);
}

static void a_program_without_vdso_gets_none(void **state)
{
	sp_cleanup(release_bench) struct bench bench;

	restore(&bench, no_vdso, -1);
	assert_same_memory(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(anonymous_memory_comes_back),
	        cmocka_unit_test(it_does_without_a_userfaultfd),
	        cmocka_unit_test(file_memory_comes_back),
	        cmocka_unit_test(advice_comes_back),
	        cmocka_unit_test(locks_come_back),
	        cmocka_unit_test(a_stack_still_grows_down),
	        cmocka_unit_test(guard_regions_come_back),
	        cmocka_unit_test(seals_come_back),
	        cmocka_unit_test(protection_keys_come_back),
	        cmocka_unit_test(huge_pages_come_back_huge),
	        cmocka_unit_test(holes_stay_holes_among_huge_pages_without_a_userfaultfd),
	        cmocka_unit_test(hugetlb_memory_comes_back),
	        cmocka_unit_test(the_same_vdso_goes_home),
	        cmocka_unit_test(a_foreign_vdso_is_redirected),
	        cmocka_unit_test(a_program_without_vdso_gets_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
