/* The words for what a checkpoint holds, the same for people and for programs. */
#include "cli/inspect.h"

#include "base/array.h"

#include <string.h>

struct sp_line sp_describe_file(const Sealpoint__OpenFile *file)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);
	struct sp_line line = {""};

	if (kind && kind->describe)
		kind->describe(file->body, line.text, sizeof(line.text));
	return line;
}

/* What its master is called, without what more there is to say of that. */
struct sp_line sp_describe_terminal(const struct sp_checkpoint *checkpoint,
                                    const Sealpoint__Process *process)
{
	const Sealpoint__OpenFile *master = sp_checkpoint_file(checkpoint, process->terminal);
	struct sp_line line = {""};

	if (master)
		line = sp_describe_file(master);
	line.text[strcspn(line.text, ",")] = '\0';
	return line;
}

struct sp_line sp_describe_facet(const Sealpoint__Facet *record)
{
	const struct sp_facet *facet = sp_facet_by_name(record->name);
	struct sp_line line = {""};

	if (facet && facet->describe)
		facet->describe(record->body, line.text, sizeof(line.text));
	return line;
}

const char *sp_file_title(const Sealpoint__OpenFile *file)
{
	const struct sp_file_kind *kind = sp_file_kind_by_name(file->kind);

	return kind ? kind->title : file->kind;
}

const char *sp_facet_title(const Sealpoint__Facet *record)
{
	const struct sp_facet *facet = sp_facet_by_name(record->name);

	return facet ? facet->title : record->name;
}

static const struct {
	uint32_t flag;
	const char *name;
} mapping_flags[] = {
        {SP_VMA_SEALED, "sealed"},
        {SP_VMA_LOCKED, "locked"},
        {SP_VMA_LOCK_ON_FAULT, "lock-on-fault"},
        {SP_VMA_GROWS_DOWN, "grows-down"},
        {SP_VMA_HUGE, "huge"},
        {SP_VMA_NO_HUGE, "no-huge"},
        {SP_VMA_MERGEABLE, "mergeable"},
        {SP_VMA_SEQUENTIAL, "sequential"},
        {SP_VMA_RANDOM, "random"},
        {SP_VMA_DONT_FORK, "dont-fork"},
        {SP_VMA_WIPE_ON_FORK, "wipe-on-fork"},
        {SP_VMA_DONT_DUMP, "dont-dump"},
        {SP_VMA_NO_RESERVE, "no-reserve"},
        {SP_VMA_DELETED, "deleted"},
};

const char *sp_mapping_flag(uint32_t flags, size_t *next)
{
	while (*next < SP_COUNT_OF(mapping_flags)) {
		size_t index = (*next)++;

		if (flags & mapping_flags[index].flag)
			return mapping_flags[index].name;
	}
	return NULL;
}
