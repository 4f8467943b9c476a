/*
 * Segments of System V shared memory (shmget(2)) that processes have attached. To the kernel, a segment is
 * a file of the same sort as shared anonymous memory, whose inode number is the segment's id; here too it
 * is an open file that only backs mappings. The mappings themselves are made by attaching the segment again
 * (mem/attach.c), which finds its id in the same way.
 *
 * A segment stays when its processes are gone, unless it is marked for removal. Restore gives it the
 * contents of the checkpoint all the same, provided that it is the very one, and attached by nobody; one that is gone is
 * made anew, with its id, which programs know, and its key. So nobody may have a part in it whom the restore
 * would take by surprise: a segment that a process outside of the tree has attached is refused.
 *
 * What cannot be set is not restored: the times, and the ids of the processes that made and used it.
 */
#include "kinds/registry.h"

#include "base/io.h"
#include "kinds/file_build.h"
#include "kinds/file_table.h"
#include "kinds/memory_file.h"
#include "proc/file.h"
#include "proc/stat.h"

#include "system_v.pb-c.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define LINK_PREFIX "/SYSV"
#define NEXT_ID "/proc/sys/kernel/shm_next_id"

static bool claims(const struct sp_open_file *file)
{
	return file->number < 0 && S_ISREG(file->stat.st_mode) && !file->stat.st_nlink &&
	       !strncmp(file->link, LINK_PREFIX, strlen(LINK_PREFIX));
}

/* --- saving --- */

/* How many VMAs of the tree, or of one process, are of the segment. */
static size_t count_attachments(const struct sp_file_table *table, const struct sp_open_file *file,
                                pid_t pid)
{
	size_t count = 0;

	for (size_t i = 0; i < table->mappings.count; i++) {
		const struct sp_file_mapping *mapping = sp_array_at(&table->mappings, i);
		const struct stat *stat = &sp_file_table_at(table, mapping->file)->stat;

		if (stat->st_dev == file->stat.st_dev && stat->st_ino == file->stat.st_ino &&
		    (!pid || mapping->pid == pid))
			count++;
	}
	return count;
}

/* A line of maps: "7f0000000000-7f0000001000 rw-s 00000000 00:01 32768  /SYSV00000000 (deleted)". */
static bool has_attached(pid_t pid, int id)
{
	sp_cleanup_free char *maps = NULL;
	char *rest = NULL;

	if (sp_proc_read(pid, "maps", &maps, NULL, NULL))
		return false;
	for (char *line = strtok_r(maps, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		unsigned long inode;

		if (strstr(line, " " LINK_PREFIX) &&
		    sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode == (unsigned long)id)
			return true;
	}
	return false;
}

/* The process outside of the tree that has attached the segment, or 0. */
static pid_t find_outsider(const struct sp_file_table *table, const struct sp_open_file *file)
{
	sp_cleanup_dir DIR *processes = opendir("/proc");
	struct dirent *entry;

	while (processes && (entry = readdir(processes))) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;

		if (pid && !count_attachments(table, file, pid) &&
		    has_attached(pid, (int)file->stat.st_ino))
			return pid;
	}
	return 0;
}

static int check_attachments(const struct sp_file_table *table, const struct sp_open_file *file,
                             const struct shmid_ds *segment, struct sp_error *err)
{
	pid_t pid;

	if (segment->shm_nattch <= count_attachments(table, file, 0))
		return 0;
	pid = find_outsider(table, file);
	return sp_fail(err, ENOTSUP,
	               "it is System V shared memory (id %lu) that %s, outside of the tree, has "
	               "attached too; end that first, or save both with a process that has "
	               "started both",
	               (unsigned long)file->stat.st_ino,
	               pid ? sp_process_name(pid).text : "another process");
}

static int save_segment(struct sp_file_saver *saver, const struct sp_open_file *file,
                        Sealpoint__SystemVMemory *message, struct sp_error *err)
{
	struct shmid_ds segment;

	if (shmctl((int)message->id, IPC_STAT, &segment))
		return sp_fail_errno(err, errno, "cannot ask for System V shared memory with id %u",
		                     message->id);
	if (check_attachments(saver->table, file, &segment, err))
		return -err->code;
	/* One that is marked for removal has no key any more, but for its name in maps. */
	message->key = (uint32_t)strtoul(file->link + strlen(LINK_PREFIX), NULL, 16);
	message->bytes = segment.shm_segsz;
	message->mode = segment.shm_perm.mode & 0777;
	message->uid = segment.shm_perm.uid;
	message->gid = segment.shm_perm.gid;
	message->creator_uid = segment.shm_perm.cuid;
	message->creator_gid = segment.shm_perm.cgid;
	message->changed = segment.shm_ctime;
	message->removed = segment.shm_perm.mode & SHM_DEST;
	message->locked = segment.shm_perm.mode & SHM_LOCKED;
	message->size = (uint64_t)file->stat.st_size;
	message->huge_page_shift = sp_huge_page_shift(file->fd);
	return sp_file_save_contents(saver, file, &message->object, err);
}

