/*
 * Proves that deltas are exact: lets tests/subjects/changing.c take thousands of steps, saves it after
 * each as a delta on the one before, and compares every checkpoint, read through its chain, with what
 * the subject had in its memory at that moment: all mappings, the state of each page, each byte.
 *
 *	deltas [OPTION...] SUBJECT SEALPOINT
 *		--seed N	which steps (default 1)
 *		--steps N	how many (default 300)
 *		--restore N	restores every N-th checkpoint, and the last, and compares again (default 50)
 *		--chain N	length of a chain (default 100)
 *
 * It works in the current directory. Checkpoints are made by the engine in this process, restored by
 * SEALPOINT in a pid namespace beside the subject. The subject stands between steps, so that its memory is
 * read from outside, before the checkpoint is made or after it; in some steps its second thread goes on
 * writing while the checkpoint is made, in an order that says what must be in memory.
 *
 * The last line sums up. Exit status 1, with the mapping and the page, for the first difference; so for a
 * subject that ends, and for a step that takes longer than STEP_S.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/range_set.h"
#include "engine/engine.h"
#include "image/checkpoint.h"
#include "memfd.pb-c.h"
#include "mem/page_scan.h"
#include "mem/vma.h"
#include "shared_memory.pb-c.h"

#include "../subjects/changing.h"
#include "snapshot.h"

#include <elf.h>
#include <err.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define STEP_S 180 /* generous: the machine may be busy; what hangs never ends */

static struct {
	uint64_t seed;
	unsigned steps, restore_every, chain;
	const char *subject, *sealpoint;
} options = {.seed = 1, .steps = 300, .restore_every = 50, .chain = 100};

static struct {
	pid_t pid;
	int pidfd, commands, done;
} subject;

static struct {
	unsigned dumps, pre_dumps, concurrent, deltas, restored;
	uint64_t pages;
} sums;

static unsigned step;
static const char *phase = "starting";
static pid_t driver;

/* --- telling --- */

/* The first thread that fails is the only one that says so. */
static void fail(const char *format, ...)
{
	va_list args;

	flockfile(stdout);
	printf("seed %" PRIu64 ", step %u, %s: ", options.seed, step, phase);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\nrepeat with: SEED=%" PRIu64 " STEPS=%u (the steps are in the file \"out\")\n",
	       options.seed, step);
	fflush(stdout);
	if (getpid() == driver && subject.pid)
		kill(subject.pid, SIGKILL);
	_exit(1);
}

static void need(int rc, const struct sp_error *err, const char *what)
{
	if (rc < 0)
		fail("%s: %s", what, err->message);
}

/* --- the watchdog --- */

static _Atomic uint64_t step_began_ns;

/* Whatever the driver waits for just then: the subject must not end, nor a step go on for ever. */
static void *watch(void *unused)
{
	struct pollfd polled = {.fd = subject.pidfd, .events = POLLIN};

	while (poll(&polled, 1, 1000) <= 0)
		if (sp_now_ns() - atomic_load(&step_began_ns) > STEP_S * SP_NS_PER_S)
			fail("it takes longer than %d s", STEP_S);
	fail("the subject has ended");
	return unused;
}

static pthread_t start_watchdog(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, watch, NULL))
		fail("no thread can be started");
	return thread;
}

