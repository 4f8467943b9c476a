/* Naming open files from outside, and giving others in their place: see inherit.h. */
#include "kinds/inherit.h"

#include "base/cleanup.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- names --- */

/* What is between the brackets of "TYPE[...]" or "TYPE:[...]", or NULL. `*size`: how long it is. */
static const char *inside(const char *resource, const char *type, size_t *size)
{
	size_t length = strlen(type);
	const char *at = resource + length;

	if (strncmp(resource, type, length))
		return NULL;
	at += *at == ':';
	*size = strcspn(at, "]");
	if (at[0] != '[' || strcmp(at + *size, "]"))
		return NULL;
	(*size)--;
	return at + 1;
}

static bool read_number(const char *text, const char *end, int base, uint64_t *number)
{
	char *stop;

	if (text == end || strspn(text, "0123456789abcdefABCDEF") < (size_t)(end - text))
		return false;
	errno = 0;
	*number = strtoull(text, &stop, base);
	return stop == end && !errno;
}

static bool is_number(const char *text, size_t size, uint64_t wanted)
{
	uint64_t number;

	return read_number(text, text + size, 10, &number) && number == wanted;
}

static bool is_pair(const char *text, size_t size, int base, uint64_t first, uint64_t second)
{
	const char *colon = memchr(text, ':', size);
	uint64_t a, b;

	return colon && read_number(text, colon, base, &a) && a == first &&
	       read_number(colon + 1, text + size, base, &b) && b == second;
}

static bool names_pair(const char *resource, const char *type, uint64_t first, uint64_t second)
{
	size_t size;
	const char *text = inside(resource, type, &size);

	return text &&
	       (is_pair(text, size, 16, first, second) || is_pair(text, size, 10, first, second));
}

static bool names_inode(const char *resource, const char *type, uint64_t inode)
{
	size_t size;
	const char *text = inside(resource, type, &size);

	return text && is_number(text, size, inode);
}

static bool names_socket(const char *resource, uint64_t inode)
{
	return names_inode(resource, "socket", inode) || names_inode(resource, "unix", inode);
}

static bool names(const char *resource, const Sealpoint__FileOrigin *origin)
{
	const char *link = origin->link;

	if (!strncmp(link, "pipe:", strlen("pipe:")))
		return names_inode(resource, "pipe", origin->inode);
	if (!strncmp(link, "socket:", strlen("socket:")))
		return names_socket(resource, origin->inode);
	return names_pair(resource, "file", origin->mount, origin->inode) ||
	       (origin->special_device &&
	        names_pair(resource, "tty", origin->special_device, origin->device)) ||
	       (link[0] == '/' && !strcmp(link + (resource[0] != '/'), resource));
}

bool sp_resource_is_valid(const char *resource)
{
	static const char *const types[] = {"pipe", "socket", "unix"};
	static const char *const pairs[] = {"tty", "file"};
	size_t size;

	for (size_t i = 0; i < SP_COUNT_OF(types); i++) {
		const char *text = inside(resource, types[i], &size);
		uint64_t number;

		if (text && read_number(text, text + size, 10, &number))
			return true;
	}
	for (size_t i = 0; i < SP_COUNT_OF(pairs); i++) {
		const char *text = inside(resource, pairs[i], &size);
		const char *colon = text ? memchr(text, ':', size) : NULL;
		uint64_t number;

		if (colon && read_number(text, colon, 16, &number) &&
		    read_number(colon + 1, text + size, 16, &number))
			return true;
	}
	return *resource && !strchr(resource, '[') &&
	       strncmp(resource, "/memfd:", strlen("/memfd:")) != 0;
}

bool sp_inherited_parse(const char *text, struct sp_inherited *inherited)
{
	const char *end = strstr(text, "]:");
	uint64_t number;

	if (strncmp(text, "fd[", 3) || !end || !read_number(text + 3, end, 10, &number) ||
	    number > INT_MAX)
		return false;
	*inherited = (struct sp_inherited){.fd = (int)number, .resource = end + 2};
	return sp_resource_is_valid(inherited->resource);
}

/* --- dump --- */

void sp_file_origin(const struct sp_open_file *file, Sealpoint__FileOrigin *origin)
{
	origin->link = file->link;
	origin->inode = file->stat.st_ino;
	origin->device = file->stat.st_dev;
	origin->special_device = file->stat.st_rdev;
	origin->mount = (uint32_t)file->mount_id;
}

bool sp_file_is_external(const struct sp_kind_options *options, const struct sp_open_file *file)
{
	Sealpoint__FileOrigin origin = SEALPOINT__FILE_ORIGIN__INIT;

	sp_file_origin(file, &origin);
	for (size_t i = 0; options->external && i < options->external->count; i++)
		if (names(sp_array_pointer(options->external, i), &origin))
			return true;
	return false;
}

