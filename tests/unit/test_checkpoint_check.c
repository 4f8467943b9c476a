/*
 * The records of a checkpoint: whatever leads nowhere or cannot be is refused, and the message says
 * where it is.
 */
#include "unit/checkpoint_fixture.h"

static void wrong_root(struct fixture *fixture)
{
	fixture->manifest.root_pid = 101;
}

static void pid_zero(struct fixture *fixture)
{
	fixture->process.pid = 0;
}

static void no_memory(struct fixture *fixture)
{
	fixture->process.memory_object = 0;
}

static void unknown_executable(struct fixture *fixture)
{
	fixture->process.executable_file = 3;
}

static void facet_twice(struct fixture *fixture)
{
	fixture->facets[1].name = fixture->facets[0].name;
}

static void no_thread(struct fixture *fixture)
{
	fixture->thread_count = 0;
}

static void leader_second(struct fixture *fixture)
{
	fixture->threads[0].tid = 101;
	fixture->threads[1].tid = 100;
}

static void tid_twice(struct fixture *fixture)
{
	fixture->threads[1].tid = 100;
}

static void foreign_thread(struct fixture *fixture)
{
	fixture->threads[1].pid = 99;
}

static void root_ended(struct fixture *fixture)
{
	fixture->process = fixture->ended[0];
	fixture->process.pid = 100;
}

static void stopped_for_unknown_reason(struct fixture *fixture)
{
	fixture->process.wait_status = 19;
}

static void group_too_high(struct fixture *fixture)
{
	fixture->process.pgid = 1 << 22;
}

static void ended_with_memory(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].memory_object = 2;
}

static void ended_with_thread(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->threads[1].pid = 110;
}

static void ended_with_mapping(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->vmas[2].pid = 110;
}

static void ended_with_descriptor(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->descriptors[1].pid = 110;
}

static void ended_impossibly(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].wait_status = 65;
}

/* Restored, it would stop, or go on, and whoever waits for its end would wait for ever. */
static void ended_by_a_stop(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].wait_status = 19; /* SIGSTOP */
}

static void ended_by_nothing(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].wait_status = 17; /* SIGCHLD */
}

static void ended_with_both(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].wait_status = 7 << 8 | 9;
}

static void unknown_exit_signal(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].exit_signal = 65;
}

static void ended_with_shared_descriptors(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].descriptors_of = 100;
}

static void shares_with_itself(struct fixture *fixture)
{
	fixture->process.directories_of = 100;
}

static void shares_descriptors_and_has_some(struct fixture *fixture)
{
	fixture->process.descriptors_of = 100;
}

static void child_of_ended(struct fixture *fixture)
{
	fixture->ended_count = 2;
}

static void child_of_nobody(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].ppid = 99;
}

static void process_twice(struct fixture *fixture)
{
	fixture->ended_count = 1;
	fixture->ended[0].pid = 100;
}

static void short_registers(struct fixture *fixture)
{
	fixture->threads[1].general.len--;
}

static void large_xstate(struct fixture *fixture)
{
	fixture->threads[1].xstate.len = SP_XSTATE_MAX + 1;
}

static void vma_unaligned(struct fixture *fixture)
{
	fixture->vmas[0].end--;
}

static void vma_backwards(struct fixture *fixture)
{
	fixture->vmas[0].end = fixture->vmas[0].start - SP_PAGE_SIZE;
}

static void vma_overlaps(struct fixture *fixture)
{
	fixture->vmas[0].end = HEAP + SP_PAGE_SIZE;
	fixture->vmas[0].kind = SP_VMA_FILE_SHARED;
}

static void vma_in_kernel(struct fixture *fixture)
{
	fixture->vmas[2].end = (1ULL << 47) + SP_PAGE_SIZE;
}

static void vma_of_nobody(struct fixture *fixture)
{
	fixture->vmas[2].pid = 7;
}

static void vma_unknown_kind(struct fixture *fixture)
{
	fixture->vmas[2].kind = SP_VMA_KINDS;
}

static void vma_unknown_flag(struct fixture *fixture)
{
	fixture->vmas[2].flags = 1U << 30;
}

static void vma_unknown_prot(struct fixture *fixture)
{
	fixture->vmas[2].prot = 8;
}

static void vma_unknown_key(struct fixture *fixture)
{
	fixture->vmas[2].protection_key = 16;
}

static void vma_unknown_file(struct fixture *fixture)
{
	fixture->vmas[1].file = 9;
}

static void vma_without_file(struct fixture *fixture)
{
	fixture->vmas[0].file = 0;
}

static void vma_far_offset(struct fixture *fixture)
{
	fixture->vmas[0].offset = (1ULL << 63) - SP_PAGE_SIZE;
}

static void vma_odd_pages(struct fixture *fixture)
{
	fixture->vmas[1].page_shift = 13;
}

static void vsyscall_elsewhere(struct fixture *fixture)
{
	fixture->vmas[2].kind = SP_VMA_VSYSCALL;
}

static void pages_missing(struct fixture *fixture)
{
	fixture->pages[1].end -= SP_PAGE_SIZE;
}

static void pages_astray(struct fixture *fixture)
{
	fixture->pages[2].end += SP_PAGE_SIZE;
}

static void parent_page_without_parent(struct fixture *fixture)
{
	fixture->heap_state = SP_PAGE_PARENT;
}

static void file_id_wrong(struct fixture *fixture)
{
	fixture->files[1].id = 7;
}

static void file_without_kind(struct fixture *fixture)
{
	fixture->files[1].kind = (char *)"";
}

