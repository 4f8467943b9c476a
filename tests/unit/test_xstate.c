/*
 * Extended state from a processor with another layout: components are found by their number,
 * wherever they lie, and what cannot be is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "arch/arch.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

#define AVX 2
#define HEADER 512
#define FIRST 576

static const struct sp_xstate_component *component(const struct sp_xstate_component *layout,
                                                   size_t count, uint32_t bit)
{
	for (size_t i = 0; i < count; i++)
		if (layout[i].bit == bit)
			return &layout[i];
	fail_msg("no component %u", bit);
	return NULL;
}

static void component_moves_to_this_processors_place(void **state)
{
	struct sp_xstate_component here[SP_XSTATE_COMPONENTS], saved_layout;
	size_t count = sp_xstate_layout(here);
	const struct sp_xstate_component *avx = component(here, count, AVX);
	static struct sp_registers registers;
	static uint8_t saved[4096];
	uint64_t in_use = 7;

	saved_layout = (struct sp_xstate_component){AVX, 1024, avx->size};
	memset(saved + 1024, 0x5a, avx->size);
	memcpy(saved + HEADER, &in_use, sizeof(in_use));
	saved[160] = 0x77; /* the first byte of an SSE register */
	registers.xstate_size = avx->offset + avx->size;
	assert_int_equal(
	        sp_xstate_convert(&registers, saved, sizeof(saved), &saved_layout, 1, NULL), 0);
	assert_int_equal(registers.xstate[160], 0x77);
	for (uint32_t i = 0; i < avx->size; i++)
		assert_int_equal(registers.xstate[avx->offset + i], 0x5a);
	assert_memory_equal(registers.xstate + HEADER, &in_use, sizeof(in_use));
}

static void component_outside_of_the_saved_state_is_refused(void **state)
{
	struct sp_xstate_component layout = {AVX, 4000, 256};
	static struct sp_registers registers = {.xstate_size = 4096};
	static uint8_t saved[4096];
	struct sp_error err = {0};
	uint64_t in_use = 7;

	memcpy(saved + HEADER, &in_use, sizeof(in_use));
	assert_int_equal(sp_xstate_convert(&registers, saved, sizeof(saved), &layout, 1, &err),
	                 -EINVAL);
	layout.offset = 0xfffffff0;
	assert_int_equal(sp_xstate_convert(&registers, saved, sizeof(saved), &layout, 1, &err),
	                 -EINVAL);
	assert_int_equal(sp_xstate_convert(&registers, saved, 100, &layout, 1, &err), -EINVAL);
}

static void component_that_this_processor_lacks_is_refused_if_in_use(void **state)
{
	struct sp_xstate_component layout = {62, FIRST, 64};
	static struct sp_registers registers = {.xstate_size = 4096};
	static uint8_t saved[4096];
	struct sp_error err = {0};
	uint64_t in_use = 3;

	memcpy(saved + HEADER, &in_use, sizeof(in_use));
	assert_int_equal(sp_xstate_convert(&registers, saved, sizeof(saved), &layout, 1, &err), 0);
	in_use |= 1ULL << 62;
	memcpy(saved + HEADER, &in_use, sizeof(in_use));
	saved[FIRST + 63] = 1;
	assert_int_equal(sp_xstate_convert(&registers, saved, sizeof(saved), &layout, 1, &err),
	                 -ENOTSUP);
	assert_non_null(strstr(err.message, "component 62"));
}

static void component_in_its_initial_state_need_not_exist_here(void **state)
{
	struct sp_xstate_component layout = {62, FIRST, 64};
	static struct sp_registers registers = {.xstate_size = 4096};
	static uint8_t saved[4096];
	uint64_t in_use = 1ULL << 62 | 3, in_use_here = 3;

	memcpy(saved + HEADER, &in_use, sizeof(in_use));
	assert_int_equal(sp_xstate_convert(&registers, saved, sizeof(saved), &layout, 1, NULL), 0);
	assert_memory_equal(registers.xstate + HEADER, &in_use_here, sizeof(in_use_here));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(component_moves_to_this_processors_place),
	        cmocka_unit_test(component_outside_of_the_saved_state_is_refused),
	        cmocka_unit_test(component_that_this_processor_lacks_is_refused_if_in_use),
	        cmocka_unit_test(component_in_its_initial_state_need_not_exist_here),
	};

	return cmocka_run_group_tests_name("xstate", tests, NULL, NULL);
}
