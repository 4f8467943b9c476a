/*
 * The runner: runs an array of system calls inside a target, between two stops (docs/architecture.md,
 * D1).
 *
 * It is copied to the start of the temporary mapping. The page behind it starts with struct
 * sp_runner_block (arch/arch.h), from which everything is read: the code is position independent, has
 * no data of its own and uses no stack. Registers: rbx the block, r12 the current call, r13 the end
 * of the calls.
 *
 * After the marker call the tracer takes over. Without a tracer the code goes on: it loads the heal
 * call and jumps to the target's own "system call; return", which comes back through the signal
 * frame.
 */
#define BLOCK_NEXT 0
#define BLOCK_END 8
#define BLOCK_MARKER 16
#define BLOCK_HEAL 48
#define BLOCK_HEAL_STACK 72
#define BLOCK_HEAL_ENTRY 80

#define CALL_NUMBER 0
#define CALL_ARGS 8
#define CALL_RESULT 56
#define CALL_FLAGS 64
#define CALL_SIZE 72

	.text
	.globl	sp_runner_start, sp_runner_stop, sp_runner_sigreturn, sp_runner_end
	.hidden	sp_runner_start, sp_runner_stop, sp_runner_sigreturn, sp_runner_end

sp_runner_start:
	lea	sp_runner_start + 4096(%rip), %rbx
	mov	BLOCK_NEXT(%rbx), %r12
	mov	BLOCK_END(%rbx), %r13
.Lnext:
	cmp	%r13, %r12
	jae	.Ldone
	mov	CALL_NUMBER(%r12), %rax
	mov	CALL_ARGS(%r12), %rdi
	mov	CALL_ARGS + 8(%r12), %rsi
	mov	CALL_ARGS + 16(%r12), %rdx
	mov	CALL_ARGS + 24(%r12), %r10
	mov	CALL_ARGS + 32(%r12), %r8
	mov	CALL_ARGS + 40(%r12), %r9
	syscall
	mov	%rax, CALL_RESULT(%r12)
	cmp	$-4095, %rax
	jb	.Lgood
	testb	$1, CALL_FLAGS(%r12)	/* SP_CALL_MAY_FAIL */
	jz	.Ldone
.Lgood:
	add	$CALL_SIZE, %r12
	jmp	.Lnext
.Ldone:
	mov	%r12, BLOCK_NEXT(%rbx)
	mov	BLOCK_MARKER(%rbx), %rax
	mov	BLOCK_MARKER + 8(%rbx), %rdi
	mov	BLOCK_MARKER + 16(%rbx), %rsi
	mov	BLOCK_MARKER + 24(%rbx), %rdx
	syscall
sp_runner_stop:
	mov	BLOCK_HEAL(%rbx), %rax
	mov	BLOCK_HEAL + 8(%rbx), %rdi
	mov	BLOCK_HEAL + 16(%rbx), %rsi
	mov	BLOCK_HEAL_STACK(%rbx), %rsp
	jmp	*BLOCK_HEAL_ENTRY(%rbx)
sp_runner_sigreturn:
	mov	$15, %eax		/* rt_sigreturn */
	syscall
sp_runner_end:

	.section .note.GNU-stack, "", @progbits
