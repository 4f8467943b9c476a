/*
 * The manifest: the one file that makes a directory a checkpoint. It is written last, and says of
 * every other file how large it is and what its checksum is; see proto/manifest.proto.
 */
#include "image/checkpoint_parts.h"

#include "arch/arch.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

/*
 * Every byte of pages.img belongs to a frame with a checksum in pages.idx: it is not read again
 * here.
 */
static const struct {
	const char *name;
	bool has_checksum;
} image_files[] = {
        {SP_IMAGE_RECORDS, true},
        {SP_IMAGE_PAGE_INDEX, true},
        {SP_IMAGE_PAGES, false},
};
#define IMAGE_FILES SP_COUNT_OF(image_files)

int sp_file_checksum(int dirfd, const char *name, uint64_t *checksum, struct sp_error *err)
{
	sp_cleanup_close int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char bytes[16384];
	XXH3_state_t *state;
	off_t offset = 0;
	ssize_t size;

	if (fd < 0)
		return sp_fail_errno(err, errno, "cannot open %s", name);
	state = XXH3_createState();
	if (!state)
		return sp_fail_errno(err, ENOMEM, "cannot read %s", name);
	XXH3_64bits_reset(state);
	while ((size = sp_pread_full(fd, bytes, sizeof(bytes), offset)) > 0) {
		XXH3_64bits_update(state, bytes, (size_t)size);
		offset += size;
	}
	*checksum = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return size < 0 ? sp_fail_errno(err, (int)-size, "cannot read %s", name) : 0;
}

/* --- writing --- */

