/*
 * What differs between processors, behind one interface: a thread's registers, the rewinding of a
 * system call that was interrupted, the code that runs system calls inside a target, and the signal
 * frame that gives a target its registers back.
 *
 * x86_64 is implemented (src/arch/x86_64). Another architecture supplies the same functions;
 * nothing above this directory knows a register by name.
 */
#ifndef SEALPOINT_ARCH_ARCH_H
#define SEALPOINT_ARCH_ARCH_H

#include "base/range.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/user.h>

struct clone_args;
struct sp_error;

#define SP_XSTATE_MAX 16384 /* AVX-512 and AMX together need less than 12 KiB */

/** All registers of one thread, as the ptrace register sets give them. */
struct sp_registers {
	struct user_regs_struct general; /* NT_PRSTATUS; with FS and GS base */
	size_t xstate_size;              /* bytes used of xstate */
	uint8_t xstate[SP_XSTATE_MAX]    /* NT_X86_XSTATE: standard XSAVE layout, with PKRU */
	        __attribute__((aligned(64)));
};

/** Reads or writes all registers of a ptrace-stopped thread. */
int sp_registers_get(pid_t tid, struct sp_registers *registers, struct sp_error *err);
int sp_registers_set(pid_t tid, const struct sp_registers *registers, struct sp_error *err);
/** The general registers only: what a remote system call needs. */
int sp_general_get(pid_t tid, struct user_regs_struct *general, struct sp_error *err);
int sp_general_set(pid_t tid, const struct user_regs_struct *general, struct sp_error *err);

uint64_t sp_instruction_pointer(const struct user_regs_struct *general);
uint64_t sp_stack_pointer(const struct user_regs_struct *general);
/** Moves the instruction pointer; used to leave an rseq critical section by its abort address. */
void sp_set_instruction_pointer(struct user_regs_struct *general, uint64_t address);

/* --- extended state from another machine --- */

/** Where a processor keeps one component of the extended state. */
struct sp_xstate_component {
	uint32_t bit; /* in XCR0 */
	uint32_t offset;
	uint32_t size;
};
#define SP_XSTATE_COMPONENTS 64

/** This processor's layout: fills in up to SP_XSTATE_COMPONENTS and returns how many. */
size_t sp_xstate_layout(struct sp_xstate_component *layout);

/**
 * Puts extended state that was saved with `layout` into `registers`, which holds a valid one of
 * this machine. EINVAL if the saved state contradicts its layout, ENOTSUP if it uses a component
 * that this machine does not have.
 */
int sp_xstate_convert(struct sp_registers *registers, const uint8_t *saved, size_t size,
                      const struct sp_xstate_component *layout, size_t count, struct sp_error *err);

/* --- interrupted system calls (restart.c tells the whole story) --- */

/**
 * Turns the registers of a stopped thread into those that a new task starts with. They keep the
 * kernel's restart codes and so must be put in during a signal or event stop; a restart that needs
 * state of the old task becomes one that does not, or EINTR.
 */
void sp_registers_for_new_task(struct user_regs_struct *general);
/**
 * A call that was interrupted before shows the number of restart_syscall(2), which only the task
 * that has the restart block can go on with.
 */
bool sp_has_forgotten_call(const struct user_regs_struct *general);
/**
 * Puts the number of such a call back if the code before the instruction pointer tells it: `code`
 * are the `size` bytes there.
 */
void sp_recall_system_call(struct user_regs_struct *general, const uint8_t *code, size_t size);
#define SP_RECALL_CODE_SIZE 24
/** Turns an EINTR that only the stop has caused into a restart; true if something was changed. */
bool sp_undo_interruption(struct user_regs_struct *general);
/** Registers for rt_sigreturn(2), where the kernel restarts nothing: as a new task, and rewound. */
void sp_rewind_system_call(struct user_regs_struct *general);

/* --- running system calls inside a target --- */

#define SP_CALL_MAY_FAIL 1ULL /* an error is a result: the batch goes on */

/** One system call of a batch, in the layout that the runner code reads and writes. */
struct sp_call {
	uint64_t number;
	uint64_t args[6];
	int64_t result; /* set by the runner: the kernel's result, errors as negative errno */
	uint64_t flags;
};

