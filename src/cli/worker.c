/* A process that does the work of a command: see worker.h. */
#include "cli/worker.h"

#include "base/interrupt.h"
#include "cli/foreground.h"
#include "engine/engine.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

bool sp_worker_begin(pid_t target, bool always, int *status)
{
	pid_t started = getpid(), worker = -1;

	if (always || !sp_target_survives(target))
		worker = fork();
	if (worker > 0) {
		setpgid(worker, worker); /* whoever comes first */
		*status = sp_stand_in_for(worker, false);
		return false;
	}
	if (worker == 0) {
		setpgid(0, 0);
		signal(SIGTERM, SIG_DFL); /* it is heard even if the caller ignores it */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != started)
			raise(SIGTERM);
	}
	sp_interrupt_watch();
	return true;
}
