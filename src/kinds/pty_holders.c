/*
 * Who else has a pseudoterminal open. What the two ends say to each other cannot be saved while
 * somebody outside of the dump listens, and who has the slave of a pair that is made anew is left with
 * the old one. The kernel does not count those who have it open, so all processes are looked at.
 */
#include "kinds/pty_holders.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "kinds/file_table.h"
#include "kinds/pty.h"
#include "proc/children.h"
#include "proc/fdinfo.h"
#include "proc/stat.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>

/* A pair, by the inode of its slave, and that of its master's device with its number. */
struct end_names {
	struct stat slave, device;
	uint64_t number;
};

static bool find_slave(int master, struct stat *slave)
{
	sp_cleanup_close int node = ioctl(master, TIOCGPTPEER, O_PATH | O_CLOEXEC);

	return node >= 0 && !fstat(node, slave);
}

static void list_pairs(const struct sp_file_table *table, struct sp_array *pairs)
{
	for (uint32_t id = 1; id <= table->files.count; id++) {
		const struct sp_open_file *file = sp_file_table_at(table, id);
		struct end_names pair = {.device = file->stat};

		if (sp_pty_is_master(file) && find_slave(file->fd, &pair.slave) &&
		    !sp_fdinfo_number(file->fdinfo, "tty-index:", 10, &pair.number, NULL))
			sp_array_append(pairs, &pair);
	}
}

static bool is_same_inode(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_numbered(pid_t pid, const char *name, uint64_t number)
{
	sp_cleanup_free char *path = sp_format("/proc/%d/fdinfo/%s", pid, name);
	sp_cleanup_free char *text = NULL;
	uint64_t own;

	return !sp_read_file(AT_FDCWD, path, &text, NULL, NULL) &&
	       !sp_fdinfo_number(text, "tty-index:", 10, &own, NULL) && own == number;
}

/* Where terminals are numbered apart, a master of the same device and number is another one. */
static bool is_master_of(const struct end_names *pair, pid_t pid, const char *name)
{
	sp_cleanup_close int pidfd = pidfd_open(pid, 0);
	sp_cleanup_close int master = (int)syscall(SYS_pidfd_getfd, pidfd, atoi(name), 0);
	struct stat slave;

	return find_slave(master, &slave) && is_same_inode(&slave, &pair->slave);
}

static bool is_end(const struct end_names *pair, pid_t pid, int fd_dir, const char *name)
{
	struct stat stat;

	if (fstatat(fd_dir, name, &stat, 0) || !S_ISCHR(stat.st_mode))
		return false;
	return is_same_inode(&stat, &pair->slave) ||
	       (is_same_inode(&stat, &pair->device) && is_numbered(pid, name, pair->number) &&
	        is_master_of(pair, pid, name));
}

/* Only what could be a terminal is looked at closely: there may be many of other kinds. */
static bool may_be_terminal(int fd_dir, const char *name)
{
	char link[16];
	ssize_t size = readlinkat(fd_dir, name, link, sizeof(link));

	return size >= 5 && !strncmp(link, "/dev/", 5);
}

static const struct end_names *find_held(const struct sp_array *pairs, pid_t pid)
{
	sp_cleanup_free char *path = sp_format("/proc/%d/fd", pid);
	sp_cleanup_dir DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (!may_be_terminal(dirfd(dir), entry->d_name))
			continue;
		for (size_t i = 0; i < pairs->count; i++)
			if (is_end(sp_array_at(pairs, i), pid, dirfd(dir), entry->d_name))
				return sp_array_at(pairs, i);
	}
	return NULL;
}

static bool is_in_table(const struct sp_file_table *table, pid_t pid)
{
	for (size_t i = 0; i < table->descriptors.count; i++)
		if (((struct sp_descriptor *)sp_array_at(&table->descriptors, i))->pid == pid)
			return true;
	return pid == getpid();
}

int sp_pty_check_holders(const struct sp_file_saver *saver, struct sp_error *err)
{
	const struct sp_file_table *table = saver->table;
	sp_cleanup_array struct sp_array pairs = SP_ARRAY_OF(struct end_names);
	sp_cleanup_dir DIR *proc = opendir("/proc");
	struct dirent *entry;

	list_pairs(table, &pairs);
	while (proc && pairs.count && (entry = readdir(proc))) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
		const struct end_names *held;

		if (!pid || is_in_table(table, pid))
			continue;
		held = find_held(&pairs, pid);
		/* One that shares its descriptors (CLONE_FILES) is not in the table itself. */
		if (held && !sp_is_of_tree(pid, saver->root))
			return sp_fail(err, ENOTSUP,
			               "%s, which is outside of the dump, has /dev/pts/%u open, "
			               "whose master the program holds; end it first",
			               sp_process_name(pid).text, (unsigned)held->number);
	}
	return 0;
}
