/*
 * What the kernel would do to System V semaphores for a process that ends: give back what it took, and take
 * what it gave, with SEM_UNDO (semop(2)). The semaphores themselves are the host's. So a program that is
 * ended gives back what it holds, and a restored one takes it again, as it does with file locks, or is
 * refused if somebody else has it by now.
 *
 * Nothing tells these adjustments. But an operation that would bring one out of its range fails with ERANGE, and operations
 * are done all or none: a list of them that adds to an adjustment, leaves the semaphore's value alone and ends in one
 * that cannot be done fails with EAGAIN only if the adjustment has so much room, and changes nothing. The
 * threads of a process have one list of adjustments (CLONE_SYSVSEM), so one of them asks for all.
 */
#include "kinds/registry.h"

#include "base/io.h"

#include "system_v.pb-c.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/sem.h>
#include <sys/syscall.h>

#define ADJUSTMENT_MIN (-32768) /* SEMAEM, include/uapi/linux/sem.h */
#define ADJUSTMENT_MAX 32767
#define STEP \
	16384 /* at once: a semaphore whose value is higher than the rest of its range is refused */
#define VALUE_MAX (ADJUSTMENT_MAX - STEP)

/* Operations for one semop(2). */
struct operations {
	struct sembuf list[512];
	size_t count;
};

#define PER_SEMAPHORE 12 /* of test_zero() */
#define LAST 2           /* of cannot_be_done() */

static void add(struct operations *operations, unsigned number, int value, int flags)
{
	operations->list[operations->count++] = (struct sembuf){
	        .sem_num = (unsigned short)number,
	        .sem_op = (short)value,
	        .sem_flg = (short)flags,
	};
}

/* Moves the adjustment down, and leaves the value. */
static void move_down(struct operations *operations, unsigned number, int distance)
{
	for (int step; distance > 0; distance -= step) {
		step = distance < STEP ? distance : STEP;
		add(operations, number, step, SEM_UNDO);
		add(operations, number, -step, 0);
	}
}

static void move_up(struct operations *operations, unsigned number, int distance)
{
	for (int step; distance > 0; distance -= step) {
		step = distance < STEP ? distance : STEP;
		add(operations, number, step, 0);
		add(operations, number, -step, SEM_UNDO);
	}
}

/* Down to the lowest and up to the highest: only 0 has room for both. */
static void test_zero(struct operations *operations, unsigned number)
{
	move_down(operations, number, -ADJUSTMENT_MIN);
	move_up(operations, number, ADJUSTMENT_MAX - ADJUSTMENT_MIN);
}

/* Waits for a value that is not there: so nothing of what was before it is done either. */
static void cannot_be_done(struct operations *operations, unsigned number)
{
	add(operations, number, 1, 0);
	add(operations, number, 0, IPC_NOWAIT);
}

/* `*result`: of the call, made by the process. */
static int operate(struct sp_remote *remote, unsigned set, const struct operations *operations,
                   int64_t *result, struct sp_error *err)
{
	remote_addr list;
	int rc = sp_batch_flush(remote, err);

	if (rc)
		return rc;
	list = sp_batch_put(remote, operations->list,
	                    operations->count * sizeof(*operations->list));
	return sp_remote_try(remote, result, err, "try semaphores", SYS_semop, set, list,
	                     operations->count, 0, 0, 0);
}

/* --- saving --- */

struct search {
	struct sp_remote *remote;
	struct sp_array found; /* Sealpoint__SemaphoreAdjustment */
	unsigned set, key, size;
	unsigned at_once; /* operations */
};

static int check_value(const struct search *search, unsigned number, struct sp_error *err)
{
	int value = semctl((int)search->set, (int)number, GETVAL);

	if (value <= VALUE_MAX)
		return 0;
	return sp_fail(err, ENOTSUP,
	               "semaphore %u of set %u has a value of %d, with which nothing tells what "
	               "it would undo; let the program lower it to %d before the dump",
	               number, search->set, value, VALUE_MAX);
}

