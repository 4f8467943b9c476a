/*
 * Core files, checked by their ELF structures: a checkpoint made by hand, of a process with two
 * threads and a mapping of each sort, is written as a core file and read back as a debugger would.
 */
#include "base/cleanup.h"
#include "base/io.h"
#include "engine/engine.h"
#include "mem/vma.h"
#include "unit/scratch.h"

#include "regular.pb-c.h"
#include "settings.pb-c.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/stat.h>

#include <cmocka.h>

#define PID 4242
#define XSTATE_SIZE 832

/* The mappings of the process; in pages from their start. */
#define HEAP 0x10000000ULL        /* 0: DATA, 1: ZERO, 2: a short HOLE, 3: DATA */
#define RESERVED 0x20000000ULL    /* a HOLE of 16 MiB behind one page of DATA */
#define PROGRAM 0x30000000ULL     /* a file: 0: FILE, 1: DATA (modified), 2: ZERO, 3: FILE */
#define LOST 0x40000000ULL        /* as PROGRAM, of a file that is not there any more */
#define SHARED_FILE 0x50000000ULL /* a shared mapping of a file with a name */
#define SYSTEM_CALLS 0xffffffffff600000ULL

#define RESERVED_PAGES (1 + (16ULL << 20) / SP_PAGE_SIZE)

static uint8_t byte_at(uint64_t address)
{
	return (uint8_t)(address * 31 + (address >> 12) + 1) | 1;
}

static int read_memory(void *context, uint64_t address, void *buffer, size_t size,
                       struct sp_error *err)
{
	for (size_t i = 0; i < size; i++)
		((uint8_t *)buffer)[i] = byte_at(address + i);
	return 0;
}

/* --- making the checkpoint --- */

struct fixture {
	struct scratch scratch;
	char directory[300], core[300], program[300], lost[300];
	struct sp_checkpoint_writer writer;
	uint32_t object, source;
	char *bytes; /* of the core file */
	size_t size;
	struct stat stat;
};

static void must(int result, const struct sp_error *err)
{
	if (result < 0)
		fail_msg("%s", err->message);
}

static void write_record(struct fixture *fixture, enum sp_record_type type,
                         const ProtobufCMessage *message)
{
	struct sp_error err = {0};

	must(sp_record_write(&fixture->writer.records, type, message, &err), &err);
}

static void add_pages(struct fixture *fixture, uint64_t start, uint64_t first, uint64_t count,
                      enum sp_page_state state)
{
	struct sp_range range = {start + first * SP_PAGE_SIZE,
	                         start + (first + count) * SP_PAGE_SIZE};
	struct sp_error err = {0};

	must(sp_page_writer_add(fixture->writer.pages, fixture->object, range, state,
	                        fixture->source, &err),
	     &err);
}

static void add_mapping(struct fixture *fixture, uint64_t start, uint64_t pages, uint32_t kind,
                        uint32_t file, const char *path)
{
	Sealpoint__Vma vma = SEALPOINT__VMA__INIT;

	vma.pid = PID;
	vma.start = start;
	vma.end = start + pages * SP_PAGE_SIZE;
	vma.kind = kind;
	vma.prot = file ? PROT_READ | PROT_EXEC : PROT_READ | PROT_WRITE;
	vma.flags = kind == SP_VMA_FILE_SHARED ? SP_VMA_SHARED : 0;
	vma.page_shift = SP_PAGE_SHIFT;
	vma.file = file;
	vma.path = (char *)path;
	write_record(fixture, SP_RECORD_VMA, &vma.base);
}

static void add_file(struct fixture *fixture, uint32_t id, const char *path)
{
	Sealpoint__OpenFile file = SEALPOINT__OPEN_FILE__INIT;
	Sealpoint__RegularFile body = SEALPOINT__REGULAR_FILE__INIT;
	struct sp_blob blob = {0};
	struct stat stat = {0};

	lstat(path, &stat);
	body.path = (char *)path;
	body.size = (uint64_t)stat.st_size;
	body.mtime_s = stat.st_mtim.tv_sec;
	body.mtime_ns = (uint32_t)stat.st_mtim.tv_nsec;
	sp_blob_pack(&blob, &body.base);
	file.id = id;
	file.kind = (char *)"regular";
	file.mapping_only = true;
	file.body = (ProtobufCBinaryData){blob.size, blob.bytes};
	write_record(fixture, SP_RECORD_OPEN_FILE, &file.base);
	sp_blob_release(&blob);
}