static void stop_watchdog(pthread_t thread)
{
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

/* --- an image against a snapshot: pages --- */

struct comparison {
	const struct snapshot *snapshot;
	const struct sp_vma *vma;
	size_t run;          /* in the snapshot, the first that does not end before `next` */
	uint64_t next;       /* of the image: nothing is known from here on */
	uint64_t expected;   /* bytes of contents that the image must give */
	uint64_t unexpected; /* bytes of pages of which nothing is known: the second thread's */
	pthread_mutex_t lock;
	uint64_t given;
};

static void differs(const struct comparison *comparison, struct sp_range part,
                    enum sp_page_state state, uint64_t categories)
{
	char line[32];
	sp_vma_describe_prot(comparison->vma->prot, comparison->vma->flags, line);
	fail("page 0x%" PRIx64 " of mapping 0x%" PRIx64 "-0x%" PRIx64 " (%s, %s %s) is %s in the "
	     "image, and was 0x%" PRIx64,
	     part.start, comparison->vma->range.start, comparison->vma->range.end,
	     sp_vma_kind_name(comparison->vma->kind), line, comparison->vma->path,
	     sp_page_state_name(state), categories);
}

/* Pages that were alike, and are in one state in the image. `run` is NULL where nothing was. */
static void compare_part(struct comparison *comparison, const struct run *run, struct sp_range part,
                         enum sp_page_state state)
{
	bool file = comparison->vma->kind == SP_VMA_FILE_PRIVATE;
	uint64_t categories = run ? run->categories : 0;
	bool right;

	sums.pages += sp_range_size(part) / PAGE;
	if (is_of_second_thread(part.start)) {
		if (state == SP_PAGE_DATA)
			comparison->expected += sp_range_size(part);
		return;
	}
	if (!run)
		right = state == SP_PAGE_HOLE || (file && state == SP_PAGE_FILE);
	else if (categories & PAGE_IS_GUARD)
		right = state == SP_PAGE_GUARD;
	else if (!run->own)
		right = state == SP_PAGE_HOLE || state == (file ? SP_PAGE_FILE : SP_PAGE_ZERO);
	else if (state == SP_PAGE_DATA)
		right = true;
	else
		right = (state == SP_PAGE_ZERO ||
		         /* khugepaged may have filled a hole with zeros just now */
		         (state == SP_PAGE_HOLE && comparison->vma->flags & SP_VMA_HUGE)) &&
		        all_zero(run, part);
	/*
	 * The other way round: it may have made contents of what was a hole; and dumps leave zeros
	 * in pages of the stack that were never touched (remote/foothold.h).
	 */
	if (!run && state == SP_PAGE_ZERO &&
	    (comparison->vma->flags & SP_VMA_HUGE || comparison->vma->kind == SP_VMA_STACK))
		right = true;
	if (!right)
		differs(comparison, part, state, categories);
	if (state == SP_PAGE_DATA)
		comparison->expected += sp_range_size(part);
}

static int compare_run(void *context, const struct sp_page_run *image)
{
	struct comparison *comparison = context;
	const struct sp_array *runs = &comparison->snapshot->runs;
	struct sp_range left = image->range;

	if (image->range.start != comparison->next && comparison->vma->kind != SP_VMA_STACK)
		fail("the image has no page at 0x%" PRIx64, comparison->next);
	comparison->next = image->range.end;
	while (left.start < left.end) {
		const struct run *run = NULL;
		struct sp_range part = left;

		while (comparison->run < runs->count &&
		       ((struct run *)sp_array_at(runs, comparison->run))->range.end <= left.start)
			comparison->run++;
		if (comparison->run < runs->count)
			run = sp_array_at(runs, comparison->run);
		if (run && run->range.start > left.start) {
			part.end = run->range.start < part.end ? run->range.start : part.end;
			run = NULL;
		} else if (run) {
			part.end = run->range.end < part.end ? run->range.end : part.end;
		}
		compare_part(comparison, run, part, image->state);
		left.start = part.end;
	}
	return 0;
}

static int tell_difference(uint64_t page, const uint8_t *was, const uint8_t *is,
                           struct sp_error *err)
{
	size_t byte = 0;

	while (was[byte] == is[byte])
		byte++;
	return sp_fail(err, EBADMSG, "byte 0x%" PRIx64 " was 0x%02x, and is 0x%02x in the image",
	               page + byte, was[byte], is[byte]);
}

/* Called by several threads. */
static int compare_data(void *context, uint64_t offset, const void *bytes, size_t size,
                        struct sp_error *err)
{
	struct comparison *comparison = context;

	for (size_t at = 0; at < size; at += PAGE) {
		const struct run *run = find_run(comparison->snapshot, offset + at);

		if (is_of_second_thread(offset + at))
			continue;
		if (!run || !run->own)
			return sp_fail(err, EBADMSG,
			               "page 0x%" PRIx64 " has contents in the image only",
			               offset + at);
		if (memcmp(run->bytes + (offset + at - run->range.start),
		           (const uint8_t *)bytes + at, PAGE))
			return tell_difference(offset + at,
			                       run->bytes + (offset + at - run->range.start),
			                       (const uint8_t *)bytes + at, err);
	}
	pthread_mutex_lock(&comparison->lock);
	comparison->given += size;
	pthread_mutex_unlock(&comparison->lock);
	return 0;
}

static void compare_memory(const struct snapshot *snapshot, const struct sp_checkpoint *image)
{
	uint32_t object = sp_checkpoint_root(image)->memory_object;
	struct comparison comparison = {.snapshot = snapshot, .lock = PTHREAD_MUTEX_INITIALIZER};
	struct sp_page_sink sink = {.data = compare_data, .context = &comparison};
	struct sp_error err = {0};

	for (size_t i = 0; i < snapshot->vmas.count; i++) {
		const struct sp_vma *vma = sp_array_at(&snapshot->vmas, i);

		if (!is_private(vma->kind))
			continue;
		comparison.vma = vma;
		comparison.next = vma->range.start;
		comparison.expected = comparison.given = 0;
		need(sp_page_store_walk(image->pages, object, vma->range, compare_run, &comparison,
		                        &err),
		     &err, "walk");
		if (comparison.next != vma->range.end)
			fail("the image has no page at 0x%" PRIx64, comparison.next);
		if (!comparison.expected)
			continue;
		if (sp_page_store_load(image->pages, object, vma->range, &sink, 1, &err) < 0)
			fail("mapping 0x%" PRIx64 "-0x%" PRIx64 " (%s): %s", vma->range.start,
			     vma->range.end, sp_vma_kind_name(vma->kind), err.message);
		if (comparison.given != comparison.expected)
			fail("mapping 0x%" PRIx64 "-0x%" PRIx64 ": %" PRIu64 " bytes, not %" PRIu64,
			     vma->range.start, vma->range.end, comparison.given,
			     comparison.expected);
	}
}

/* --- an image against a snapshot: shared memory --- */

/* The object that has the contents, and their size; false if they are not in the image. */
static bool find_object(const struct sp_checkpoint *image, const Sealpoint__Vma *vma,
                        uint32_t *object, uint64_t *size)
{
	const Sealpoint__OpenFile *file = sp_checkpoint_file(image, vma->file);
	struct sp_error err = {0};

	if (file && file->same_inode)
		file = sp_checkpoint_file(image, file->same_inode);
	if (file && !strcmp(file->kind, "memfd")) {
		sp_cleanup_message Sealpoint__Memfd *message =
		        sp_blob_unpack(file->body, &sealpoint__memfd__descriptor, &err);

		*object = message->file->object;
		*size = message->file->size;
		return true;
	}
	if (file && !strcmp(file->kind, "shared_memory")) {
		sp_cleanup_message Sealpoint__SharedMemory *message =
		        sp_blob_unpack(file->body, &sealpoint__shared_memory__descriptor, &err);

		*object = message->object;
		*size = message->size;
		return true;
	}
	return false;
}

static void compare_shared(const struct sp_checkpoint *image)
{
	for (size_t i = 0; i < image->vmas.count; i++) {
		const Sealpoint__Vma *vma = sp_array_pointer(&image->vmas, i);
		sp_cleanup_free uint8_t *saved = NULL, *live = NULL;
		sp_cleanup_close int fd = -1;
		struct sp_error err = {0};
		struct stat stat;
		uint32_t object;
		uint64_t size;
		char path[96];

		if (!vma->file || !find_object(image, vma, &object, &size))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, subject.pid,
		         vma->start, vma->end);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT)
			continue; /* neighbours that have become one mapping */
		if (fd < 0)
			fail("cannot open %s: %s", path, strerror(errno));
		if (fstat(fd, &stat) < 0 || (uint64_t)stat.st_size != size)
			fail("%s has %" PRIu64 " bytes in the image, not %" PRId64, vma->path, size,
			     (int64_t)stat.st_size);
		saved = sp_alloc_zeroed(1, size + 1);
		live = sp_alloc_zeroed(1, size + 1);
		if (object)
			need(sp_page_store_read(image->pages, object, 0, saved, size, &err), &err,
			     "shared memory");
		if (pread(fd, live, size, 0) != (ssize_t)size)
			fail("cannot read %s", vma->path);
		for (uint64_t at = 0; at < size; at++)
			if (saved[at] != live[at])
				fail("byte 0x%" PRIx64 " of %s differs", at, vma->path);
	}
}

