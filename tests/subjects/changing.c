/*
 * Memory that changes in every way that has ever fooled a tracker of writes, at random, by a seed,
 * one step at a time: tests/tools/deltas.c gives the steps, and knows what the memory is between
 * them.
 *
 * Commands come as numbers through the eventfd COMMANDS, each is answered through DONE. A step does
 * a few operations at random places. Most places are in a dozen slots, where anything may be mapped
 * or nothing; whether an operation succeeds there does not matter.
 *
 * A second thread writes while dumps are made, in an order that follows from one counter, so that
 * what must be in memory at any moment follows from that counter.
 *
 * subject: modes=none
 */
#include "changing.h"

#include "base/kernel_abi.h"

#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#define SLOTS 12
#define SLOT(n) ((uint8_t *)CHANGING_SLOTS + (n) * (32UL << 20))
#define HUGE (2UL << 20)
#define FILE_PAGES 64UL
#define RESERVATION_SIZE (64UL << 30)
#define RESERVED_PLACES 48

struct place {
	uint8_t *at;
	size_t size;
};

static int file = -1, memfd = -1, program = -1;
static uint8_t *brk_floor;
static uint64_t seed;
static sigjmp_buf faulted;

static uint64_t below(uint64_t limit)
{
	seed = changing_mix(seed);
	return (seed >> 8) % limit;
}

/* The first two slots have room for huge pages. */
static size_t slot_pages(size_t slot)
{
	return slot < 2 ? 1024 : 64;
}

static struct place some_place(void)
{
	size_t slot = below(SLOTS), room = slot_pages(slot), first = below(room), pages = 1;

	switch (below(8)) {
	case 0:
		first = 0;
		pages = room;
		break;
	case 1:
		pages = 1 + below(room);
		break;
	case 2:
	case 3:
	case 4:
		pages = 1 + below(8);
		break;
	}
	if (pages > room - first)
		pages = room - first;
	return (struct place){SLOT(slot) + first * PAGE, pages * PAGE};
}

/* --- writing --- */

static void jump_back(int number)
{
	siglongjmp(faulted, number);
}

static void write_bytes(struct place place)
{
	place.at[below(place.size)] = (uint8_t)below(256);
}

static void write_dense(struct place place)
{
	mapping_fill(place.at, place.size, below(1UL << 40));
}

static void write_scattered(struct place place)
{
	for (size_t i = 0; i < 6; i++)
		place.at[below(place.size)]++;
}

static void write_zeros(struct place place)
{
	memset(place.at, 0, place.size);
}

static void read_only(struct place place)
{
	for (size_t i = 0; i < place.size; i += PAGE)
		(void)*(volatile uint8_t *)(place.at + i);
}

/* --- mappings --- */

static const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
                                  PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE};

static void map_anonymous(struct place place)
{
	mmap(place.at, place.size, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (below(4) ? 0 : MAP_POPULATE), -1, 0);
}

static void map_file(struct place place)
{
	static const int flags[] = {MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED};

	if (place.size > FILE_PAGES * PAGE)
		place.size = FILE_PAGES * PAGE;
	mmap(place.at, place.size, PROT_READ | PROT_WRITE, flags[below(3)] | MAP_FIXED,
	     below(2) ? file : memfd, (off_t)(below(4) * PAGE));
}

static void map_shared(struct place place)
{
	mmap(place.at, place.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
	     -1, 0);
}

/* In few places: the pool is small. */
static void map_hugetlb(struct place place)
{
	mmap(SLOT(below(2)) + below(2) * HUGE, HUGE, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0);
}

static void unmap(struct place place)
{
	munmap(place.at, place.size);
}

static void unmap_and_map(struct place place)
{
	munmap(place.at, place.size);
	map_anonymous(place);
}

/* Onto another place, or with its page tables alone, so that the old place stays, empty. */
static void move(struct place place)
{
	uint8_t *to = SLOT(below(SLOTS)) + below(16) * PAGE;
	bool stays = below(3) == 0;

	syscall(SYS_mremap, place.at, place.size, place.size,
	        MREMAP_MAYMOVE | MREMAP_FIXED | (stays ? MREMAP_DONTUNMAP : 0), to);
}

static void move_there_and_back(struct place place)
{
	uint8_t *to = SLOT(SLOTS);
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED;

	syscall(SYS_mremap, place.at, place.size, place.size, flags, to);
	if (below(2))
		write_bytes((struct place){to, place.size});
	syscall(SYS_mremap, to, place.size, place.size, flags, place.at);
	munmap(to, place.size);
}