static void add_process(struct fixture *fixture)
{
	static uint64_t auxv[] = {AT_ENTRY, 0x30000040, AT_NULL, 0};
	Sealpoint__Process process = SEALPOINT__PROCESS__INIT;
	Sealpoint__Facet facet = SEALPOINT__FACET__INIT, *facets[] = {&facet};
	Sealpoint__MemoryLayout layout = SEALPOINT__MEMORY_LAYOUT__INIT;
	struct sp_blob blob = {0};

	layout.auxv = (ProtobufCBinaryData){sizeof(auxv), (uint8_t *)auxv};
	sp_blob_pack(&blob, &layout.base);
	facet.name = (char *)"memory_layout";
	facet.body = (ProtobufCBinaryData){blob.size, blob.bytes};
	process.pid = PID;
	process.ppid = 1;
	process.pgid = process.sid = PID;
	process.comm = (char *)"subject";
	process.executable = fixture->program;
	process.command_line = (char *)"subject --with options";
	process.memory_object = fixture->object;
	process.facets = facets;
	process.n_facets = 1;
	write_record(fixture, SP_RECORD_PROCESS, &process.base);
	sp_blob_release(&blob);
}

static void add_thread(struct fixture *fixture, uint32_t tid)
{
	Sealpoint__Thread thread = SEALPOINT__THREAD__INIT;
	struct user_regs_struct general = {.rip = 0x30000000 + tid, .rsp = 0x10000000 + tid};
	uint8_t xstate[XSTATE_SIZE];

	memset(xstate, (int)tid & 0x7f, sizeof(xstate));
	thread.pid = PID;
	thread.tid = tid;
	thread.comm = (char *)"subject";
	thread.signal_mask = 1ULL << (tid - PID);
	thread.general = (ProtobufCBinaryData){sizeof(general), (uint8_t *)&general};
	thread.xstate = (ProtobufCBinaryData){sizeof(xstate), xstate};
	write_record(fixture, SP_RECORD_THREAD, &thread.base);
}

static void add_memory(struct fixture *fixture)
{
	add_mapping(fixture, HEAP, 4, SP_VMA_ANONYMOUS, 0, "[heap]");
	add_pages(fixture, HEAP, 0, 1, SP_PAGE_DATA);
	add_pages(fixture, HEAP, 1, 1, SP_PAGE_ZERO);
	add_pages(fixture, HEAP, 2, 1, SP_PAGE_HOLE);
	add_pages(fixture, HEAP, 3, 1, SP_PAGE_DATA);
	add_mapping(fixture, RESERVED, RESERVED_PAGES, SP_VMA_ANONYMOUS, 0, "");
	add_pages(fixture, RESERVED, 0, 1, SP_PAGE_DATA);
	add_pages(fixture, RESERVED, 1, RESERVED_PAGES - 1, SP_PAGE_HOLE);
	for (int i = 0; i < 2; i++) {
		uint64_t start = i ? LOST : PROGRAM;

		add_mapping(fixture, start, 4, SP_VMA_FILE_PRIVATE, i ? 2 : 1,
		            i ? fixture->lost : fixture->program);
		add_pages(fixture, start, 0, 1, SP_PAGE_FILE);
		add_pages(fixture, start, 1, 1, SP_PAGE_DATA);
		add_pages(fixture, start, 2, 1, SP_PAGE_ZERO);
		add_pages(fixture, start, 3, 1, SP_PAGE_FILE);
	}
	add_mapping(fixture, SHARED_FILE, 4, SP_VMA_FILE_SHARED, 1, fixture->program);
	add_pages(fixture, SHARED_FILE, 0, 4, SP_PAGE_HOLE);
	add_mapping(fixture, SYSTEM_CALLS, 1, SP_VMA_VSYSCALL, 0, "[vsyscall]");
}

