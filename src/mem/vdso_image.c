/* The functions of a vDSO image, and redirecting them: see vdso_image.h. */
#include "mem/vdso_image.h"

#include "arch/arch.h"
#include "base/cleanup.h"
#include "base/error.h"

#include <elf.h>
#include <string.h>

/* An image, and what its dynamic section names, as offsets in it. A vDSO is linked to address 0. */
struct image {
	const uint8_t *bytes;
	size_t size;
	uint64_t symbols, symbol_count, strings, strings_size, hash, gnu_hash;
};

static int damaged(const char *what, struct sp_error *err)
{
	return sp_fail(err, EBADMSG, "the vDSO image has a damaged %s", what);
}

static bool inside(const struct image *image, uint64_t offset, uint64_t size)
{
	return offset <= image->size && size <= image->size - offset;
}

/* Copies a structure out of the image: it may lie unaligned. */
static bool fetch(const struct image *image, uint64_t offset, void *into, size_t size)
{
	if (!inside(image, offset, size))
		return false;
	memcpy(into, image->bytes + offset, size);
	return true;
}

static bool find_segment(const struct image *image, uint32_t type, Elf64_Phdr *segment)
{
	Elf64_Ehdr header;

	if (!fetch(image, 0, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(*segment))
		return false;
	for (size_t i = 0; i < header.e_phnum; i++) {
		if (header.e_phoff > image->size ||
		    !fetch(image, header.e_phoff + i * sizeof(*segment), segment, sizeof(*segment)))
			return false;
		if (segment->p_type == type)
			return true;
	}
	return false;
}

static bool read_dynamic(struct image *image)
{
	Elf64_Phdr dynamic;
	Elf64_Dyn entry;

	if (!find_segment(image, PT_DYNAMIC, &dynamic) || dynamic.p_offset > image->size)
		return false;
	for (uint64_t at = dynamic.p_offset;; at += sizeof(entry)) {
		if (!fetch(image, at, &entry, sizeof(entry)))
			return false;
		switch (entry.d_tag) {
		case DT_NULL:
			return image->symbols && image->strings;
		case DT_SYMTAB:
			image->symbols = entry.d_un.d_ptr;
			break;
		case DT_STRTAB:
			image->strings = entry.d_un.d_ptr;
			break;
		case DT_STRSZ:
			image->strings_size = entry.d_un.d_val;
			break;
		case DT_HASH:
			image->hash = entry.d_un.d_ptr;
			break;
		case DT_GNU_HASH:
			image->gnu_hash = entry.d_un.d_ptr;
			break;
		}
	}
}

/*
 * The GNU hash table does not say how many symbols there are: the last one is at the end of the
 * chain of the bucket that begins last.
 */
static bool count_gnu_symbols(struct image *image)
{
	struct {
		uint32_t buckets, first, bloom_size, bloom_shift;
	} header;
	uint64_t buckets, chains;
	uint32_t last = 0, hash;

	if (!fetch(image, image->gnu_hash, &header, sizeof(header)))
		return false;
	buckets = image->gnu_hash + sizeof(header) + header.bloom_size * 8ULL;
	chains = buckets + header.buckets * 4ULL;
	if (!inside(image, buckets, header.buckets * 4ULL))
		return false;
	for (uint32_t i = 0; i < header.buckets; i++) {
		uint32_t first;

		memcpy(&first, image->bytes + buckets + i * 4ULL, sizeof(first));
		last = first > last ? first : last;
	}
	if (last < header.first) {
		image->symbol_count = header.first;
		return true;
	}
	do {
		if (!fetch(image, chains + (last - header.first) * 4ULL, &hash, sizeof(hash)))
			return false;
		last++;
	} while (!(hash & 1));
	image->symbol_count = last;
	return true;
}

static bool count_symbols(struct image *image)
{
	struct {
		uint32_t buckets, symbols;
	} header;

	if (!image->hash)
		return image->gnu_hash && count_gnu_symbols(image);
	if (!fetch(image, image->hash, &header, sizeof(header)))
		return false;
	image->symbol_count = header.symbols;
	return true;
}

static const char *symbol_name(const struct image *image, uint32_t offset)
{
	const char *name;

	if (offset >= image->strings_size)
		return NULL;
	name = (const char *)image->bytes + image->strings + offset;
	return memchr(name, '\0', (size_t)(image->strings_size - offset)) ? name : NULL;
}

int sp_vdso_functions(const void *bytes, size_t size, struct sp_array *functions,
                      struct sp_error *err)
{
	struct image image = {.bytes = bytes, .size = size};

	*functions = SP_ARRAY_OF(struct sp_vdso_function);
	if (!read_dynamic(&image) || !inside(&image, image.strings, image.strings_size))
		return damaged("dynamic section", err);
	if (!count_symbols(&image) || image.symbol_count > size / sizeof(Elf64_Sym) ||
	    !inside(&image, image.symbols, image.symbol_count * sizeof(Elf64_Sym)))
		return damaged("symbol table", err);
	for (uint64_t i = 0; i < image.symbol_count; i++) {
		struct sp_vdso_function *function;
		const char *name;
		Elf64_Sym symbol;

		fetch(&image, image.symbols + i * sizeof(symbol), &symbol, sizeof(symbol));
		if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF)
			continue;
		name = symbol_name(&image, symbol.st_name);
		if (!name || !inside(&image, symbol.st_value, symbol.st_size)) {
			sp_array_release(functions);
			return damaged("symbol", err);
		}
		function = sp_array_push(functions);
		*function = (struct sp_vdso_function){name, symbol.st_value, symbol.st_size};
	}
	return 0;
}

