/* Reads build ids: see build_id.h. The file may be anything, so every number in it is doubted. */
#include "kinds/build_id.h"

#include "base/io.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

enum { HEADERS_MAX = 64, NOTES_MAX = 4096 };

static size_t align(size_t size)
{
	return (size + 3) & ~(size_t)3;
}

/* Looks through the notes of a segment. */
static struct sp_build_id find_note(const uint8_t *notes, size_t size)
{
	struct sp_build_id id = {0};
	Elf64_Nhdr note;

	for (size_t at = 0; at + sizeof(note) <= size;) {
		size_t name, value;

		memcpy(&note, notes + at, sizeof(note));
		name = at + sizeof(note);
		if (note.n_namesz > size || note.n_descsz > size)
			break;
		value = name + align(note.n_namesz);
		at = value + align(note.n_descsz);
		if (value + note.n_descsz > size)
			break;
		if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof(ELF_NOTE_GNU) ||
		    memcmp(notes + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) ||
		    note.n_descsz > sizeof(id.bytes))
			continue;
		id.size = note.n_descsz;
		memcpy(id.bytes, notes + value, id.size);
		break;
	}
	return id;
}

struct sp_build_id sp_build_id_read(int fd)
{
	Elf64_Phdr headers[HEADERS_MAX];
	struct sp_build_id id = {0};
	uint8_t notes[NOTES_MAX];
	size_t size;
	Elf64_Ehdr elf;

	if (sp_pread_full(fd, &elf, sizeof(elf), 0) != (ssize_t)sizeof(elf) ||
	    memcmp(elf.e_ident, ELFMAG, SELFMAG) || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
	    elf.e_phentsize != sizeof(*headers) || elf.e_phnum > HEADERS_MAX)
		return id;
	size = elf.e_phnum * sizeof(*headers);
	if (sp_pread_full(fd, headers, size, (off_t)elf.e_phoff) != (ssize_t)size)
		return id;
	for (size_t i = 0; i < elf.e_phnum && !id.size; i++) {
		size = headers[i].p_filesz;
		if (headers[i].p_type == PT_NOTE && size <= NOTES_MAX &&
		    sp_pread_full(fd, notes, size, (off_t)headers[i].p_offset) == (ssize_t)size)
			id = find_note(notes, size);
	}
	return id;
}

void sp_build_id_text(const uint8_t *bytes, size_t size, char text[65])
{
	snprintf(text, 65, "none");
	for (size_t i = 0; i < size && i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}
