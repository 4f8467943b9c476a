/* The list of mappings: every kind is told from smaps, with its flags. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel_abi.h"
#include "mem/vma.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* --- from a text --- */

static struct sp_vma *only(struct sp_array *vmas, const char *text)
{
	struct sp_error err = {0};
	char *copy = sp_strdup(text);

	assert_int_equal(sp_vma_list_parse(copy, vmas, &err), 0);
	free(copy);
	assert_int_equal(vmas->count, 1);
	return sp_array_at(vmas, 0);
}

static void header_and_attributes_are_read(void **state)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	const struct sp_vma *vma = only(
	        &vmas, "7f0000200000-7f0000400000 r-xs 00003000 fe:01 320476                     "
	               "/a file (deleted)\n"
	               "Size:               2048 kB\n"
	               "KernelPageSize:     2048 kB\n"
	               "ProtectionKey:         3\n"
	               "VmFlags: rd ex sh mr mw me ms gd lo lf sr rr dc dd wf hg nh mg nr sl sf\n");

	assert_int_equal(vma->range.start, 0x7f0000200000);
	assert_int_equal(vma->range.end, 0x7f0000400000);
	assert_int_equal(vma->prot, PROT_READ | PROT_EXEC);
	assert_int_equal(vma->offset, 0x3000);
	assert_int_equal(vma->dev_major, 0xfe);
	assert_int_equal(vma->dev_minor, 1);
	assert_int_equal(vma->inode, 320476);
	assert_string_equal(vma->path, "/a file (deleted)");
	assert_int_equal(vma->page_shift, 21);
	assert_int_equal(vma->protection_key, 3);
	assert_int_equal(vma->kind, SP_VMA_FILE_SHARED);
	assert_int_equal(vma->flags, ((SP_VMA_SYNC << 1) - 1) | SP_VMA_DELETED | SP_VMA_MAY_WRITE);
}

static void each_kind_is_told_by_path_and_flags(void **state)
{
	static const struct {
		const char *prot, *path, *flags;
		enum sp_vma_kind kind;
	} cases[] = {
	        {"rw-p 0 00:00 0", "", "", SP_VMA_ANONYMOUS},
	        {"rw-p 0 00:00 0", "[heap]", "", SP_VMA_ANONYMOUS},
	        {"rw-p 0 00:00 0", "[anon:a name]", "", SP_VMA_ANONYMOUS},
	        {"rw-p 0 00:00 0", "[stack]", "gd", SP_VMA_STACK},
	        {"rw-p 0 00:00 0", "", "gd", SP_VMA_STACK},
	        {"rw-s 0 00:01 9", "/dev/zero (deleted)", "sh", SP_VMA_SHARED_ANON},
	        {"rw-s 0 00:01 9", "[anon_shmem:x]", "sh", SP_VMA_SHARED_ANON},
	        {"rw-s 0 00:0e 9", "/anon_hugepage (deleted)", "sh ht", SP_VMA_SHARED_ANON},
	        {"rw-p 0 00:0e 9", "/anon_hugepage (deleted)", "ht", SP_VMA_HUGETLB},
	        {"rw-p 0 fe:00 9", "/usr/bin/x", "", SP_VMA_FILE_PRIVATE},
	        {"rw-s 0 00:01 9", "/memfd:x (deleted)", "sh", SP_VMA_FILE_SHARED},
	        {"rw-s 0 00:01 9", "/SYSV00000000 (deleted)", "sh", SP_VMA_SYSTEM_V},
	        {"rw-s 0 fe:00 9", "/SYSV00000000 (deleted)", "sh", SP_VMA_FILE_SHARED},
	        {"r-xp 0 00:00 0", "[vdso]", "", SP_VMA_VDSO},
	        {"r--p 0 00:00 0", "[vvar]", "pf io", SP_VMA_VVAR},
	        {"r--p 0 00:00 0", "[vvar_vclock]", "pf io", SP_VMA_VVAR},
	        {"--xp 0 00:00 0", "[vsyscall]", "", SP_VMA_VSYSCALL},
	        {"--xp 0 00:00 0", "[uprobes]", "", SP_VMA_DEVICE},
	        {"rw-s 0 00:06 9", "/dev/mem", "io pf", SP_VMA_DEVICE},
	        {"rw-s 0 00:0c 9", "anon_inode:[io_uring]", "", SP_VMA_DEVICE},
	        {"rw-s 0 00:0c 9", "/[aio] (deleted)", "", SP_VMA_ASYNC_IO},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
		sp_cleanup_free char *text =
		        sp_format("1000-2000 %s   %s\nVmFlags: rd %s\n", cases[i].prot,
		                  cases[i].path, cases[i].flags);
		const struct sp_vma *vma = only(&vmas, text);

		if (vma->kind != cases[i].kind)
			fail_msg("%s is %s", text, sp_vma_kind_name(vma->kind));
	}
}