static void resize(struct place place)
{
	size_t size = (1 + below(16)) * PAGE;

	syscall(SYS_mremap, place.at, place.size, size, 0, NULL);
}

static void protect(struct place place)
{
	mprotect(place.at, place.size, protections[below(sizeof(protections) / sizeof(int))]);
}

static void protect_and_back(struct place place)
{
	mprotect(place.at, place.size, PROT_NONE);
	mprotect(place.at, place.size, PROT_READ | PROT_WRITE);
	write_bytes(place);
}

static void make_accessible(struct place place)
{
	mprotect(place.at, place.size, PROT_READ | PROT_WRITE);
}

static void seal(struct place place)
{
	if (below(8) == 0)
		syscall(SYS_mseal, place.at, place.size, 0);
}

static void name(struct place place)
{
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, place.at, place.size, below(2) ? "name" : NULL);
}

static void lock(struct place place)
{
	if (below(3))
		munlock(place.at, place.size);
	else
		mlock2(place.at, place.size, below(2) ? MLOCK_ONFAULT : 0);
}

/* --- advice --- */

static const int discards[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_REMOVE,
                               MADV_DONTNEED_LOCKED};
static const int advices[] = {
        MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE,      MADV_NOHUGEPAGE,    MADV_COLLAPSE,
        MADV_COLD,      MADV_PAGEOUT,     MADV_PAGEOUT,       MADV_POPULATE_READ, MADV_WIPEONFORK,
        MADV_DONTFORK,  MADV_DOFORK,      MADV_KEEPONFORK,    MADV_SEQUENTIAL,    MADV_NORMAL,
        MADV_DONTDUMP,  MADV_DODUMP,      MADV_POPULATE_WRITE};

static void discard(struct place place)
{
	madvise(place.at, place.size, discards[below(sizeof(discards) / sizeof(int))]);
}

static void discard_and_write(struct place place)
{
	madvise(place.at, place.size, MADV_DONTNEED);
	write_bytes(place);
}

static void discard_and_read(struct place place)
{
	madvise(place.at, place.size, MADV_DONTNEED);
	read_only(place);
}

static void advise(struct place place)
{
	madvise(place.at, place.size, advices[below(sizeof(advices) / sizeof(int))]);
}

/*
 * Linux 6.15 to at least 6.18 never comes to an end with guard pages in a private mapping of a file
 * whose pages are write-protected, until a signal arrives that does not return.
 */
static void guard(struct place place)
{
	const struct itimerval soon = {{.tv_usec = 100000}, {.tv_usec = 100000}}, never = {0};

	if (sigsetjmp(faulted, 1) == 0) {
		setitimer(ITIMER_REAL, &soon, NULL);
		madvise(place.at, place.size, below(2) ? MADV_GUARD_INSTALL : MADV_GUARD_REMOVE);
	}
	setitimer(ITIMER_REAL, &never, NULL);
}

/* Huge pages, made by a fault or by collapsing, then perhaps split again. */
static void huge_page(struct place place)
{
	uint8_t *at = SLOT(below(2)) + below(2) * HUGE;

	if (below(2))
		mmap(at, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0);
	madvise(at, HUGE, MADV_HUGEPAGE);
	write_scattered((struct place){at, HUGE});
	if (below(2))
		madvise(at, HUGE, MADV_COLLAPSE);
	if (below(4) == 0)
		madvise(at + below(512) * PAGE, PAGE, MADV_DONTNEED);
}

/* Swaps out, where there is swap. */
static void page_out(struct place place)
{
	size_t slot = below(SLOTS);

	madvise(SLOT(slot), slot_pages(slot) * PAGE, MADV_PAGEOUT);
}

static void merge_pages(struct place place)
{
	madvise(place.at, place.size, MADV_MERGEABLE);
	for (size_t i = 0; i < place.size; i += PAGE)
		memset(place.at + i, (int)below(2) + 7, PAGE);
}

/* --- files underneath --- */

static void write_file(struct place place)
{
	uint8_t page[PAGE];

	mapping_fill(page, PAGE, below(1UL << 40));
	if (pwrite(below(2) ? file : memfd, page, PAGE, (off_t)(below(FILE_PAGES) * PAGE)) < 0)
		return;
}

static void punch_file(struct place place)
{
	if (fallocate(below(2) ? file : memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	              (off_t)(below(FILE_PAGES) * PAGE), (off_t)((1 + below(4)) * PAGE)) < 0)
		return;
}

static void cut_file(struct place place)
{
	int fd = below(2) ? file : memfd;

	if (ftruncate(fd, (off_t)(below(FILE_PAGES) * PAGE + below(PAGE))) == 0 &&
	    ftruncate(fd, FILE_PAGES * PAGE) < 0)
		return;
}

