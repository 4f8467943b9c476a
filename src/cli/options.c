/*
 * Options and operands. A command describes its options once, in a table; this file makes of it
 * what getopt_long(3) wants, and says what is wrong in words that lead on: what was given, what was
 * probably meant, where help is.
 */
#include "cli/cli.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define COMPRESS_LOWEST (-100)
#define COMPRESS_HIGHEST 22

static const struct sp_option common_options[] = {
        {SP_OPTION_HELP, "help", NULL, NULL},
        {SP_OPTION_JSON, "json", NULL, NULL},
};

/* All options of a command, and the two forms in which getopt_long(3) wants them. */
struct parser {
	struct sp_array long_options; /* struct option, ended by zeros */
	char letters[128];            /* ":ho:" */
};

static void parser_add(struct parser *parser, size_t *used, const struct sp_option *option)
{
	struct option *item = sp_array_push(&parser->long_options);

	*item = (struct option){option->name, option->argument ? required_argument : no_argument,
	                        NULL, option->id};
	if (option->id >= SP_OPTION_LONG)
		return;
	parser->letters[(*used)++] = (char)option->id;
	if (option->argument)
		parser->letters[(*used)++] = ':';
	parser->letters[*used] = '\0';
}

static void parser_init(struct parser *parser, const struct sp_command *command)
{
	size_t used = 1;

	*parser = (struct parser){.long_options = SP_ARRAY_OF(struct option), .letters = ":"};
	for (const struct sp_option *option = command->options; option->name; option++)
		parser_add(parser, &used, option);
	for (size_t i = 0; i < SP_COUNT_OF(common_options); i++)
		parser_add(parser, &used, &common_options[i]);
	sp_array_push(&parser->long_options);
}

static void parser_release(struct parser *parser)
{
	sp_array_release(&parser->long_options);
}

static const char *option_name(const struct parser *parser, int id)
{
	const struct option *option = parser->long_options.items;

	while (option->name && option->val != id)
		option++;
	return option->name;
}

/* `word` is "--name" or "--name=value" and matches no option, or several. */
static int unknown_long_option(const struct sp_cli *cli, const struct parser *parser,
                               const char *word)
{
	sp_cleanup_free char *name = strndup(word + 2, strcspn(word + 2, "="));
	size_t count = parser->long_options.count - 1, matches = 0;
	sp_cleanup_free const char **names = sp_alloc_zeroed(count, sizeof(*names));
	const char *first = NULL, *second = NULL, *meant;

	for (size_t i = 0; i < count; i++) {
		names[i] = ((struct option *)parser->long_options.items)[i].name;
		if (strncmp(names[i], name, strlen(name)) != 0)
			continue;
		matches++;
		second = first ? names[i] : NULL;
		first = first ? first : names[i];
	}
	if (matches > 1)
		return sp_usage_error(cli, "--%s can mean --%s or --%s: write it out", name, first,
		                      second);
	meant = sp_did_you_mean(name, names, count);
	if (meant)
		return sp_usage_error(cli, "there is no option --%s; did you mean --%s?", name,
		                      meant);
	return sp_usage_error(cli, "there is no option --%s", name);
}

static int wrong_option(const struct sp_cli *cli, const struct parser *parser, int result)
{
	const char *word = cli->argv[optind - 1];
	const char *name = optopt ? option_name(parser, optopt) : NULL;

	if (result == ':')
		return sp_usage_error(cli, "--%s needs an argument", name);
	if (name)
		return sp_usage_error(cli, "--%s takes no argument", name);
	if (optopt)
		return sp_usage_error(cli, "there is no option -%c", optopt);
	return unknown_long_option(cli, parser, word);
}

/* Whether it is an option that all commands treat alike, and is done with. */
static bool apply_common(struct sp_cli *cli, int option)
{
	switch (option) {
	case SP_OPTION_HELP:
		sp_print_command_help(cli->command);
		exit(SP_EXIT_OK);
	case SP_OPTION_VERBOSE:
		return cli->log.verbose = true;
	case SP_OPTION_QUIET:
		return cli->log.quiet = true;
	default:
		return option ==
		       SP_OPTION_JSON; /* main.c has seen it: it counts for errors as well */
	}
}

int sp_next_option(struct sp_cli *cli)
{
	sp_cleanup(parser_release) struct parser parser;
	int result;

	parser_init(&parser, cli->command);
	opterr = 0;
	do {
		result = getopt_long(cli->argc, cli->argv, parser.letters,
		                     parser.long_options.items, NULL);
	} while (apply_common(cli, result));
	cli->argument = optarg;
	if (result == '?' || result == ':') {
		wrong_option(cli, &parser, result);
		return SP_OPTION_WRONG;
	}
	return result < 0 ? SP_OPTION_END : result;
}

char **sp_operands(struct sp_cli *cli, const char *const *names)
{
	char **operands = cli->argv + optind;
	int given = cli->argc - optind, wanted = 0;

	while (names[wanted])
		wanted++;
	if (given < wanted) {
		sp_usage_error(cli, "%s is missing", names[given]);
		return NULL;
	}
	if (given > wanted) {
		sp_usage_error(cli, "\"%s\" is one argument too many", operands[wanted]);
		return NULL;
	}
	return operands;
}

