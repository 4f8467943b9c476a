/* Facets of threads: saved, rebuilt in a fresh process, and saved again. */
#include "unit/facet_fixture.h"

#include "credentials.pb-c.h"
#include "scheduling.pb-c.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/ioprio.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <sys/syscall.h>

static void set_name(void)
{
	must(prctl(PR_SET_NAME, "a\n\xff (b) 'c'") == 0);
}

static void the_name_comes_back_whatever_its_bytes(void **state)
{
	assert_survives(&sp_facet_thread_name, set_name);
}

static void set_scheduling(void)
{
	cpu_set_t set;
	FILE *file = fopen("/proc/self/timerslack_ns", "w");

	CPU_ZERO(&set);
	CPU_SET(sysconf(_SC_NPROCESSORS_CONF) - 1, &set);
	must(sched_setaffinity(0, sizeof(set), &set) == 0);
	must(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &(struct sched_param){}) ==
	     0);
	must(setpriority(PRIO_PROCESS, 0, 7) == 0);
	must(syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
	             IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 1)) == 0);
	must(file && fputs("1234567", file) >= 0 && fclose(file) == 0);
}

static void set_real_time(void)
{
	must(setpriority(PRIO_PROCESS, 0, 5) == 0); /* what it is when it is ordinary again */
	must(sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 3}) == 0);
}

static void set_idle(void)
{
	must(setpriority(PRIO_PROCESS, 0, 9) == 0);
	must(sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){}) == 0);
}

static void scheduling_comes_back(void **state)
{
	assert_survives(&sp_facet_scheduling, set_scheduling);
	assert_survives(&sp_facet_scheduling, set_real_time);
	assert_survives(&sp_facet_scheduling, set_idle);
}

static void scheduling_of_sealpoint_does_not_stay(void **state)
{
	struct sp_blob wanted, after;
	struct held plain, fresh;

	hold_child(&plain, NULL);
	hold_child(&fresh, set_scheduling);
	assert_saved(&plain, &sp_facet_scheduling, &wanted);
	assert_rebuilt(&fresh, &sp_facet_scheduling, &wanted);
	assert_saved(&fresh, &sp_facet_scheduling, &after);
	assert_true(same_bytes(&wanted, &after));
	sp_blob_release(&wanted);
	sp_blob_release(&after);
	kill_child(&plain);
	kill_child(&fresh);
}

static void processors_that_are_not_there_are_refused_early(void **state)
{
	Sealpoint__Scheduling message = SEALPOINT__SCHEDULING__INIT;
	uint8_t bits[1000] = {[999] = 1};
	struct sp_error err;

	message.affinity = (ProtobufCBinaryData){sizeof(bits), bits};
	assert_int_equal(check_facet(&sp_facet_scheduling, &message.base, &err), -EINVAL);
	bits[0] = 1;
	assert_int_equal(check_facet(&sp_facet_scheduling, &message.base, &err), 0);
}

static void set_pointers(void)
{
	static char stack[16384];
	static uint64_t robust[3];
	static int clear_tid;

	must(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack), .ss_flags = 1U << 31},
	                 NULL) == 0);
	must(syscall(SYS_set_robust_list, robust, sizeof(robust)) == 0);
	must(syscall(SYS_set_tid_address, &clear_tid) == getpid());
}

static void pointers_come_back(void **state)
{
	assert_survives(&sp_facet_thread_pointers, set_pointers);
}

static struct rseq own_area __attribute__((aligned(32)));

static void drop_rseq(void)
{
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;

	if (__rseq_size)
		must(syscall(SYS_rseq, area, 32, 1 /* unregister */, 0x53053053) == 0);
}

static void register_rseq(void)
{
	drop_rseq();
	must(syscall(SYS_rseq, &own_area, 32, 0, 0x12345678) == 0);
}

static void rseq_registration_comes_back(void **state)
{
	struct sp_blob wanted, before, after;
	struct held original, fresh;

	hold_child(&original, register_rseq);
	assert_saved(&original, &sp_facet_rseq, &wanted);
	hold_child(&fresh, drop_rseq);
	assert_saved(&fresh, &sp_facet_rseq, &before);
	assert_null(before.bytes);
	assert_rebuilt(&fresh, &sp_facet_rseq, &wanted);
	assert_saved(&fresh, &sp_facet_rseq, &after);
	assert_true(same_bytes(&wanted, &after));
	sp_blob_release(&wanted);
	sp_blob_release(&after);
	kill_child(&original);
	kill_child(&fresh);
}

static void change_thread_settings(void)
{
	must(personality(ADDR_NO_RANDOMIZE | UNAME26) >= 0);
	must(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
	/* where the processor has it */
	prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0);
	must(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
}

static void thread_settings_come_back(void **state)
{
	assert_survives(&sp_facet_thread_settings, change_thread_settings);
}

static void switch_dispatch_on(void)
{
	static char selector = 0; /* SYSCALL_DISPATCH_FILTER_ALLOW */

	must(prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &selector) == 0);
}

static void system_call_dispatch_is_refused(void **state)
{
	assert_refused(&sp_facet_thread_settings, switch_dispatch_on, ENOTSUP,
	               "system call user dispatch");
}

