/*
 * A signal frame made by hand, from which rt_sigreturn(2) loads all registers and the signal mask.
 * The layout is the kernel's: struct rt_sigframe (arch/x86/include/asm/sigframe.h) with struct
 * ucontext and struct sigcontext_64 (UAPI asm/ucontext.h, asm/sigcontext.h), the extended state
 * behind it.
 *
 * The alternate stack in the frame is deliberately an invalid one: the kernel ignores it and the
 * thread keeps what it has, which cannot be known before the first remote system call.
 */
#include "arch/arch.h"

#include <string.h>

struct frame_sigcontext {
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
	uint64_t rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
	uint16_t cs, gs, fs, ss;
	uint64_t err, trapno, oldmask, cr2;
	uint64_t fpstate;
	uint64_t reserved[8];
};

struct rt_signal_frame {
	uint64_t return_address;
	uint64_t flags;
	uint64_t link;
	struct {
		uint64_t pointer;
		uint32_t flags;
		uint32_t pad;
		uint64_t size;
	} stack;
	struct frame_sigcontext context;
	uint64_t signal_mask;
	uint8_t siginfo[128];
};

_Static_assert(sizeof(struct frame_sigcontext) == 256, "UAPI struct sigcontext_64");

/* UAPI asm/ucontext.h, asm/sigcontext.h */
#define UC_FP_XSTATE 0x1
#define UC_SIGCONTEXT_SS 0x2
#define UC_STRICT_RESTORE_SS 0x4
#define FP_XSTATE_MAGIC1 0x46505853U
#define FP_XSTATE_MAGIC2 0x46505845U
#define FX_SOFTWARE_BYTES 464 /* offset in the legacy area of struct _fpx_sw_bytes */
#define INVALID_STACK_FLAGS 0x7fffU

struct fpx_software_bytes {
	uint32_t magic1;
	uint32_t extended_size;
	uint64_t xfeatures;
	uint32_t xstate_size;
	uint32_t padding[7];
};

static void fill_context(struct frame_sigcontext *context, const struct user_regs_struct *general)
{
	*context = (struct frame_sigcontext){
	        .r8 = general->r8,
	        .r9 = general->r9,
	        .r10 = general->r10,
	        .r11 = general->r11,
	        .r12 = general->r12,
	        .r13 = general->r13,
	        .r14 = general->r14,
	        .r15 = general->r15,
	        .rdi = general->rdi,
	        .rsi = general->rsi,
	        .rbp = general->rbp,
	        .rbx = general->rbx,
	        .rdx = general->rdx,
	        .rax = general->rax,
	        .rcx = general->rcx,
	        .rsp = general->rsp,
	        .rip = general->rip,
	        .eflags = general->eflags,
	        .cs = (uint16_t)general->cs,
	        .ss = (uint16_t)general->ss,
	};
}

/* The extended state, marked as the kernel's own signal delivery marks it. */
static void fill_xstate(uint8_t *to, const struct sp_registers *registers)
{
	struct fpx_software_bytes software = {
	        .magic1 = FP_XSTATE_MAGIC1,
	        .extended_size = (uint32_t)registers->xstate_size + sizeof(uint32_t),
	        .xstate_size = (uint32_t)registers->xstate_size,
	};
	uint32_t magic2 = FP_XSTATE_MAGIC2;

	/* The register set has the user's feature mask where the frame has these bytes. */
	memcpy(&software.xfeatures, registers->xstate + FX_SOFTWARE_BYTES,
	       sizeof(software.xfeatures));
	memcpy(to, registers->xstate, registers->xstate_size);
	memcpy(to + FX_SOFTWARE_BYTES, &software, sizeof(software));
	memcpy(to + registers->xstate_size, &magic2, sizeof(magic2));
}

size_t sp_signal_frame_size(const struct sp_registers *registers)
{
	return sizeof(struct rt_signal_frame) + 63 + registers->xstate_size + sizeof(uint32_t);
}

size_t sp_signal_frame_build(void *buffer, size_t capacity, remote_addr address,
                             remote_addr sigreturn, const struct sp_registers *registers,
                             uint64_t sigmask)
{
	struct rt_signal_frame frame = {
	        .return_address = sigreturn,
	        .flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
	        .stack.flags = INVALID_STACK_FLAGS,
	        .signal_mask = sigmask,
	};
	remote_addr xstate = (address + sizeof(frame) + 63) & ~63ULL;
	size_t used = xstate - address + registers->xstate_size + sizeof(uint32_t);

	if (used > capacity)
		return 0;
	fill_context(&frame.context, &registers->general);
	frame.context.fpstate = xstate;
	memcpy(buffer, &frame, sizeof(frame));
	fill_xstate((uint8_t *)buffer + (xstate - address), registers);
	return used;
}
