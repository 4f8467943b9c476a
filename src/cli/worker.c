/* A process that does the work of a command: see worker.h. */
#include "cli/worker.h"

#include "cli/foreground.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

bool sp_worker_begin(int *status)
{
	pid_t started = getpid(), worker = fork();

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
	return true;
}
