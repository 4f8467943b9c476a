/*
 * What the two forms of `sealpoint inspect` share: inspect_text.c for people, inspect_json.c for
 * programs; each of a checkpoint and of a running process.
 */
#ifndef SEALPOINT_CLI_INSPECT_H
#define SEALPOINT_CLI_INSPECT_H

#include "cli/cli.h"
#include "engine/engine.h"
#include "mem/vma.h"

struct sp_inspection {
	struct sp_checkpoint *checkpoint;
	const Sealpoint__Process *process;
	const struct sp_array *threads;     /* Sealpoint__Thread *: those of the process */
	const struct sp_array *descriptors; /* Sealpoint__Descriptor *: likewise */
	const struct sp_array *mappings;    /* struct sp_mapping_summary: likewise */
	struct sp_page_stats pages;         /* of this checkpoint alone */
	struct sp_page_stats chain;         /* with what it has from those it stands on */
	unsigned members;                   /* of the chain, this one counted */
	struct sp_checkpoint_extent image;
	const struct sp_survey *survey; /* of a running process: there is no image; or NULL */
	bool all;                       /* every mapping on a line of its own */
};

/** Pages of contents that are not stored in the checkpoint itself, but in those it stands on. */
static inline uint64_t sp_pages_from_chain(const struct sp_inspection *inspection)
{
	return inspection->chain.pages[SP_PAGE_DATA] - inspection->pages.pages[SP_PAGE_DATA];
}

/** Prints it on stdout, as wide as the terminal. (inspect_text.c) */
void sp_print_inspection(const struct sp_inspection *inspection);
/** The same of a running process, after all that stands in the way of a dump. */
void sp_print_survey(const struct sp_inspection *inspection, pid_t pid);
/** As one object, the caller's to free. (inspect_json.c) */
json_t *sp_inspection_object(const struct sp_inspection *inspection);
json_t *sp_survey_object(const struct sp_inspection *inspection, pid_t pid);

/* --- words (inspect_words.c) --- */

struct sp_line {
	char text[256];
};

/** What the kind of an open file, or a facet, says of its own message; empty if nothing. */
struct sp_line sp_describe_file(const Sealpoint__OpenFile *file);
struct sp_line sp_describe_facet(const Sealpoint__Facet *record);
/** Its controlling terminal, "/dev/pts/3"; empty: none, or that of somebody else. */
struct sp_line sp_describe_terminal(const struct sp_checkpoint *checkpoint,
                                    const Sealpoint__Process *process);
/** For people; the name in the image if this version does not know it. */
const char *sp_file_title(const Sealpoint__OpenFile *file);
const char *sp_facet_title(const Sealpoint__Facet *record);
/** The next flag of a mapping that a reader wants to know of, or NULL; `*next` starts at 0. */
const char *sp_mapping_flag(uint32_t flags, size_t *next);

#endif
