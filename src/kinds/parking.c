/* Keeping files until they are placed: see parking.h. */
#include "kinds/parking.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct reservation {
	uint32_t number;
	uint32_t file; /* 0: processes differ */
};

void sp_parking_init(struct sp_parking *parking)
{
	parking->reserved = SP_ARRAY_OF(struct reservation);
	parking->homes = SP_ARRAY_OF(int);
	parking->parked = STDERR_FILENO;
}

void sp_parking_release(struct sp_parking *parking)
{
	sp_array_release(&parking->reserved);
	sp_array_release(&parking->homes);
}

void sp_parking_reserve(struct sp_parking *parking, uint32_t number, uint32_t file)
{
	sp_array_append(&parking->reserved, &(struct reservation){number, file});
}

static int compare(const void *a, const void *b)
{
	const struct reservation *one = a, *other = b;

	return sp_compare(one->number, other->number);
}

/* Leaves one reservation of each number. */
static void merge(struct sp_array *reserved)
{
	struct reservation *items = reserved->items;
	size_t kept = 0;

	if (!reserved->count)
		return;
	sp_array_sort(reserved, compare);
	for (size_t i = 1; i < reserved->count; i++) {
		if (items[i].number != items[kept].number)
			items[++kept] = items[i];
		else if (items[i].file != items[kept].file)
			items[kept].file = 0;
	}
	reserved->count = kept + 1;
}

void sp_parking_plan(struct sp_parking *parking, uint32_t files)
{
	const struct reservation *items = parking->reserved.items;

	merge(&parking->reserved);
	for (uint32_t id = 0; id <= files; id++)
		*(int *)sp_array_push(&parking->homes) = -1;
	/* Standard input, output and error stay sealpoint's own as long as it works. */
	for (size_t i = parking->reserved.count; i > 0; i--)
		if (items[i - 1].number > STDERR_FILENO && items[i - 1].file)
			*(int *)sp_array_at(&parking->homes, items[i - 1].file) =
			        (int)items[i - 1].number;
}

uint64_t sp_parking_size(const struct sp_parking *parking, uint64_t others)
{
	const struct sp_array *reserved = &parking->reserved;
	uint64_t size = reserved->count + others;

	for (size_t id = 1; id < parking->homes.count; id++)
		size += *(int *)sp_array_at(&parking->homes, id) < 0;
	if (reserved->count) {
		const struct reservation *last = sp_array_at(reserved, reserved->count - 1);

		if (size < last->number + 1ULL)
			size = last->number + 1ULL;
	}
	return size;
}

static bool may_stay(const struct sp_parking *parking, uint32_t file, int number)
{
	const struct reservation key = {.number = (uint32_t)number};
	const struct reservation *found = sp_array_search(&parking->reserved, &key, compare);

	return !found || found->file == file;
}

/* Takes the lowest free number from `number` on, and gives up the one that the file had. */
static int move_to(int *fd, int number, struct sp_error *err)
{
	int moved = fcntl(*fd, F_DUPFD_CLOEXEC, number);

	if (moved < 0)
		return sp_fail_errno(err, errno, "cannot find a free descriptor number");
	close(*fd);
	*fd = moved;
	return 0;
}

int sp_parking_park(struct sp_parking *parking, uint32_t file, int *fd, struct sp_error *err)
{
	int home = *(int *)sp_array_at(&parking->homes, file);
	int rc = 0;

	if (home >= 0 && *fd != home)
		rc = move_to(fd, home, err);
	while (!rc && !may_stay(parking, file, *fd)) {
		int number = parking->parked + 1;

		while (!may_stay(parking, file, number))
			number++;
		rc = move_to(fd, number, err);
		parking->parked = *fd;
	}
	return rc;
}