static int describe_file(int dirfd, size_t number, Sealpoint__ImageFile *file, struct sp_error *err)
{
	const char *name = image_files[number].name;
	struct stat stat;

	sealpoint__image_file__init(file);
	file->name = (char *)name;
	if (fstatat(dirfd, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		return sp_fail_errno(err, errno, "cannot find %s", name);
	file->size = (uint64_t)stat.st_size;
	if (!image_files[number].has_checksum)
		return 0;
	return sp_file_checksum(dirfd, name, &file->checksum, err);
}

static int write_message(int dirfd, const char *name, const Sealpoint__Manifest *manifest,
                         struct sp_error *err)
{
	struct sp_record_writer writer;
	int rc = sp_record_writer_open(&writer, dirfd, name, err);

	if (rc < 0)
		return rc;
	rc = sp_record_write(&writer, SP_RECORD_MANIFEST, &manifest->base, err);
	if (rc == 0)
		return sp_record_writer_finish(&writer, err);
	sp_record_writer_abandon(&writer);
	return rc;
}

/* This processor's layout of the extended state, as messages. */
struct xstate_messages {
	Sealpoint__XstateComponent messages[SP_XSTATE_COMPONENTS];
	Sealpoint__XstateComponent *list[SP_XSTATE_COMPONENTS];
};

static void describe_xstate(Sealpoint__Manifest *manifest, struct xstate_messages *messages)
{
	struct sp_xstate_component layout[SP_XSTATE_COMPONENTS];

	manifest->n_xstate_layout = sp_xstate_layout(layout);
	manifest->xstate_layout = messages->list;
	for (size_t i = 0; i < manifest->n_xstate_layout; i++) {
		Sealpoint__XstateComponent *message = &messages->messages[i];

		sealpoint__xstate_component__init(message);
		message->bit = layout[i].bit;
		message->offset = layout[i].offset;
		message->size = layout[i].size;
		messages->list[i] = message;
	}
}

/* What a new checkpoint is called, and where it comes from. */
struct origin {
	uint8_t id[SP_CHECKPOINT_ID_SIZE];
	struct utsname host;
	struct xstate_messages xstate;
};

static int describe_origin(Sealpoint__Manifest *manifest, struct origin *origin,
                           struct sp_error *err)
{
	const char *const *features = sp_cpu_features();

	if (getrandom(origin->id, sizeof(origin->id), 0) != sizeof(origin->id) ||
	    uname(&origin->host) < 0)
		return sp_fail_errno(err, errno, "cannot name the checkpoint");
	manifest->id = (ProtobufCBinaryData){sizeof(origin->id), origin->id};
	manifest->created_unix_ns = sp_clock_ns(CLOCK_REALTIME);
	manifest->hostname = origin->host.nodename;
	manifest->kernel = origin->host.release;
	manifest->arch = (char *)sp_arch_name();
	manifest->page_size = SP_PAGE_SIZE;
	manifest->cpu_features = (char **)features;
	for (manifest->n_cpu_features = 0; features[manifest->n_cpu_features];)
		manifest->n_cpu_features++;
	manifest->cpu_xfeatures = sp_cpu_xfeatures();
	describe_xstate(manifest, &origin->xstate);
	return 0;
}

int sp_manifest_write(int dirfd, const Sealpoint__Manifest *given, struct sp_error *err)
{
	Sealpoint__Manifest manifest = *given;
	Sealpoint__ImageFile files[IMAGE_FILES], *file_list[IMAGE_FILES];
	struct origin origin;

	for (size_t i = 0; i < IMAGE_FILES; i++) {
		int rc = describe_file(dirfd, i, &files[i], err);

		if (rc < 0)
			return rc;
		file_list[i] = &files[i];
	}
	if (given->id.len == 0 && describe_origin(&manifest, &origin, err) < 0)
		return -err->code;
	manifest.version_major = SP_IMAGE_VERSION_MAJOR;
	manifest.version_minor = SP_IMAGE_VERSION_MINOR;
	manifest.tool_version = (char *)SP_VERSION;
	manifest.files = file_list;
	manifest.n_files = IMAGE_FILES;
	return write_message(dirfd, SP_IMAGE_MANIFEST, &manifest, err);
}

int sp_machine_write(int dirfd, const char *name, struct sp_error *err)
{
	Sealpoint__Manifest manifest = SEALPOINT__MANIFEST__INIT;
	struct origin origin;

	if (describe_origin(&manifest, &origin, err) < 0)
		return -err->code;
	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return sp_fail_errno(err, errno, "cannot replace %s", name);
	return write_message(dirfd, name, &manifest, err);
}

/* --- checking --- */

static int damaged(struct sp_error *err, const char *path, const char *what)
{
	return sp_fail(err, EBADMSG,
	               "checkpoint %s is damaged, use another copy of it: its manifest has %s",
	               path, what);
}

static int check_version(const Sealpoint__Manifest *manifest, const char *path,
                         struct sp_error *err)
{
	if (manifest->version_major > SP_IMAGE_VERSION_MAJOR)
		return sp_fail(err, EPROTONOSUPPORT,
		               "%s was written by a newer sealpoint (format %" PRIu32 ".%" PRIu32
		               ", and this one reads up to %d.x); use that version",
		               path, manifest->version_major, manifest->version_minor,
		               SP_IMAGE_VERSION_MAJOR);
	if (manifest->version_major < SP_IMAGE_VERSION_MAJOR)
		return damaged(err, path, "no format version");
	return 0;
}

static int check_machine(const Sealpoint__Manifest *manifest, const char *path,
                         struct sp_error *err)
{
	if (strcmp(manifest->arch, sp_arch_name()) != 0)
		return sp_fail(
		        err, ENOEXEC,
		        "%s holds programs of a %s machine, and this one is %s; use it there", path,
		        manifest->arch, sp_arch_name());
	if (manifest->page_size != SP_PAGE_SIZE)
		return sp_fail(err, ENOEXEC,
		               "%s comes from a machine with pages of %" PRIu32
		               " bytes, and this one has %llu; use it on one of that kind",
		               path, manifest->page_size, SP_PAGE_SIZE);
	return 0;
}

static const Sealpoint__ImageFile *find_file(const Sealpoint__Manifest *manifest, const char *name)
{
	for (size_t i = 0; i < manifest->n_files; i++) {
		if (strcmp(manifest->files[i]->name, name) == 0)
			return manifest->files[i];
	}
	return NULL;
}

static int check_file_list(const Sealpoint__Manifest *manifest, const char *path,
                           struct sp_error *err)
{
	for (size_t i = 0; i < manifest->n_files; i++) {
		const char *name = manifest->files[i]->name;

		if (name[0] == '\0' || name[0] == '.' || strchr(name, '/'))
			return damaged(err, path, "a file name that leads elsewhere");
	}
	for (size_t i = 0; i < IMAGE_FILES; i++) {
		if (!find_file(manifest, image_files[i].name))
			return damaged(err, path, "an incomplete list of files");
	}
	return 0;
}

int sp_manifest_check(const Sealpoint__Manifest *manifest, const char *path, struct sp_error *err)
{
	bool has_parent = manifest->parent_path[0] != '\0';
	int rc = check_version(manifest, path, err);

	if (rc == 0)
		rc = check_machine(manifest, path, err);
	if (rc < 0)
		return rc;
	if (manifest->id.len != SP_CHECKPOINT_ID_SIZE)
		return damaged(err, path, "no id");
	if (manifest->parent_id.len != (has_parent ? SP_CHECKPOINT_ID_SIZE : 0))
		return damaged(err, path, "a parent without a name, or a name without a parent");
	if (manifest->parent_path[0] == '/')
		return damaged(err, path, "an absolute path to its parent");
	return check_file_list(manifest, path, err);
}

/* --- reading --- */

static int check_file_sizes(int dirfd, const Sealpoint__Manifest *manifest, const char *path,
                            struct sp_error *err)
{
	for (size_t i = 0; i < manifest->n_files; i++) {
		const Sealpoint__ImageFile *file = manifest->files[i];
		struct stat stat;

		if (fstatat(dirfd, file->name, &stat, 0) < 0 && errno == ENOENT)
			return sp_fail(err, ENOENT,
			               "checkpoint %s is incomplete, use another copy of it: %s is "
			               "missing",
			               path, file->name);
		if (fstatat(dirfd, file->name, &stat, 0) < 0)
			return sp_fail_errno(err, errno, "cannot read %s/%s", path, file->name);
		if (!S_ISREG(stat.st_mode) || (uint64_t)stat.st_size != file->size)
			return sp_fail(err, EBADMSG,
			               "checkpoint %s is damaged, use another copy of it: %s has "
			               "%lld bytes instead of %" PRIu64,
			               path, file->name, (long long)stat.st_size, file->size);
	}
	return 0;
}

/* The manifest is one record and nothing else. */
static int read_message(struct sp_record_reader *reader, Sealpoint__Manifest **manifest,
                        struct sp_error *err)
{
	struct sp_record record;
	int rc = sp_record_next(reader, &record, err);

	if (rc < 0)
		return rc;
	if (rc == 0 || record.type != SP_RECORD_MANIFEST)
		return sp_fail(err, EBADMSG, "%s does not begin with one", reader->name);
	if (reader->position != reader->size)
		return sp_fail(err, EBADMSG, "%s goes on behind its end", reader->name);
	*manifest = (Sealpoint__Manifest *)sp_record_unpack(reader, &record,
	                                                    &sealpoint__manifest__descriptor, err);
	return *manifest ? 0 : -EBADMSG;
}

/* A directory without a manifest: what it is instead, as far as its names tell. */
static int refuse_directory(int dirfd, const char *path, struct sp_error *err)
{
	if (strstr(path, ".partial-"))
		return sp_fail(err, ENOENT,
		               "%s is not a checkpoint: a dump is still writing it, or was killed "
		               "(then remove it)",
		               path);
	if (faccessat(dirfd, SP_STORE_LATEST "/" SP_IMAGE_MANIFEST, F_OK, 0) == 0)
		return sp_fail(err, ENOENT,
		               "%s is not a checkpoint, but a store of snapshots: name one of "
		               "them, %s/" SP_STORE_LATEST " is the newest",
		               path, path);
	return sp_fail(err, ENOENT,
	               "%s is not a checkpoint: no %s there (give the directory that was named "
	               "when it was saved)",
	               path, SP_IMAGE_MANIFEST);
}

int sp_manifest_read(int dirfd, const char *path, Sealpoint__Manifest **manifest,
                     struct sp_error *err)
{
	struct sp_record_reader reader;
	Sealpoint__Manifest *found = NULL;
	int rc;

	if (faccessat(dirfd, SP_IMAGE_MANIFEST, F_OK, 0) < 0 && errno == ENOENT)
		return refuse_directory(dirfd, path, err);
	rc = sp_record_reader_open(&reader, dirfd, SP_IMAGE_MANIFEST, err);
	if (rc < 0)
		return sp_error_context(err, "cannot open checkpoint %s", path);
	rc = read_message(&reader, &found, err);
	sp_record_reader_close(&reader);
	if (rc < 0)
		return sp_error_context(
		        err, "%s is not a checkpoint, or is damaged (then use another copy of it)",
		        path);
	rc = sp_manifest_check(found, path, err);
	if (rc == 0)
		rc = check_file_sizes(dirfd, found, path, err);
	if (rc < 0)
		sealpoint__manifest__free_unpacked(found, NULL);
	else
		*manifest = found;
	return rc;
}

int sp_machine_read(int dirfd, const char *name, Sealpoint__Manifest **machine,
                    struct sp_error *err)
{
	struct sp_record_reader reader;
	Sealpoint__Manifest *found = NULL;
	int rc = sp_record_reader_open(&reader, dirfd, name, err);

	if (rc < 0)
		return rc;
	rc = read_message(&reader, &found, err);
	sp_record_reader_close(&reader);
	if (rc == 0)
		rc = check_machine(found, name, err);
	if (rc < 0)
		sealpoint__manifest__free_unpacked(found, NULL);
	else
		*machine = found;
	return rc;
}
