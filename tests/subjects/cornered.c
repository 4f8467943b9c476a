/*
 * A thread that computes and checks itself all the time, in a corner from which a killed dump can
 * hardly leave it without harm; the argument says in which:
 *
 *	filtered	a seccomp filter that kills for all calls but the few that it makes
 *	strict		seccomp's strict mode
 *	deep		deep in a recursion: the lowest pages of the main stack are in use
 *	elsewhere	on a stack of its own, with an array of zeros at the bottom of the main one
 *
 * It counts its rounds in a file that is mapped shared ("heartbeat").
 *
 * subject: modes=none
 */
#include "mapping.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define ROOM (8UL << 20) /* contents, so that a dump takes a while */
#define DEPTH (6UL << 20)
#define ZEROS (32UL << 10)

static _Atomic uint64_t *heartbeat;
static uint8_t *room;

/* Ends the subject by the only call for it that all corners allow. */
static _Noreturn void end(void)
{
	mapping_check(room, ROOM, 1, "memory");
	syscall(SYS_exit, subject_end());
	for (;;)
		;
}

/* `zeros` are bytes that must stay zero. */
static void work(const volatile uint8_t *zeros, size_t size)
{
	typedef uint32_t vector __attribute__((vector_size(32)));
	vector sum = {0}, one = {1, 2, 3, 4, 5, 6, 7, 8};
	uint64_t x = 1, y = 1;
	uint32_t rounds = 0;
	char byte;

	*heartbeat = 1;
	subject_need(write(STDOUT_FILENO, "READY\n", 6) == 6, "write");
	while (read(STDIN_FILENO, &byte, 1) == 0) {
		for (int i = 0; i < 1000; i++) {
			x = x * 6364136223846793005ULL + 1;
			y ^= x;
			y ^= x;
			sum += one;
		}
		rounds += 1000;
		subject_check(y == 1, "a register changed");
		for (uint32_t i = 0; i < 8; i++)
			subject_check(sum[i] == rounds * (i + 1), "a vector register changed");
		for (size_t i = 0; i < size; i++)
			subject_check(!zeros[i], "a zero changed");
		++heartbeat[1];
	}
	end();
}

static void filter_calls(void)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 4, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	subject_need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
	subject_need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
}

static void work_deep(void)
{
	volatile uint8_t used[DEPTH];

	for (size_t i = 0; i < sizeof(used); i++)
		used[i] = 1;
	work(NULL, 0);
	for (size_t i = 0; i < sizeof(used); i++)
		used[i] = 2;
}

static uint8_t *bottom_of_stack(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[256];
	void *start = NULL;

	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "[stack]"))
			sscanf(line, "%p-", &start);
	fclose(maps);
	return start;
}

static void on_other_stack(void)
{
	uint8_t *array = bottom_of_stack();

	memset(array, 0, ZEROS);
	work(array, ZEROS);
}

static void work_elsewhere(void)
{
	static char stack[64 << 10] __attribute__((aligned(64)));
	static ucontext_t context;

	getcontext(&context);
	context.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof(stack)};
	makecontext(&context, on_other_stack, 0);
	setcontext(&context);
}

int main(int argc, char **argv)
{
	const char *corner = argc > 1 ? argv[1] : "";
	int fd = open("heartbeat", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	room = mapping_new(ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	subject_need(fd >= 0 && ftruncate(fd, PAGE) == 0, "heartbeat");
	heartbeat = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	subject_need(heartbeat != MAP_FAILED, "mmap");
	mapping_fill(room, ROOM, 1);
	if (!strcmp(corner, "deep"))
		work_deep();
	if (!strcmp(corner, "elsewhere"))
		work_elsewhere();
	if (!strcmp(corner, "filtered"))
		filter_calls();
	if (!strcmp(corner, "strict"))
		subject_need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "strict mode");
	work(NULL, 0);
}
