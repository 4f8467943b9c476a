/* Signals that ask a run to end: see interrupt.h. */
#include "base/interrupt.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

#define IMPATIENT_NS 1000000000ULL

static volatile sig_atomic_t noted;
static volatile uint64_t noted_ns; /* for the handler, which runs in the main thread only */

static void note(int signal_number)
{
	if (!noted) {
		noted = signal_number;
		noted_ns = sp_now_ns();
	} else if (sp_now_ns() - noted_ns > IMPATIENT_NS) {
		signal(signal_number, SIG_DFL);
		raise(signal_number); /* as soon as this handler has returned */
	}
}

static void set_all(const struct sigaction *action)
{
	for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++) {
		struct sigaction before;

		if (sigaction(watched[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(watched[i], action, NULL);
	}
}

void sp_interrupt_watch(void)
{
	const struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};

	noted = 0;
	set_all(&action);
}

int sp_interrupt_unwatch(void)
{
	const struct sigaction action = {.sa_handler = SIG_DFL};

	set_all(&action);
	return noted;
}

int sp_interrupt_check(struct sp_error *err)
{
	int signal_number = noted;

	if (!signal_number)
		return 0;
	return sp_fail(err, EINTR, "interrupted by SIG%s", sigabbrev_np(signal_number));
}

void sp_interrupt_follow(void)
{
	int signal_number = sp_interrupt_unwatch();

	if (signal_number)
		raise(signal_number);
}