/* Three and a half pages: the last page of the mapping reaches over the end of the file. */
static void make_file(const char *path)
{
	sp_cleanup_file FILE *file = fopen(path, "w");

	assert_non_null(file);
	for (size_t i = 0; i < 7 * SP_PAGE_SIZE / 2; i++)
		putc('f', file);
}

static void make_checkpoint(struct fixture *fixture)
{
	const struct sp_page_writer_options options = {.level = 1, .workers = 1};
	const struct sp_page_source source = {.read = read_memory};
	Sealpoint__Manifest manifest = SEALPOINT__MANIFEST__INIT;
	struct sp_error err = {0};

	must(sp_checkpoint_create(&fixture->writer, fixture->directory, &options, &err), &err);
	fixture->object = sp_page_writer_new_object(fixture->writer.pages);
	fixture->source = sp_page_writer_add_source(fixture->writer.pages, source);
	add_process(fixture);
	add_thread(fixture, PID);
	add_thread(fixture, PID + 7);
	add_file(fixture, 1, fixture->program);
	add_file(fixture, 2, fixture->lost);
	add_memory(fixture);
	manifest.root_pid = PID;
	must(sp_checkpoint_commit(&fixture->writer, &manifest, NULL, &err), &err);
}

static int write_core(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	struct sp_checkpoint *checkpoint;
	struct sp_log log;
	struct sp_error err = {0};

	fixture->scratch = scratch_make();
	snprintf(fixture->directory, sizeof(fixture->directory), "%s/saved", fixture->scratch.path);
	snprintf(fixture->core, sizeof(fixture->core), "%s/core", fixture->scratch.path);
	snprintf(fixture->program, sizeof(fixture->program), "%s/program", fixture->scratch.path);
	snprintf(fixture->lost, sizeof(fixture->lost), "%s/lost", fixture->scratch.path);
	make_file(fixture->program);
	make_file(fixture->lost);
	make_checkpoint(fixture);
	unlink(fixture->lost);
	sp_log_init(&log, false, true);
	must(sp_checkpoint_open(&checkpoint, fixture->directory, &err), &err);
	must(sp_write_core(checkpoint, sp_checkpoint_root(checkpoint), fixture->core, &log, &err),
	     &err);
	sp_checkpoint_close(checkpoint);
	lstat(fixture->core, &fixture->stat);
	must(sp_read_file(AT_FDCWD, fixture->core, &fixture->bytes, &fixture->size, &err), &err);
	*state = fixture;
	return 0;
}

static int clean_up(void **state)
{
	struct fixture *fixture = *state;

	scratch_remove(&fixture->scratch);
	free(fixture->bytes);
	free(fixture);
	return 0;
}

/* --- reading the core file --- */

static const Elf64_Ehdr *file_header(const struct fixture *fixture)
{
	return (const Elf64_Ehdr *)fixture->bytes;
}

static const Elf64_Phdr *program_headers(const struct fixture *fixture)
{
	return (const Elf64_Phdr *)(fixture->bytes + file_header(fixture)->e_phoff);
}

/* The segment that covers an address, or NULL. */
static const Elf64_Phdr *segment_at(const struct fixture *fixture, uint64_t address)
{
	const Elf64_Phdr *headers = program_headers(fixture);

	for (unsigned i = 0; i < file_header(fixture)->e_phnum; i++)
		if (headers[i].p_type == PT_LOAD && address >= headers[i].p_vaddr &&
		    address < headers[i].p_vaddr + headers[i].p_memsz)
			return &headers[i];
	return NULL;
}

/* The contents that the core file has for a page, or NULL. */
static const uint8_t *page_at(const struct fixture *fixture, uint64_t address)
{
	const Elf64_Phdr *segment = segment_at(fixture, address);
	uint64_t offset;

	if (!segment || address - segment->p_vaddr >= segment->p_filesz)
		return NULL;
	offset = segment->p_offset + (address - segment->p_vaddr);
	assert_true(offset + SP_PAGE_SIZE <= fixture->size);
	return (const uint8_t *)fixture->bytes + offset;
}

