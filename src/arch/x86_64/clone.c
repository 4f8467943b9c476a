/* A passing process: see arch.h. */
#include "arch/arch.h"

#include <linux/sched.h>
#include <sys/syscall.h>

/*
 * The child begins behind the same instruction as we do, with the same registers but on its own stack: it
 * calls the function and ends. The C library has no call for this.
 */
long sp_clone_and_call(struct clone_args *args, size_t size, int (*function)(void *), void *context)
{
	register int (*kept_function)(void *) __asm__("r12") = function;
	register void *kept_context __asm__("r13") = context;
	long result;

	__asm__ volatile("syscall\n\t"
	                 "test %%rax, %%rax\n\t"
	                 "jnz 1f\n\t"
	                 "xor %%ebp, %%ebp\n\t"
	                 "mov %[context], %%rdi\n\t"
	                 "call *%[function]\n\t"
	                 "mov %%eax, %%edi\n\t"
	                 "mov %[exit], %%eax\n\t"
	                 "syscall\n\t"
	                 "hlt\n"
	                 "1:"
	                 : "=a"(result)
	                 : "0"((long)SYS_clone3), "D"(args),
	                   "S"(size), [function] "r"(kept_function), [context] "r"(kept_context),
	                   [exit] "i"(SYS_exit)
	                 : "rcx", "r11", "memory", "cc");
	return result;
}
