/*
 * `sealpoint check`: which kernel features and privileges are here, and what is lost without them; and what the
 * command line of CRIU covers.
 */
#include "cli/criu.h"

#include "base/array.h"

#include <stdio.h>
#include <string.h>

#define LINE_WIDTH 100
#define LIST_COLUMN 27

static const struct sp_option options[] = {{0}};

static json_t *feature_object(const struct sp_feature *feature)
{
	return json_pack("{s:s, s:b, s:s, s:s, s:s, s:s}", "name", feature->name, "present",
	                 feature->present, "needed",
	                 feature->need == SP_NEEDED_ALWAYS ? "always" : "sometimes", "purpose",
	                 feature->purpose, "since", feature->since, "detail", feature->detail);
}

static void print_json(const struct sp_array *features, bool usable)
{
	json_t *list = json_array();

	for (size_t i = 0; i < features->count; i++)
		json_array_append_new(list, feature_object(sp_array_at(features, i)));
	sp_print_json(json_pack("{s:b, s:o, s:o}", "usable", usable, "features", list, "criu",
	                        sp_criu_coverage()));
}

static void print_feature(const struct sp_feature *feature, bool styled)
{
	const char *mark = feature->present                    ? "yes"
	                   : feature->need == SP_NEEDED_ALWAYS ? "NO"
	                                                       : "no";
	const char *color = feature->present                    ? "\033[32m"
	                    : feature->need == SP_NEEDED_ALWAYS ? "\033[1;31m"
	                                                        : "\033[33m";

	printf("  %s%-4s%s%-30s %s\n", styled ? color : "", mark, styled ? "\033[0m" : "",
	       feature->name, feature->purpose);
	if (!feature->present)
		printf("      %-30s %s%s(since %s)\n", "", feature->detail,
		       feature->detail[0] ? " " : "", feature->since);
	else if (feature->detail[0])
		printf("      %-30s %s\n", "", feature->detail);
}

static void print_group(const struct sp_array *features, enum sp_need need, const char *title)
{
	bool styled = sp_output_styled();

	printf("%s%s%s\n", styled ? "\033[1m" : "", title, styled ? "\033[0m" : "");
	for (size_t i = 0; i < features->count; i++) {
		const struct sp_feature *feature = sp_array_at(features, i);

		if (feature->need == need)
			print_feature(feature, styled);
	}
}

/* Names with commas between them, on as many lines as that takes. */
static void print_names(const json_t *object, const char *key, const char *title)
{
	const json_t *list = json_object_get(object, key);
	int column = printf("  %-*s", LIST_COLUMN - 2, title);
	size_t count = json_array_size(list);

	for (size_t i = 0; i < count; i++) {
		const char *name = json_string_value(json_array_get(list, i));

		if (column + (int)strlen(name) + 2 > LINE_WIDTH)
			column = printf("\n%*s", LIST_COLUMN - 1, "") - 1;
		column += printf("%s%s%s", i ? " " : "", name, i + 1 < count ? "," : "");
	}
	putchar('\n');
}

static void print_coverage(void)
{
	bool styled = sp_output_styled();
	json_t *coverage = sp_criu_coverage();

	printf("\n%sThe command line of CRIU (sealpoint criu --help)%s\n", styled ? "\033[1m" : "",
	       styled ? "\033[0m" : "");
	print_names(coverage, "commands", "commands");
	print_names(coverage, "commands_not_yet", "not yet");
	print_names(coverage, "options", "options");
	print_names(coverage, "options_without_effect", "without effect");
	print_names(coverage, "options_not_yet", "not yet");
	json_decref(coverage);
}

static unsigned count_missing(const struct sp_array *features, enum sp_need need)
{
	unsigned missing = 0;

	for (size_t i = 0; i < features->count; i++) {
		const struct sp_feature *feature = sp_array_at(features, i);

		missing += feature->need == need && !feature->present;
	}
	return missing;
}

static void print_people(const struct sp_array *features)
{
	unsigned missing = count_missing(features, SP_NEEDED_ALWAYS);
	unsigned limited = count_missing(features, SP_NEEDED_SOMETIMES);

	print_group(features, SP_NEEDED_ALWAYS, "Needed by everyone");
	print_group(features, SP_NEEDED_SOMETIMES, "\nNeeded by some programs");
	print_coverage();
	if (missing)
		printf("\nPrograms cannot be saved and restored here: %u of the things that are "
		       "always needed %s.\n",
		       missing, missing == 1 ? "is missing" : "are missing");
	else if (limited)
		printf("\nPrograms can be saved and restored here, within the limits of what is "
		       "missing above.\n");
	else
		printf("\nPrograms can be saved and restored here.\n");
}

static int run(struct sp_cli *cli)
{
	sp_cleanup_array struct sp_array features = SP_ARRAY_OF(struct sp_feature);
	struct sp_error err = {0};
	bool usable;

	if (sp_next_option(cli) != SP_OPTION_END || !sp_operands(cli, (const char *const[]){NULL}))
		return SP_EXIT_USAGE;
	if (sp_check_features(&features, &err) < 0)
		return sp_command_failed(cli, &err);
	usable = count_missing(&features, SP_NEEDED_ALWAYS) == 0;
	if (cli->json)
		print_json(&features, usable);
	else
		print_people(&features);
	return usable ? SP_EXIT_OK : SP_EXIT_FAILED;
}

const struct sp_command sp_command_check = {
        .name = "check",
        .synopsis = "[--json]",
        .summary = "tell what this kernel and these privileges allow",
        .description =
                "Tries out each kernel feature and each privilege that sealpoint uses, and\n"
                "tells what it is needed for and what is lost without it. Nothing on the\n"
                "machine is changed: each trial runs in a process of its own that is thrown\n"
                "away. It also lists what of CRIU's command line there is (sealpoint criu).\n\n"
                "The exit status is 0 if programs can be saved and restored here, and 1 if\n"
                "something is missing that is always needed.",
        .options = options,
        .examples =
                "  sealpoint check\n"
                "  sealpoint check --json | jq -r '.features[] | select(.present | not) | .name'",
        .run = run,
};