static int save(struct sp_file_saver *saver, const struct sp_open_file *file, struct sp_blob *body,
                struct sp_error *err)
{
	Sealpoint__SystemVMemory message = SEALPOINT__SYSTEM_VMEMORY__INIT;

	message.id = (uint32_t)file->stat.st_ino;
	if (sp_file_table_same_inode(saver->table, file, NULL) == file &&
	    save_segment(saver, file, &message, err))
		return -err->code;
	sp_blob_pack(body, &message.base);
	return 0;
}

/* --- making a segment, or finding it --- */

static int creation_flags(const Sealpoint__SystemVMemory *message)
{
	int flags = IPC_CREAT | IPC_EXCL | (int)message->mode;

	if (message->huge_page_shift)
		flags |= SHM_HUGETLB | (int)(message->huge_page_shift << 26); /* SHM_HUGE_SHIFT */
	return flags;
}

/*
 * Made by us, as its creator was: who that was cannot be changed later. The system calls themselves change
 * the calling thread alone.
 */
static int make_as_creator(const Sealpoint__SystemVMemory *message, key_t key)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int id, code;

	syscall(SYS_setresgid, -1, message->creator_gid, -1);
	syscall(SYS_setresuid, -1, message->creator_uid, -1);
	id = shmget(key, message->bytes, creation_flags(message));
	code = errno;
	syscall(SYS_setresuid, -1, uid, -1);
	syscall(SYS_setresgid, -1, gid, -1);
	errno = code;
	return id;
}

static int make_with_key(const Sealpoint__SystemVMemory *message, struct sp_error *err)
{
	int id = make_as_creator(message, (key_t)message->key);

	/* One that nobody can find any more has its key in its name only. */
	if (id < 0 && errno == EEXIST && message->removed)
		id = make_as_creator(message, IPC_PRIVATE);
	if (id < 0 && errno == EEXIST)
		return sp_fail(err, EEXIST,
		               "another segment has its key 0x%08x (id %d); remove that first "
		               "(ipcrm -M 0x%08x)",
		               message->key, shmget((key_t)message->key, 0, 0), message->key);
	return id < 0 ? sp_fail_errno(err, errno, "cannot make a segment of %" PRIu64 " bytes",
	                              message->bytes)
	              : id;
}

/* What was asked for and not given is still due to whoever makes the next segment. */
static void forget_next_id(void)
{
	int id = shmget(IPC_PRIVATE, 1, IPC_CREAT | 0600);

	if (id >= 0)
		shmctl(id, IPC_RMID, NULL);
}

static int make_segment(const Sealpoint__SystemVMemory *message, struct sp_error *err)
{
	char text[16];
	int id;

	snprintf(text, sizeof(text), "%u", message->id);
	if (sp_write_file(NEXT_ID, text, err))
		return -err->code;
	id = make_with_key(message, err);
	if (id < 0)
		forget_next_id();
	if (id < 0 || id == (int)message->id)
		return id;
	shmctl(id, IPC_RMID, NULL);
	return sp_fail(err, EEXIST,
	               "another segment has the place that goes with its id %u; remove that first "
	               "(ipcs -m lists them, ipcrm -m removes)",
	               message->id);
}

/* A segment with this id: is it the one that was saved, and is it for us alone? */
static int check_segment(const Sealpoint__SystemVMemory *message, const struct shmid_ds *segment,
                         struct sp_error *err)
{
	if (segment->shm_ctime != message->changed || segment->shm_segsz != message->bytes)
		return sp_fail(err, EEXIST,
		               "another segment has its id %u by now (made by process %d); if "
		               "nobody needs that, remove it first (ipcrm -m %u)",
		               message->id, segment->shm_cpid, message->id);
	if (segment->shm_nattch)
		return sp_fail(err, EBUSY,
		               "other processes have attached it by now (%lu attachments, the last "
		               "by process %d), whose memory would be changed; end them first",
		               segment->shm_nattch, segment->shm_lpid);
	return 0;
}

static void remove_segment(void *id)
{
	shmctl(*(int *)id, IPC_RMID, NULL);
}

/* `*made`: there was none. */
static int get_segment(struct sp_file_builder *builder, const Sealpoint__SystemVMemory *message,
                       bool *made, struct sp_error *err)
{
	int id = (int)message->id, *undo;
	struct shmid_ds segment;

	*made = shmctl(id, IPC_STAT, &segment) != 0;
	if (!*made)
		return check_segment(message, &segment, err);
	if (make_segment(message, err) < 0)
		return -err->code;
	undo = sp_alloc(sizeof(*undo));
	*undo = id;
	sp_file_builder_on_failure(builder, (struct sp_file_undo){remove_segment, undo});
	if (shmctl(id, IPC_STAT, &segment))
		return sp_fail_errno(err, errno, "cannot ask for the segment");
	segment.shm_perm.uid = message->uid;
	segment.shm_perm.gid = message->gid;
	segment.shm_perm.mode = (unsigned short)message->mode;
	if (shmctl(id, IPC_SET, &segment))
		return sp_fail_errno(err, errno, "cannot give it to user %u, group %u",
		                     message->uid, message->gid);
	return 0;
}

