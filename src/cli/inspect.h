/*
 * What the two forms of `sealpoint inspect` share: inspect_text.c for people, inspect_json.c for
 * programs.
 */
#ifndef SEALPOINT_CLI_INSPECT_H
#define SEALPOINT_CLI_INSPECT_H

#include "cli/cli.h"
#include "engine/engine.h"
#include "mem/vma.h"

struct sp_inspection {
	struct sp_checkpoint *checkpoint;
	const Sealpoint__Process *process;
	const struct sp_array *mappings; /* struct sp_mapping_summary */
	struct sp_page_stats pages;
	uint64_t image_bytes;
	bool all; /* every mapping on a line of its own */
};

struct sp_line {
	char text[256];
};

void sp_print_inspection(const struct sp_inspection *inspection);
json_t *sp_inspection_object(const struct sp_inspection *inspection);

/* inspect.c */
struct sp_line sp_describe_file(const Sealpoint__OpenFile *file);
struct sp_line sp_describe_facet(const Sealpoint__Facet *record);
const char *sp_file_title(const Sealpoint__OpenFile *file);
const char *sp_facet_title(const Sealpoint__Facet *record);
/**
 * The name of the next flag of a mapping that a reader wants to know about, NULL after the last;
 * starts at 0.
 */
const char *sp_mapping_flag(uint32_t flags, size_t *next);

#endif