static void a_name_may_contain_brackets(void **state)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	const struct sp_vma *vma = only(&vmas, "1000-2000 rw-p 0 0:0 0  [anon:a[0]: b]\n");

	assert_string_equal(vma->name, "a[0]: b");
}

/* As the kernel shows a list while the program runs: the second has become part of the third. */
static void what_is_shown_twice_is_listed_once(void **state)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	char text[] = "1000-2000 rw-p 0 0:0 0 \n"
	              "4000-6000 r--p 00001000 fe:00 9 /a\nVmFlags: rd\n"
	              "3000-9000 r--p 00000000 fe:00 9 /a\nVmFlags: rd nr\n"
	              "a000-b000 rw-p 0 0:0 0 \n";
	struct sp_error err = {0};
	const struct sp_vma *rest;

	assert_int_equal(sp_vma_list_parse(text, &vmas, &err), 0);
	assert_int_equal(vmas.count, 4);
	rest = sp_vma_find(&vmas, 0x6000);
	assert_int_equal(rest->range.start, 0x6000);
	assert_int_equal(rest->range.end, 0x9000);
	assert_int_equal(rest->offset, 0x3000);
	assert_int_equal(rest->flags, SP_VMA_NO_RESERVE);
	assert_int_equal(sp_vma_find(&vmas, 0x5000)->range.start, 0x4000);
}

static bool agree(const char *smaps, const char *maps)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	sp_cleanup_free char *text = sp_strdup(smaps);
	struct sp_error err = {0};

	assert_int_equal(sp_vma_list_parse(text, &vmas, &err), 0);
	return sp_vma_list_agrees(&vmas, maps);
}

static void a_list_agrees_with_maps_or_not(void **state)
{
	static const char smaps[] = "1000-2000 rw-p 0 0:0 0 \nVmFlags: rd gd\n"
	                            "3000-4000 r--s 00001000 fe:00 9 /a (deleted)\nVmFlags: sh\n";
	static const char *const others[] = {
	        "1000-2000 rw-p 0 0:0 0 \n",
	        "3000-4000 r--s 00001000 fe:00 9 /a (deleted)\n",
	        "1000-2000 rw-p 0 0:0 0 \n3000-5000 r--s 00001000 fe:00 9 /a (deleted)\n",
	        "1000-2000 rw-p 0 0:0 0 \n3000-4000 rw-s 00001000 fe:00 9 /a (deleted)\n",
	        "1000-2000 rw-p 0 0:0 0 \n3000-4000 r--p 00001000 fe:00 9 /a (deleted)\n",
	        "1000-2000 rw-p 0 0:0 0 \n3000-4000 r--s 00002000 fe:00 9 /a (deleted)\n",
	        "1000-2000 rw-p 0 0:0 0 \n3000-4000 r--s 00001000 fe:00 8 /a (deleted)\n",
	        "1000-2000 rw-p 0 0:0 0 \n3000-4000 r--s 00001000 fe:00 9 /b (deleted)\n",
	        ("1000-2000 rw-p 0 0:0 0 \n3000-4000 r--s 00001000 fe:00 9 /a (deleted)\n"
	         "5000-6000 rw-p 0 0:0 0 \n"),
	};

	assert_true(agree(smaps, "1000-2000 rw-p 0 0:0 0 \n"
	                         "3000-4000 r--s 00001000 fe:00 9 /a (deleted)\n"));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (agree(smaps, others[i]))
			fail_msg("agrees with %s", others[i]);
}