static void assert_page_is(const struct fixture *fixture, uint64_t address, const char *what,
                           uint8_t (*expected)(uint64_t address))
{
	const uint8_t *page = page_at(fixture, address);

	if (!page)
		fail_msg("no contents at %#lx, not %s", (unsigned long)address, what);
	for (uint64_t i = 0; i < SP_PAGE_SIZE; i++)
		if (page[i] != expected(address + i))
			fail_msg("byte at %#lx is %#x, not as %s", (unsigned long)(address + i),
			         page[i], what);
}

static uint8_t zero_at(uint64_t address)
{
	return 0;
}

static uint8_t file_byte_at(uint64_t address)
{
	return (address & 0xffffff) < 7 * SP_PAGE_SIZE / 2 ? 'f' : 0;
}

/*
 * Copies the `index`th note of a type, whose alignment is 4 only. Returns its size, 0 if there is
 * none.
 */
static size_t read_note(const struct fixture *fixture, uint32_t type, unsigned index, void *content,
                        size_t capacity)
{
	const Elf64_Phdr *notes = program_headers(fixture);
	const char *position = fixture->bytes + notes->p_offset;
	const char *end = position + notes->p_filesz;

	assert_int_equal(notes->p_type, PT_NOTE);
	while (position < end) {
		const Elf64_Nhdr *note = (const Elf64_Nhdr *)position;
		const char *start = position + sizeof(*note) + ((note->n_namesz + 3) & ~3U);

		if (note->n_type == type && index-- == 0) {
			assert_true(note->n_descsz <= capacity);
			memcpy(content, start, note->n_descsz);
			return note->n_descsz;
		}
		position = start + ((note->n_descsz + 3) & ~3U);
	}
	return 0;
}

/* --- what must hold --- */

static void it_is_a_core_file_of_this_machine(void **state)
{
	const Elf64_Ehdr *header = file_header(*state);

	assert_memory_equal(header->e_ident, ELFMAG, SELFMAG);
	assert_int_equal(header->e_type, ET_CORE);
	assert_int_equal(header->e_machine, EM_X86_64);
}

static void every_thread_has_its_registers(void **state)
{
	static const pid_t tids[] = {PID, PID + 7};
	struct elf_prstatus status;
	uint8_t extended[XSTATE_SIZE];

	for (unsigned i = 0; i < 2; i++) {
		struct user_regs_struct general;

		assert_int_equal(read_note(*state, NT_PRSTATUS, i, &status, sizeof(status)),
		                 sizeof(status));
		assert_int_equal(status.pr_pid, tids[i]);
		assert_int_equal(status.pr_sighold, 1ULL << (tids[i] - PID));
		memcpy(&general, &status.pr_reg, sizeof(general));
		assert_int_equal(general.rip, 0x30000000 + tids[i]);
		assert_int_equal(general.rsp, 0x10000000 + tids[i]);
		assert_int_equal(read_note(*state, NT_FPREGSET, i, extended, XSTATE_SIZE), 512);
		assert_int_equal(read_note(*state, NT_X86_XSTATE, i, extended, XSTATE_SIZE),
		                 XSTATE_SIZE);
		assert_int_equal(extended[XSTATE_SIZE - 1], tids[i] & 0x7f);
	}
	assert_int_equal(read_note(*state, NT_PRSTATUS, 2, &status, sizeof(status)), 0);
}

static void the_process_is_described(void **state)
{
	struct elf_prpsinfo info;
	uint64_t auxv[4];

	assert_int_equal(read_note(*state, NT_PRPSINFO, 0, &info, sizeof(info)), sizeof(info));
	assert_int_equal(info.pr_pid, PID);
	assert_string_equal(info.pr_fname, "subject");
	assert_string_equal(info.pr_psargs, "subject --with options");
	assert_int_equal(read_note(*state, NT_AUXV, 0, auxv, sizeof(auxv)), sizeof(auxv));
	assert_int_equal(auxv[0], AT_ENTRY);
	assert_int_equal(auxv[1], 0x30000040);
}