/* --- its contents --- */

/* Through the file behind it, which is attached for a moment to get at that. */
static int open_contents(const Sealpoint__SystemVMemory *message, struct sp_error *err)
{
	void *memory = shmat((int)message->id, NULL, 0);
	int fd;

	if (memory == (void *)-1)
		return sp_fail_errno(err, errno, "cannot attach it");
	fd = sp_open_mapped(memory, sp_page_up(message->size), err);
	shmdt(memory);
	return fd;
}

static int fill(struct sp_file_builder *builder, const Sealpoint__SystemVMemory *message, int fd,
                struct sp_error *err)
{
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
	              (off_t)sp_page_up(message->size)))
		return sp_fail_errno(err, errno, "cannot empty it");
	if (message->object && sp_content_load(builder->checkpoint->pages, message->object, fd,
	                                       message->size, err) < 0)
		return sp_error_context(err, "cannot fill it in");
	return 0;
}

static int open_segment(struct sp_file_builder *builder, const Sealpoint__SystemVMemory *message,
                        int *fd, struct sp_error *err)
{
	sp_cleanup_close int opened = -1;
	bool made;

	if (get_segment(builder, message, &made, err))
		return -err->code;
	opened = open_contents(message, err);
	if (opened < 0)
		return opened;
	if (fill(builder, message, opened, err))
		return -err->code;
	if (made && message->locked && shmctl((int)message->id, SHM_LOCK, NULL))
		return sp_fail_errno(err, errno, "cannot lock it in memory");
	*fd = sp_steal_fd(&opened);
	return 0;
}

/* For those who only read it. */
static int open_copy(struct sp_file_builder *builder, const Sealpoint__SystemVMemory *message,
                     int *fd, struct sp_error *err)
{
	sp_cleanup_close int made = memfd_create("segment", MFD_CLOEXEC);

	if (made < 0 || ftruncate(made, (off_t)message->size))
		return sp_fail_errno(err, errno, "cannot make a memfd");
	if (fill(builder, message, made, err))
		return -err->code;
	*fd = sp_steal_fd(&made);
	return 0;
}

static int open_memory(struct sp_file_builder *builder, const Sealpoint__OpenFile *file, int *fd,
                       struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SystemVMemory *message =
	        sp_blob_unpack(file->body, &sealpoint__system_vmemory__descriptor, err);

	if (!message)
		return -EBADMSG;
	if (file->same_inode) {
		*fd = sp_reopen(builder->fds[file->same_inode], O_RDWR, err);
		return *fd < 0 ? *fd : 0;
	}
	return builder->options->contents_only ? open_copy(builder, message, fd, err)
	                                       : open_segment(builder, message, fd, err);
}

/* All have attached it that had: it goes with the last of them. */
static int settle(struct sp_file_builder *builder, const Sealpoint__OpenFile *file,
                  struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SystemVMemory *message =
	        sp_blob_unpack(file->body, &sealpoint__system_vmemory__descriptor, err);

	(void)builder;
	if (!message)
		return -EBADMSG;
	if (message->removed && shmctl((int)message->id, IPC_RMID, NULL))
		return sp_fail_errno(err, errno, "cannot mark it for removal");
	return 0;
}

/* --- records --- */

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__SystemVMemory *message =
	        sp_blob_unpack(body, &sealpoint__system_vmemory__descriptor, NULL);

	if (message && message->size)
		snprintf(text, size, "id %u, key 0x%08x, %" PRIu64 " bytes%s", message->id,
		         message->key, message->bytes, message->removed ? ", removed" : "");
	else if (message)
		snprintf(text, size, "id %u", message->id);
}

static int check(const struct sp_checkpoint *checkpoint, const Sealpoint__OpenFile *file,
                 struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SystemVMemory *message =
	        sp_blob_unpack(file->body, &sealpoint__system_vmemory__descriptor, err);

	(void)checkpoint;
	if (!message)
		return -EBADMSG;
	if (message->id > INT32_MAX || message->mode > 0777)
		return sp_fail_damaged(err, "an impossible id or mode");
	if (!file->same_inode &&
	    (!message->bytes || message->bytes > message->size || message->size > INT64_MAX ||
	     !sp_huge_page_shift_valid(message->huge_page_shift)))
		return sp_fail_damaged(err, "an impossible size of shared memory");
	return 0;
}

const struct sp_file_kind sp_kind_system_v_memory = {
        .name = "system_v_memory",
        .title = "System V shared memory",
        .claims = claims,
        .save = save,
        .open = open_memory,
        .settle = settle,
        .describe = describe,
        .check = check,
};