/* --- redirecting --- */

static const struct sp_vdso_function *find_function(const struct sp_array *functions,
                                                    const char *name)
{
	for (size_t i = 0; i < functions->count; i++) {
		const struct sp_vdso_function *function = sp_array_at(functions, i);

		if (strcmp(function->name, name) == 0)
			return function;
	}
	return NULL;
}

static int replace(void *image, const struct sp_vdso_function *function, const uint8_t *code,
                   size_t size, struct sp_error *err)
{
	if (size > function->size)
		return sp_fail(err, ENOTSUP,
		               "%s in the program's vDSO is too short to be redirected; restore on "
		               "a machine with the kernel of the dump",
		               function->name);
	memcpy((uint8_t *)image + function->offset, code, size);
	return 0;
}

/*
 * Functions have aliases (time, __vdso_time), of which the other image may know only one. So those
 * that are missing are replaced first: a jump that is found for an alias then overwrites the
 * failure.
 */
static int redirect_all(void *image, const struct sp_array *functions,
                        const struct sp_array *others, remote_addr other_at, bool missing,
                        struct sp_error *err)
{
	for (size_t i = 0; i < functions->count; i++) {
		const struct sp_vdso_function *function = sp_array_at(functions, i);
		const struct sp_vdso_function *other = find_function(others, function->name);
		uint8_t code[SP_JUMP_CODE_MAX];
		size_t size;
		int rc;

		if ((other == NULL) != missing)
			continue;
		size = other ? sp_jump_code(code, other_at + other->offset)
		             : sp_return_code(code, -ENOSYS);
		rc = replace(image, function, code, size, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int sp_vdso_redirect(void *image, size_t size, const void *other, size_t other_size,
                     remote_addr other_at, struct sp_error *err)
{
	sp_cleanup_array struct sp_array functions = {0}, others = {0};
	sp_cleanup_free void *original = memcpy(sp_alloc(size), image, size);
	int rc = sp_vdso_functions(original, size, &functions, err);

	if (rc == 0)
		rc = sp_vdso_functions(other, other_size, &others, err);
	if (rc == 0)
		rc = redirect_all(image, &functions, &others, other_at, true, err);
	if (rc == 0)
		rc = redirect_all(image, &functions, &others, other_at, false, err);
	return rc;
}