/* How far down the adjustment can be moved tells where it is. */
static int measure(struct search *search, unsigned number, struct sp_error *err)
{
	Sealpoint__SemaphoreAdjustment *adjustment;
	int low = 0, high = ADJUSTMENT_MAX - ADJUSTMENT_MIN;
	int rc = check_value(search, number, err);

	while (low < high && !rc) {
		int middle = low + (high - low + 1) / 2;
		struct operations operations = {.count = 0};
		int64_t result;

		move_down(&operations, number, middle);
		cannot_be_done(&operations, number);
		rc = operate(search->remote, search->set, &operations, &result, err);
		if (result == -EAGAIN)
			low = middle;
		else
			high = middle - 1;
	}
	if (rc || low + ADJUSTMENT_MIN == 0)
		return rc;
	adjustment = sp_array_push(&search->found);
	sealpoint__semaphore_adjustment__init(adjustment);
	adjustment->set = search->set;
	adjustment->key = search->key;
	adjustment->number = number;
	adjustment->value = low + ADJUSTMENT_MIN;
	return 0;
}

/*
 * Some semaphores of a set. A set that the process may not change, or that is gone by now, has nothing of it.
 */
static int search_some(struct search *search, unsigned first, unsigned end, struct sp_error *err)
{
	struct operations operations = {.count = 0};
	int64_t result;
	int rc;

	for (unsigned number = first; number < end; number++)
		test_zero(&operations, number);
	cannot_be_done(&operations, first);
	rc = operate(search->remote, search->set, &operations, &result, err);
	for (unsigned number = first; number < end && !rc && result == -ERANGE; number++)
		rc = measure(search, number, err);
	return rc;
}

static int search_set(struct search *search, struct sp_error *err)
{
	unsigned most = (search->at_once - LAST) / PER_SEMAPHORE;
	int rc = 0;

	for (unsigned first = 0; first < search->size && !rc; first += most)
		rc = search_some(search, first,
		                 first + most < search->size ? first + most : search->size, err);
	return rc;
}

/* The third number: how many operations a call may have. */
static int read_limit(unsigned *at_once, struct sp_error *err)
{
	sp_cleanup_free char *text = NULL;
	int rc = sp_read_file(AT_FDCWD, "/proc/sys/kernel/sem", &text, NULL, err);

	if (rc)
		return rc;
	if (sscanf(text, "%*u %*u %u", at_once) != 1 || *at_once < PER_SEMAPHORE + LAST)
		return sp_fail(err, ENOTSUP,
		               "semop(2) is limited to too few operations to tell what the program "
		               "would undo; raise the third number of sysctl kernel.sem to 32");
	if (*at_once > SP_COUNT_OF(((struct operations *)NULL)->list))
		*at_once = SP_COUNT_OF(((struct operations *)NULL)->list);
	return 0;
}

/* Lines of "key semid perms nsems ...", behind a title. */
static int search_sets(struct search *search, char *sets, struct sp_error *err)
{
	char *rest = NULL;
	int rc = 0;

	for (char *line = strtok_r(sets, "\n", &rest); line && !rc;
	     line = strtok_r(NULL, "\n", &rest)) {
		int key;

		if (sscanf(line, "%d %u %*o %u", &key, &search->set, &search->size) != 3)
			continue;
		search->key = (unsigned)key;
		if (!search->at_once)
			rc = read_limit(&search->at_once, err);
		if (!rc)
			rc = search_set(search, err);
	}
	return rc;
}

static void pack(const struct sp_array *found, struct sp_blob *body)
{
	Sealpoint__SemaphoreUndo message = SEALPOINT__SEMAPHORE_UNDO__INIT;
	sp_cleanup_array struct sp_array pointers = SP_ARRAY_OF(Sealpoint__SemaphoreAdjustment *);

	for (size_t i = 0; i < found->count; i++)
		*(Sealpoint__SemaphoreAdjustment **)sp_array_push(&pointers) =
		        sp_array_at(found, i);
	message.adjustments = pointers.items;
	message.n_adjustments = pointers.count;
	if (message.n_adjustments)
		sp_blob_pack(body, &message.base);
}

