/*
 * The registry: which kinds exist. Adding a kind is its file, its message and one row here. The order
 * of file kinds is the order in which they are asked whether an open file is theirs; the order of
 * facets is the order in which they are rebuilt within their phase.
 */
#include "kinds/registry.h"

const struct sp_file_kind *const sp_file_kinds[] = {
	NULL,
};

const struct sp_facet *const sp_facets[] = {
	NULL,
};
