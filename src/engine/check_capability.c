/*
 * Trials of privileges: capabilities in effect, and what a security module takes away from them.
 * Each row says what is lost without it, because few are needed by everyone.
 */
#include "engine/check_probe.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "kinds/connection_lock.h"
#include "proc/capability.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/tcp.h>
#include <string.h>

static void require(struct sp_probe_result *result, const unsigned *capabilities, size_t count)
{
	result->present = true;
	for (size_t i = 0; i < count; i++)
		result->present &= sp_capability_have(capabilities[i]);
	if (!result->present)
		sp_probe_detail(result, "not in the effective set; run as root or grant it");
}

static void probe_sys_admin(struct sp_probe_result *result)
{
	require(result, (const unsigned[]){CAP_SYS_ADMIN}, 1);
}

static void probe_sys_ptrace(struct sp_probe_result *result)
{
	require(result, (const unsigned[]){CAP_SYS_PTRACE}, 1);
}

static void probe_checkpoint_restore(struct sp_probe_result *result)
{
	require(result, (const unsigned[]){CAP_CHECKPOINT_RESTORE}, 1);
	if (!result->present && sp_capability_have(CAP_SYS_ADMIN)) {
		result->present = true;
		sp_probe_detail(result, "not in the effective set; CAP_SYS_ADMIN does instead");
	}
}

static void probe_set_ids(struct sp_probe_result *result)
{
	require(result, (const unsigned[]){CAP_SETUID, CAP_SETGID, CAP_SETPCAP}, 3);
}

static void probe_sys_nice(struct sp_probe_result *result)
{
	require(result, (const unsigned[]){CAP_SYS_NICE}, 1);
}

static void probe_ipc_lock(struct sp_probe_result *result)
{
	require(result, (const unsigned[]){CAP_IPC_LOCK}, 1);
}

static void probe_sys_resource(struct sp_probe_result *result)
{
	result->present = sp_capability_have(CAP_SYS_RESOURCE);
	if (!result->present)
		sp_probe_detail(
		        result,
		        "not in the effective set; hard limits above our own cannot be given back");
}

static void probe_nftables(struct sp_probe_result *result)
{
	struct sp_error err = {0};

	result->present = !sp_connection_lock_try(&err);
	if (!result->present)
		sp_probe_detail(result, "%s", err.message);
}

static void probe_tcp_repair(struct sp_probe_result *result)
{
	sp_cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	const int on = TCP_REPAIR_ON;

	sp_probe_outcome(result, !setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)));
}

/* Yama's levels, from Documentation/admin-guide/LSM/Yama.rst. */
static void probe_yama(struct sp_probe_result *result)
{
	sp_cleanup_free char *scope = NULL;
	struct sp_error ignored = {0};

	if (sp_read_file(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", &scope, NULL, &ignored)) {
		result->present = true;
		sp_probe_detail(result, "no Yama here");
		return;
	}
	scope[strcspn(scope, "\n")] = '\0';
	result->present = scope[0] == '0' || (scope[0] < '3' && sp_capability_have(CAP_SYS_PTRACE));
	sp_probe_detail(result, "kernel.yama.ptrace_scope is %s%s", scope,
	                result->present ? ""
	                                : "; set it to 0, or have CAP_SYS_PTRACE if it is 1 or 2");
}

const struct sp_probe sp_capability_probes[] = {
        {"CAP_SYS_PTRACE", SP_NEEDED_SOMETIMES,
         "programs of other users, and programs that are not dumpable", "Linux 2.2",
         probe_sys_ptrace},
        {"CAP_CHECKPOINT_RESTORE", SP_NEEDED_ALWAYS,
         "process ids of choice, the files behind mappings", "Linux 5.9", probe_checkpoint_restore},
        {"CAP_SYS_ADMIN", SP_NEEDED_SOMETIMES, "seccomp filters of a program", "Linux 2.2",
         probe_sys_admin},
        {"CAP_SETUID, SETGID, SETPCAP", SP_NEEDED_SOMETIMES,
         "restoring programs with another user, group or capabilities", "Linux 2.2", probe_set_ids},
        {"CAP_SYS_NICE", SP_NEEDED_SOMETIMES,
         "real-time scheduling and negative nice values; short freezes on a busy machine",
         "Linux 2.2", probe_sys_nice},
        {"CAP_IPC_LOCK", SP_NEEDED_SOMETIMES,
         "locked memory above the limit, hugetlb of other groups", "Linux 2.2", probe_ipc_lock},
        {"TCP_REPAIR", SP_NEEDED_SOMETIMES, "saving TCP connections (--tcp-established)",
         "Linux 3.5, CAP_NET_ADMIN", probe_tcp_repair},
        {"nftables", SP_NEEDED_SOMETIMES, "locking TCP connections from dump to restore",
         "Linux 5.12, CAP_NET_ADMIN", probe_nftables},
        {"CAP_SYS_RESOURCE", SP_NEEDED_SOMETIMES, "raising hard limits; nothing else depends on it",
         "Linux 2.2", probe_sys_resource},
        {"ptrace not restricted", SP_NEEDED_ALWAYS, "stopping programs that are not our children",
         "Yama: Linux 3.4", probe_yama},
        {0},
};
