/*
 * What /proc tells about one process or thread: files and directories of /proc/PID, as /proc/self is,
 * too. They are opened by the same path when all processes and threads exist, since these have their
 * old ids. About one that is gone they are opened while a process stands in for it, which then ends.
 *
 * One that tells about a process which is not saved along would tell of anybody after the restore:
 * refused.
 */
#include "kinds/registry.h"

#include "kinds/file_path.h"
#include "kinds/stand_in.h"
#include "proc/children.h"
#include "proc/stat.h"

#include "process_file.pb-c.h"

#include <ctype.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#define PROC "/proc/"
#define TASK "/task/"

/* The text of the id in the path, or NULL if it is not about a process. */
static const char *find_id(const char *path)
{
	const char *id = path + strlen(PROC);

	return !strncmp(path, PROC, strlen(PROC)) && isdigit((unsigned char)*id) ? id : NULL;
}

static bool claims(const struct sp_open_file *file)
{
	struct statfs fs;

	return find_id(file->link) && !fstatfs(file->fd, &fs) && fs.f_type == PROC_SUPER_MAGIC;
}

/* --- dump --- */

static bool leads_to(const char *path, const struct sp_open_file *file)
{
	struct stat found;

	return !lstat(path, &found) && found.st_dev == file->stat.st_dev &&
	       found.st_ino == file->stat.st_ino;
}

static int check_saved(pid_t id, pid_t root, struct sp_error *err)
{
	struct sp_stat stat = {0};

	if (sp_is_of_tree(id, root))
		return 0;
	sp_stat_read(id, id, &stat, NULL);
	return sp_fail(err, ENOTSUP,
	               "it tells about process %d (%s), which is not saved along; let the program "
	               "close it first, or dump a process that both descend from",
	               id, stat.comm);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__ProcessFile message = SEALPOINT__PROCESS_FILE__INIT;
	sp_cleanup_free char *path = sp_file_path_last(file);
	int rc = 0;

	message.path = path;
	message.type = file->stat.st_mode & S_IFMT;
	message.position = file->position;
	message.ended = !leads_to(path, file);
	if (!message.ended)
		rc = check_saved(atoi(find_id(path)), saver->root, err);
	if (!rc)
		sp_blob_pack(body, &message.base);
	return rc;
}

/* --- restore --- */

static Sealpoint__ProcessFile *unpack(ProtobufCBinaryData body, struct sp_error *err)
{
	return sp_blob_unpack(body, &sealpoint__process_file__descriptor, err);
}

static int open_path(const char *path, const Sealpoint__OpenFile *file,
                     const Sealpoint__ProcessFile *message, int *fd, struct sp_error *err)
{
	*fd = sp_file_path_open(path, sp_file_path_flags(file), message->type, err);
	if (*fd < 0)
		return *fd;
	if (message->position && lseek(*fd, message->position, SEEK_SET) < 0)
		return sp_fail_errno(err, errno, "cannot go to position %lld",
		                     (long long)message->position);
	return 0;
}

static const char *behind_number(const char *text)
{
	return text + strspn(text, "0123456789");
}

/* The path with another process in the place of the one that is gone. */
static char *path_of(pid_t pid, const char *path)
{
	const char *rest = behind_number(find_id(path));

	if (strncmp(rest, TASK, strlen(TASK)) || !isdigit((unsigned char)rest[strlen(TASK)]))
		return sp_format(PROC "%d%s", pid, rest);
	return sp_format(PROC "%d" TASK "%d%s", pid, pid, behind_number(rest + strlen(TASK)));
}

static int open_ended(const Sealpoint__OpenFile *file, const Sealpoint__ProcessFile *message,
                      int *fd, struct sp_error *err)
{
	sp_cleanup_free char *path = NULL;
	struct sp_stand_in process;
	int rc = sp_stand_in_begin(&process, atoi(find_id(message->path)), 0, err);

	if (rc)
		return rc;
	path = path_of(process.pid, message->path);
	rc = open_path(path, file, message, fd, err);
	sp_stand_in_end(&process);
	return rc;
}

static int open_process_file(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                             int *fd, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ProcessFile *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	return message->ended ? open_ended(file, message, fd, err)
	                      : open_path(message->path, file, message, fd, err);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__ProcessFile *message = unpack(file->body, err);

	if (!message)
		return -EBADMSG;
	return find_id(message->path) ? 0 : sp_fail_damaged(err, "an impossible path");
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__ProcessFile *message = unpack(body, NULL);

	if (message)
		snprintf(text, size, "%s%s", message->path,
		         message->ended ? ", of one that has ended" : "");
}

const struct sp_file_kind sp_kind_process_file = {
        .name = "process_file",
        .title = "file of a process",
        .late = true,
        .claims = claims,
        .save = save,
        .open = open_process_file,
        .describe = describe,
        .check = check,
};