static int save(struct sp_facet_saver *saver, struct sp_blob *body, struct sp_error *err)
{
	sp_cleanup_free char *sets = NULL;
	struct search search = {
	        .remote = saver->remote,
	        .found = SP_ARRAY_OF(Sealpoint__SemaphoreAdjustment),
	};
	int rc = 0;

	/* A kernel without System V IPC has no such file. */
	if (!sp_read_file(AT_FDCWD, "/proc/sysvipc/sem", &sets, NULL, NULL))
		rc = search_sets(&search, sets, err);
	if (!rc)
		pack(&search.found, body);
	sp_array_release(&search.found);
	return rc;
}

/* --- rebuilding --- */

static int take(struct sp_facet_builder *builder, const Sealpoint__SemaphoreAdjustment *adjustment,
                struct sp_error *err)
{
	struct operations operations = {.count = 0};
	struct semid_ds set;
	int64_t result;
	int rc;

	if (semctl((int)adjustment->set, 0, IPC_STAT, &set) ||
	    (unsigned)set.sem_perm.__key != adjustment->key)
		return sp_fail(err, ENOENT,
		               "semaphore set %u (key 0x%08x) is gone, of which the program holds "
		               "semaphore %u; make it again first",
		               adjustment->set, adjustment->key, adjustment->number);
	add(&operations, adjustment->number, -adjustment->value, SEM_UNDO | IPC_NOWAIT);
	rc = operate(builder->remote, adjustment->set, &operations, &result, err);
	if (rc || !result)
		return rc;
	if (result == -EAGAIN)
		return sp_fail(err, EAGAIN,
		               "semaphore %u of set %u, which the program holds, has a value of %d "
		               "now, and not %d: others hold it (ipcs -s -i %u); end those first",
		               adjustment->number, adjustment->set,
		               semctl((int)adjustment->set, (int)adjustment->number, GETVAL),
		               adjustment->value, adjustment->set);
	return sp_fail_errno(err, (int)-result, "cannot take semaphore %u of set %u",
	                     adjustment->number, adjustment->set);
}

static int rebuild(struct sp_facet_builder *builder, ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SemaphoreUndo *message =
	        sp_blob_unpack(body, &sealpoint__semaphore_undo__descriptor, err);
	int rc = 0;

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_adjustments && !rc; i++)
		rc = take(builder, message->adjustments[i], err);
	return rc;
}

static void describe(ProtobufCBinaryData body, char *text, size_t size)
{
	sp_cleanup_message Sealpoint__SemaphoreUndo *message =
	        sp_blob_unpack(body, &sealpoint__semaphore_undo__descriptor, NULL);
	size_t used = 0;

	for (size_t i = 0; message && i < message->n_adjustments && used < size; i++) {
		const Sealpoint__SemaphoreAdjustment *item = message->adjustments[i];

		used += (size_t)snprintf(text + used, size - used,
		                         "%ssemaphore %u of set %u by %+d", i ? ", " : "",
		                         item->number, item->set, item->value);
	}
}

static int check(ProtobufCBinaryData body, struct sp_error *err)
{
	sp_cleanup_message Sealpoint__SemaphoreUndo *message =
	        sp_blob_unpack(body, &sealpoint__semaphore_undo__descriptor, err);

	if (!message)
		return -EBADMSG;
	for (size_t i = 0; i < message->n_adjustments; i++) {
		const Sealpoint__SemaphoreAdjustment *item = message->adjustments[i];

		if (item->set > INT32_MAX || item->number > UINT16_MAX ||
		    item->value <= ADJUSTMENT_MIN || item->value > ADJUSTMENT_MAX)
			return sp_fail_damaged(err, "an impossible semaphore");
	}
	return 0;
}

const struct sp_facet sp_facet_semaphore_undo = {
        .name = "semaphore_undo",
        .title = "semaphores that are undone",
        .scope = SP_FACET_PROCESS,
        .phase = SP_PHASE_THREADS,
        .save = save,
        .rebuild = rebuild,
        .describe = describe,
        .check = check,
};