/* --- what the second thread has done --- */

static struct {
	uint64_t round; /* has been played in `last` */
	uint64_t last[CHANGING_ORDER_PAGES];
} order;

static uint64_t read_word(const struct sp_checkpoint *image, const void *address)
{
	uint64_t word = 0;
	struct sp_error err = {0};

	need(sp_page_store_read(image->pages, sp_checkpoint_root(image)->memory_object,
	                        (uintptr_t)address, &word, sizeof(word), &err),
	     &err, "the second thread's memory");
	return word;
}

static void compare_order(const struct sp_checkpoint *image)
{
	uint64_t round = read_word(image, (void *)CHANGING_ORDER), busy = changing_page(round);

	if (round < order.round)
		fail("the second thread is at round %" PRIu64 ", and was at %" PRIu64 " before",
		     round, order.round);
	while (order.round + 1 < round) {
		order.round++;
		order.last[changing_page(order.round)] =
		        changing_discards(order.round) ? 0 : order.round;
	}
	for (uint64_t page = 0; page < CHANGING_ORDER_PAGES; page++) {
		uint64_t left = read_word(image, CHANGING_LEFT + page * PAGE + 64);
		uint64_t right = read_word(image, CHANGING_RIGHT + page * PAGE + 64);
		uint64_t now =
		        page == busy ? (changing_discards(round) ? 0 : round) : order.last[page];

		if ((left != now && left != order.last[page]) ||
		    (right != now && right != order.last[page]))
			fail("in round %" PRIu64 ", page %" PRIu64 " of the second thread's was "
			     "%" PRIu64 " or %" PRIu64 ", in the image it is %" PRIu64
			     " and its twin %" PRIu64,
			     round, page, order.last[page], now, left, right);
	}
}

