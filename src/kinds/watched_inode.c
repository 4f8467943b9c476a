/* Paths of watched inodes: see watched_inode.h. */
#include "kinds/watched_inode.h"

#include "base/io.h"
#include "kinds/file_table.h"
#include "proc/fdinfo.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

dev_t sp_device_of_kernel(uint64_t device)
{
	return makedev(device >> 20, device & 0xfffff);
}

/* --- mounts --- */

/* Space, tab, newline and backslash stand in mountinfo as three octal digits. */
static void unescape(char *path)
{
	char *to = path;

	for (const char *from = path; *from; to++) {
		const char digits[4] = {from[1], from[1] ? from[2] : 0,
		                        from[1] && from[2] ? from[3] : 0};

		if (*from == '\\' && strspn(digits, "01234567") == 3) {
			*to = (char)strtoul(digits, NULL, 8);
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* Opens what the path of a mount leads to, if it is that one: another one may lie over it. */
static int open_mount(const char *path, int flags, dev_t device, int id)
{
	sp_cleanup_close int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);
	struct statx stat;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stat) < 0 ||
	    makedev(stat.stx_dev_major, stat.stx_dev_minor) != device ||
	    (id >= 0 && stat.stx_mnt_id != (uint64_t)id))
		return -1;
	return sp_steal_fd(&fd);
}

char *sp_mount_path(dev_t device, int id, int *fd)
{
	sp_cleanup_file FILE *mounts = fopen("/proc/self/mountinfo", "re");
	unsigned major_number, minor_number;
	char line[2 * PATH_MAX], point[PATH_MAX];
	int its_id;

	while (mounts && fgets(line, sizeof(line), mounts)) {
		sp_cleanup_close int opened = -1;
		dev_t its_device;

		if (sscanf(line, "%d %*d %u:%u %*s %4095s", &its_id, &major_number, &minor_number,
		           point) != 4)
			continue;
		its_device = makedev(major_number, minor_number);
		if (id >= 0 ? its_id != id : its_device != device)
			continue;
		unescape(point);
		opened = open_mount(point, fd ? O_RDONLY | O_DIRECTORY : O_PATH, its_device, id);
		if (opened < 0)
			continue;
		if (fd)
			*fd = sp_steal_fd(&opened);
		return sp_strdup(point);
	}
	return NULL;
}

void sp_watched_mount_close(struct sp_watched_mount *mount)
{
	if (mount->fd >= 0)
		close(mount->fd);
	mount->fd = -1;
}

static int mount_fd(struct sp_watched_mount *mount, dev_t device)
{
	if (mount->fd < 0 || mount->device != device) {
		sp_watched_mount_close(mount);
		mount->device = device;
		free(sp_mount_path(device, -1, &mount->fd));
	}
	return mount->fd;
}

/* --- inodes --- */

static bool leads_to(const char *path, const struct sp_watched_inode *inode)
{
	struct stat stat;

	return !lstat(path, &stat) && stat.st_ino == inode->number && stat.st_dev == inode->device;
}

static const char *path_from_open_files(const struct sp_file_table *table,
                                        const struct sp_watched_inode *inode)
{
	for (size_t i = 0; i < table->files.count; i++) {
		const struct sp_open_file *file = sp_array_at(&table->files, i);

		if (file->stat.st_ino == inode->number && file->stat.st_dev == inode->device &&
		    leads_to(file->link, inode))
			return file->link;
	}
	return NULL;
}

/* The handle that fdinfo prints: its size, type and bytes in hexadecimal. NULL if there is none. */
static struct file_handle *parse_handle(const char *text)
{
	struct file_handle *handle;
	uint64_t size, type;

	if (!sp_fdinfo_field(&text, "fhandle-bytes:", 16, &size) ||
	    !sp_fdinfo_field(&text, "fhandle-type:", 16, &type) || size > MAX_HANDLE_SZ)
		return NULL;
	text = strstr(text, "f_handle:");
	text = text ? text + strlen("f_handle:") : "";
	if (strspn(text, "0123456789abcdef") < 2 * size)
		return NULL;
	handle = sp_alloc(sizeof(*handle) + size);
	handle->handle_bytes = (unsigned)size;
	handle->handle_type = (int)type;
	for (uint64_t i = 0; i < size; i++) {
		const char digits[3] = {text[2 * i], text[2 * i + 1]};

		handle->f_handle[i] = (unsigned char)strtoul(digits, NULL, 16);
	}
	return handle;
}

static char *path_from_handle(struct sp_watched_mount *mount, const struct sp_watched_inode *inode)
{
	sp_cleanup_free struct file_handle *handle = parse_handle(inode->handle);
	sp_cleanup_close int fd = -1;
	sp_cleanup_free char *link = NULL;
	char *path = NULL;

	if (!handle)
		return NULL;
	fd = open_by_handle_at(mount_fd(mount, inode->device), handle, O_PATH | O_CLOEXEC);
	link = sp_format("/proc/self/fd/%d", fd);
	if (fd < 0 || sp_read_link(AT_FDCWD, link, &path, NULL) < 0)
		return NULL;
	if (!leads_to(path, inode)) {
		free(path);
		return NULL;
	}
	return path;
}

char *sp_watched_inode_path(const struct sp_file_saver *saver, struct sp_watched_mount *mount,
                            const struct sp_watched_inode *inode, struct sp_error *err)
{
	const char *open_path = path_from_open_files(saver->table, inode);
	char *path = open_path ? sp_strdup(open_path) : path_from_handle(mount, inode);

	if (!path)
		sp_fail(err, ENOENT,
		        "no path leads to what it watches (inode %" PRIu64
		        " on device %u:%u): it may have been deleted; let the program stop "
		        "watching it",
		        inode->number, major(inode->device), minor(inode->device));
	return path;
}