bool sp_peer_is_external(const struct sp_kind_options *options, const struct sp_open_file *file,
                         uint64_t peer)
{
	if (options->external_unix || sp_file_is_external(options, file))
		return true;
	for (size_t i = 0; peer && options->external && i < options->external->count; i++)
		if (names_socket(sp_array_pointer(options->external, i), peer))
			return true;
	return false;
}

/* --- restore --- */

static const struct sp_inherited *given(const struct sp_file_builder *builder, size_t index)
{
	return sp_array_at(builder->options->inherited, index);
}

static size_t given_count(const struct sp_file_builder *builder)
{
	return builder->options->inherited ? builder->options->inherited->count : 0;
}

static bool takes_place(const struct sp_inherited *inherited, const Sealpoint__OpenFile *file)
{
	return !file->mapping_only && file->origin && names(inherited->resource, file->origin);
}

const struct sp_inherited *sp_inherited_find(const struct sp_file_builder *builder,
                                             const Sealpoint__OpenFile *file)
{
	for (size_t i = 0; i < given_count(builder); i++)
		if (takes_place(given(builder, i), file))
			return given(builder, i);
	return NULL;
}

void sp_inherited_warn(const struct sp_file_builder *builder)
{
	const struct sp_array *files = &builder->checkpoint->files;

	for (size_t i = 0; i < given_count(builder); i++) {
		size_t at = 0;

		while (at < files->count &&
		       !takes_place(given(builder, i), sp_array_pointer(files, at)))
			at++;
		if (at == files->count)
			sp_warn(builder->log,
			        "descriptor %d is given for %s, which the checkpoint does not have",
			        given(builder, i)->fd, given(builder, i)->resource);
	}
}

static int check_access(const struct sp_inherited *inherited, int flags, struct sp_error *err)
{
	int now = fcntl(inherited->fd, F_GETFL), wanted = flags & O_ACCMODE;

	if (now < 0)
		return sp_fail_errno(err, errno, "cannot give it descriptor %d, which is not open",
		                     inherited->fd);
	if (flags & O_PATH || (now & O_ACCMODE) == O_RDWR || (now & O_ACCMODE) == wanted)
		return 0;
	return sp_fail(err, EINVAL,
	               "descriptor %d, which is given for %s, is open for %s only, and the program "
	               "%s",
	               inherited->fd, inherited->resource,
	               (now & O_ACCMODE) == O_RDONLY ? "reading" : "writing",
	               wanted == O_RDWR     ? "reads and writes"
	               : wanted == O_WRONLY ? "writes"
	                                    : "reads");
}

static int check_type(const struct sp_inherited *inherited, const Sealpoint__OpenFile *file,
                      const struct stat *stat, struct sp_error *err)
{
	const char *link = file->origin->link;
	bool socket = !strncmp(link, "socket:", strlen("socket:"));

	if (socket && !S_ISSOCK(stat->st_mode))
		return sp_fail(err, ENOTSOCK, "descriptor %d, which is given for %s, is no socket",
		               inherited->fd, inherited->resource);
	return 0;
}

/* Opened by nobody else, so that no peer has to be there for it. */
static int open_again(int number, const Sealpoint__OpenFile *file, const struct stat *stat)
{
	if (!S_ISFIFO(stat->st_mode) && !isatty(number))
		return -1;
	return sp_reopen(number, ((int)file->flags & O_ACCMODE) | O_NOCTTY | O_NONBLOCK, NULL);
}

int sp_inherited_open(const struct sp_inherited *inherited, const Sealpoint__OpenFile *file,
                      int *fd, struct sp_error *err)
{
	struct stat stat;

	if (check_access(inherited, (int)file->flags, err))
		return -err->code;
	if (fstat(inherited->fd, &stat))
		return sp_fail_errno(err, errno, "cannot examine descriptor %d", inherited->fd);
	if (check_type(inherited, file, &stat, err))
		return -err->code;
	*fd = open_again(inherited->fd, file, &stat);
	if (*fd < 0)
		*fd = fcntl(inherited->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	return *fd < 0 ? sp_fail_errno(err, errno, "cannot duplicate descriptor %d", inherited->fd)
	               : 0;
}

int sp_refuse_not_inherited(const char *name, struct sp_error *err)
{
	return sp_fail(err, ENXIO,
	               "it belongs to somebody else and was not saved; open what is to take its "
	               "place, and give it as descriptor N with --inherit-fd 'fd[N]:%s'",
	               name);
}
