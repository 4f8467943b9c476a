/*
 * Checkpoint directories: there wholly or not at all, and refused if anything in them is not right.
 */
#include "base/io.h"
#include "unit/checkpoint_fixture.h"
#include "unit/skip.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int try_verify(const char *path)
{
	struct sp_error err = {0};

	return sp_checkpoint_verify(path, NULL, &err);
}

static size_t count_entries(const char *path)
{
	sp_cleanup_dir DIR *dir = opendir(path);
	size_t count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	return count - 2;
}

/* --- whole or not at all --- */

/* What was synced, and renamed, since the string was emptied: a word for each. */
static char order[4096];

static void note(const char *step, const char *path)
{
	size_t length = strlen(order);
	const char *name = strrchr(path, '/');

	snprintf(order + length, sizeof(order) - length, "%s(%s) ", step, name ? name + 1 : path);
}

/* Both stand in front of the C library's. */
int fsync(int fd)
{
	sp_cleanup_free char *self = sp_format("/proc/self/fd/%d", fd);
	sp_cleanup_free char *path = NULL;

	if (sp_read_link(AT_FDCWD, self, &path, NULL) == 0)
		note("sync", path);
	return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	note("rename", to);
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

static void all_is_on_disk_before_it_can_be_seen(void **state)
{
	static const char *const before[] = {"sync(records.img)", "sync(pages.idx)",
	                                     "sync(pages.img)", "sync(manifest)", "sync(saved."};
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	const char *renamed;

	order[0] = '\0';
	write_fixture(fixture, path);
	renamed = strstr(order, "rename(saved)");
	assert_non_null(renamed);
	for (size_t i = 0; i < SP_COUNT_OF(before); i++) {
		const char *synced = strstr(order, before[i]);

		if (!synced || synced > renamed)
			fail_msg("no %s before the rename: %s", before[i], order);
	}
	/* and the name itself, before anybody is told */
	assert_non_null(strstr(renamed, strrchr(scratch.path, '/') + 1));
	scratch_remove(&scratch);
}

static void a_checkpoint_comes_back(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};
	uint8_t heap[sizeof(fixture->heap)];

	write_fixture(fixture, path);
	assert_int_equal(count_entries(scratch.path), 1);
	assert_int_equal(sp_checkpoint_open(&checkpoint, path, &err), 0);
	assert_int_equal(sp_checkpoint_root(checkpoint)->pid, 100);
	assert_int_equal(checkpoint->threads.count, 2);
	assert_int_equal(checkpoint->vmas.count, 3);
	assert_int_equal(checkpoint->descriptors.count, 2);
	assert_int_equal(sp_checkpoint_file(checkpoint, 2)->id, 2);
	assert_null(sp_checkpoint_file(checkpoint, 0));
	assert_null(sp_checkpoint_file(checkpoint, 3));
	assert_string_equal(checkpoint->manifest->arch, sp_arch_name());
	assert_int_equal(sp_page_store_read(checkpoint->pages, 1, HEAP, heap, sizeof(heap), &err),
	                 0);
	assert_memory_equal(heap, fixture->heap, sizeof(heap));
	sp_checkpoint_close(checkpoint);
	assert_int_equal(try_verify(path), 0);
	scratch_remove(&scratch);
}

static int forbid_page(void *context, const struct sp_page_run *run)
{
	fail_msg("there are pages at %#lx", (unsigned long)run->range.start);
	return 0;
}