/* --- the subject --- */

/* `done` of the subject, or of a restored one. */
static void wait_for(int done)
{
	struct pollfd polled = {.fd = done, .events = POLLIN};
	uint64_t value;

	if (poll(&polled, 1, 60000) != 1 || read(done, &value, sizeof(value)) != sizeof(value))
		fail("the subject does not answer");
}

/* It stands in its read(2) again, and changes nothing, not even its stack. */
static void wait_until_it_stands(void)
{
	char path[64], text[16] = "";

	snprintf(path, sizeof(path), "/proc/%d/syscall", subject.pid);
	while (strncmp(text, "0 0x3 ", 6) != 0) {
		sp_cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (read(fd, text, sizeof(text)) <= 0)
			fail("the subject has ended");
	}
}

static void command(enum changing_command number, uint64_t seed)
{
	uint64_t value = (uint64_t)number << CHANGING_COMMAND_SHIFT | (seed & CHANGING_SEED_MASK);

	if (write(subject.commands, &value, sizeof(value)) != sizeof(value))
		fail("the subject takes no commands");
	wait_for(subject.done);
	wait_until_it_stands();
}

static void start_subject(void)
{
	int out = open("out", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	subject.commands = eventfd(0, EFD_CLOEXEC);
	subject.done = eventfd(0, EFD_CLOEXEC);
	subject.pid = fork();
	if (subject.pid == 0) {
		int kept[] = {null, out, out, subject.commands, subject.done};

		/* Where the kernel would write the number of the processor at any time. */
		setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
		/* Where the second thread would write when it first calls a function. */
		setenv("LD_BIND_NOW", "1", 1);
		setsid();
		for (int i = 0; i < 5; i++)
			kept[i] = fcntl(kept[i], F_DUPFD, 20);
		for (int i = 0; i < 5; i++)
			dup2(kept[i], i);
		close_range(5, ~0U, 0);
		execl(options.subject, "changing", NULL);
		_exit(127);
	}
	close(out);
	close(null);
	subject.pidfd = pidfd_open(subject.pid, 0);
}

/* --- restoring --- */

#define LACKING 3 /* exit status: this machine cannot restore it just now */

/* The pool of hugetlb pages is everybody's, and small. */
static bool lacks_huge_pages(void)
{
	sp_cleanup_free char *log = NULL;
	struct sp_error err = {0};

	if (sp_read_file(AT_FDCWD, "restore.log", &log, NULL, &err) < 0)
		return false;
	return strstr(log, "(/anon_hugepage (deleted)): Cannot allocate memory") != NULL;
}

static int run_restore(const char *directory)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		int out = open("restore.log", O_WRONLY | O_CREAT | O_TRUNC, 0600);

		dup2(out, 1);
		dup2(out, 2);
		execl(options.sealpoint, "sealpoint", "restore", directory, "--detach", NULL);
		_exit(127);
	}
	while (waitpid(-1, &status, 0) != child)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The restored program still answers, and has the memory that it had. Runs as init of its namespace. */
