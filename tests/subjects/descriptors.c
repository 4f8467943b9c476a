/*
 * The table of descriptors: duplicates share one open file, separate ones do not, close-on-exec is
 * each descriptor's own, numbers are low, high and many.
 */
#include "subject.h"

#include <fcntl.h>
#include <sys/resource.h>

#define MANY 300
#define FIRST 1000
#define HIGH 60000

/* Moves the position of one and looks whether the other's has moved. */
static bool share_position(int one, int other)
{
	off_t position = lseek(one, 0, SEEK_CUR) + 1;

	return lseek(one, position, SEEK_SET) == position && lseek(other, 0, SEEK_CUR) == position;
}

int main(void)
{
	subject_need(close_range(3, ~0U, 0) == 0, "close_range");
	int first = open("table", O_CREAT | O_RDWR, 0600);
	int second = open("table", O_RDWR);
	struct rlimit limit;
	int high = HIGH;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max <= HIGH)
		high = (int)limit.rlim_max - 1;
	limit.rlim_cur = limit.rlim_max;
	subject_need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
	subject_need(high > FIRST + MANY, "descriptor numbers up to %d", high);
	subject_need(first >= 0 && second >= 0, "open");
	for (int i = 0; i < MANY; i++)
		subject_need(dup3(i % 2 ? first : second, FIRST + i, i % 3 ? 0 : O_CLOEXEC) >= 0,
		             "dup3");
	subject_need(dup2(first, high) == high, "dup2");

	subject_ready();

	subject_check(share_position(first, high), "the highest descriptor is another open file");
	subject_check(!share_position(first, second), "two open files have become one");
	for (int i = 0; i < MANY; i++) {
		int number = FIRST + i;

		if (!subject_check(share_position(number, i % 2 ? first : second),
		                   "descriptor %d is of another open file", number) ||
		    !subject_check(fcntl(number, F_GETFD) == (i % 3 ? 0 : FD_CLOEXEC),
		                   "descriptor %d: close-on-exec", number))
			break;
	}
	for (int number = second + 1; number < FIRST; number++)
		if (!subject_check(fcntl(number, F_GETFD) < 0, "descriptor %d is open", number))
			break;
	subject_check(fcntl(high - 1, F_GETFD) < 0, "descriptor %d is open", high - 1);
	return subject_end();
}
