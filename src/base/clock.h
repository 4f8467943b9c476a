/* Time in nanoseconds: the monotonic clock, for durations and deadlines, and conversions. */
#ifndef SEALPOINT_BASE_CLOCK_H
#define SEALPOINT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SP_NS_PER_S 1000000000ULL
#define SP_NS_PER_MS 1000000ULL

static inline uint64_t sp_timespec_to_ns(struct timespec time)
{
	return (uint64_t)time.tv_sec * SP_NS_PER_S + (uint64_t)time.tv_nsec;
}

static inline struct timespec sp_timespec_from_ns(uint64_t ns)
{
	return (struct timespec){(time_t)(ns / SP_NS_PER_S), (long)(ns % SP_NS_PER_S)};
}

/** What a clock of clock_gettime(2) shows. */
static inline uint64_t sp_clock_ns(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return sp_timespec_to_ns(now);
}

/** Monotonic: it never goes back, and stands still while the machine sleeps. */
static inline uint64_t sp_now_ns(void)
{
	return sp_clock_ns(CLOCK_MONOTONIC);
}

#endif
