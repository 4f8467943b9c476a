/*
 * The runner's code as bytes to copy, the registers that run it, and the machine code that a foothold
 * looks for in a target.
 */
#include "arch/arch.h"

#include <sys/syscall.h>

extern const uint8_t sp_runner_start[], sp_runner_stop[], sp_runner_sigreturn[], sp_runner_end[];

/* runner_code.S repeats these offsets. */
_Static_assert(offsetof(struct sp_runner_block, marker) == 16, "runner_code.S: BLOCK_MARKER");
_Static_assert(offsetof(struct sp_runner_block, heal) == 48, "runner_code.S: BLOCK_HEAL");
_Static_assert(offsetof(struct sp_runner_block, heal_stack) == 72,
               "runner_code.S: BLOCK_HEAL_STACK");
_Static_assert(offsetof(struct sp_runner_block, heal_entry) == 80,
               "runner_code.S: BLOCK_HEAL_ENTRY");
_Static_assert(offsetof(struct sp_call, result) == 56, "runner_code.S: CALL_RESULT");
_Static_assert(offsetof(struct sp_call, flags) == 64, "runner_code.S: CALL_FLAGS");
_Static_assert(sizeof(struct sp_call) == 72, "runner_code.S: CALL_SIZE");

#define PATTERN(...)                                                                   \
	{                                                                              \
		(const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}) \
	}

const struct sp_code_pattern sp_pattern_syscall = PATTERN(0x0f, 0x05);
const struct sp_code_pattern sp_pattern_syscall_return = PATTERN(0x0f, 0x05, 0xc3);

/* What a C library gives as sa_restorer: mov $15,%rax; syscall, in two encodings. */
const struct sp_code_pattern sp_pattern_sigreturn[] = {
        PATTERN(0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05),
        PATTERN(0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05),
        {NULL, 0},
};

/* munmap(2) as a function: mov $11,%eax; syscall; cmp $-4095,%rax; jae .+1; ret (glibc). */
const struct sp_code_pattern sp_pattern_unmap =
        PATTERN(0xb8, 0x0b, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73,
                0x01, 0xc3);

const void *sp_runner_code(size_t *size)
{
	*size = (size_t)(sp_runner_end - sp_runner_start);
	return sp_runner_start;
}

size_t sp_runner_stop_offset(void)
{
	return (size_t)(sp_runner_stop - sp_runner_start);
}

size_t sp_runner_sigreturn_offset(void)
{
	return (size_t)(sp_runner_sigreturn - sp_runner_start);
}

void sp_general_start_runner(struct user_regs_struct *general, remote_addr code, remote_addr stack)
{
	general->rip = code;
	general->rsp = stack;
	general->orig_rax = ~0ULL; /* not in a system call: nothing for the kernel to restart */
}

static void set_arguments(struct user_regs_struct *general, const struct sp_call *call)
{
	general->rdi = call->args[0];
	general->rsi = call->args[1];
	general->rdx = call->args[2];
	general->r10 = call->args[3];
	general->r8 = call->args[4];
	general->r9 = call->args[5];
}

void sp_general_run_call(struct user_regs_struct *general, remote_addr instruction,
                         remote_addr stack, const struct sp_call *call)
{
	general->rip = instruction;
	general->rsp = stack;
	general->rax = call->number;
	general->orig_rax = ~0ULL;
	set_arguments(general, call);
}

void sp_general_run_sigreturn(struct user_regs_struct *general, remote_addr sigreturn,
                              remote_addr frame)
{
	general->rip = sigreturn;
	general->rsp = frame + sizeof(uint64_t); /* the return address has been popped */
	general->orig_rax = ~0ULL;
}

void sp_general_swap_call(struct user_regs_struct *general, remote_addr sigreturn,
                          const struct sp_call *call)
{
	general->rip = sigreturn;
	general->orig_rax = call->number;
	set_arguments(general, call);
}

int64_t sp_general_result(const struct user_regs_struct *general)
{
	return (int64_t)general->rax;
}
