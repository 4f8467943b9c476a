/* Records: what was written is read back, and nothing else is. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "image/record.h"
#include "unit/scratch.h"

#include "process.pb-c.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Two records, in memory of the caller's. */
static uint8_t *two_records(size_t *size)
{
	struct scratch scratch = scratch_make();
	struct sp_record_writer writer;
	struct sp_error err = {0};
	uint8_t general[] = {1, 2, 3, 4};
	Sealpoint__Process process = SEALPOINT__PROCESS__INIT;
	Sealpoint__Thread thread = SEALPOINT__THREAD__INIT;
	char *bytes;

	process.pid = 42;
	process.comm = (char *)"worker";
	thread.tid = 43;
	thread.general.data = general;
	thread.general.len = sizeof(general);
	assert_int_equal(sp_record_writer_open(&writer, scratch.dirfd, "records", &err), 0);
	assert_int_equal(sp_record_write(&writer, SP_RECORD_PROCESS, &process.base, &err), 0);
	assert_int_equal(sp_record_write(&writer, SP_RECORD_THREAD, &thread.base, &err), 0);
	assert_int_equal(sp_record_writer_finish(&writer, &err), 0);

	assert_int_equal(sp_read_file(scratch.dirfd, "records", &bytes, size, &err), 0);
	scratch_remove(&scratch);
	return (uint8_t *)bytes;
}

/* Reads to the end; the number of records, or what refused them. */
static int count_records(uint8_t *bytes, size_t size, struct sp_error *err)
{
	struct sp_record_reader reader;
	struct sp_record record;
	int count = 0, status;

	sp_record_reader_memory(&reader, "records", bytes, size);
	while ((status = sp_record_next(&reader, &record, err)) > 0)
		count++;
	sp_record_reader_close(&reader);
	return status < 0 ? status : count;
}

static void records_come_back_as_they_were_written(void **state)
{
	size_t size;
	sp_cleanup_free uint8_t *bytes = two_records(&size);
	struct sp_record_reader reader;
	struct sp_record record;
	struct sp_error err = {0};
	Sealpoint__Process *process;
	Sealpoint__Thread *thread;

	sp_record_reader_memory(&reader, "records", bytes, size);
	assert_int_equal(sp_record_next(&reader, &record, &err), 1);
	assert_int_equal(record.type, SP_RECORD_PROCESS);
	process = (Sealpoint__Process *)sp_record_unpack(&reader, &record,
	                                                 &sealpoint__process__descriptor, &err);
	assert_non_null(process);
	assert_int_equal(process->pid, 42);
	assert_string_equal(process->comm, "worker");
	sealpoint__process__free_unpacked(process, NULL);

	assert_int_equal(sp_record_next(&reader, &record, &err), 1);
	assert_int_equal(record.type, SP_RECORD_THREAD);
	thread = (Sealpoint__Thread *)sp_record_unpack(&reader, &record,
	                                               &sealpoint__thread__descriptor, &err);
	assert_non_null(thread);
	assert_int_equal(thread->general.len, 4);
	assert_int_equal(thread->general.data[3], 4);
	sealpoint__thread__free_unpacked(thread, NULL);
	assert_int_equal(sp_record_next(&reader, &record, &err), 0);
	sp_record_reader_close(&reader);
}

