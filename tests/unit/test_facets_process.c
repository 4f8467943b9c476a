/* Facets of processes: saved, rebuilt in a fresh process, and saved again. */
#include "unit/facet_fixture.h"
#include "unit/skip.h"

#include "base/kernel_abi.h"
#include "settings.pb-c.h"
#include "timers.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

static void handler(int signal)
{
}

static void set_actions(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};

	sigaddset(&action.sa_mask, SIGTERM);
	sigaddset(&action.sa_mask, SIGRTMAX);
	must(sigaction(SIGRTMIN + 3, &action, NULL) == 0);
	must(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	action = (struct sigaction){.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
	must(sigaction(SIGCHLD, &action, NULL) == 0);
}

static void signal_actions_come_back(void **state)
{
	assert_survives(&sp_facet_signal_actions, set_actions);
}

static void actions_of_sealpoint_do_not_stay(void **state)
{
	struct sp_blob wanted, after;
	struct held plain, fresh;

	hold_child(&plain, NULL);
	hold_child(&fresh, set_actions);
	assert_saved(&plain, &sp_facet_signal_actions, &wanted);
	assert_non_null(wanted.bytes);
	assert_rebuilt(&fresh, &sp_facet_signal_actions, &wanted);
	assert_saved(&fresh, &sp_facet_signal_actions, &after);
	assert_true(same_bytes(&wanted, &after));
	sp_blob_release(&wanted);
	sp_blob_release(&after);
	kill_child(&plain);
	kill_child(&fresh);
}

/* --- locks --- */

/* VmFlags of a mapping that the child makes now. */
static void flags_of_new_mapping(struct held *held, char *flags, size_t size)
{
	char path[64], line[512];
	struct sp_error err = {};
	int64_t address;
	bool found = false;
	FILE *smaps;

	sp_batch_begin(&held->remote);
	if (sp_remote_call(&held->remote, &address, &err, "map", SYS_mmap, 0, SP_PAGE_SIZE,
	                   PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	                   (uint64_t)-1, 0) < 0)
		fail_msg("%s", err.message);
	snprintf(path, sizeof(path), "/proc/%d/smaps", held->process.pid);
	smaps = fopen(path, "re");
	assert_non_null(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		unsigned long long start, end;

		if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
			found = start <= (uint64_t)address && (uint64_t)address < end;
		else if (found && !strncmp(line, "VmFlags:", 8))
			snprintf(flags, size, "%s", line);
	}
	fclose(smaps);
}

static void assert_locks_survive(void (*prepare)(void), bool lock, bool on_fault)
{
	struct held original, fresh;
	struct sp_blob body;
	char flags[512] = "";

	hold_child(&original, prepare);
	assert_saved(&original, &sp_facet_memory_locks, &body);
	hold_child(&fresh, NULL);
	if (body.bytes)
		assert_rebuilt(&fresh, &sp_facet_memory_locks, &body);
	flags_of_new_mapping(&fresh, flags, sizeof(flags));
	assert_int_equal(strstr(flags, " lo") != NULL, lock);
	assert_int_equal(strstr(flags, " lf") != NULL, on_fault);
	sp_blob_release(&body);
	kill_child(&original);
	kill_child(&fresh);
}

static void lock_all(void)
{
	must(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
}

static void lock_on_fault(void)
{
	must(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
}

static void lock_today(void)
{
	must(mlockall(MCL_CURRENT) == 0);
}

static void locks_of_future_mappings_come_back(void **state)
{
	if (is_sanitized)
		skip_because("a sanitizer lets mlockall(2) do nothing");
	assert_locks_survive(lock_all, true, false);
	assert_locks_survive(lock_on_fault, true, true);
	assert_locks_survive(lock_today, false, false);
	assert_locks_survive(NULL, false, false);
}

static void queue_shared(void)
{
	siginfo_t info = {.si_code = SI_TIMER};
	sigset_t all;

	sigfillset(&all);
	must(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
	for (int i = 0; i < 70; i++) {
		info.si_value.sival_int = i;
		must(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN, &info) == 0);
	}
	info.si_code = SI_KERNEL;
	must(syscall(SYS_rt_sigqueueinfo, getpid(), SIGURG, &info) == 0);
	must(kill(getpid(), SIGTERM) == 0);
}

static void shared_pending_signals_come_back_in_order(void **state)
{
	assert_queue_survives(&sp_facet_shared_pending_signals, queue_shared);
}

static void set_virtual_timer(void)
{
	struct itimerval value = {.it_value.tv_sec = 100, .it_interval.tv_usec = 7};

	must(setitimer(ITIMER_VIRTUAL, &value, NULL) == 0);
	value.it_value.tv_sec = 50;
	must(setitimer(ITIMER_REAL, &value, NULL) == 0);
}

static Sealpoint__IntervalTimers *unpack_interval_timers(const struct sp_blob *body)
{
	Sealpoint__IntervalTimers *message =
	        sealpoint__interval_timers__unpack(NULL, body->size, body->bytes);

	assert_non_null(message);
	return message;
}

static void interval_timers_go_on_with_what_was_left(void **state)
{
	Sealpoint__IntervalTimers *wanted, *after;
	struct sp_blob first, second;
	struct held held, fresh;

	hold_child(&held, set_virtual_timer);
	hold_child(&fresh, NULL);
	assert_saved(&fresh, &sp_facet_interval_timers, &second);
	assert_null(second.bytes);
	assert_saved(&held, &sp_facet_interval_timers, &first);
	assert_rebuilt(&fresh, &sp_facet_interval_timers, &first);
	assert_saved(&fresh, &sp_facet_interval_timers, &second);
	wanted = unpack_interval_timers(&first);
	after = unpack_interval_timers(&second);
	assert_int_equal(wanted->n_timers, 2);
	assert_int_equal(after->n_timers, 2);
	for (int i = 0; i < 2; i++) {
		uint64_t left = after->timers[i]->left_us;

		assert_int_equal(after->timers[i]->which, wanted->timers[i]->which);
		assert_int_equal(after->timers[i]->interval_us, 7);
		assert_true(left > 30000000);
		assert_true(left <= wanted->timers[i]->left_us + 20000); /* rounded to a tick */
	}
	sealpoint__interval_timers__free_unpacked(wanted, NULL);
	sealpoint__interval_timers__free_unpacked(after, NULL);
	sp_blob_release(&first);
	sp_blob_release(&second);
	kill_child(&held);
	kill_child(&fresh);
}

static void make_timers(void)
{
	struct itimerspec value = {.it_value.tv_sec = 5000, .it_interval.tv_nsec = 9};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
	int id;

	for (int i = 0; i < 2500; i++) {
		must(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &id) == 0);
		if (i % 1000 != 7)
			must(syscall(SYS_timer_delete, id) == 0);
	}
	event.sigev_value.sival_ptr = (void *)0x123456789abcULL;
	must(syscall(SYS_timer_create, CLOCK_BOOTTIME, &event, &id) == 0);
	must(syscall(SYS_timer_settime, id, 0, &value, NULL) == 0);
	event.sigev_notify = SIGEV_NONE;
	must(syscall(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, &event, &id) == 0);
}

static Sealpoint__PosixTimers *unpack_posix_timers(const struct sp_blob *body)
{
	Sealpoint__PosixTimers *message =
	        sealpoint__posix_timers__unpack(NULL, body->size, body->bytes);

	assert_non_null(message);
	return message;
}

static void posix_timers_come_back_with_their_ids(void **state)
{
	Sealpoint__PosixTimers *wanted, *after;
	struct sp_blob first, second;
	struct held held, fresh;

	hold_child(&held, make_timers);
	hold_child(&fresh, NULL);
	assert_saved(&held, &sp_facet_posix_timers, &first);
	assert_rebuilt(&fresh, &sp_facet_posix_timers, &first);
	assert_saved(&fresh, &sp_facet_posix_timers, &second);
	wanted = unpack_posix_timers(&first);
	after = unpack_posix_timers(&second);
	assert_int_equal(wanted->n_timers, 5);
	assert_int_equal(wanted->timers[0]->id, 7);
	assert_int_equal(wanted->timers[3]->id, 2500);
	assert_true(wanted->timers[3]->value == 0x123456789abcULL);
	assert_int_equal(wanted->timers[4]->notify, SIGEV_NONE);
	assert_true(after->timers[3]->left_ns > 4900000000000ULL);
	assert_true(after->timers[3]->left_ns <= wanted->timers[3]->left_ns);
	after->timers[3]->left_ns = wanted->timers[3]->left_ns;
	after->read_ns = wanted->read_ns;
	sp_blob_pack(&second, &after->base);
	assert_true(same_bytes(&first, &second));
	sealpoint__posix_timers__free_unpacked(wanted, NULL);
	sealpoint__posix_timers__free_unpacked(after, NULL);
	sp_blob_release(&first);
	sp_blob_release(&second);
	kill_child(&held);
	kill_child(&fresh);
}

/* --- timers that expire while the state is read --- */

static long soon_ms;

static void make_timers_that_expire_soon(void)
{
	struct itimerspec soon = {.it_value = {soon_ms / 1000, soon_ms % 1000 * 1000000}};
	struct itimerspec late = {.it_value.tv_sec = 500};
	struct itimerval alarm = {.it_value = {soon_ms / 1000, soon_ms % 1000 * 1000}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
	timer_t timer;
	sigset_t all;

	sigfillset(&all);
	must(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
	must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	must(timer_settime(timer, 0, &soon, NULL) == 0);
	must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	must(timer_settime(timer, 0, &late, NULL) == 0);
	must(setitimer(ITIMER_REAL, &alarm, NULL) == 0);
}

static void wait_until_pending(pid_t pid, uint64_t signals)
{
	uint64_t pending = 0;

	for (int i = 0; i < 10000 && (pending & signals) != signals; i++) {
		char *status = NULL;

		assert_int_equal(sp_status_read(pid, pid, &status, NULL), 0);
		assert_int_equal(sp_status_number(status, "ShdPnd", 16, &pending, NULL), 0);
		free(status);
		usleep(1000);
	}
	assert_true((pending & signals) == signals);
}

static bool is_armed(const struct sp_blob *timers)
{
	Sealpoint__PosixTimers *message = unpack_posix_timers(timers);
	bool armed = message->timers[0]->left_ns > 0;

	sealpoint__posix_timers__free_unpacked(message, NULL);
	return armed;
}

/* Takes hold of a child whose timers expire soon, and saves them while they are still armed. */
static void save_before_they_expire(struct held *held, struct sp_blob *alarms,
                                    struct sp_blob *timers)
{
	for (soon_ms = 30; soon_ms <= 3000; soon_ms *= 10) {
		hold_child(held, make_timers_that_expire_soon);
		assert_saved(held, &sp_facet_posix_timers, timers);
		assert_saved(held, &sp_facet_interval_timers, alarms);
		if (alarms->bytes && is_armed(timers))
			return;
		sp_blob_release(alarms);
		sp_blob_release(timers);
		kill_child(held);
	}
	fail_msg("timers of 3 s have expired before they could be read");
}

static void timer_that_expires_meanwhile_signals_once(void **state)
{
	const char *queue = sp_facet_shared_pending_signals.name;
	struct sp_blob alarms, timers, pending, alarms_after, timers_after;
	Sealpoint__PosixTimers *after;
	struct held held, fresh;
	struct sp_error err;

	save_before_they_expire(&held, &alarms, &timers);
	wait_until_pending(held.process.pid, 1ULL << (SIGALRM - 1) | 1ULL << (SIGRTMIN - 1));
	assert_saved(&held, &sp_facet_shared_pending_signals, &pending);

	hold_child(&fresh, NULL);
	if (rebuild_facet_beside(&fresh, &sp_facet_interval_timers, &alarms, queue, &pending,
	                         &err) ||
	    rebuild_facet_beside(&fresh, &sp_facet_posix_timers, &timers, queue, &pending, &err))
		fail_msg("%s", err.message);
	assert_saved(&fresh, &sp_facet_interval_timers, &alarms_after);
	assert_null(alarms_after.bytes);
	assert_saved(&fresh, &sp_facet_posix_timers, &timers_after);
	after = unpack_posix_timers(&timers_after);
	assert_int_equal(after->n_timers, 2);
	assert_true(after->timers[0]->left_ns == 0);
	assert_true(after->timers[1]->left_ns > 0);
	sealpoint__posix_timers__free_unpacked(after, NULL);
	sp_blob_release(&alarms);
	sp_blob_release(&timers);
	sp_blob_release(&pending);
	sp_blob_release(&timers_after);
	kill_child(&held);
	kill_child(&fresh);
}

static void lower_limits(void)
{
	must(setrlimit(RLIMIT_NOFILE, &(struct rlimit){100, 200}) == 0);
	must(setrlimit(RLIMIT_CORE, &(struct rlimit){1, RLIM_INFINITY}) == 0);
	must(setrlimit(RLIMIT_STACK, &(struct rlimit){12345678, 123456789}) == 0);
}

static void limits_come_back(void **state)
{
	assert_survives(&sp_facet_limits, lower_limits);
}

static void lower_own_limit(void)
{
	must(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}) == 0);
}

/* Whether the check finds it depends on our own limits: so in a child that has lowered its. */
static void limits_that_cannot_be_given_are_refused_early(void **state)
{
	Sealpoint__Limit limit = SEALPOINT__LIMIT__INIT, *limits = &limit;
	Sealpoint__Limits message = SEALPOINT__LIMITS__INIT;
	int status;
	pid_t pid;

	limit.resource = RLIMIT_NOFILE;
	limit.soft = 10;
	limit.hard = 65;
	message.n_limits = 1;
	message.limits = &limits;
	pid = fork();
	if (pid == 0) {
		struct __user_cap_header_struct {
			uint32_t version;
			int pid;
		} header = {.version = 0x20080522};
		uint32_t none[6] = {};
		struct sp_error err;

		lower_own_limit();
		must(syscall(SYS_capset, &header, none) == 0);
		must(check_facet(&sp_facet_limits, &message.base, &err) == -EPERM);
		must(strstr(err.message, "RLIMIT_NOFILE") != NULL);
		limit.hard = 64;
		must(check_facet(&sp_facet_limits, &message.base, &err) == 0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static char scratch[] = "/tmp/test_facets.XXXXXX";

static void change_directory(void)
{
	must(chdir(scratch) == 0);
	umask(0137);
}

static void change_root(void)
{
	must(chdir("/proc") == 0);
	must(chroot(scratch) == 0);
}

static void delete_directory(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/gone", scratch);
	must(mkdir(path, 0700) == 0 && chdir(path) == 0 && rmdir(path) == 0);
}

/* A directory whose name reads as if it had been deleted is not one that was. */
static void enter_odd_directory(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/x (deleted)", scratch);
	mkdir(path, 0700);
	must(chdir(path) == 0);
}

static void directories_and_umask_come_back(void **state)
{
	assert_survives(&sp_facet_fs_context, change_directory);
	assert_survives(&sp_facet_fs_context, enter_odd_directory);
}

static void a_changed_root_comes_back(void **state)
{
	assert_survives(&sp_facet_fs_context, change_root);
}

static void a_deleted_directory_comes_back_deleted(void **state)
{
	assert_survives(&sp_facet_fs_context, delete_directory);
}

static void delete_root(void)
{
	must(chdir(scratch) == 0 && mkdir("gone", 0700) == 0);
	must(chroot("gone") == 0 && rmdir("gone") == 0);
}

static void a_deleted_root_is_refused(void **state)
{
	assert_refused(&sp_facet_fs_context, delete_root, ENOENT, "gone");
}

static void change_layout(void)
{
	struct prctl_mm_map {
		uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack,
		        arg_start, arg_end, env_start, env_end;
		uint64_t auxv;
		uint32_t auxv_size, exe_fd;
	} map = {0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x51234, 0x60000,
	         0x70000, 0x70010, 0x70020, 0x70030, 0,       0,       (uint32_t)-1};
	uint64_t auxv[] = {9, 0x10000, 3, 0x20000, 0, 0};

	map.auxv = (uintptr_t)auxv;
	map.auxv_size = sizeof(auxv);
	must(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0) == 0);
}

static void memory_layout_comes_back(void **state)
{
	assert_survives(&sp_facet_memory_layout, change_layout);
}

static void change_settings(void)
{
	FILE *file = fopen("/proc/self/oom_score_adj", "w");

	must(file && fputs("321", file) >= 0 && fclose(file) == 0);
	file = fopen("/proc/self/coredump_filter", "w");
	must(file && fputs("0", file) >= 0 && fclose(file) == 0);
	must(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	must(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	must(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0);
	must(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0);
	prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0); /* where the kernel has it */
}

static void process_settings_come_back(void **state)
{
	assert_survives(&sp_facet_process_settings, change_settings);
}

static void settings_of_sealpoint_do_not_stay(void **state)
{
	Sealpoint__ProcessSettings *message;
	struct sp_blob wanted, after;
	struct held plain, fresh;

	hold_child(&plain, NULL);
	hold_child(&fresh, change_settings);
	assert_saved(&plain, &sp_facet_process_settings, &wanted);
	assert_rebuilt(&fresh, &sp_facet_process_settings, &wanted);
	assert_saved(&fresh, &sp_facet_process_settings, &after);
	/* Registrations and merging are of the address space, which a restore makes anew. */
	message = sealpoint__process_settings__unpack(NULL, after.size, after.bytes);
	assert_int_equal(message->oom_score_adj, 0);
	assert_false(message->child_subreaper);
	assert_int_equal(message->thp_disable, 0);
	assert_true(message->coredump_filter != 0);
	sealpoint__process_settings__free_unpacked(message, NULL);
	sp_blob_release(&wanted);
	sp_blob_release(&after);
	kill_child(&plain);
	kill_child(&fresh);
}

static void harden(void)
{
	must(prctl(PR_SET_DUMPABLE, 0) == 0);
	must(prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0 || errno == EINVAL);
}

static void hardening_comes_back(void **state)
{
	assert_survives(&sp_facet_hardening, harden);
}

static void damaged_bodies_are_refused(void **state)
{
	static const uint8_t damaged[] = {0xff, 0xff, 0xff, 0xff, 0x00, 0x08};
	const ProtobufCBinaryData bodies[] = {
	        {sizeof(damaged), (uint8_t *)damaged},
	        {0, NULL},
	};
	struct sp_error err = {};
	char text[128];

	for (size_t i = 0; sp_facets[i]; i++)
		for (size_t j = 0; j < 2; j++) {
			text[0] = '\0';
			if (sp_facets[i]->describe)
				sp_facets[i]->describe(bodies[j], text, sizeof(text));
			if (sp_facets[i]->check && j == 0)
				assert_int_equal(sp_facets[i]->check(bodies[j], &err), -EBADMSG);
		}
}

static int make_scratch(void **state)
{
	return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/x (deleted)", scratch);
	rmdir(path);
	return rmdir(scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(signal_actions_come_back),
	        cmocka_unit_test(actions_of_sealpoint_do_not_stay),
	        cmocka_unit_test(locks_of_future_mappings_come_back),
	        cmocka_unit_test(shared_pending_signals_come_back_in_order),
	        cmocka_unit_test(interval_timers_go_on_with_what_was_left),
	        cmocka_unit_test(posix_timers_come_back_with_their_ids),
	        cmocka_unit_test(timer_that_expires_meanwhile_signals_once),
	        cmocka_unit_test(limits_come_back),
	        cmocka_unit_test(limits_that_cannot_be_given_are_refused_early),
	        cmocka_unit_test(directories_and_umask_come_back),
	        cmocka_unit_test(a_changed_root_comes_back),
	        cmocka_unit_test(a_deleted_directory_comes_back_deleted),
	        cmocka_unit_test(a_deleted_root_is_refused),
	        cmocka_unit_test(memory_layout_comes_back),
	        cmocka_unit_test(process_settings_come_back),
	        cmocka_unit_test(settings_of_sealpoint_do_not_stay),
	        cmocka_unit_test(hardening_comes_back),
	        cmocka_unit_test(damaged_bodies_are_refused),
	};

	return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