/* A program that is saved while it runs may unmap what was saved of it. */
static void pages_of_a_mapping_that_is_gone_do_not_count(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	const struct sp_range behind = {HEAP + HEAP_PAGES * SP_PAGE_SIZE, STACK};
	struct sp_checkpoint *checkpoint;
	struct sp_page_stats stats;
	struct sp_error err = {0};

	fixture->early = (struct sp_range){HEAP, HEAP + 3 * HEAP_PAGES * SP_PAGE_SIZE};
	write_fixture(fixture, path);
	assert_int_equal(sp_checkpoint_open(&checkpoint, path, &err), 0);
	assert_int_equal(sp_page_store_walk(checkpoint->pages, 1, behind, forbid_page, NULL, &err),
	                 0);
	sp_page_store_stats(checkpoint->pages, &stats);
	assert_int_equal(stats.pages[SP_PAGE_ZERO], 0);
	sp_checkpoint_close(checkpoint);
	scratch_remove(&scratch);
}

static void an_empty_directory_is_replaced(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	sp_cleanup_free char *slashes = sp_format("%s///", path);

	assert_int_equal(mkdir(path, 0755), 0);
	write_fixture(fixture, slashes);
	assert_int_equal(count_entries(scratch.path), 1);
	assert_int_equal(try_verify(path), 0);
	scratch_remove(&scratch);
}

static void what_is_there_is_not_overwritten(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	sp_cleanup_free char *file = in_scratch(&scratch, "file");
	sp_cleanup_free char *nowhere = in_scratch(&scratch, "missing/saved");
	struct sp_error err = {0};

	write_fixture(fixture, path);
	assert_int_equal(try_write(fixture, path, &err), -EEXIST);
	assert_says(&err, "not empty");
	assert_int_equal(try_verify(path), 0);

	assert_int_equal(mknod(file, S_IFREG | 0600, 0), 0);
	assert_int_equal(try_write(fixture, file, &err), -ENOTDIR);
	assert_int_equal(try_write(fixture, nowhere, &err), -ENOENT);
	assert_int_equal(count_entries(scratch.path), 2);
	scratch_remove(&scratch);
}

static void an_abandoned_checkpoint_leaves_nothing(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	struct sp_page_writer_options options = {.level = 1};
	struct sp_checkpoint_writer writer;
	struct sp_error err = {0};

	assert_int_equal(sp_checkpoint_create(&writer, path, &options, &err), 0);
	assert_int_equal(write_pages(writer.pages, fixture, &err), 0);
	assert_int_equal(count_entries(scratch.path), 1);
	sp_checkpoint_abandon(&writer);
	sp_checkpoint_abandon(&writer);
	assert_int_equal(count_entries(scratch.path), 0);
	scratch_remove(&scratch);
}

/* In a process that says so when it has begun, and ends without a word; `lives` while it is waited for. */
static pid_t begin_in_child(const char *path, bool lives)
{
	int began[2];
	pid_t child;
	char byte;

	assert_int_equal(pipe(began), 0);
	child = fork();
	if (child == 0) {
		struct sp_page_writer_options options = {.level = 1};
		struct sp_checkpoint_writer writer;

		if (sp_checkpoint_create(&writer, path, &options, NULL) == 0 &&
		    write(began[1], "", 1) == 1 && lives)
			pause();
		_exit(0);
	}
	close(began[1]);
	assert_int_equal(read(began[0], &byte, 1), 1);
	close(began[0]);
	if (!lives)
		waitpid(child, NULL, 0);
	return child;
}

static void what_a_killed_run_has_left_goes_with_the_next(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	sp_cleanup_free char *other = in_scratch(&scratch, "other");
	sp_cleanup_free char *of_this_pid = sp_format("%s.partial-%d", path, getpid());
	sp_cleanup_free char *longer = sp_format("%s.partial-1x", path);
	sp_cleanup_free char *filled = sp_format("%s.partial-1", path);
	sp_cleanup_free char *file = sp_format("%s/notes", filled);
	pid_t alive;

	alive = begin_in_child(path, true);
	begin_in_child(path, false);
	begin_in_child(other, false);
	assert_int_equal(mkdir(of_this_pid, 0700), 0);
	assert_int_equal(mkdir(longer, 0700), 0);
	assert_int_equal(mkdir(filled, 0700), 0);
	assert_int_equal(mknod(file, S_IFREG | 0600, 0), 0);
	assert_int_equal(count_entries(scratch.path), 6);
	write_fixture(fixture, path);
	/* The others are in use, of another name, or have more in them than we would write. */
	assert_int_equal(count_entries(scratch.path), 5);
	assert_int_equal(access(file, F_OK), 0);
	kill(alive, SIGKILL);
	waitpid(alive, NULL, 0);
	write_fixture(fixture, other);
	assert_int_equal(count_entries(scratch.path), 5);
	assert_int_equal(try_verify(path), 0);
	scratch_remove(&scratch);
}

