/* The watches whose backend acts on the whole process: see watch_list.h. */
#include "track/watch_list.h"

#include "track/backend.h"

#include <sched.h>
#include <stdatomic.h>

static atomic_flag locked = ATOMIC_FLAG_INIT;
static struct sp_write_watch *first;
static sigset_t mask_before_fork;

struct sp_write_watch *sp_watch_list_lock_in_handler(void)
{
	while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire))
		sched_yield();
	return first;
}

void sp_watch_list_unlock_in_handler(void)
{
	atomic_flag_clear_explicit(&locked, memory_order_release);
}

struct sp_write_watch *sp_watch_list_lock(sigset_t *mask)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, mask);
	return sp_watch_list_lock_in_handler();
}

void sp_watch_list_unlock(const sigset_t *mask)
{
	sp_watch_list_unlock_in_handler();
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/* The lock is held over fork(2): the child finds the list in order. */
static void before_fork(void)
{
	sigset_t mask;

	sp_watch_list_lock(&mask);
	mask_before_fork = mask;
}

static void after_fork(void)
{
	sigset_t mask = mask_before_fork;

	sp_watch_list_unlock(&mask);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

void sp_watch_list_add(struct sp_write_watch *watch)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	watch->next = first;
	first = watch;
}

void sp_watch_list_remove(const struct sp_write_watch *watch)
{
	struct sp_write_watch **link = &first;

	while (*link && *link != watch)
		link = &(*link)->next;
	if (*link)
		*link = watch->next;
}
