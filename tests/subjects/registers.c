/*
 * Every register of a thread, in user mode and inside a system call. Each thread loads all of them
 * with values of its own, holds them for a while, and compares: the general ones, the flags, FS and
 * GS base, and every component of the extended state that the kernel gives to programs (x87, SSE,
 * AVX, AVX-512, protection keys). Two threads hold them in a loop, two in futex(2), for as long as
 * the subject runs.
 *
 * Processors place the components differently. A program that keeps its own areas has to know when it has been
 * moved to another processor, as this one does; what it has in registers must have moved by itself.
 */
#include "subject.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>

#define THREADS 4
#define AREA 16384
#define COMPONENTS 63
/* Bound registers are gone from processors; tile data need a permission that we do not ask for. */
#define COMPONENTS_LEFT_OUT (3ULL << 3 | 3ULL << 17)

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS, GENERAL };
#define HELD_FLAGS 0x401ULL /* direction and carry */

struct component {
	unsigned offset, size;
};

struct layout {
	uint64_t components;
	struct component at[COMPONENTS];
};

struct held {
	uint64_t in[GENERAL];  /* at 0 */
	uint64_t out[GENERAL]; /* at 128 */
	uint64_t components;   /* at 256: loaded and stored */
	void (*holding)(void); /* at 264: hold_counting or hold_in_call */
	uint8_t xstate_in[AREA] __attribute__((aligned(64)));  /* at 320 */
	uint8_t xstate_out[AREA] __attribute__((aligned(64))); /* at 320 + AREA */
	struct layout layout;                                  /* of xstate_in */
};

/*
 * Loads all of `in`, holds it (counting rax down, or in the system call that it describes), and
 * stores all to `out`. Only the stack pointer is left to find the way back: it points to `held`.
 */
void hold_registers(struct held *held);
void hold_counting(void);
void hold_in_call(void);
asm(".text\n"
    "hold_registers:\n"
    "	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "	push %rdi\n"
    "	push 264(%rdi)\n"
    "	mov 256(%rdi), %eax; mov 260(%rdi), %edx\n"
    "	xrstor64 320(%rdi)\n"
    "	push 120(%rdi); popfq\n"
    "	mov 0(%rdi), %rax; mov 8(%rdi), %rbx; mov 16(%rdi), %rcx; mov 24(%rdi), %rdx\n"
    "	mov 32(%rdi), %rsi; mov 48(%rdi), %rbp; mov 56(%rdi), %r8; mov 64(%rdi), %r9\n"
    "	mov 72(%rdi), %r10; mov 80(%rdi), %r11; mov 88(%rdi), %r12; mov 96(%rdi), %r13\n"
    "	mov 104(%rdi), %r14; mov 112(%rdi), %r15; mov 40(%rdi), %rdi\n"
    "	ret\n" /* to what was pushed from `holding` */
    "hold_in_call:\n"
    "	syscall; jmp 1f\n"
    "hold_counting:\n"
    "	pause; dec %rax; jnz hold_counting\n"
    "1:	pushfq; cld; xchg %rdi, 8(%rsp)\n"
    "	mov %rax, 128(%rdi); mov %rbx, 136(%rdi); mov %rcx, 144(%rdi); mov %rdx, 152(%rdi)\n"
    "	mov %rsi, 160(%rdi); mov %rbp, 176(%rdi); mov %r8, 184(%rdi); mov %r9, 192(%rdi)\n"
    "	mov %r10, 200(%rdi); mov %r11, 208(%rdi); mov %r12, 216(%rdi); mov %r13, 224(%rdi)\n"
    "	mov %r14, 232(%rdi); mov %r15, 240(%rdi)\n"
    "	pop 248(%rdi); pop 168(%rdi)\n"
    "	mov 256(%rdi), %eax; mov 260(%rdi), %edx\n"
    "	xsave64 320+16384(%rdi)\n"
    "	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "	ret\n");

static struct component component(unsigned number)
{
	unsigned a, b, c, d;

	if (number == 0) /* the 8 x87 registers */
		return (struct component){32, 128};
	if (number == 1) /* 16 SSE registers */
		return (struct component){160, 256};
	__cpuid_count(0xd, number, a, b, c, d);
	(void)c, (void)d;
	return (struct component){b, a};
}

static uint64_t enabled_components(void)
{
	uint32_t low, high;

	asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low | (uint64_t)high << 32) & ~COMPONENTS_LEFT_OUT;
}

static struct layout read_layout(void)
{
	struct layout layout = {.components = enabled_components()};

	for (unsigned number = 0; number < COMPONENTS; number++)
		if (layout.components >> number & 1)
			layout.at[number] = component(number);
	return layout;
}

/* Values that the component can hold, different for each thread. */
static void set_component(struct held *held, unsigned number, int seed)
{
	struct component at = held->layout.at[number];
	uint8_t *bytes = held->xstate_in + at.offset;

	for (unsigned i = 0; i < at.size; i++)
		bytes[i] = (uint8_t)(number * 31 + i * 7 + (unsigned)seed * 13 + 1);
	if (number == 0) /* each register is 10 bytes of 16 */
		for (int i = 0; i < 8; i++)
			memset(bytes + i * 16 + 10, 0, 6);
	if (number == 9) /* rights of the default key stay, others vary */
		*(uint64_t *)bytes = 0x55555540U & ~(3U << (4 + 2 * seed));
}

