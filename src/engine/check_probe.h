/*
 * A probe tries out one feature of the kernel, for real. Each runs in a process of its own that is
 * thrown away afterwards: it may seal memory, become traced or die without harm to anybody.
 */
#ifndef SEALPOINT_ENGINE_CHECK_PROBE_H
#define SEALPOINT_ENGINE_CHECK_PROBE_H

#include "engine/engine.h"

struct sp_probe_result {
	bool present;
	char detail[sizeof(((struct sp_feature *)0)->detail)];
};

struct sp_probe {
	const char *name;
	enum sp_need need;
	const char *purpose;
	const char *since;
	/** Runs in the child; sets `present`, and `detail` where it helps. */
	void (*run)(struct sp_probe_result *result);
};

/* Rows end with a name of NULL. */
extern const struct sp_probe sp_process_probes[];    /* check_process.c */
extern const struct sp_probe sp_memory_probes[];     /* check_memory.c */
extern const struct sp_probe sp_tracking_probes[];   /* check_tracking.c */
extern const struct sp_probe sp_capability_probes[]; /* check_capability.c */

/** Present if `ok`; otherwise the detail is the text of errno. */
void sp_probe_outcome(struct sp_probe_result *result, bool ok);
/** Sets the detail. */
void sp_probe_detail(struct sp_probe_result *result, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

#endif