/* --- the kernel writes --- */

static void kernel_reads(struct place place)
{
	if (pread(program, place.at, place.size, (off_t)below(8192)) < 0)
		return;
}

static void kernel_receives(struct place place)
{
	size_t size = place.size < 2 * PAGE ? place.size : 2 * PAGE;
	struct iovec part = {place.at, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	static uint8_t sent[2 * PAGE];
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	mapping_fill(sent, sizeof(sent), below(1UL << 40));
	if (send(ends[0], sent, size, 0) > 0)
		recvmsg(ends[1], &message, 0);
	close(ends[0]);
	close(ends[1]);
}

/* Also to pages that the program itself may not write. */
static void forced_write(struct place place)
{
	uint64_t word = below(1UL << 40);
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	if (pwrite(fd, &word, sizeof(word), (off_t)(uintptr_t)place.at + 8) < 0)
		(void)word;
	close(fd);
}

static void direct_read(struct place place)
{
	int fd = open("file", O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (pread(fd, place.at, place.size, 0) < 0)
		(void)fd;
	close(fd);
}

static void ring_read(struct place place)
{
	struct io_uring_params params = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
	size_t size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	size_t entries = params.sq_entries * sizeof(struct io_uring_sqe);
	struct iovec part = {place.at, place.size};
	struct io_uring_sqe *submitted;
	uint8_t *queues;

	if (ring < 0)
		return;
	size = size > 2 * PAGE ? size : 2 * PAGE;
	queues = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	submitted = mmap(NULL, entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	if (queues != MAP_FAILED && submitted != MAP_FAILED) {
		bool fixed = syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &part,
		                     1) == 0;

		*submitted = (struct io_uring_sqe){
		        .opcode = fixed ? IORING_OP_READ_FIXED : IORING_OP_READ,
		        .fd = program,
		        .addr = (uintptr_t)place.at,
		        .len = (uint32_t)place.size,
		};
		((uint32_t *)(queues + params.sq_off.array))[0] = 0;
		atomic_store((_Atomic uint32_t *)(queues + params.sq_off.tail), 1);
		syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	}
	if (queues != MAP_FAILED)
		munmap(queues, size);
	if (submitted != MAP_FAILED)
		munmap(submitted, entries);
	close(ring);
}

/* --- other processes --- */

static void poke_parent(struct place place)
{
	pid_t parent = getppid();
	static uint8_t page[PAGE];
	struct iovec from = {page, PAGE}, to = {place.at, PAGE};

	mapping_fill(page, PAGE, below(1UL << 40));
	if (below(2)) {
		if (process_vm_writev(parent, &from, 1, &to, 1, 0) < 0)
			_exit(1);
		return;
	}
	if (ptrace(PTRACE_SEIZE, parent, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, parent, 0, 0) < 0 ||
	    waitpid(parent, NULL, __WALL) < 0)
		_exit(1);
	ptrace(PTRACE_POKEDATA, parent, place.at + 16, below(1UL << 40));
	ptrace(PTRACE_DETACH, parent, 0, 0);
}

static void fork_and_write(struct place place)
{
	bool poke = below(2);
	pid_t child = fork();

	if (child == 0) {
		if (sigsetjmp(faulted, 1) == 0) {
			if (poke)
				poke_parent(place);
			else
				write_dense(place);
		}
		_exit(0);
	}
	if (!poke && sigsetjmp(faulted, 1) == 0)
		write_scattered(place);
	waitpid(child, NULL, 0);
}

/* A child on a stack of its own, but in the same memory. */
static int write_as_child(void *argument)
{
	struct place *place = argument;

	if (sigsetjmp(faulted, 1) == 0)
		write_scattered(*place);
	return 0;
}

static void clone_and_write(struct place place)
{
	static uint8_t stack[16 * PAGE] __attribute__((aligned(16)));
	pid_t child = clone(write_as_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD,
	                    &place);

	waitpid(child, NULL, 0);
}

static void execute_again(struct place place)
{
	if (below(24) == 0)
		execl("/proc/self/exe", "changing", "again", NULL);
}

/* --- userfaultfd of its own --- */

#ifndef UFFDIO_MOVE /* linux/userfaultfd.h, 6.8 */
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#define UFFD_FEATURE_MOVE (1 << 16)
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES (1ULL << 1)
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#endif

static void use_userfaultfd(struct place place)
{
	static uint8_t page[PAGE] __attribute__((aligned(PAGE)));
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MOVE};
	struct uffdio_register registration = {
	        .range = {(uintptr_t)place.at, place.size},
	        .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_copy copy = {(uintptr_t)place.at, (uintptr_t)page, PAGE, 0, 0};
	struct uffdio_zeropage zero = {{(uintptr_t)place.at + PAGE, PAGE}, 0, 0};
	struct uffdio_move moved = {(uintptr_t)place.at + 2 * PAGE, (uintptr_t)some_place().at,
	                            PAGE, UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES, 0};

	map_anonymous(place);
	madvise(place.at, place.size, MADV_DONTNEED);
	mapping_fill(page, PAGE, below(1UL << 40));
	if (ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &registration) == 0) {
		copy.mode = below(2) ? UFFDIO_COPY_MODE_WP : 0;
		ioctl(fd, UFFDIO_COPY, &copy);
		ioctl(fd, UFFDIO_ZEROPAGE, &zero);
		ioctl(fd, UFFDIO_MOVE, &moved);
		if (below(2))
			ioctl(fd, UFFDIO_UNREGISTER, &registration.range);
	}
	close(fd);
}

/* --- the heap, the stack, a reservation --- */

static void move_break(struct place place)
{
	uint8_t *now = sbrk(0), *to = brk_floor + below(64) * PAGE;

	if (brk(to) == 0 && to > now)
		write_bytes((struct place){now, (size_t)(to - now)});
}

static __attribute__((noinline)) void grow_stack(size_t frames)
{
	volatile uint8_t frame[4 * PAGE];

	for (size_t i = 0; i < sizeof(frame); i += PAGE)
		frame[i] = (uint8_t)seed;
	if (frames > 1)
		grow_stack(frames - 1);
	frame[1] = 1;
}

static void deep_call(struct place place)
{
	grow_stack(1 + below(24));
}

static void use_reservation(struct place place)
{
	uint8_t *at = (uint8_t *)CHANGING_RESERVATION +
	              (RESERVATION_SIZE / RESERVED_PLACES & ~(PAGE - 1)) * below(RESERVED_PLACES);
	struct place part = {at, (1 + below(8)) * PAGE};

	switch (below(5)) {
	case 0:
		mmap(part.at, part.size, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		break;
	case 1:
		madvise(part.at, part.size, MADV_DONTNEED);
		mprotect(part.at, part.size, PROT_NONE);
		break;
	default:
		mprotect(part.at, part.size, PROT_READ | PROT_WRITE);
		write_dense(part);
	}
}

/* --- steps --- */

static const struct {
	const char *name;
	void (*perform)(struct place place);
	unsigned weight;
} operations[] = {
        {"write bytes", write_bytes, 4},
        {"write all", write_dense, 4},
        {"write scattered", write_scattered, 4},
        {"write zeros", write_zeros, 1},
        {"read", read_only, 2},
        {"map anonymous", map_anonymous, 4},
        {"map file", map_file, 4},
        {"map shared", map_shared, 1},
        {"map hugetlb", map_hugetlb, 1},
        {"unmap", unmap, 1},
        {"unmap and map", unmap_and_map, 2},
        {"move", move, 3},
        {"move there and back", move_there_and_back, 2},
        {"resize", resize, 2},
        {"protect", protect, 2},
        {"protect and back", protect_and_back, 2},
        {"make accessible", make_accessible, 4},
        {"seal", seal, 1},
        {"name", name, 1},
        {"lock", lock, 1},
        {"discard", discard, 4},
        {"discard and write", discard_and_write, 2},
        {"discard and read", discard_and_read, 2},
        {"advise", advise, 4},
        {"guard", guard, 3},
        {"huge page", huge_page, 1},
        {"page out", page_out, 2},
        {"merge pages", merge_pages, 1},
        {"write file", write_file, 2},
        {"punch file", punch_file, 1},
        {"cut file", cut_file, 1},
        {"kernel reads", kernel_reads, 2},
        {"kernel receives", kernel_receives, 1},
        {"forced write", forced_write, 2},
        {"direct read", direct_read, 1},
        {"io_uring", ring_read, 1},
        {"fork and write", fork_and_write, 2},
        {"clone and write", clone_and_write, 1},
        {"exec", execute_again, 1},
        {"userfaultfd", use_userfaultfd, 1},
        {"move the break", move_break, 2},
        {"deep call", deep_call, 1},
        {"use the reservation", use_reservation, 3},
};

static __attribute__((noinline)) size_t some_operation(void)
{
	unsigned total = 0, chosen;
	size_t i;

	for (i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		total += operations[i].weight;
	chosen = (unsigned)below(total);
	for (i = 0; chosen >= operations[i].weight; i++)
		chosen -= operations[i].weight;
	return i;
}

static void perform(size_t operation, struct place place)
{
	if (sigsetjmp(faulted, 1) == 0)
		operations[operation].perform(place);
}

static void do_step(void)
{
	size_t count = 1 + below(6);

	dprintf(STDOUT_FILENO, "step\n");
	for (size_t i = 0; i < count; i++) {
		size_t operation = some_operation();
		struct place place = some_place();

		dprintf(STDOUT_FILENO, "  %s 0x%lx %zu\n", operations[operation].name,
		        (unsigned long)place.at, place.size / PAGE);
		perform(operation, place);
	}
}

/* --- the other thread --- */

static _Atomic uint32_t running, stopped;

static void *write_in_order(void *argument)
{
	struct changing_order *order = (struct changing_order *)CHANGING_ORDER;
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm,
	          SIGALRM); /* it is for the thread that guard() has to be called back from */
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	for (;;) {
		while (!atomic_load(&running)) {
			atomic_store(&stopped, 1);
			syscall(SYS_futex, &stopped, FUTEX_WAKE, 1, NULL, NULL, 0);
			syscall(SYS_futex, &running, FUTEX_WAIT, 0, NULL, NULL, 0);
		}
		for (int i = 0; i < 32; i++) {
			uint64_t round = ++order->round;
			uint8_t *left = CHANGING_LEFT + changing_page(round) * PAGE;
			uint8_t *right = CHANGING_RIGHT + changing_page(round) * PAGE;

			atomic_signal_fence(memory_order_seq_cst);
			if (changing_discards(round)) {
				madvise(left, PAGE, MADV_DONTNEED);
				madvise(right, PAGE, MADV_DONTNEED);
			} else {
				*(volatile uint64_t *)(left + 64) = round;
				*(volatile uint64_t *)(right + 64) = round;
			}
			atomic_signal_fence(memory_order_seq_cst);
		}
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
	return argument;
}

static void run_thread(void)
{
	atomic_store(&stopped, 0);
	atomic_store(&running, 1);
	syscall(SYS_futex, &running, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Nobody wakes it from its wait: it would write once more, at any time. */
static void halt_thread(void)
{
	atomic_store(&running, 0);
	while (!atomic_load(&stopped))
		syscall(SYS_futex, &stopped, FUTEX_WAIT, 0, NULL, NULL, 0);
}

/* --- the whole --- */

static void set_up(void)
{
	static uint8_t signal_stack[16 * PAGE];
	stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof(signal_stack)};
	struct sigaction action = {.sa_handler = jump_back, .sa_flags = SA_NODEFER | SA_ONSTACK};
	pthread_attr_t attributes;
	pthread_t thread;

	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	file = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	memfd = (int)syscall(SYS_memfd_create, "changing", MFD_CLOEXEC);
	program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	subject_need(file >= 0 && memfd >= 0 && program >= 0, "files");
	subject_need(ftruncate(file, FILE_PAGES * PAGE) == 0, "ftruncate");
	subject_need(ftruncate(memfd, FILE_PAGES * PAGE) == 0, "ftruncate");
	subject_need(mmap((void *)CHANGING_ORDER, CHANGING_ORDER_SIZE, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED,
	             "mmap");
	for (size_t slot = 0; slot < SLOTS; slot++)
		map_anonymous((struct place){SLOT(slot), slot_pages(slot) * PAGE});
	subject_need(mmap((void *)CHANGING_RESERVATION, RESERVATION_SIZE, PROT_NONE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
	                  0) != MAP_FAILED,
	             "a reservation");
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, CHANGING_STACK, CHANGING_STACK_SIZE);
	subject_need(!pthread_create(&thread, &attributes, write_in_order, NULL), "a thread");
	brk_floor = (uint8_t *)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1));
}

int main(int argc, char **argv)
{
	const uint64_t one = 1;
	uint64_t command;

	set_up();
	halt_thread();
	for (;;) {
		if (write(CHANGING_DONE, &one, sizeof(one)) < 0 ||
		    read(CHANGING_COMMANDS, &command, sizeof(command)) < 0)
			return 1;
		seed = command & CHANGING_SEED_MASK;
		switch (command >> CHANGING_COMMAND_SHIFT) {
		case CHANGING_STEP:
			do_step();
			break;
		case CHANGING_RUN:
			run_thread();
			break;
		case CHANGING_HALT:
			halt_thread();
			break;
		case CHANGING_PING:
			break;
		default:
			return 0;
		}
	}
}