/* In a mount namespace of its own; exits with 0, or 77 where that is not allowed. */
static int fill_a_small_disk(const char *mountpoint)
{
	struct fixture *fixture = new_fixture();
	struct sp_error err = {0};
	char *path = sp_format("%s/saved", mountpoint);
	char *on_mount = sp_format("%s", mountpoint);

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", mountpoint, "tmpfs", 0, "size=32k") < 0)
		return 77;
	/* a place that a rename cannot replace is refused before anything is saved */
	if (try_write(fixture, on_mount, &err) != -EBUSY || !strstr(err.message, "mounted"))
		return 1;
	fixture->level = SP_COMPRESS_NONE;
	if (try_write(fixture, path, &err) != -ENOSPC || !strstr(err.message, "No space left"))
		return 2;
	if (count_entries(mountpoint) != 0)
		return 3;
	return 0;
}

static void a_full_disk_leaves_nothing(void **state)
{
	struct scratch scratch = scratch_make();
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0)
		_exit(fill_a_small_disk(scratch.path));
	assert_int_equal(waitpid(child, &status, 0), child);
	scratch_remove(&scratch);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip_because("a small file system cannot be mounted here");
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- damage --- */

static const char *const all_files[] = {SP_IMAGE_MANIFEST, SP_IMAGE_RECORDS, SP_IMAGE_PAGE_INDEX,
                                        SP_IMAGE_PAGES};

/* A smaller checkpoint, so that there are not too many bytes to try. */
static struct fixture *tiny_fixture(int level)
{
	struct fixture *fixture = new_fixture();

	fixture->level = level;
	memset(fixture->heap + SP_PAGE_SIZE, 0, sizeof(fixture->heap) - SP_PAGE_SIZE);
	return fixture;
}

