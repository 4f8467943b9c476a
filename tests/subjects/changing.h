/* What tests/subjects/changing.c and tests/tools/deltas.c have agreed on. */
#ifndef SEALPOINT_TESTS_CHANGING_H
#define SEALPOINT_TESTS_CHANGING_H

#include "mapping.h"

/* Descriptors of the subject: eventfds. */
#define CHANGING_COMMANDS 3
#define CHANGING_DONE 4

/* A command is its number and, below it, a seed. */
#define CHANGING_COMMAND_SHIFT 56
#define CHANGING_SEED_MASK ((1UL << CHANGING_COMMAND_SHIFT) - 1)
enum changing_command { CHANGING_STEP = 1, CHANGING_RUN, CHANGING_HALT, CHANGING_PING };

#define CHANGING_SLOTS 0x100000000000UL
#define CHANGING_RESERVATION 0x300000000000UL

/* Where the second thread writes: a counter, then twice as many pages, its stack. */
#define CHANGING_ORDER 0x200000000000UL
#define CHANGING_ORDER_PAGES 64UL
#define CHANGING_LEFT ((uint8_t *)CHANGING_ORDER + PAGE)
#define CHANGING_RIGHT (CHANGING_LEFT + CHANGING_ORDER_PAGES * PAGE)
#define CHANGING_STACK (CHANGING_RIGHT + CHANGING_ORDER_PAGES * PAGE)
#define CHANGING_STACK_SIZE (16 * PAGE)
#define CHANGING_ORDER_SIZE ((1 + 2 * CHANGING_ORDER_PAGES) * PAGE + CHANGING_STACK_SIZE)

struct changing_order {
	volatile uint64_t round; /* raised before the round is played */
};

static inline uint64_t changing_mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15ULL;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
	return value ^ (value >> 31);
}

/* In a round a page and its twin are written or discarded. */
static inline uint64_t changing_page(uint64_t round)
{
	return changing_mix(round) % CHANGING_ORDER_PAGES;
}

static inline bool changing_discards(uint64_t round)
{
	return changing_mix(round) >> 32 & 15 ? false : true;
}

#endif
