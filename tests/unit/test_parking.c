/* Parking: no file stays at a number that a process needs for another one. */
#include "base/error.h"
#include "kinds/parking.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static int park(struct sp_parking *parking, uint32_t file, int number)
{
	struct sp_error err = {0};
	int fd = dup3(STDIN_FILENO, number, O_CLOEXEC);

	assert_int_equal(sp_parking_park(parking, file, &fd, &err), 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fcntl(number, F_GETFD) >= 0, fd == number);
	close(fd);
	return fd;
}

static void file_is_parked_at_its_own_number(void **state)
{
	struct sp_parking parking;

	sp_parking_init(&parking);
	sp_parking_reserve(&parking, 100, 1);
	sp_parking_reserve(&parking, 101, 1);
	sp_parking_reserve(&parking, 102, 2);
	sp_parking_plan(&parking, 3);
	assert_int_equal(park(&parking, 1, 50), 100);
	assert_int_equal(park(&parking, 2, 100), 102);
	assert_int_equal(park(&parking, 1, 100), 100);
	sp_parking_release(&parking);
}

static void file_without_a_number_keeps_clear_of_all(void **state)
{
	struct sp_parking parking;

	sp_parking_init(&parking);
	for (uint32_t number = 3; number < 200; number++)
		sp_parking_reserve(&parking, number, 1);
	sp_parking_plan(&parking, 2);
	assert_true(park(&parking, 2, 7) >= 200);
	assert_int_equal(park(&parking, 2, 300), 300);
	sp_parking_release(&parking);
}

static void number_that_processes_use_differently_stays_free(void **state)
{
	struct sp_parking parking;

	sp_parking_init(&parking);
	sp_parking_reserve(&parking, 100, 1);
	sp_parking_reserve(&parking, 101, 2);
	sp_parking_reserve(&parking, 100, 2);
	sp_parking_reserve(&parking, 101, 1);
	sp_parking_reserve(&parking, 102, 1);
	sp_parking_plan(&parking, 2);
	assert_int_equal(park(&parking, 1, 100), 102);
	assert_false(park(&parking, 2, 100) >= 100 && park(&parking, 2, 100) <= 102);
	sp_parking_release(&parking);
}

static void standard_descriptors_stay_ours(void **state)
{
	struct sp_parking parking;
	int fd;

	sp_parking_init(&parking);
	for (uint32_t number = 0; number <= 2; number++)
		sp_parking_reserve(&parking, number, 1);
	sp_parking_plan(&parking, 1);
	fd = park(&parking, 1, 60);
	assert_int_equal(fd, 60);
	sp_parking_release(&parking);
}

static void taken_number_is_passed_over(void **state)
{
	struct sp_parking parking;
	int ours = dup2(STDIN_FILENO, 100);

	sp_parking_init(&parking);
	sp_parking_reserve(&parking, 100, 1);
	sp_parking_reserve(&parking, 101, 2);
	sp_parking_plan(&parking, 2);
	assert_int_not_equal(park(&parking, 1, 50), 101);
	assert_true(fcntl(ours, F_GETFD) >= 0);
	close(ours);
	sp_parking_release(&parking);
}

static void size_counts_numbers_and_files_without_one(void **state)
{
	struct sp_parking parking;

	sp_parking_init(&parking);
	sp_parking_reserve(&parking, 3, 1);
	sp_parking_reserve(&parking, 4, 1);
	sp_parking_plan(&parking, 5);
	assert_int_equal(sp_parking_size(&parking, 10), 2 + 4 + 10);
	sp_parking_release(&parking);
	sp_parking_init(&parking);
	sp_parking_reserve(&parking, 70000, 1);
	sp_parking_plan(&parking, 1);
	assert_int_equal(sp_parking_size(&parking, 10), 70001);
	sp_parking_release(&parking);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(file_is_parked_at_its_own_number),
	        cmocka_unit_test(file_without_a_number_keeps_clear_of_all),
	        cmocka_unit_test(number_that_processes_use_differently_stays_free),
	        cmocka_unit_test(standard_descriptors_stay_ours),
	        cmocka_unit_test(taken_number_is_passed_over),
	        cmocka_unit_test(size_counts_numbers_and_files_without_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