static void set_extended_state(struct held *held, int seed)
{
	memset(held->xstate_in, 0, AREA);
	held->layout = read_layout();
	*(uint16_t *)held->xstate_in = (uint16_t)(0x37f ^ (seed & 3) << 10); /* x87 rounding */
	*(uint16_t *)(held->xstate_in + 2) = (uint16_t)(seed << 11);         /* x87 top */
	held->xstate_in[4] = 0xff;                                           /* x87 tags */
	*(uint32_t *)(held->xstate_in + 24) = 0x1f80U ^ (uint32_t)(seed & 3) << 13; /* MXCSR */
	held->components = held->layout.components;
	for (unsigned number = 0; number < COMPONENTS; number++)
		if (held->components >> number & 1)
			set_component(held, number, seed);
	*(uint64_t *)(held->xstate_in + 512) = held->components;
}

/* What was loaded in the layout of one processor was stored in that of this one. */
static void check_extended_state(const struct held *held, const struct layout *here,
                                 const char *where)
{
	subject_check(memcmp(held->xstate_in, held->xstate_out, 5) == 0, "%s: x87 control", where);
	subject_check(memcmp(held->xstate_in + 24, held->xstate_out + 24, 4) == 0, "%s: MXCSR",
	              where);
	for (unsigned number = 0; number < COMPONENTS; number++) {
		struct component in = held->layout.at[number], out = here->at[number];

		if (held->components >> number & 1)
			subject_check(in.size == out.size &&
			                      memcmp(held->xstate_in + in.offset,
			                             held->xstate_out + out.offset, in.size) == 0,
			              "%s: component %u of the extended state differs", where,
			              number);
	}
}

static void check_general(const struct held *held, const char *where)
{
	for (int i = 0; i < FLAGS; i++) {
		bool changed_by_call = held->holding == hold_in_call && (i == RCX || i == R11);

		if (i != RAX && !changed_by_call)
			subject_check(held->in[i] == held->out[i],
			              "%s: register %d is %lx, was %lx", where, i, held->out[i],
			              held->in[i]);
	}
	subject_check((held->out[FLAGS] & HELD_FLAGS) == HELD_FLAGS, "%s: flags are %lx", where,
	              held->out[FLAGS]);
}

static uint32_t never_woken;

static void prepare_call(struct held *held)
{
	static const struct timespec two_ms = {.tv_nsec = 2000000};

	held->holding = hold_in_call;
	held->in[RAX] = SYS_futex;
	held->in[RDI] = (uintptr_t)&never_woken;
	held->in[RSI] = FUTEX_WAIT_PRIVATE;
	held->in[RDX] = 0;
	held->in[R10] = (uintptr_t)&two_ms;
}

static void *hold(void *argument)
{
	int seed = (int)(intptr_t)argument;
	uint64_t gs_base = 0x10000 + (uint64_t)seed * 0x1000, fs_base, seen;
	const char *where = seed < THREADS / 2 ? "in user mode" : "in a system call";
	struct held *held = aligned_alloc(64, sizeof(*held));
	uint8_t initial[AREA] __attribute__((aligned(64)));
	struct layout here;

	subject_need(held != NULL, "aligned_alloc");
	memset(held, 0, sizeof(*held));
	set_extended_state(held, seed);
	syscall(SYS_arch_prctl, ARCH_SET_GS, gs_base);
	syscall(SYS_arch_prctl, ARCH_GET_FS, &fs_base);
	memset(initial, 0, sizeof(initial));
	asm volatile("xsave64 %0" : "+m"(initial) : "a"(3), "d"(0));
	while (subject_running()) {
		for (uint64_t i = 0; i < FLAGS; i++)
			held->in[i] = 0x1111111111111111ULL * i + (uint64_t)seed;
		held->in[RAX] = 20000;
		held->holding = hold_counting;
		held->in[FLAGS] = 0x202 | HELD_FLAGS;
		if (seed >= THREADS / 2)
			prepare_call(held);
		hold_registers(held);
		/* only what compiled code relies on, which every processor has in the same place */
		asm volatile("xrstor64 %0" : : "m"(initial), "a"(3), "d"(0));
		here = read_layout();
		check_general(held, where);
		check_extended_state(held, &here, where);
		if (memcmp(&here, &held->layout, sizeof(here)) != 0)
			set_extended_state(held, seed);
		syscall(SYS_arch_prctl, ARCH_GET_GS, &seen);
		subject_check(seen == gs_base, "%s: the GS base is %lx", where, seen);
		syscall(SYS_arch_prctl, ARCH_GET_FS, &seen);
		subject_check(seen == fs_base, "%s: the FS base is %lx", where, seen);
		if (atomic_load(&subject_failures))
			break;
	}
	free(held);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		subject_need(pthread_create(&threads[i], NULL, hold, (void *)(intptr_t)i) == 0,
		             "pthread_create");

	subject_ready();

	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return subject_end();
}
