/* Taking precedence: see urgent.h. */
#include "base/urgent.h"

#include <sched.h>

static bool is_usual(int policy)
{
	return policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE;
}

struct sp_usual_turn sp_urgent_begin(void)
{
	const struct sched_param first = {.sched_priority = 1};
	struct sp_usual_turn usual = {.policy = sched_getscheduler(0)};

	if (is_usual(usual.policy))
		usual.raised = sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) == 0;
	return usual;
}

void sp_urgent_end(struct sp_usual_turn *usual)
{
	const struct sched_param none = {0};

	if (usual->raised)
		sched_setscheduler(0, usual->policy, &none);
	usual->raised = false;
}
