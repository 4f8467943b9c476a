/*
 * A round trip of open files in one go (unit/file_target.h has its steps): what a child sets up is
 * saved, nobody holds it any more, and it is opened again.
 *
 *	struct round_trip trip;
 *
 *	round_trip_save(&trip, set_up, NULL);	// set_up() runs in the child, with no descriptors
 *	round_trip_restore(&trip);
 *	int fd = round_trip_fd(&trip, 0);	// the file behind the child's descriptor 0
 *	round_trip_end(&trip);
 */
#ifndef SEALPOINT_TESTS_ROUND_TRIP_H
#define SEALPOINT_TESTS_ROUND_TRIP_H

#include "kinds/registry.h"
#include "unit/file_target.h"

struct round_trip {
	struct sp_kind_options options; /* for both ways */
	struct file_target target;
	struct file_copy copy; /* once restored */
	struct sp_error err;
};

/**
 * Saves what `set_up` makes; `map` may add mappings of the child to the table. Returns what the
 * first kind that failed returned: trip->err says why.
 */
static inline int round_trip_try_save(struct round_trip *trip, void (*set_up)(void),
                                      void (*map)(struct round_trip *trip))
{
	struct file_target *target = &trip->target;
	int result;

	*target = file_target_start_at(0, set_up);
	target->options = trip->options;
	result = sp_file_table_add_process(&target->table, &target->process, &trip->err);
	if (!result && map)
		map(trip);
	return result ? result : file_target_save(target, &trip->options, &trip->err);
}

static inline void round_trip_save(struct round_trip *trip, void (*set_up)(void),
                                   void (*map)(struct round_trip *trip))
{
	*trip = (struct round_trip){0};
	if (round_trip_try_save(trip, set_up, map) < 0)
		fail_msg("%s", trip->err.message);
}

/** Lets go of the child's files and opens them again. */
static inline void round_trip_restore(struct round_trip *trip)
{
	file_target_let_go(&trip->target);
	if (file_target_open(&trip->target, &trip->copy, &trip->err) < 0)
		fail_msg("%s", trip->err.message);
}

/** Settles the files of one kind that needs no restored process for it. */
static inline void round_trip_settle(struct round_trip *trip, const struct sp_file_kind *kind)
{
	for (size_t i = 0; i < trip->copy.checkpoint->files.count; i++) {
		const Sealpoint__OpenFile *file =
		        sp_array_pointer(&trip->copy.checkpoint->files, i);

		if (!strcmp(file->kind, kind->name) &&
		    kind->settle(&trip->copy.builder, file, &trip->err) < 0)
			fail_msg("%s", trip->err.message);
	}
}

/** Sealpoint's descriptor for what the child had as `number`. */
static inline int round_trip_fd(const struct round_trip *trip, int number)
{
	return file_copy_fd(&trip->copy, number);
}

static inline void round_trip_end(struct round_trip *trip)
{
	if (trip->copy.checkpoint)
		file_copy_release(&trip->copy);
	file_target_end(&trip->target);
}

/** Saving what `set_up` makes must fail with a message that contains `words`. */
static inline void assert_refused(void (*set_up)(void), const char *words)
{
	struct round_trip trip = {0};

	assert_true(round_trip_try_save(&trip, set_up, NULL) < 0);
	if (!strstr(trip.err.message, words))
		fail_msg("\"%s\" does not say \"%s\"", trip.err.message, words);
	round_trip_end(&trip);
}

#endif
