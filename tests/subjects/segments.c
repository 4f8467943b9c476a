/*
 * Segments of a program's own, and selectors of them in its registers: two in the local table of the process, one of
 * them beyond a gap, and one of each thread.
 */
#include "mapping.h"

#include <asm/ldt.h>
#include <pthread.h>
#include <sys/syscall.h>

#define LOW 0x20000UL
#define WORD 0x12345678U

static const uint16_t local = 3 << 3 | 7, far = 700 << 3 | 7;
static volatile uint32_t *low; /* memory that has an address of 32 bits */

static struct user_desc segment(unsigned number, unsigned base)
{
	return (struct user_desc){.entry_number = number,
	                          .base_addr = base,
	                          .limit = 0xfff,
	                          .seg_32bit = 1,
	                          .useable = 1};
}

static void make_local(unsigned number, unsigned base)
{
	struct user_desc description = segment(number, base);

	subject_need(syscall(SYS_modify_ldt, 0x11, &description, sizeof(description)) == 0,
	             "modify_ldt");
}

/* Returns a selector, or 0 where the kernel has no 32-bit calls. The description lies at `place`, in low memory. */
static uint16_t make_own(volatile uint32_t *place, unsigned base)
{
	struct user_desc description = segment(-1U, base);
	long result;

	memcpy((void *)place, &description, sizeof(description));
	asm volatile("push %%rbx; mov %k1, %%ebx; int $0x80; pop %%rbx"
	             : "=a"(result)
	             : "r"(place), "a"(243L)
	             : "memory", "r8", "r9", "r10", "r11");
	return (int)result == 0 ? (uint16_t)(place[0] << 3 | 3) : 0;
}

static uint32_t load(uint16_t selector)
{
	uint32_t word;

	asm volatile("mov %1, %%gs; mov %%gs:0, %0" : "=r"(word) : "r"(selector));
	return word;
}

static void check_gs(uint16_t selector, uint32_t word, const char *whose)
{
	uint16_t found;
	uint32_t read;

	asm volatile("mov %%gs, %0" : "=r"(found));
	if (!subject_check(found == selector, "%s: the selector is %#x, was %#x", whose, found,
	                   selector))
		return;
	asm volatile("mov %%gs:0, %0" : "=r"(read));
	subject_check(read == word, "%s: reads %#x", whose, read);
	subject_check(load(selector) == word, "%s: loaded anew, reads %#x", whose, read);
}

static void *with_own(void *number)
{
	uintptr_t at = (uintptr_t)number;
	volatile uint32_t *place = low + 64 * at;
	uint16_t selector;

	place[32] = WORD + (uint32_t)at;
	selector = make_own(place, (unsigned)(uintptr_t)(place + 32));
	if (selector)
		load(selector);
	low[at] = 1;
	while (subject_running())
		usleep(1000);
	if (selector)
		check_gs(selector, WORD + (uint32_t)at, "a thread");
	return NULL;
}

int main(void)
{
	pthread_t threads[2];

	low = mmap((void *)LOW, PAGE, PROT_READ | PROT_WRITE,
	           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	subject_need(low == (void *)LOW, "mmap");
	low[16] = WORD;
	low[17] = ~WORD;
	make_local(local >> 3, LOW + 64);
	make_local(far >> 3, LOW + 68);
	load(far);
	load(local);
	for (uintptr_t i = 0; i < 2; i++)
		subject_need(!pthread_create(&threads[i], NULL, with_own, (void *)(i + 1)),
		             "a thread");
	while (!low[1] || !low[2])
		usleep(1000);
	subject_ready();
	check_gs(local, WORD, "the process");
	subject_check(load(far) == ~WORD, "the other segment reads %#x", load(far));
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return subject_end();
}
