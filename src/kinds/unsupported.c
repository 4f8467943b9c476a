/* Naming what cannot be saved: see unsupported.h. */
#include "kinds/unsupported.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "kinds/socket_options.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

/* Objects of anonymous inodes, by what the link of their descriptor says. */
static const struct anonymous {
	const char *link; /* the link begins so */
	const char *title;
	const char *remedy;
} anonymous[] = {
        {"anon_inode:[io_uring]", "an io_uring instance",
         "start the program with io_uring switched off (many have an option; sysctl "
         "kernel.io_uring_disabled=2 does it for all)"},
        {"anon_inode:[userfaultfd]", "a userfaultfd",
         "the program handles its own page faults and must close it first"},
        {"anon_inode:[perf_event]", "a performance counter", "stop profiling it first"},
        {"anon_inode:bpf", "a BPF object", "let the program close it first"},
        {"anon_inode:kvm", "a virtual machine of KVM", "suspend the machine with its own tools"},
        {"anon_inode:seccomp", "a seccomp notification descriptor",
         "dump without the supervised program, or end the supervision first"},
        {"anon_inode:[landlock-ruleset]", "a Landlock ruleset", "let the program close it first"},
        {"anon_inode:", "a kernel object without a name", "let the program close it first"},
        {"/SYSV", "a segment of System V shared memory", "let the program detach it first"},
        {"/secretmem", "secret memory (memfd_secret)", "let the program close and unmap it first"},
        {"/dmabuf:", "a DMA buffer of a device", "let the program close its device first"},
};

/* Devices that are more than a place to read from and write to, by the beginning of their path. */
static const struct {
	const char *path;
	const char *title;
	const char *remedy;
} devices[] = {
        {"/dev/net/tun", "an interface of the network (tun or tap)",
         "stop the tunnel or the virtual machine, which can set it up anew"},
        {"/dev/fuse", "the connection of a file system in user space (FUSE)",
         "unmount that file system first, and mount it again after the restore"},
        {"/dev/kvm", "the way to virtual machines of KVM",
         "suspend the machine with its own tools, and dump no hypervisor"},
        {"/dev/vhost-", "a queue of a virtual machine (vhost)",
         "suspend the machine with its own tools, and dump no hypervisor"},
        {"/dev/rtc", "the hardware clock",
         "let the program close it first; a timerfd does the same"},
        {"/dev/loop", "a loop device", "detach it first (losetup --detach)"},
        {"/dev/watchdog", "a watchdog, which resets the machine if nobody feeds it",
         "stop it in the program, which has to close it"},
        {"/dev/dri/", "a graphics processor", "let the program give it up first"},
        {"/dev/nvidia", "a graphics processor", "let the program give it up first"},
        {"/dev/snd/", "a sound device", "let the program close it first, or use a sound server"},
        {"/dev/input/", "an input device", "let the program close it first"},
};

static const struct {
	int domain;
	const char *title;
} domains[] = {
        {AF_UNIX, "unix"},     {AF_INET, "IPv4"},   {AF_INET6, "IPv6"}, {AF_NETLINK, "netlink"},
        {AF_PACKET, "packet"}, {AF_VSOCK, "vsock"}, {AF_ALG, "crypto"}, {AF_BLUETOOTH, "bluetooth"},
};

static const char *domain_title(int fd)
{
	int domain = sp_socket_number(fd, SO_DOMAIN);

	for (size_t i = 0; i < SP_COUNT_OF(domains); i++)
		if (domains[i].domain == domain)
			return domains[i].title;
	return "special";
}

static const char *type_title(int fd)
{
	switch (sp_socket_number(fd, SO_TYPE)) {
	case SOCK_STREAM:
		return "stream";
	case SOCK_DGRAM:
		return "datagram";
	case SOCK_SEQPACKET:
		return "seqpacket";
	case SOCK_RAW:
		return "raw";
	default:
		return "other";
	}
}

static char *title_of(const struct sp_open_file *file, const char **remedy)
{
	*remedy = "let the program close it first";
	for (size_t i = 0; i < SP_COUNT_OF(devices); i++) {
		if (strncmp(file->link, devices[i].path, strlen(devices[i].path)))
			continue;
		*remedy = devices[i].remedy;
		return sp_strdup(devices[i].title);
	}
	if (S_ISSOCK(file->stat.st_mode))
		return sp_format("a socket (%s, %s)", domain_title(file->fd), type_title(file->fd));
	if (S_ISCHR(file->stat.st_mode) || S_ISBLK(file->stat.st_mode))
		return sp_format("a %s device (%u:%u)",
		                 S_ISCHR(file->stat.st_mode) ? "character" : "block",
		                 major(file->stat.st_rdev), minor(file->stat.st_rdev));
	for (size_t i = 0; i < SP_COUNT_OF(anonymous); i++) {
		if (strncmp(file->link, anonymous[i].link, strlen(anonymous[i].link)))
			continue;
		*remedy = anonymous[i].remedy;
		return sp_strdup(anonymous[i].title);
	}
	if (strstr(file->link, ":["))
		return sp_strdup("a namespace");
	return sp_strdup("an object that sealpoint does not know");
}

int sp_refuse_unsupported(const struct sp_open_file *file, struct sp_error *err)
{
	const char *remedy;
	sp_cleanup_free char *title = title_of(file, &remedy);

	if (file->number < 0)
		return sp_fail(err, ENOTSUP,
		               "process %d has mapped %s (%s), which sealpoint cannot save yet: %s",
		               file->pid, title, file->link, remedy);
	return sp_fail(
	        err, ENOTSUP,
	        "descriptor %d of process %d is %s (%s), which sealpoint cannot save yet: %s",
	        file->number, file->pid, title, file->link, remedy);
}
