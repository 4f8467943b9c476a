/* Registers of a ptrace-stopped thread, as register sets (ptrace(2): PTRACE_GETREGSET). */
#include "arch/arch.h"

#include "base/error.h"

#include <elf.h>
#include <errno.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static int get_set(pid_t tid, long set, void *buffer, size_t *size, struct sp_error *err)
{
	struct iovec vector = {.iov_base = buffer, .iov_len = *size};

	if (ptrace(PTRACE_GETREGSET, tid, set, &vector) < 0)
		return sp_fail_errno(err, errno, "cannot read registers of thread %d", tid);
	*size = vector.iov_len;
	return 0;
}

static int set_set(pid_t tid, long set, const void *buffer, size_t size, struct sp_error *err)
{
	struct iovec vector = {.iov_base = (void *)buffer, .iov_len = size};

	if (ptrace(PTRACE_SETREGSET, tid, set, &vector) < 0)
		return sp_fail_errno(err, errno, "cannot set registers of thread %d", tid);
	return 0;
}

int sp_general_get(pid_t tid, struct user_regs_struct *general, struct sp_error *err)
{
	size_t size = sizeof(*general);
	int rc = get_set(tid, NT_PRSTATUS, general, &size, err);

	if (rc)
		return rc;
	if (size != sizeof(*general))
		return sp_fail(err, ENOTSUP,
		               "it runs 32-bit code, and sealpoint handles 64-bit programs only");
	return 0;
}

int sp_general_set(pid_t tid, const struct user_regs_struct *general, struct sp_error *err)
{
	return set_set(tid, NT_PRSTATUS, general, sizeof(*general), err);
}

int sp_registers_get(pid_t tid, struct sp_registers *registers, struct sp_error *err)
{
	int rc = sp_general_get(tid, &registers->general, err);

	if (rc)
		return rc;
	registers->xstate_size = sizeof(registers->xstate);
	return get_set(tid, NT_X86_XSTATE, registers->xstate, &registers->xstate_size, err);
}

int sp_registers_set(pid_t tid, const struct sp_registers *registers, struct sp_error *err)
{
	int rc = set_set(tid, NT_X86_XSTATE, registers->xstate, registers->xstate_size, err);

	return rc ? rc : sp_general_set(tid, &registers->general, err);
}

uint64_t sp_instruction_pointer(const struct user_regs_struct *general)
{
	return general->rip;
}

uint64_t sp_stack_pointer(const struct user_regs_struct *general)
{
	return general->rsp;
}

void sp_set_instruction_pointer(struct user_regs_struct *general, uint64_t address)
{
	general->rip = address;
}
