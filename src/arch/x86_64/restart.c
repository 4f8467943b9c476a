/*
 * Interrupted system calls. A thread that is stopped inside one shows a code that programs never
 * see (include/linux/errno.h in the kernel) and the call's number in orig_rax. What happens then is
 * the kernel's decision on its way back to user mode: run a handler and return EINTR, or issue the
 * call again.
 *
 * As long as registers are put back during a stop on that way (a signal or event stop), the raw
 * code is the exact thing to put back: the kernel then decides as if nothing had happened, in a new
 * task too. Two things need help:
 *
 *   - ERESTART_RESTARTBLOCK goes on with a time-out that the kernel keeps in the task. A new task,
 *     and one that went through rt_sigreturn(2), does not have it. The call is issued again with
 *     the time that was left where it lies in memory or is absolute; else the program sees EINTR.
 *   - Some calls return EINTR at once when a stop interrupts them (signal(7): "never restarted").
 *     Where they wait without a time-out, issuing them again is what would have happened without
 *     the stop.
 */
#include "arch/arch.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

#define SYSCALL_INSTRUCTION_SIZE 2

/* "Issue the call again, unless a signal handler runs: then return EINTR." */
static void set_restart(struct user_regs_struct *general)
{
	general->rax = (uint64_t)-ERESTARTNOHAND;
}

/* The timed calls that use a restart block: again with what is known of the time left. */
static void restart_timed(struct user_regs_struct *general)
{
	switch (general->orig_rax) {
	case SYS_nanosleep:
		if (general->rsi) { /* the kernel has written the time left there */
			general->rdi = general->rsi;
			return set_restart(general);
		}
		break;
	case SYS_clock_nanosleep:
		if (general->r10 && !(general->rsi & TIMER_ABSTIME)) {
			general->rdx = general->r10;
			return set_restart(general);
		}
		break;
	case SYS_poll:
		if ((int)general->rdx < 0)
			return set_restart(general);
		break;
	case SYS_futex: /* every time-out but that of FUTEX_WAIT is absolute */
		if ((general->rsi & FUTEX_CMD_MASK) != FUTEX_WAIT)
			return set_restart(general);
		break;
	}
	general->rax = (uint64_t)-EINTR;
}

static bool waits_without_time_limit(const struct user_regs_struct *general)
{
	switch (general->orig_rax) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int)general->r10 < 0;
	case SYS_epoll_pwait2:
	case SYS_semtimedop:
		return general->r10 == 0;
	case SYS_semop:
		return true;
	case SYS_rt_sigtimedwait:
		return general->rdx == 0;
	case SYS_io_getevents:
		return general->r8 == 0;
	default:
		return false;
	}
}

static bool uses_restart_block(uint32_t number)
{
	return number == SYS_nanosleep || number == SYS_clock_nanosleep || number == SYS_poll ||
	       number == SYS_futex;
}

bool sp_has_forgotten_call(const struct user_regs_struct *general)
{
	return general->orig_rax == SYS_restart_syscall;
}

/* The last "mov $number, %eax" (or %rax, whose last byte before the number is 0xc0). */
void sp_recall_system_call(struct user_regs_struct *general, const uint8_t *code, size_t size)
{
	for (size_t end = size - SYSCALL_INSTRUCTION_SIZE; end > sizeof(uint32_t); end--) {
		uint8_t opcode = code[end - sizeof(uint32_t) - 1];
		uint32_t number;

		memcpy(&number, code + end - sizeof(number), sizeof(number));
		if ((opcode == 0xb8 || opcode == 0xc0) && uses_restart_block(number)) {
			general->orig_rax = number;
			return;
		}
	}
}

bool sp_undo_interruption(struct user_regs_struct *general)
{
	if ((int64_t)general->orig_rax < 0 || (int64_t)general->rax != -EINTR ||
	    !waits_without_time_limit(general))
		return false;
	set_restart(general);
	return true;
}

void sp_registers_for_new_task(struct user_regs_struct *general)
{
	if ((int64_t)general->orig_rax < 0)
		return;
	if ((int64_t)general->rax == -ERESTART_RESTARTBLOCK)
		restart_timed(general);
	else
		sp_undo_interruption(general);
}

void sp_rewind_system_call(struct user_regs_struct *general)
{
	sp_registers_for_new_task(general);
	if ((int64_t)general->orig_rax < 0)
		return;
	switch (-(int64_t)general->rax) {
	case ERESTARTSYS:
	case ERESTARTNOINTR:
	case ERESTARTNOHAND:
		general->rax = general->orig_rax;
		general->rip -= SYSCALL_INSTRUCTION_SIZE;
	}
	general->orig_rax = ~0ULL;
}
