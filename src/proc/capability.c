/* Capabilities by name: see capability.h. */
#include "proc/capability.h"

#include "base/array.h"
#include "base/error.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[] = {
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_DAC_READ_SEARCH",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETPCAP",
        "CAP_LINUX_IMMUTABLE",
        "CAP_NET_BIND_SERVICE",
        "CAP_NET_BROADCAST",
        "CAP_NET_ADMIN",
        "CAP_NET_RAW",
        "CAP_IPC_LOCK",
        "CAP_IPC_OWNER",
        "CAP_SYS_MODULE",
        "CAP_SYS_RAWIO",
        "CAP_SYS_CHROOT",
        "CAP_SYS_PTRACE",
        "CAP_SYS_PACCT",
        "CAP_SYS_ADMIN",
        "CAP_SYS_BOOT",
        "CAP_SYS_NICE",
        "CAP_SYS_RESOURCE",
        "CAP_SYS_TIME",
        "CAP_SYS_TTY_CONFIG",
        "CAP_MKNOD",
        "CAP_LEASE",
        "CAP_AUDIT_WRITE",
        "CAP_AUDIT_CONTROL",
        "CAP_SETFCAP",
        "CAP_MAC_OVERRIDE",
        "CAP_MAC_ADMIN",
        "CAP_SYSLOG",
        "CAP_WAKE_ALARM",
        "CAP_BLOCK_SUSPEND",
        "CAP_AUDIT_READ",
        "CAP_PERFMON",
        "CAP_BPF",
        "CAP_CHECKPOINT_RESTORE",
};

const char *sp_capability_name(unsigned capability)
{
	static _Thread_local char number[24];

	if (capability < SP_COUNT_OF(names))
		return names[capability];
	snprintf(number, sizeof(number), "capability %u", capability);
	return number;
}

void sp_capability_names(uint64_t set, char *text, unsigned size)
{
	unsigned used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < 64 && used < size; i++)
		if (set >> i & 1)
			used += (unsigned)snprintf(text + used, size - used, "%s%s",
			                           used ? ", " : "", sp_capability_name(i));
}

static void read_sets(struct __user_cap_data_struct sets[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	sets[0] = sets[1] = (struct __user_cap_data_struct){};
	syscall(SYS_capget, &header, sets); /* cannot fail for oneself */
}

uint64_t sp_capability_permitted(void)
{
	struct __user_cap_data_struct sets[2];

	read_sets(sets);
	return sets[0].permitted | (uint64_t)sets[1].permitted << 32;
}

bool sp_capability_have(unsigned capability)
{
	struct __user_cap_data_struct sets[2];

	read_sets(sets);
	return sets[capability / 32].effective >> capability % 32 & 1;
}

int sp_capability_need_checkpoint(const char *purpose, struct sp_error *err)
{
	if (sp_capability_have(CAP_CHECKPOINT_RESTORE) || sp_capability_have(CAP_SYS_ADMIN))
		return 0;
	return sp_fail(err, EPERM,
	               "no permission to %s; run as root (or with CAP_CHECKPOINT_RESTORE), see "
	               "\"sealpoint check\"",
	               purpose);
}