static void flip(const char *path, off_t at)
{
	sp_cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x01;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void every_flipped_byte_is_refused(void **state)
{
	static const int levels[] = {SP_COMPRESS_DEFAULT, SP_COMPRESS_NONE};

	for (size_t i = 0; i < 8; i++) {
		struct scratch scratch = scratch_make();
		sp_cleanup_free struct fixture *fixture = tiny_fixture(levels[i / 4]);
		sp_cleanup_free char *path = in_scratch(&scratch, "saved");
		sp_cleanup_free char *file = sp_format("%s/%s", path, all_files[i % 4]);
		struct stat size;
		struct sp_error err;

		write_fixture(fixture, path);
		assert_int_equal(stat(file, &size), 0);
		for (off_t at = 0; at < size.st_size; at++) {
			flip(file, at);
			try_open(path, &err); /* refused or harmless */
			assert_true(try_verify(path) < 0);
			flip(file, at);
		}
		assert_int_equal(try_verify(path), 0);
		scratch_remove(&scratch);
	}
}

static void a_file_cut_off_or_prolonged_is_refused(void **state)
{
	for (size_t i = 0; i < 4; i++) {
		struct scratch scratch = scratch_make();
		sp_cleanup_free struct fixture *fixture = tiny_fixture(SP_COMPRESS_DEFAULT);
		sp_cleanup_free char *path = in_scratch(&scratch, "saved");
		sp_cleanup_free char *file = sp_format("%s/%s", path, all_files[i]);
		struct stat size;
		struct sp_error err;

		write_fixture(fixture, path);
		assert_int_equal(stat(file, &size), 0);
		assert_int_equal(truncate(file, size.st_size + 1), 0);
		assert_int_equal(try_open(path, &err), -EBADMSG);
		for (off_t length = size.st_size; length-- > 0;) {
			assert_int_equal(truncate(file, length), 0);
			assert_int_equal(try_open(path, &err), -EBADMSG);
			assert_says(&err, path);
			assert_says(&err, all_files[i]);
		}
		scratch_remove(&scratch);
	}
}

/* Each file is whole, and of the same size, but they say nothing about each other. */
static void files_of_another_checkpoint_are_refused(void **state)
{
	static const char *const names[] = {"records.img", "pages.idx"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct scratch scratch = scratch_make();
		sp_cleanup_free struct fixture *fixture = new_fixture();
		sp_cleanup_free char *path = in_scratch(&scratch, "saved");
		sp_cleanup_free char *other = in_scratch(&scratch, "other");
		sp_cleanup_free char *to = sp_format("%s/%s", path, names[i]);
		sp_cleanup_free char *from = sp_format("%s/%s", other, names[i]);
		struct sp_checkpoint *checkpoint;
		struct sp_error err = {0};

		fixture->level = SP_COMPRESS_NONE;
		write_fixture(fixture, path);
		fixture->general[0]++;
		fixture->heap[0]++;
		write_fixture(fixture, other);
		assert_int_equal(rename(from, to), 0);
		assert_int_equal(sp_checkpoint_open(&checkpoint, path, &err), -EBADMSG);
		assert_says(&err, names[i]);
		assert_says(&err, "does not match its checksum");
		scratch_remove(&scratch);
	}
}

static void a_missing_file_is_refused_by_name(void **state)
{
	for (size_t i = 0; i < 4; i++) {
		struct scratch scratch = scratch_make();
		sp_cleanup_free struct fixture *fixture = new_fixture();
		sp_cleanup_free char *path = in_scratch(&scratch, "saved");
		sp_cleanup_free char *file = sp_format("%s/%s", path, all_files[i]);
		struct sp_error err;

		write_fixture(fixture, path);
		assert_int_equal(unlink(file), 0);
		assert_int_equal(try_open(path, &err), -ENOENT);
		assert_says(&err, all_files[i]);
		scratch_remove(&scratch);
	}
}

static void what_is_no_checkpoint_is_refused_in_words(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *missing = in_scratch(&scratch, "missing");
	sp_cleanup_free char *foreign = in_scratch(&scratch, "manifest");
	struct sp_error err;
	sp_cleanup_close int fd = -1;

	assert_int_equal(try_open(missing, &err), -ENOENT);
	assert_int_equal(try_open(scratch.path, &err), -ENOENT);
	assert_says(&err, "is not a checkpoint: no manifest there");
	fd = open(foreign, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(sp_write_full(fd, "{\"somebody\": \"else's\"}", 22), 0);
	assert_int_equal(try_open(scratch.path, &err), -EBADMSG);
	assert_says(&err, "is not a checkpoint, or is damaged");
	assert_int_equal(try_open(foreign, &err), -ENOTDIR);
	scratch_remove(&scratch);
}

static void other_files_in_the_directory_do_no_harm(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	sp_cleanup_free char *log = sp_format("%s/dump.log", path);

	write_fixture(fixture, path);
	assert_int_equal(mknod(log, S_IFREG | 0600, 0), 0);
	assert_int_equal(try_verify(path), 0);
	scratch_remove(&scratch);
}

/* --- manifests --- */

/* Replaces the manifest by what `change` makes of it, with a right checksum. */
static void change_manifest(const char *path, void (*change)(Sealpoint__Manifest *manifest))
{
	sp_cleanup_close int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct sp_record_reader reader;
	struct sp_record_writer writer;
	struct sp_record record;
	struct sp_error err = {0};
	Sealpoint__Manifest *manifest;

	assert_int_equal(sp_record_reader_open(&reader, dirfd, SP_IMAGE_MANIFEST, &err), 0);
	assert_int_equal(sp_record_next(&reader, &record, &err), 1);
	manifest = (Sealpoint__Manifest *)sp_record_unpack(&reader, &record,
	                                                   &sealpoint__manifest__descriptor, &err);
	assert_non_null(manifest);
	sp_record_reader_close(&reader);
	change(manifest);
	assert_int_equal(unlinkat(dirfd, SP_IMAGE_MANIFEST, 0), 0);
	assert_int_equal(sp_record_writer_open(&writer, dirfd, SP_IMAGE_MANIFEST, &err), 0);
	assert_int_equal(sp_record_write(&writer, SP_RECORD_MANIFEST, &manifest->base, &err), 0);
	assert_int_equal(sp_record_writer_finish(&writer, &err), 0);
	sealpoint__manifest__free_unpacked(manifest, NULL);
}

static void set_string(char **string, const char *text)
{
	if (*string != protobuf_c_empty_string)
		free(*string);
	*string = sp_strdup(text);
}

static void newer_major(Sealpoint__Manifest *manifest)
{
	manifest->version_major = SP_IMAGE_VERSION_MAJOR + 1;
}

static void newer_minor(Sealpoint__Manifest *manifest)
{
	manifest->version_minor = SP_IMAGE_VERSION_MINOR + 7;
}

static void no_version(Sealpoint__Manifest *manifest)
{
	manifest->version_major = 0;
}

static void other_pages(Sealpoint__Manifest *manifest)
{
	manifest->page_size = 65536;
}

static void other_arch(Sealpoint__Manifest *manifest)
{
	set_string(&manifest->arch, "aarch64");
}

static void no_id(Sealpoint__Manifest *manifest)
{
	manifest->id.len = 3;
}

static void leading_elsewhere(Sealpoint__Manifest *manifest)
{
	set_string(&manifest->files[0]->name, "../../etc/passwd");
}

static void incomplete_list(Sealpoint__Manifest *manifest)
{
	set_string(&manifest->files[0]->name, SP_IMAGE_PAGES);
}

static void absolute_parent(Sealpoint__Manifest *manifest)
{
	set_string(&manifest->parent_path, "/tmp/x");
	manifest->parent_id.len = 16;
	manifest->parent_id.data = sp_alloc_zeroed(16, 1);
}

static void nameless_parent(Sealpoint__Manifest *manifest)
{
	set_string(&manifest->parent_path, "../x");
}

static void a_manifest_that_does_not_fit_is_refused(void **state)
{
	static const struct {
		void (*change)(Sealpoint__Manifest *manifest);
		const char *words; /* NULL: it fits */
	} cases[] = {
	        {newer_minor, NULL},
	        {newer_major,
	         "newer sealpoint (format 2.0, and this one reads up to 1.x); use that version"},
	        {no_version, "no format version"},
	        {other_pages, "pages of 65536 bytes"},
	        {other_arch, "aarch64"},
	        {no_id, "no id"},
	        {leading_elsewhere, "leads elsewhere"},
	        {incomplete_list, "incomplete list"},
	        {absolute_parent, "absolute path"},
	        {nameless_parent, "parent without a name"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct scratch scratch = scratch_make();
		sp_cleanup_free struct fixture *fixture = new_fixture();
		sp_cleanup_free char *path = in_scratch(&scratch, "saved");
		struct sp_error err;

		write_fixture(fixture, path);
		change_manifest(path, cases[i].change);
		assert_int_equal(try_open(path, &err) == 0, cases[i].words == NULL);
		if (cases[i].words)
			assert_says(&err, cases[i].words);
		scratch_remove(&scratch);
	}
}

/* --- chains --- */

/* Writes member N of a chain, a delta whose pages are all in the one below. */
static void write_delta(struct scratch *scratch, unsigned number)
{
	sp_cleanup_free struct fixture *fixture = new_fixture();

	if (number > 0)
		fixture->heap_state = SP_PAGE_PARENT;
	write_member(scratch, fixture, number);
}

static void a_chain_is_followed_to_its_end(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "20");
	sp_cleanup_free char *oldest = in_scratch(&scratch, "0/pages.img");
	uint8_t heap[sizeof(fixture->heap)];
	struct sp_checkpoint *checkpoint;
	struct sp_error err = {0};

	for (unsigned i = 0; i <= 20; i++)
		write_delta(&scratch, i);
	assert_int_equal(sp_checkpoint_open(&checkpoint, path, &err), 0);
	assert_int_equal(sp_page_store_read(checkpoint->pages, 1, HEAP, heap, sizeof(heap), &err),
	                 0);
	assert_memory_equal(heap, fixture->heap, sizeof(heap));
	sp_checkpoint_close(checkpoint);
	assert_int_equal(try_verify(path), 0);
	flip(oldest, 30);
	assert_int_equal(try_verify(path), -EBADMSG);
	scratch_remove(&scratch);
}

static void another_checkpoint_in_the_parents_place_is_refused(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *child = in_scratch(&scratch, "1");
	sp_cleanup_free char *parent = in_scratch(&scratch, "0");
	struct sp_error err;

	write_delta(&scratch, 0);
	write_delta(&scratch, 1);
	scratch_remove_path(parent);
	assert_int_equal(try_open(child, &err), -ENOENT);
	assert_says(&err, "/0, the parent of ");
	write_delta(&scratch, 0);
	assert_int_equal(try_open(child, &err), -EBADMSG);
	assert_says(&err, "is not the checkpoint that");
	scratch_remove(&scratch);
}

static void point_to_itself(Sealpoint__Manifest *manifest)
{
	set_string(&manifest->parent_path, ".");
	manifest->parent_id.len = manifest->id.len;
	manifest->parent_id.data = sp_alloc(manifest->id.len);
	memcpy(manifest->parent_id.data, manifest->id.data, manifest->id.len);
}

static void a_chain_that_bites_its_tail_is_refused(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free char *path = in_scratch(&scratch, "0");
	struct sp_error err;

	write_delta(&scratch, 0);
	change_manifest(path, point_to_itself);
	assert_int_equal(try_open(path, &err), -ELOOP);
	assert_says(&err, "stands on itself");
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(all_is_on_disk_before_it_can_be_seen),
	        cmocka_unit_test(a_checkpoint_comes_back),
	        cmocka_unit_test(pages_of_a_mapping_that_is_gone_do_not_count),
	        cmocka_unit_test(an_empty_directory_is_replaced),
	        cmocka_unit_test(what_is_there_is_not_overwritten),
	        cmocka_unit_test(an_abandoned_checkpoint_leaves_nothing),
	        cmocka_unit_test(what_a_killed_run_has_left_goes_with_the_next),
	        cmocka_unit_test(a_full_disk_leaves_nothing),
	        cmocka_unit_test(every_flipped_byte_is_refused),
	        cmocka_unit_test(a_file_cut_off_or_prolonged_is_refused),
	        cmocka_unit_test(files_of_another_checkpoint_are_refused),
	        cmocka_unit_test(a_missing_file_is_refused_by_name),
	        cmocka_unit_test(what_is_no_checkpoint_is_refused_in_words),
	        cmocka_unit_test(other_files_in_the_directory_do_no_harm),
	        cmocka_unit_test(a_manifest_that_does_not_fit_is_refused),
	        cmocka_unit_test(a_chain_is_followed_to_its_end),
	        cmocka_unit_test(another_checkpoint_in_the_parents_place_is_refused),
	        cmocka_unit_test(a_chain_that_bites_its_tail_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