static void check_restored(const char *directory, const struct snapshot *before)
{
	struct snapshot after;
	struct sp_array was, is;
	uint64_t ping = (uint64_t)CHANGING_PING << CHANGING_COMMAND_SHIFT;
	int pidfd, commands, done;

	phase = "restoring";
	mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	if (run_restore(directory) != 0) {
		if (lacks_huge_pages())
			_exit(LACKING);
		fail("cannot restore %s (see restore.log)", directory);
	}
	phase = "restored";
	take_snapshot(&after, subject.pid);
	compare_snapshots(before, &after);
	was = mappings_of_snapshot(before);
	is = mappings_of_snapshot(&after);
	compare_mappings(&was, &is);
	pidfd = pidfd_open(subject.pid, 0);
	commands = pidfd_getfd(pidfd, CHANGING_COMMANDS, 0);
	done = pidfd_getfd(pidfd, CHANGING_DONE, 0);
	if (commands < 0 || done < 0 || write(commands, &ping, sizeof(ping)) < 0)
		fail("the restored program has lost its descriptors");
	wait_for(done);
	_exit(0);
}

static void restore(const char *directory, const struct snapshot *before)
{
	pid_t outer;
	int status;

	fflush(stdout);
	outer = fork();
	if (outer == 0) {
		pid_t inner;

		if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
			fail("unshare: %s", strerror(errno));
		inner = fork();
		if (inner == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			check_restored(directory, before);
		}
		waitpid(inner, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	if (waitpid(outer, &status, 0) != outer || !WIFEXITED(status) ||
	    (WEXITSTATUS(status) && WEXITSTATUS(status) != LACKING))
		fail("a checkpoint was not restored");
	sums.restored += WEXITSTATUS(status) == 0;
}

/* --- steps --- */

static uint64_t randomness;

static uint64_t below(uint64_t limit)
{
	randomness = changing_mix(randomness);
	return (randomness >> 8) % limit;
}

static void remove_chain(unsigned first, unsigned last)
{
	for (unsigned i = first; i <= last; i++) {
		static const char *const files[] = {SP_IMAGE_MANIFEST, SP_IMAGE_RECORDS,
		                                    SP_IMAGE_PAGES, SP_IMAGE_PAGE_INDEX};
		char path[64];

		for (size_t j = 0; j < SP_COUNT_OF(files); j++) {
			snprintf(path, sizeof(path), "c%u/%s", i, files[j]);
			unlink(path);
		}
		snprintf(path, sizeof(path), "c%u", i);
		rmdir(path);
	}
}

/* The kernel gives each program that is executed random bytes at a random place. */
static bool has_executed(void)
{
	static uint64_t known;
	uint64_t pair[2], place = 0;
	bool executed;
	char path[64];
	FILE *auxv;

	snprintf(path, sizeof(path), "/proc/%d/auxv", subject.pid);
	auxv = fopen(path, "re");
	while (auxv && fread(pair, sizeof(pair), 1, auxv) == 1)
		if (pair[0] == AT_RANDOM)
			place = pair[1];
	if (auxv)
		fclose(auxv);
	executed = place != known;
	known = place;
	return executed;
}

static void save(const char *directory, const char *parent, bool memory_only)
{
	struct sp_log log;
	struct sp_dump_options dump = {
	        .pid = subject.pid,
	        .directory = directory,
	        .after = SP_RELEASE_RUN,
	        .compression = below(8) ? SP_COMPRESS_NONE : -5,
	        .timeout_ns = SP_DUMP_TIMEOUT_NS,
	        .session = SP_CUT_TRACK,
	        .parent = parent,
	        .memory_only = memory_only,
	        .log = &log,
	};
	struct sp_dump_result result;
	struct sp_error err = {0};

	sp_log_init(&log, false, true);
	need(sp_dump(&dump, &result, &err), &err, memory_only ? "pre-dump" : "dump");
	sp_log_failed(&log);
}

static void one_step(unsigned *first)
{
	char directory[32], parent[32];
	bool begins = step % options.chain == 0;
	bool concurrent = below(8) == 0, memory_only = below(5) < 2, early = below(2), executed;
	bool is_delta, restores;
	struct snapshot snapshot = {0};
	struct sp_checkpoint *image;
	struct sp_array live, saved;
	struct sp_error err = {0};

	atomic_store(&step_began_ns, sp_now_ns());
	phase = "in the step";
	command(CHANGING_STEP, randomness);
	executed = has_executed();
	if (executed)
		order.round = 0, memset(order.last, 0, sizeof(order.last));
	if (concurrent)
		command(CHANGING_RUN, 0);
	phase = "saving";
	if (early)
		take_snapshot(&snapshot, subject.pid);
	snprintf(directory, sizeof(directory), "c%u", step);
	snprintf(parent, sizeof(parent), "c%u", step - 1);
	save(directory, begins ? NULL : parent, memory_only);
	if (!early)
		take_snapshot(&snapshot, subject.pid);
	if (concurrent)
		command(CHANGING_HALT, 0);

	phase = memory_only ? "comparing a pre-dump" : "comparing";
	need(sp_checkpoint_open(&image, directory, &err), &err, "open");
	is_delta = image->parent != NULL;
	if (is_delta != (!begins && !executed))
		fail(is_delta ? "it is a delta after execve(2)" : "it is no delta");
	live = mappings_of_snapshot(&snapshot);
	saved = mappings_of_image(image);
	compare_mappings(&live, &saved);
	sp_array_release(&live);
	sp_array_release(&saved);
	compare_memory(&snapshot, image);
	if (!memory_only)
		compare_shared(image);
	if (!memory_only || !concurrent)
		compare_order(image);
	sp_checkpoint_close(image);
	sums.concurrent += concurrent;
	sums.deltas += is_delta;
	*(memory_only ? &sums.pre_dumps : &sums.dumps) += 1;

	restores = options.restore_every &&
	           (step % options.restore_every == 0 || step == options.steps);
	if (restores && !memory_only)
		restore(directory, &snapshot);
	release_snapshot(&snapshot);
	if (begins && step) {
		remove_chain(*first, step - 1);
		*first = step;
	}
}

static void parse(int argc, char **argv)
{
	static const struct option known[] = {
	        {"seed", required_argument, NULL, 's'},
	        {"steps", required_argument, NULL, 'n'},
	        {"restore", required_argument, NULL, 'r'},
	        {"chain", required_argument, NULL, 'c'},
	        {0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 0) : 0;

		if (option == 's')
			options.seed = value;
		else if (option == 'n')
			options.steps = (unsigned)value;
		else if (option == 'r')
			options.restore_every = (unsigned)value;
		else if (option == 'c')
			options.chain = (unsigned)value;
		else
			errx(2, "unknown option");
	}
	if (argc - optind != 2)
		errx(2, "usage: deltas [OPTION...] SUBJECT SEALPOINT");
	options.subject = argv[optind];
	options.sealpoint = argv[optind + 1];
}

int main(int argc, char **argv)
{
	uint64_t started = sp_now_ns();
	unsigned first = 0;
	struct sp_error err = {0};
	pthread_t watchdog;

	parse(argc, argv);
	driver = getpid();
	randomness = changing_mix(options.seed);
	start_subject();
	atomic_store(&step_began_ns, started);
	watchdog = start_watchdog();
	wait_for(subject.done);
	wait_until_it_stands();
	has_executed();
	for (step = 0; step <= options.steps; step++)
		one_step(&first);
	phase = "ending";
	need(sp_tracking_stop(subject.pid, NULL, &err), &err, "track stop");
	stop_watchdog(watchdog);
	kill(subject.pid, SIGKILL);
	waitpid(subject.pid, NULL, 0);
	remove_chain(first, options.steps);
	printf("seed %" PRIu64 ": %u steps, %u dumps, %u pre-dumps, %u deltas, %u while it wrote, "
	       "%" PRIu64 " pages compared, %u restored, %.1f ms a step\n",
	       options.seed, options.steps, sums.dumps, sums.pre_dumps, sums.deltas,
	       sums.concurrent, sums.pages, sums.restored,
	       (double)(sp_now_ns() - started) / 1e6 / (options.steps + 1));
	return 0;
}
