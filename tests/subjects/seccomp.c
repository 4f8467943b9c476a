/*
 * Seccomp filters: two, one on top of the other, that make system calls fail with an errno of their
 * own. The ones that a dump needs are among them: a filter must not hinder it.
 */
#include "subject.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* A filter that fails `call` with `error` and allows the rest. */
static void refuse(int call, int error)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	subject_need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
}

static void expect(long result, int error, const char *name)
{
	subject_check(result == -1 && errno == error, "%s: %ld, %s", name, result, strerror(errno));
}

int main(void)
{
	subject_need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
	refuse(SYS_getppid, 99);
	refuse(SYS_mmap, 98);
	refuse(SYS_rt_sigaction, 97);
	refuse(SYS_prctl, 96);
	refuse(SYS_getrlimit, 95);

	subject_ready();

	expect(syscall(SYS_getppid), 99, "getppid");
	expect(syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 98,
	       "mmap");
	expect(syscall(SYS_rt_sigaction, 1, NULL, NULL, 8), 97, "rt_sigaction");
	expect(syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0), 96, "prctl");
	expect(syscall(SYS_getrlimit, RLIMIT_CORE, NULL), 95, "getrlimit");
	subject_check(syscall(SYS_getpid) > 0, "getpid fails");
	return subject_end();
}