static void every_flipped_bit_is_refused(void **state)
{
	size_t size;
	sp_cleanup_free uint8_t *bytes = two_records(&size);

	for (size_t bit = 0; bit < size * 8; bit++) {
		struct sp_error err = {0};

		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(count_records(bytes, size, &err), -EBADMSG);
		assert_non_null(strstr(err.message, "records"));
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void a_cut_record_is_refused_at_every_length(void **state)
{
	size_t size, first;
	sp_cleanup_free uint8_t *bytes = two_records(&size);
	uint32_t length;

	memcpy(&length, bytes, sizeof(length));
	first = 16 + length;
	for (size_t cut = 0; cut < size; cut++) {
		struct sp_error err = {0};
		int expected = cut == 0 ? 0 : cut == first ? 1 : -EBADMSG;

		assert_int_equal(count_records(bytes, cut, &err), expected);
	}
}

static void a_moved_record_is_refused(void **state)
{
	size_t size;
	sp_cleanup_free uint8_t *bytes = two_records(&size);
	struct sp_error err = {0};
	uint32_t length;

	memcpy(&length, bytes, sizeof(length));
	/* the second record alone: whole, but not where it was written */
	assert_int_equal(count_records(bytes + 16 + length, size - 16 - length, &err), -EBADMSG);
}

static void a_payload_that_is_no_message_is_refused_with_its_place(void **state)
{
	uint8_t payload[] = {0xff, 0xff, 0xff};
	struct sp_record_reader reader;
	struct sp_record record = {SP_RECORD_PROCESS, payload, sizeof(payload), 77};
	struct sp_error err = {0};

	sp_record_reader_memory(&reader, "records", payload, sizeof(payload));
	assert_null(sp_record_unpack(&reader, &record, &sealpoint__process__descriptor, &err));
	assert_int_equal(err.code, EBADMSG);
	assert_non_null(strstr(err.message, "offset 77"));
	assert_non_null(strstr(err.message, "Process"));
}

static void an_existing_file_is_not_overwritten(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_record_writer writer;
	struct sp_error err = {0};

	assert_int_equal(sp_record_writer_open(&writer, scratch.dirfd, "records", &err), 0);
	sp_record_writer_abandon(&writer);
	assert_int_equal(sp_record_writer_open(&writer, scratch.dirfd, "records", &err), -EEXIST);
	scratch_remove(&scratch);
}

static void what_is_not_a_file_is_refused(void **state)
{
	struct scratch scratch = scratch_make();
	struct sp_record_reader reader;
	struct sp_error err = {0};

	assert_int_equal(sp_record_reader_open(&reader, scratch.dirfd, "records", &err), -ENOENT);
	assert_int_equal(mkfifoat(scratch.dirfd, "records", 0600), 0);
	assert_int_equal(sp_record_reader_open(&reader, scratch.dirfd, "records", &err), -EINVAL);
	scratch_remove(&scratch);
}

static void a_file_that_is_cut_off_while_it_is_read_is_refused(void **state)
{
	struct scratch scratch = scratch_make();
	Sealpoint__Process process = SEALPOINT__PROCESS__INIT;
	struct sp_record_writer writer;
	struct sp_record_reader reader;
	struct sp_record record;
	struct sp_error err = {0};
	char comm[100000];

	memset(comm, 'c', sizeof(comm) - 1);
	comm[sizeof(comm) - 1] = '\0';
	process.comm = comm;
	assert_int_equal(sp_record_writer_open(&writer, scratch.dirfd, "records", &err), 0);
	assert_int_equal(sp_record_write(&writer, SP_RECORD_PROCESS, &process.base, &err), 0);
	assert_int_equal(sp_record_write(&writer, SP_RECORD_PROCESS, &process.base, &err), 0);
	assert_int_equal(sp_record_writer_finish(&writer, &err), 0);

	assert_int_equal(sp_record_reader_open(&reader, scratch.dirfd, "records", &err), 0);
	assert_int_equal(sp_record_next(&reader, &record, &err), 1);
	close(openat(scratch.dirfd, "records", O_WRONLY | O_TRUNC | O_CLOEXEC));
	assert_int_equal(sp_record_next(&reader, &record, &err), -EBADMSG);
	assert_non_null(strstr(err.message, "records is cut off"));
	sp_record_reader_close(&reader);
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(records_come_back_as_they_were_written),
	        cmocka_unit_test(every_flipped_bit_is_refused),
	        cmocka_unit_test(a_cut_record_is_refused_at_every_length),
	        cmocka_unit_test(a_moved_record_is_refused),
	        cmocka_unit_test(a_payload_that_is_no_message_is_refused_with_its_place),
	        cmocka_unit_test(an_existing_file_is_not_overwritten),
	        cmocka_unit_test(what_is_not_a_file_is_refused),
	        cmocka_unit_test(a_file_that_is_cut_off_while_it_is_read_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