static void mapped_files_are_named(void **state)
{
	const struct fixture *fixture = *state;
	uint64_t numbers[256];

	assert_true(read_note(fixture, NT_FILE, 0, numbers, sizeof(numbers)) > 0);
	assert_int_equal(numbers[0], 3);
	assert_int_equal(numbers[1], SP_PAGE_SIZE);
	assert_int_equal(numbers[2], PROGRAM);
	assert_int_equal(numbers[3], PROGRAM + 4 * SP_PAGE_SIZE);
	assert_string_equal((const char *)(numbers + 2 + 3 * numbers[0]), fixture->program);
}

static void stored_pages_are_at_their_addresses(void **state)
{
	assert_page_is(*state, HEAP, "in the checkpoint", byte_at);
	assert_page_is(*state, HEAP + 3 * SP_PAGE_SIZE, "in the checkpoint", byte_at);
	assert_page_is(*state, RESERVED, "in the checkpoint", byte_at);
	assert_page_is(*state, PROGRAM + SP_PAGE_SIZE, "in the checkpoint", byte_at);
	assert_page_is(*state, LOST + SP_PAGE_SIZE, "in the checkpoint", byte_at);
}

static void zero_pages_and_short_holes_read_as_zeros(void **state)
{
	assert_page_is(*state, HEAP + SP_PAGE_SIZE, "zeros", zero_at);
	assert_page_is(*state, HEAP + 2 * SP_PAGE_SIZE, "zeros", zero_at);
	assert_page_is(*state, PROGRAM + 2 * SP_PAGE_SIZE, "zeros, over the file's page", zero_at);
	assert_page_is(*state, LOST + 2 * SP_PAGE_SIZE, "zeros", zero_at);
}

static void long_holes_have_no_contents(void **state)
{
	const struct fixture *fixture = *state;

	assert_non_null(segment_at(fixture, RESERVED + SP_PAGE_SIZE));
	assert_null(page_at(fixture, RESERVED + SP_PAGE_SIZE));
	assert_true(fixture->size < 1 << 20);
}

static void unmodified_pages_come_from_the_file(void **state)
{
	assert_page_is(*state, PROGRAM, "in the file", file_byte_at);
	assert_page_is(*state, PROGRAM + 3 * SP_PAGE_SIZE, "in the file", file_byte_at);
}

static void pages_of_a_lost_file_are_left_to_the_debugger(void **state)
{
	assert_non_null(segment_at(*state, LOST));
	assert_null(page_at(*state, LOST));
	assert_null(page_at(*state, LOST + 3 * SP_PAGE_SIZE));
}

static void shared_mappings_of_named_files_are_left_out(void **state)
{
	assert_non_null(segment_at(*state, SHARED_FILE));
	assert_null(page_at(*state, SHARED_FILE));
	assert_null(segment_at(*state, SYSTEM_CALLS));
}

static void only_its_owner_can_read_it(void **state)
{
	const struct fixture *fixture = *state;

	assert_int_equal(fixture->stat.st_mode & 07777, 0600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(it_is_a_core_file_of_this_machine),
	        cmocka_unit_test(every_thread_has_its_registers),
	        cmocka_unit_test(the_process_is_described),
	        cmocka_unit_test(mapped_files_are_named),
	        cmocka_unit_test(stored_pages_are_at_their_addresses),
	        cmocka_unit_test(zero_pages_and_short_holes_read_as_zeros),
	        cmocka_unit_test(long_holes_have_no_contents),
	        cmocka_unit_test(unmodified_pages_come_from_the_file),
	        cmocka_unit_test(pages_of_a_lost_file_are_left_to_the_debugger),
	        cmocka_unit_test(shared_mappings_of_named_files_are_left_out),
	        cmocka_unit_test(only_its_owner_can_read_it),
	};

	return cmocka_run_group_tests(tests, write_core, clean_up);
}