static void descriptor_twice(struct fixture *fixture)
{
	fixture->descriptors[1].number = 0;
}

static void descriptor_of_nobody(struct fixture *fixture)
{
	fixture->descriptors[1].pid = 1;
}

static void descriptor_huge(struct fixture *fixture)
{
	fixture->descriptors[1].number = UINT32_MAX;
}

static void descriptor_unknown_file(struct fixture *fixture)
{
	fixture->descriptors[1].file = 3;
}

static void descriptor_mapping_only(struct fixture *fixture)
{
	fixture->descriptors[1].file = 1;
}

static void references_that_lead_nowhere_are_refused(void **state)
{
	static const struct {
		void (*spoil)(struct fixture *fixture);
		const char *words;
	} cases[] = {
	        {wrong_root, "not the root 101"},
	        {pid_zero, "a process has the number 0"},
	        {no_memory, "has no memory"},
	        {unknown_executable, "unknown open file 3"},
	        {facet_twice, "has \"credentials\" twice"},
	        {no_thread, "process 100 has no thread"},
	        {leader_second, "thread 101 stands where the leader"},
	        {tid_twice, "thread 100 stands where the other threads"},
	        {foreign_thread, "unknown process 99"},
	        {root_ended, "the root 100 has ended"},
	        {stopped_for_unknown_reason, "is stopped with signal 19"},
	        {group_too_high, "group 4194304"},
	        {ended_with_memory, "process 110 has ended, and has more than a status"},
	        {ended_with_thread, "thread 101 belongs to the unknown process 110"},
	        {ended_with_mapping, "of process 110 belongs to nobody"},
	        {ended_with_descriptor, "belongs to the unknown process 110"},
	        {ended_impossibly, "has ended with status 0x41, which cannot be"},
	        {ended_by_a_stop, "has ended with status 0x13, which cannot be"},
	        {ended_by_nothing, "has ended with status 0x11, which cannot be"},
	        {ended_with_both, "has ended with status 0x709"},
	        {unknown_exit_signal, "process 110 ends with signal 65"},
	        {ended_with_shared_descriptors,
	         "process 110 has ended, and has more than a status"},
	        {shares_with_itself, "process 100 shares its directories with process 100"},
	        {shares_descriptors_and_has_some,
	         "process 100 shares its descriptors with process 100"},
	        {child_of_ended, "process 111 comes before its parent 110"},
	        {child_of_nobody, "process 110 comes before its parent 99"},
	        {process_twice, "process 100 is there twice"},
	        {short_registers, "bytes of general registers"},
	        {large_xstate, "bytes of extended state"},
	        {vma_unaligned, "0x400000-0x403fff of process 100 is not a range of pages"},
	        {vma_backwards, "is not a range of pages"},
	        {vma_overlaps, "overlaps the one before"},
	        {vma_in_kernel, "lies outside of user memory"},
	        {vma_of_nobody, "belongs to nobody"},
	        {vma_unknown_kind, "unknown kind"},
	        {vma_unknown_flag, "unknown flags"},
	        {vma_unknown_prot, "unknown protection"},
	        {vma_unknown_key, "unknown protection key"},
	        {vma_unknown_file, "unknown file"},
	        {vma_without_file, "unknown file"},
	        {vma_far_offset, "offset in its file"},
	        {vma_odd_pages, "pages of an unknown size"},
	        {vsyscall_elsewhere, "is not where vsyscall is"},
	        {pages_missing, "not in the page index"},
	        {pages_astray, "in none of its mappings"},
	        {parent_page_without_parent, "this checkpoint has none"},
	        {file_id_wrong, "open file 7 stands where 2 should"},
	        {file_without_kind, "open file 2 has no kind"},
	        {descriptor_twice, "has descriptor 0 twice"},
	        {descriptor_of_nobody, "unknown process 1"},
	        {descriptor_huge, "has a descriptor 4294967295"},
	        {descriptor_unknown_file, "the unknown open file 3"},
	        {descriptor_mapping_only, "the mapping-only open file 1"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct scratch scratch = scratch_make();
		sp_cleanup_free struct fixture *fixture = new_fixture();
		sp_cleanup_free char *path = in_scratch(&scratch, "saved");
		struct sp_error err;

		cases[i].spoil(fixture);
		write_fixture(fixture, path);
		assert_int_equal(try_open(path, &err), -EBADMSG);
		assert_says(&err, cases[i].words);
		assert_says(&err, path);
		scratch_remove(&scratch);
	}
}

static void a_child_that_has_ended_is_accepted(void **state)
{
	struct scratch scratch = scratch_make();
	sp_cleanup_free struct fixture *fixture = new_fixture();
	sp_cleanup_free char *path = in_scratch(&scratch, "saved");
	struct sp_checkpoint *checkpoint;
	const Sealpoint__Process *process;
	struct sp_error err = {0};

	fixture->ended_count = 1;
	write_fixture(fixture, path);
	assert_int_equal(sp_checkpoint_open(&checkpoint, path, &err), 0);
	assert_int_equal(checkpoint->processes.count, 2);
	assert_int_equal(sp_checkpoint_find_process(checkpoint, 100, &process, &err), 0);
	assert_int_equal(process->pid, 100);
	assert_int_equal(sp_checkpoint_find_process(checkpoint, 110, &process, &err), -ESRCH);
	assert_says(&err, "no living process 110");
	sp_checkpoint_close(checkpoint);
	scratch_remove(&scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(references_that_lead_nowhere_are_refused),
	        cmocka_unit_test(a_child_that_has_ended_is_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