/**
 * The block that the runner reads at the start of the data pages, which follow the code page
 * directly. The runner runs the calls from `next` to `end`, then `marker`, where the tracer takes
 * over. A tracee whose tracer has died does not stop there: it goes on, loads `heal` and jumps to
 * `heal_entry`.
 */
struct sp_runner_block {
	uint64_t next; /* address of the next call: at the end `end`, or that of a failed call */
	uint64_t end;
	uint64_t marker[4]; /* number and three arguments of the call at which a batch ends */
	uint64_t heal[3];   /* number and two arguments: unmap the temporary pages */
	uint64_t heal_stack;
	uint64_t heal_entry;
};

/** The runner's code, position independent, less than a page; copied to the start of a code page. */
const void *sp_runner_code(size_t *size);
/** Offsets in the code: behind the marker (where a batch stops) and the runner's own sigreturn. */
size_t sp_runner_stop_offset(void);
size_t sp_runner_sigreturn_offset(void);

/**
 * Sets the registers to run the runner at `code`, or one call at a bare system call instruction. The
 * runner does not use its stack: the stack pointer only says where the healing frame is.
 */
void sp_general_start_runner(struct user_regs_struct *general, remote_addr code, remote_addr stack);
void sp_general_run_call(struct user_regs_struct *general, remote_addr instruction,
                         remote_addr stack, const struct sp_call *call);
int64_t sp_general_result(const struct user_regs_struct *general);

/**
 * Sets the registers to call rt_sigreturn(2) by the code at `sigreturn`, as a signal handler with
 * the frame at `frame` would when it returns.
 */
void sp_general_run_sigreturn(struct user_regs_struct *general, remote_addr sigreturn,
                              remote_addr frame);
/**
 * At the entry of that rt_sigreturn(2): has the kernel execute `call` instead, and the thread come
 * back to the code at `sigreturn` afterwards.
 */
void sp_general_swap_call(struct user_regs_struct *general, remote_addr sigreturn,
                          const struct sp_call *call);

/** Machine code that a foothold looks for in a target's own text (remote/foothold.h). */
struct sp_code_pattern {
	const uint8_t *bytes;
	size_t size;
};
extern const struct sp_code_pattern sp_pattern_syscall;        /* a system call instruction */
extern const struct sp_code_pattern sp_pattern_syscall_return; /* the same, then return */
extern const struct sp_code_pattern sp_pattern_sigreturn[];    /* variants; ends with size 0 */
extern const struct sp_code_pattern sp_pattern_unmap;          /* munmap(2) as a function */

/**
 * Builds the stack content from which the target's own code gives it back `registers` and
 * `sigmask`: the address of `sigreturn` and a signal frame behind it. `address` is where the
 * content will lie in the target (aligned to 64). Returns the bytes used, or 0 if `capacity` is too
 * small.
 */
size_t sp_signal_frame_size(const struct sp_registers *registers); /* at most, at any address */
size_t sp_signal_frame_build(void *buffer, size_t capacity, remote_addr address,
                             remote_addr sigreturn, const struct sp_registers *registers,
                             uint64_t sigmask);

/* --- machine code for a foreign vDSO (mem/vdso.c) --- */

#define SP_JUMP_CODE_MAX 16

/**
 * Writes code that jumps to `target` from anywhere, changing no register that a called function has
 * to keep or gets an argument in. Returns its size.
 */
size_t sp_jump_code(uint8_t code[SP_JUMP_CODE_MAX], remote_addr target);
/** Writes a function that returns `value`. Returns its size. */
size_t sp_return_code(uint8_t code[SP_JUMP_CODE_MAX], int32_t value);

/* --- what an image says about the processor --- */

/**
 * Names of processor features that a program can see and use, in a fixed order, NULL-terminated.
 */
const char *const *sp_cpu_features(void);
/** The XCR0 components that the kernel has enabled for user programs. */
uint64_t sp_cpu_xfeatures(void);
const char *sp_arch_name(void);

/* --- a process for a moment --- */

/**
 * clone3(2) with a stack of its own: the child calls the function, with what it shares with us by the
 * flags, and ends with its result as exit status. Returns the child's id or a negative errno.
 */
long sp_clone_and_call(struct clone_args *args, size_t size, int (*function)(void *),
                       void *context);

#endif