/* Decimal digits with an optional sign and nothing else. */
static bool parse_long(const char *text, long *number)
{
	char *end;

	if (!isdigit((unsigned char)text[text[0] == '-']))
		return false;
	errno = 0;
	*number = strtol(text, &end, 10);
	return *end == '\0' && errno == 0;
}

bool sp_parse_pid(struct sp_cli *cli, const char *text, pid_t *pid)
{
	long number;

	if (!parse_long(text, &number) || number <= 0 || number > INT_MAX) {
		sp_usage_error(cli, "\"%s\" is not a process id", text);
		return false;
	}
	*pid = (pid_t)number;
	return true;
}

bool sp_parse_number(struct sp_cli *cli, const char *option, const char *text, long minimum,
                     long maximum, long *number)
{
	if (parse_long(text, number) && *number >= minimum && *number <= maximum)
		return true;
	sp_usage_error(cli, "%s takes a number from %ld to %ld, not \"%s\"", option, minimum,
	               maximum, text);
	return false;
}

/* What "K", "MiB", "GB", ... multiplies by, as a shift; -1 if it is no such suffix. */
static int size_suffix(const char *suffix)
{
	static const char letters[] = "KMGT";
	const char *letter;

	if (!suffix[0])
		return 0;
	letter = strchr(letters, toupper((unsigned char)suffix[0]));
	if (!letter || (suffix[1] && strcasecmp(suffix + 1, "B") && strcasecmp(suffix + 1, "iB")))
		return -1;
	return 10 * (int)(letter - letters + 1);
}

bool sp_parse_size(struct sp_cli *cli, const char *option, const char *text, uint64_t *bytes)
{
	unsigned long long number = 0;
	char *end = NULL;
	int shift = -1;

	errno = 0;
	if (isdigit((unsigned char)text[0])) {
		number = strtoull(text, &end, 10);
		shift = size_suffix(end);
	}
	if (shift < 0 || errno != 0 || number > (UINT64_MAX >> shift)) {
		sp_usage_error(cli, "%s takes a size like 4096, 64K, 10M or 2G, not \"%s\"", option,
		               text);
		return false;
	}
	*bytes = (uint64_t)number << shift;
	return true;
}

bool sp_parse_duration(struct sp_cli *cli, const char *option, const char *text,
                       uint64_t *nanoseconds)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {{"", 1},     {"s", 1},  {"ms", 1e-3}, {"us", 1e-6},
	             {"min", 60}, {"m", 60}, {"h", 3600}};
	char *end;
	double value = strtod(text, &end);

	for (size_t i = 0; i < SP_COUNT_OF(units) && end != text && isdigit((unsigned char)*text);
	     i++) {
		double seconds = value * units[i].seconds;

		if (!strcmp(end, units[i].name) && seconds >= 0 && seconds <= 366 * 86400.0) {
			*nanoseconds = (uint64_t)(seconds * 1e9);
			return true;
		}
	}
	sp_usage_error(cli, "%s takes a time like 500ms, 2s or 5min, not \"%s\"", option, text);
	return false;
}

bool sp_parse_compression(struct sp_cli *cli, const char *text, int *level)
{
	long number;

	if (!strcmp(text, "none")) {
		*level = SP_COMPRESS_NONE;
		return true;
	}
	if (!sp_parse_number(cli, "--compress", text, COMPRESS_LOWEST, COMPRESS_HIGHEST, &number))
		return false;
	*level = (int)number;
	return true;
}

/*
 * Insertions, deletions, replacements and swaps of neighbours between two words of up to 31
 * letters.
 */
static unsigned edit_distance(const char *a, const char *b)
{
	unsigned table[32][32];
	size_t rows = strnlen(a, 31), columns = strnlen(b, 31);

	for (size_t i = 0; i <= rows; i++)
		table[i][0] = (unsigned)i;
	for (size_t j = 0; j <= columns; j++)
		table[0][j] = (unsigned)j;
	for (size_t i = 1; i <= rows; i++) {
		for (size_t j = 1; j <= columns; j++) {
			unsigned best = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			if (table[i - 1][j] + 1 < best)
				best = table[i - 1][j] + 1;
			if (table[i][j - 1] + 1 < best)
				best = table[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    table[i - 2][j - 2] + 1 < best)
				best = table[i - 2][j - 2] + 1;
			table[i][j] = best;
		}
	}
	return table[rows][columns];
}

const char *sp_did_you_mean(const char *word, const char *const *words, size_t count)
{
	unsigned best = 1 + (unsigned)strlen(word) / 3;
	const char *meant = NULL;

	for (size_t i = 0; i < count; i++) {
		unsigned distance = edit_distance(word, words[i]);

		if (distance > best || (meant && distance == best))
			continue;
		best = distance;
		meant = words[i];
	}
	return meant;
}