static void nonsense_is_refused(void **state)
{
	static const char *const texts[] = {"x", "2000-1000 rw-p 0 0:0 0 \n",
	                                    "1000-2000 rw 0 0:0 0 \n",
	                                    "1000-3000 rw-p 0 0:0 0 \n1000-2000 rw-p 0 0:0 0 \n",
	                                    "1000-2000 rw-p 0 0:0 0 \n\x01\n"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
		sp_cleanup_free char *text = sp_strdup(texts[i]);
		struct sp_error err = {0};

		assert_int_equal(sp_vma_list_parse(text, &vmas, &err), -EINVAL);
		assert_int_equal(vmas.count, 0);
	}
}

/* --- from this process --- */

static void *map(size_t pages, int prot, int flags, int fd)
{
	void *address = mmap(NULL, pages * SP_PAGE_SIZE, prot, flags, fd, 0);

	assert_ptr_not_equal(address, MAP_FAILED);
	return address;
}

static const struct sp_vma *own(struct sp_array *vmas, const void *address)
{
	struct sp_error err = {0};
	const struct sp_vma *vma;

	if (sp_vma_list_read(getpid(), vmas, &err) < 0)
		fail_msg("%s", err.message);
	vma = sp_vma_find(vmas, (uintptr_t)address);
	assert_non_null(vma);
	return vma;
}

static void advice_shows_as_flags(void **state)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	void *memory = map(8, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	const struct sp_vma *vma;

	assert_int_equal(madvise(memory, SP_PAGE_SIZE, MADV_DONTFORK), 0);
	assert_int_equal(madvise(memory, SP_PAGE_SIZE, MADV_DONTDUMP), 0);
	assert_int_equal(madvise(memory, SP_PAGE_SIZE, MADV_WIPEONFORK), 0);
	vma = own(&vmas, memory);
	assert_int_equal(vma->kind, SP_VMA_ANONYMOUS);
	assert_int_equal(sp_range_size(vma->range), SP_PAGE_SIZE);
	assert_int_equal(vma->flags, SP_VMA_DONT_FORK | SP_VMA_DONT_DUMP | SP_VMA_WIPE_ON_FORK |
	                                     SP_VMA_NO_RESERVE | SP_VMA_MAY_WRITE);
	munmap(memory, 8 * SP_PAGE_SIZE);
}

static void dev_zero_is_anonymous_when_private(void **state)
{
	sp_cleanup_close int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0}, again = {0};
	void *private = map(2, PROT_READ, MAP_PRIVATE, fd);
	void *shared = map(2, PROT_READ, MAP_SHARED, fd);

	assert_int_equal(own(&vmas, private)->kind, SP_VMA_ANONYMOUS);
	assert_int_equal(own(&again, shared)->kind, SP_VMA_SHARED_ANON);
	munmap(private, 2 * SP_PAGE_SIZE);
	munmap(shared, 2 * SP_PAGE_SIZE);
}

static void the_main_stack_grows_down(void **state)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};

	assert_int_equal(own(&vmas, &vmas)->kind, SP_VMA_STACK);
}

static void nothing_is_found_between_mappings(void **state)
{
	sp_cleanup(sp_vma_list_release) struct sp_array vmas = {0};
	struct sp_error err = {0};

	assert_int_equal(sp_vma_list_read(getpid(), &vmas, &err), 0);
	assert_null(sp_vma_find(&vmas, 0));
	assert_null(sp_vma_find(&vmas, 0x7fffffffffffffff));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(header_and_attributes_are_read),
	        cmocka_unit_test(each_kind_is_told_by_path_and_flags),
	        cmocka_unit_test(a_name_may_contain_brackets),
	        cmocka_unit_test(what_is_shown_twice_is_listed_once),
	        cmocka_unit_test(a_list_agrees_with_maps_or_not),
	        cmocka_unit_test(nonsense_is_refused),
	        cmocka_unit_test(advice_shows_as_flags),
	        cmocka_unit_test(dev_zero_is_anonymous_when_private),
	        cmocka_unit_test(the_main_stack_grows_down),
	        cmocka_unit_test(nothing_is_found_between_mappings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
