/* Monotonic time for durations and deadlines, in nanoseconds. */
#ifndef SEALPOINT_BASE_CLOCK_H
#define SEALPOINT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t sp_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

#endif
