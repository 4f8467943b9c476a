/* Filters of sockets: see socket_filter.h. */
#include "kinds/socket_filter.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"

#include <linux/filter.h>
#include <sys/socket.h>

/* How many instructions there are; -EACCES: some, which the kernel does not tell. */
static int count_instructions(int fd)
{
	socklen_t count = 0;

	if (!getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &count))
		return (int)count;
	return errno == EACCES ? -EACCES : 0;
}

int sp_socket_filter_save(int fd, ProtobufCBinaryData *filter, struct sp_error *err)
{
	int count = count_instructions(fd);
	socklen_t room = (socklen_t)count;

	*filter = (ProtobufCBinaryData){0};
	if (count < 0)
		return sp_fail(err, ENOTSUP,
		               "it has a filter of extended BPF (SO_ATTACH_BPF), which sealpoint "
		               "cannot save; let the program detach it");
	if (!count)
		return 0;
	filter->len = (size_t)count * sizeof(struct sock_filter);
	filter->data = sp_alloc(filter->len);
	if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, filter->data, &room) < 0)
		return sp_fail_errno(err, errno, "cannot read its filter");
	return 0;
}

int sp_socket_filter_attach(int fd, const ProtobufCBinaryData *filter, struct sp_error *err)
{
	struct sock_fprog program = {
	        .len = (unsigned short)(filter->len / sizeof(struct sock_filter)),
	        .filter = (struct sock_filter *)filter->data,
	};

	if (!filter->len ||
	    !setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
		return 0;
	return sp_fail_errno(err, errno, "cannot attach its filter");
}

int sp_socket_filter_check(const ProtobufCBinaryData *filter, struct sp_error *err)
{
	if (filter->len % sizeof(struct sock_filter) ||
	    filter->len > BPF_MAXINSNS * sizeof(struct sock_filter))
		return sp_fail_damaged(err, "an impossible socket filter");
	return 0;
}

int sp_socket_filter_refuse(int fd, struct sp_error *err)
{
	if (!count_instructions(fd))
		return 0;
	return sp_fail(err, ENOTSUP,
	               "it has a BPF filter (SO_ATTACH_FILTER), which sealpoint cannot save for "
	               "unix sockets; let the program detach it");
}