static void queue_signals(void)
{
	siginfo_t info = {.si_code = SI_TKILL};
	uint64_t all = ~0ULL; /* the C library would spare its own */

	must(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof(all)) == 0);
	for (int signal = 1; signal <= 64; signal++)
		if (signal != SIGKILL && signal != SIGSTOP && signal != SIGCONT &&
		    signal != SIGTSTP && signal != SIGTTIN && signal != SIGTTOU) {
			info.si_value.sival_int = signal;
			must(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), signal, &info) ==
			     0);
		}
	info.si_code = 5;
	must(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGRTMAX, &info) == 0);
}

static void pending_signals_come_back_with_all_that_came_with_them(void **state)
{
	assert_queue_survives(&sp_facet_pending_signals, queue_signals);
}

/* --- credentials --- */

static void become_another_user(void)
{
	const gid_t groups[] = {5, 70000, 4294967294u};

	must(setgroups(3, groups) == 0);
	must(setresgid(11, 12, 13) == 0);
	setfsgid(14);
	must(setresuid(21, 22, 23) == 0);
	must(prctl(PR_SET_PDEATHSIG, SIGUSR2) == 0);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
}

static void set_capabilities(uint64_t inheritable, uint64_t permitted, uint64_t effective)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];

	for (int i = 0; i < 2; i++)
		sets[i] = (struct __user_cap_data_struct){(uint32_t)(effective >> 32 * i),
		                                          (uint32_t)(permitted >> 32 * i),
		                                          (uint32_t)(inheritable >> 32 * i)};
	must(syscall(SYS_capset, &header, sets) == 0);
}

static uint64_t bit(unsigned capability)
{
	return 1ULL << capability;
}

/* Every set is different, and an inheritable capability is no longer in the bounding set. */
static void keep_some_capabilities(void)
{
	uint64_t kept = bit(CAP_NET_RAW) | bit(CAP_SETPCAP) | bit(CAP_BPF);

	set_capabilities(bit(CAP_NET_RAW) | bit(CAP_KILL), kept | bit(CAP_SETUID) | bit(CAP_KILL),
	                 kept | bit(CAP_SETUID));
	must(prctl(PR_CAPBSET_DROP, CAP_KILL) == 0);
	must(prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT) == 0);
	must(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0) == 0);
	must(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS |
	                                      SECBIT_NO_CAP_AMBIENT_RAISE |
	                                      SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED) == 0);
	must(setresuid(1000, 1001, 1002) == 0);
	setfsuid(1000);
	set_capabilities(bit(CAP_NET_RAW) | bit(CAP_KILL), bit(CAP_NET_RAW) | bit(CAP_BPF),
	                 bit(CAP_BPF));
}

static void another_user_comes_back(void **state)
{
	assert_survives(&sp_facet_credentials, become_another_user);
}

static void capabilities_come_back_set_by_set(void **state)
{
	assert_survives(&sp_facet_credentials, keep_some_capabilities);
}

static void capabilities_that_sealpoint_lacks_are_refused_early(void **state)
{
	Sealpoint__Credentials message = SEALPOINT__CREDENTIALS__INIT;
	uint32_t ids[4] = {};
	struct sp_error err;

	message.uids = message.gids = ids;
	message.n_uids = message.n_gids = 4;
	message.permitted = bit(62) | bit(CAP_KILL);
	assert_int_equal(check_facet(&sp_facet_credentials, &message.base, &err), -EPERM);
	assert_non_null(strstr(err.message, "capability 62"));
	assert_null(strstr(err.message, "CAP_KILL"));
	message.permitted = bit(CAP_KILL);
	assert_int_equal(check_facet(&sp_facet_credentials, &message.base, &err), 0);
	message.n_uids = 3;
	assert_int_equal(check_facet(&sp_facet_credentials, &message.base, &err), -EBADMSG);
}

/* --- seccomp --- */

static void install_filter(uint32_t number, uint32_t action, unsigned flags)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, action),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0);
}

static void install_filters(void)
{
	install_filter(SYS_getppid, SECCOMP_RET_ERRNO | 77, SECCOMP_FILTER_FLAG_LOG);
	install_filter(SYS_getuid, SECCOMP_RET_ERRNO | 78, 0);
	install_filter(SYS_munmap, SECCOMP_RET_KILL_PROCESS, 0); /* the stub's own last call */
}

static void install_listener(void)
{
	install_filter(SYS_getppid, SECCOMP_RET_USER_NOTIF, 0);
}

static void seccomp_filters_come_back_in_order(void **state)
{
	assert_survives(&sp_facet_seccomp, install_filters);
}

static void filters_with_a_listener_are_refused(void **state)
{
	assert_refused(&sp_facet_seccomp, install_listener, ENOTSUP, "USER_NOTIF");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_name_comes_back_whatever_its_bytes),
	        cmocka_unit_test(scheduling_comes_back),
	        cmocka_unit_test(scheduling_of_sealpoint_does_not_stay),
	        cmocka_unit_test(processors_that_are_not_there_are_refused_early),
	        cmocka_unit_test(pointers_come_back),
	        cmocka_unit_test(rseq_registration_comes_back),
	        cmocka_unit_test(thread_settings_come_back),
	        cmocka_unit_test(system_call_dispatch_is_refused),
	        cmocka_unit_test(pending_signals_come_back_with_all_that_came_with_them),
	        cmocka_unit_test(another_user_comes_back),
	        cmocka_unit_test(capabilities_come_back_set_by_set),
	        cmocka_unit_test(capabilities_that_sealpoint_lacks_are_refused_early),
	        cmocka_unit_test(seccomp_filters_come_back_in_order),
	        cmocka_unit_test(filters_with_a_listener_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
