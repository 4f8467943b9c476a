/*
 * vDSO images: functions are found, a redirected image really leads to the other one, damage is
 * refused.
 */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/range.h"
#include "mem/memory.h"
#include "mem/vdso_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>
#include "unit/skip.h"

struct image {
	uint8_t *bytes; /* executable copy of this process's own vDSO */
	size_t size;
	uint64_t original; /* its address */
};

static struct image own_image(void)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	struct image image = {.original = getauxval(AT_SYSINFO_EHDR)};
	const struct sp_vma *vma;

	if (!image.original)
		skip_because("this process has no vDSO");
	assert_int_equal(sp_vma_list_read(getpid(), &vmas, NULL), 0);
	vma = sp_vma_find(&vmas, image.original);
	assert_non_null(vma);
	image.size = sp_range_size(vma->range);
	image.bytes = mmap(NULL, image.size, PROT_READ | PROT_WRITE | PROT_EXEC,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(image.bytes, MAP_FAILED);
	memcpy(image.bytes, (void *)image.original, image.size);
	return image;
}

static void unmap_image(struct image *image)
{
	munmap(image->bytes, image->size);
}

static uint64_t offset_of(const struct image *image, const char *name)
{
	sp_cleanup_array struct sp_array functions = {0};

	assert_int_equal(sp_vdso_functions(image->bytes, image->size, &functions, NULL), 0);
	for (size_t i = 0; i < functions.count; i++) {
		const struct sp_vdso_function *function = sp_array_at(&functions, i);

		if (strcmp(function->name, name) == 0)
			return function->offset;
	}
	fail_msg("no %s", name);
	return 0;
}

typedef int (*clock_function)(clockid_t, struct timespec *);

static clock_function clock_in(const struct image *image, uint64_t offset)
{
	return (clock_function)(uintptr_t)(image->bytes + offset);
}

static void own_functions_are_found(void **state)
{
	sp_cleanup(unmap_image) struct image image = own_image();

	assert_in_range(offset_of(&image, "__vdso_clock_gettime"), 1, image.size - 1);
	assert_int_equal(offset_of(&image, "clock_gettime"),
	                 offset_of(&image, "__vdso_clock_gettime"));
}

static void a_redirected_function_continues_in_the_other_image(void **state)
{
	sp_cleanup(unmap_image) struct image image = own_image();
	uint64_t offset = offset_of(&image, "__vdso_clock_gettime");
	struct timespec before = {0}, now = {0};
	struct sp_error err = {0};

	if (sp_vdso_redirect(image.bytes, image.size, (void *)image.original, image.size,
	                     image.original, &err) < 0)
		fail_msg("%s", err.message);
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(clock_in(&image, offset)(CLOCK_MONOTONIC, &now), 0);
	assert_true(now.tv_sec > before.tv_sec ||
	            (now.tv_sec == before.tv_sec && now.tv_nsec >= before.tv_nsec));
	/* The functions are all that has changed: a debugger still finds its way. */
	assert_int_equal(offset_of(&image, "__vdso_clock_gettime"), offset);
}

/* The name is overwritten in both of its forms: one may not stand for the other here. */
static void forget(struct image *image, const char *name)
{
	for (size_t i = 0; i + strlen(name) < image->size; i++) {
		if (memcmp(image->bytes + i, name, strlen(name) + 1) == 0)
			image->bytes[i] = '?';
	}
}

static void a_function_that_the_other_lacks_says_so(void **state)
{
	sp_cleanup(unmap_image) struct image image = own_image(), other = own_image();
	uint64_t offset = offset_of(&image, "__vdso_clock_gettime");
	struct timespec now;

	forget(&other, "clock_gettime"); /* __vdso_clock_gettime ends in it */
	assert_int_equal(sp_vdso_redirect(image.bytes, image.size, other.bytes, other.size,
	                                  other.original, NULL),
	                 0);
	assert_int_equal(clock_in(&image, offset)(CLOCK_MONOTONIC, &now), -ENOSYS);
}

static void an_alias_is_enough(void **state)
{
	sp_cleanup(unmap_image) struct image image = own_image(), other = own_image();
	uint64_t offset = offset_of(&image, "__vdso_clock_gettime");
	struct timespec now;

	forget(&other, "__vdso_clock_gettime");
	assert_int_equal(sp_vdso_redirect(image.bytes, image.size, other.bytes, other.size,
	                                  other.original, NULL),
	                 0);
	assert_int_equal(clock_in(&image, offset)(CLOCK_MONOTONIC, &now), 0);
}

/*
 * Each byte of the headers and tables in turn, at its extremes; the image ends at an unmapped page.
 */
static void a_damaged_image_does_no_harm(void **state)
{
	sp_cleanup(unmap_image) struct image image = own_image();
	static const uint8_t values[] = {0x00, 0x7f, 0xff};

	for (size_t i = 0; i < SP_PAGE_SIZE; i++) {
		for (size_t j = 0; j < sizeof(values); j++) {
			sp_cleanup_array struct sp_array functions = {0};
			uint8_t saved = image.bytes[i];

			image.bytes[i] = values[j];
			sp_vdso_functions(image.bytes, image.size, &functions, NULL);
			image.bytes[i] = saved;
		}
	}
}

static void a_short_image_is_refused(void **state)
{
	sp_cleanup(unmap_image) struct image image = own_image();

	for (size_t size = 0; size < 1024; size++) {
		sp_cleanup_array struct sp_array functions = {0};
		sp_cleanup_free void *copy = memcpy(sp_alloc(size), image.bytes, size);

		assert_int_equal(sp_vdso_functions(copy, size, &functions, NULL), -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(own_functions_are_found),
	        cmocka_unit_test(a_redirected_function_continues_in_the_other_image),
	        cmocka_unit_test(a_function_that_the_other_lacks_says_so),
	        cmocka_unit_test(an_alias_is_enough),
	        cmocka_unit_test(a_damaged_image_does_no_harm),
	        cmocka_unit_test(a_short_image_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
