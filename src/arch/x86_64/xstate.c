/*
 * The extended state of one machine on another. The standard XSAVE area has a fixed part (x87 and
 * SSE registers, and a header that says which components are in use), and behind it components at
 * offsets that each processor chooses and tells by CPUID leaf 0xd (Intel SDM volume 1, chapter 13).
 */
#include "arch/arch.h"

#include "base/error.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>

#define XSAVE_LEAF 0xd
#define FIRST_COMPONENT 2 /* 0 and 1, x87 and SSE, lie in the legacy part */
#define LEGACY_SIZE 464   /* without the bytes that are left to software */
#define HEADER_OFFSET 512
#define HEADER_SIZE 64
#define SUPERVISOR 1 /* ecx: not in XCR0, not in a user's area */

size_t sp_xstate_layout(struct sp_xstate_component *layout)
{
	uint64_t enabled = sp_cpu_xfeatures();
	size_t count = 0;

	for (uint32_t bit = FIRST_COMPONENT; bit < SP_XSTATE_COMPONENTS; bit++) {
		uint32_t size, offset, kind, unused;

		if (!(enabled >> bit & 1) ||
		    !__get_cpuid_count(XSAVE_LEAF, bit, &size, &offset, &kind, &unused) || !size ||
		    kind & SUPERVISOR)
			continue;
		layout[count++] = (struct sp_xstate_component){bit, offset, size};
	}
	return count;
}

static const struct sp_xstate_component *find(const struct sp_xstate_component *layout,
                                              size_t count, uint32_t bit)
{
	for (size_t i = 0; i < count; i++)
		if (layout[i].bit == bit)
			return &layout[i];
	return NULL;
}

static bool lies_within(const struct sp_xstate_component *component, size_t size)
{
	return component->offset >= HEADER_OFFSET + HEADER_SIZE &&
	       (uint64_t)component->offset + component->size <= size;
}

/*
 * The initial state of every component behind the first two is all zero. A processor may say that
 * one in this state is in use, so the contents decide whether a component that this processor does
 * not have is missed.
 */
static bool is_initial(const uint8_t *component, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (component[i])
			return false;
	return true;
}

/** Copies a component that is in use, or takes it out of `in_use` if this processor need not have it. */
static int copy_component(struct sp_registers *registers, const uint8_t *saved, size_t size,
                          const struct sp_xstate_component *from,
                          const struct sp_xstate_component *to, uint32_t bit, uint64_t *in_use,
                          struct sp_error *err)
{
	if (!from || !lies_within(from, size))
		return sp_fail(err, EINVAL,
		               "the saved extended state has no place for its component %u", bit);
	if (to && to->size == from->size && lies_within(to, registers->xstate_size))
		memcpy(registers->xstate + to->offset, saved + from->offset, to->size);
	else if (is_initial(saved + from->offset, from->size))
		*in_use &= ~(1ULL << bit);
	else
		return sp_fail(err, ENOTSUP,
		               "the program uses component %u of the extended state, which this "
		               "processor does not have",
		               bit);
	return 0;
}

int sp_xstate_convert(struct sp_registers *registers, const uint8_t *saved, size_t size,
                      const struct sp_xstate_component *layout, size_t count, struct sp_error *err)
{
	struct sp_xstate_component here[SP_XSTATE_COMPONENTS];
	size_t here_count = sp_xstate_layout(here);
	uint64_t in_use;
	int rc = 0;

	if (size < HEADER_OFFSET + HEADER_SIZE ||
	    registers->xstate_size < HEADER_OFFSET + HEADER_SIZE)
		return sp_fail(err, EINVAL, "the saved extended state is too short");
	memcpy(&in_use, saved + HEADER_OFFSET, sizeof(in_use));
	memcpy(registers->xstate, saved, LEGACY_SIZE);
	for (uint32_t bit = FIRST_COMPONENT; bit < SP_XSTATE_COMPONENTS && !rc; bit++)
		if (in_use >> bit & 1)
			rc = copy_component(registers, saved, size, find(layout, count, bit),
			                    find(here, here_count, bit), bit, &in_use, err);
	memset(registers->xstate + HEADER_OFFSET, 0, HEADER_SIZE);
	memcpy(registers->xstate + HEADER_OFFSET, &in_use, sizeof(in_use));
	return rc;
}
