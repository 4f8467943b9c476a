/*
 * What the kernel calls a process's fs: root directory, working directory and umask. Directories
 * are saved as paths from sealpoint's own root, and only if such a path still leads to the very
 * directory. A working directory that has been removed is made again, and removed again.
 *
 * The process enters its working directory before its root: a path that is looked up behind
 * chroot(2) means something else.
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "kinds/file_path.h"
#include "kinds/removed.h"
#include "proc/status.h"

#include "settings.pb-c.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Reads the path behind /proc/PID/cwd or root, and checks that it leads there. */
static int read_directory(pid_t pid, const char *link, const char *what, char **target,
                          struct sp_error *err)
{
	sp_cleanup_free char *path = NULL;
	struct stat there, here;
	char proc[64];
	int rc;

	snprintf(proc, sizeof(proc), "/proc/%d/%s", pid, link);
	rc = sp_read_link(AT_FDCWD, proc, &path, err);
	if (rc < 0)
		return rc;
	if (stat(proc, &there) < 0)
		return sp_fail_errno(err, errno, "cannot reach its %s %s", what, path);
	if (path[0] != '/' || stat(path, &here) < 0 || here.st_ino != there.st_ino ||
	    here.st_dev != there.st_dev)
		return sp_fail(err, ENOENT,
		               "its %s %s was deleted or cannot be reached by that path; let it "
		               "change to another directory before the dump",
		               what, path);
	*target = sp_steal_ptr(&path);
	return 0;
}

/* True if the working directory has been removed: `path` gets where it was. */
static bool find_removed(pid_t pid, char **path, Sealpoint__Removed *removed)
{
	static const char mark[] = " (deleted)";
	sp_cleanup_free char *proc = sp_format("/proc/%d/cwd", pid);
	sp_cleanup_free char *link = NULL;
	struct stat stats;
	char *end;

	if (stat(proc, &stats) || stats.st_nlink || sp_read_link(AT_FDCWD, proc, &link, NULL) ||
	    link[0] != '/')
		return false;
	end = link + strlen(link) - strlen(mark);
	if (end > link && !strcmp(end, mark))
		*end = '\0';
	sp_removed_describe(&stats, removed);
	*path = sp_steal_ptr(&link);
	return true;
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	Sealpoint__FileSystemContext message = SEALPOINT__FILE_SYSTEM_CONTEXT__INIT;
	sp_cleanup_free char *root = NULL, *directory = NULL;
	Sealpoint__Removed removed;
	pid_t pid = sp_process_living(saver->process);
	uint64_t mask;
	int rc;

	rc = sp_status_number(saver->status, "Umask", 8, &mask, err);
	if (rc == 0)
		rc = read_directory(pid, "root", "root directory", &root, err);
	if (rc == 0 && find_removed(pid, &directory, &removed))
		message.removed = &removed;
	else if (rc == 0)
		rc = read_directory(pid, "cwd", "working directory", &directory, err);
	if (rc < 0)
		return rc;
	message.umask = (uint32_t)mask;
	message.root = root;
	message.working_directory = directory;
	sp_blob_pack(body, &message.base);
	return 0;
}

static Sealpoint__FileSystemContext *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__FileSystemContext *message =
	        sp_blob_unpack(body, &sealpoint__file_system_context__descriptor, err);

	if (message && (message->root[0] != '/' || message->working_directory[0] != '/')) {
		sp_fail_damaged(err, "a directory without an absolute path");
		return NULL;
	}
	return sp_steal_ptr(&message);
}

/*
 * The process makes the directory where it was, or in the nearest place above, enters it, and removes
 * it.
 */
static int enter_removed(struct sp_remote *remote, const Sealpoint__FileSystemContext *message,
                         struct sp_error *err)
{
	sp_cleanup_close int above = sp_file_path_open_above(message->working_directory, err);
	sp_cleanup_free char *name = sp_removed_name(above, message->working_directory);
	sp_cleanup_free char *from_inside = sp_format("../%s", name);
	sp_cleanup_free char *proc = sp_format("/proc/%d/fd/%d", getpid(), above);

	if (above < 0)
		return above;
	sp_batch_call(remote, "enter the directory above the working directory", SYS_chdir,
	              sp_batch_string(remote, proc), 0, 0, 0, 0, 0);
	sp_batch_call(remote, "make the working directory again", SYS_mkdir,
	              sp_batch_string(remote, name), 0700, 0, 0, 0, 0);
	sp_batch_call(remote, "enter the working directory", SYS_chdir,
	              sp_batch_string(remote, name), 0, 0, 0, 0, 0);
	sp_batch_call(remote, "set the owner of the working directory", SYS_chown,
	              sp_batch_string(remote, "."), message->removed->uid, message->removed->gid, 0,
	              0, 0);
	sp_batch_call(remote, "set the mode of the working directory", SYS_chmod,
	              sp_batch_string(remote, "."), message->removed->mode, 0, 0, 0, 0);
	sp_batch_call(remote, "remove the working directory", SYS_rmdir,
	              sp_batch_string(remote, from_inside), 0, 0, 0, 0, 0);
	return sp_batch_run(remote, err);
}

static int enter(struct sp_remote *remote, const Sealpoint__FileSystemContext *message,
                 struct sp_error *err)
{
	if (message->removed)
		return enter_removed(remote, message, err);
	sp_batch_call(remote, "enter the working directory", SYS_chdir,
	              sp_batch_string(remote, message->working_directory), 0, 0, 0, 0, 0);
	return 0;
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__FileSystemContext *message = unpack(body, err);
	struct sp_remote *remote = builder->remote;

	if (!message)
		return -EBADMSG;
	if (enter(remote, message, err))
		return -err->code;
	if (strcmp(message->root, "/"))
		sp_batch_call(remote, "change the root directory", SYS_chroot,
		              sp_batch_string(remote, message->root), 0, 0, 0, 0, 0);
	sp_batch_call(remote, "set the umask", SYS_umask, message->umask, 0, 0, 0, 0, 0);
	return 0;
}

/* A directory of a process is there when that is. */
static int check_directory(const char *path, const char *what, struct sp_error *err)
{
	struct stat stats;

	if (!strncmp(path, "/proc/", strlen("/proc/")))
		return 0;
	if (stat(path, &stats) < 0)
		return sp_fail_errno(err, errno, "its %s %s cannot be entered", what, path);
	if (!S_ISDIR(stats.st_mode))
		return sp_fail(err, ENOTDIR, "its %s %s is not a directory any more", what, path);
	return 0;
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__FileSystemContext *message = unpack(body, err);
	int rc;

	if (!message)
		return -EBADMSG;
	rc = check_directory(message->root, "root directory", err);
	if (rc < 0 || message->removed)
		return rc;
	return check_directory(message->working_directory, "working directory", err);
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__FileSystemContext *message = unpack(body, NULL);

	if (!message)
		return;
	snprintf(text, size, "%s%s, umask %04o%s%s", message->working_directory,
	         message->removed ? " (removed)" : "", message->umask,
	         strcmp(message->root, "/") ? ", root " : "",
	         strcmp(message->root, "/") ? message->root : "");
}

const struct sp_facet sp_facet_fs_context = {
        .name = "fs_context",
        .title = "directories and umask",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_DESCRIPTORS,
        .shared = SP_SHARED_WITH_DIRECTORIES,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
