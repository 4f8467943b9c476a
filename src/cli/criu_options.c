/*
 * Reading options as CRIU does: from configuration files, then from the command line, so that the last word
 * is the user's; "no-" in front of an option without an argument takes it back. An option of another command
 * has no effect, because a configuration file serves all of them.
 */
#include "cli/criu.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 44
#define HELP_WIDTH 90
#define ID_OPERAND 1 /* what getopt_long() returns for a word that is no option */
#define ID_ROWS 256  /* above all letters */

static const struct {
	const char *name;
	enum sp_criu_command command;
	const char *remedy; /* of one that is not supported yet */
} commands[] = {
        {"check", SP_CRIU_CHECK, NULL},
        {"dump", SP_CRIU_DUMP, NULL},
        {"pre-dump", SP_CRIU_PRE_DUMP, NULL},
        {"restore", SP_CRIU_RESTORE, NULL},
        {"dedup", SP_CRIU_DEDUP, NULL},
        {"cpuinfo", SP_CRIU_CPUINFO, NULL},
        {"page-server", SP_CRIU_SERVERS, "copy the images after the dump"},
        {"lazy-pages", SP_CRIU_SERVERS, "restore without --lazy-pages"},
        {"service", SP_CRIU_SERVERS, "run the commands themselves"},
        {"swrk", SP_CRIU_SERVERS, "run the commands themselves"},
        {"exec", SP_CRIU_SERVERS, "use a debugger"},
};

/* What getopt_long(3) wants: an id is ID_ROWS + 2 * row, and 1 more for the row's "no-". */
struct parser {
	struct sp_array options; /* struct option, ended by zeros */
	struct sp_array names;   /* char *: "no-..." */
	char letters[128];
};

bool sp_criu_usage(const struct sp_criu *criu, const char *format, ...)
{
	char message[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (criu->source)
		sp_usage_error(criu->cli, "%s: %s", criu->source, message);
	else
		sp_usage_error(criu->cli, "%s", message);
	return false;
}

/* --- the parser --- */

static int argument_of(const struct sp_criu_option *row)
{
	if (!row->argument)
		return no_argument;
	return row->argument[0] == '[' ? optional_argument : required_argument;
}

static void parser_add(struct parser *parser, const char *name, int argument, int id)
{
	*(struct option *)sp_array_push(&parser->options) =
	        (struct option){name, argument, NULL, id};
}

static void parser_init(struct parser *parser)
{
	char *end = stpcpy(parser->letters, "-:hV");

	parser->options = SP_ARRAY_OF(struct option);
	parser->names = SP_ARRAY_OF(char *);
	parser_add(parser, "help", no_argument, 'h');
	parser_add(parser, "version", no_argument, 'V');
	for (int i = 0; sp_criu_options[i].name; i++) {
		const struct sp_criu_option *row = &sp_criu_options[i];
		int argument = argument_of(row);

		parser_add(parser, row->name, argument, ID_ROWS + 2 * i);
		if (argument == no_argument) {
			char *name = sp_format("no-%s", row->name);

			sp_array_append(&parser->names, &name);
			parser_add(parser, name, no_argument, ID_ROWS + 2 * i + 1);
		}
		if (row->letter)
			end += sprintf(end, "%c%.*s", row->letter, argument, "::");
	}
	sp_array_push(&parser->options);
}

static void release_names(struct sp_array *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(sp_array_pointer(names, i));
	sp_array_release(names);
}

static void parser_release(struct parser *parser)
{
	release_names(&parser->names);
	sp_array_release(&parser->options);
}

/* What `id`, as getopt_long() has given it, is in the table, or NULL. */
static const struct sp_criu_option *row_of(int id)
{
	if (id >= ID_ROWS)
		return &sp_criu_options[(id - ID_ROWS) / 2];
	for (const struct sp_criu_option *row = sp_criu_options; row->name; row++)
		if (row->letter == id)
			return row;
	return NULL;
}

static bool is_off(int id)
{
	return id >= ID_ROWS && (id - ID_ROWS) % 2;
}

/* `result` is '?' or ':' of getopt_long(), `word` what it has looked at. */
static bool wrong_option(struct sp_criu *criu, const struct parser *parser, int result,
                         const char *word)
{
	const struct sp_criu_option *row = row_of(optopt);
	sp_cleanup_free char *name = strndup(word, strcspn(word, "="));
	sp_cleanup_free const char **names = sp_alloc_zeroed(parser->options.count, sizeof(*names));
	const char *meant;

	if (result == ':')
		return sp_criu_usage(criu, "--%s needs an argument", row->name);
	if (optopt >= ID_ROWS || optopt == 'h' || optopt == 'V')
		return sp_criu_usage(criu, "%s takes no argument", name);
	if (optopt)
		return sp_criu_usage(criu, "there is no option -%c", optopt);
	for (size_t i = 0; i + 1 < parser->options.count; i++)
		names[i] = ((struct option *)parser->options.items)[i].name;
	meant = sp_did_you_mean(name + 2, names, parser->options.count - 1);
	if (meant)
		return sp_criu_usage(criu, "there is no option %s; did you mean --%s?", name,
		                     meant);
	return sp_criu_usage(criu, "there is no option %s", name);
}

static void print_version(void)
{
	printf("Version: 3.17 (the command line)\nsealpoint %s\n", SP_VERSION);
}

/*
 * Applies all options of the words that are for the command; the first word is nobody's. While the command is
 * not known those are what says which files to read, and operands are listed.
 */
static bool apply_words(struct sp_criu *criu, const struct parser *parser, int count, char **words)
{
	int result;

	opterr = 0;
	optind = 0;
	while ((result = getopt_long(count, words, parser->letters, parser->options.items, NULL)) >=
	       0) {
		const struct sp_criu_option *row = row_of(result);

		if (result == '?' || result == ':')
			return wrong_option(criu, parser, result, words[optind - 1]);
		if (result == 'h' || result == 'V') {
			if (result == 'h')
				sp_criu_help();
			else
				print_version();
			exit(fflush(stdout) ? SP_EXIT_FAILED : SP_EXIT_OK);
		}
		if (result == ID_OPERAND && criu->command == SP_CRIU_UNKNOWN)
			sp_array_append(&criu->operands, &optarg);
		if (row && row->commands & criu->command &&
		    !row->apply(criu, row, optarg, !is_off(result)))
			return false;
	}
	return true;
}

/* --- files --- */

static bool apply_file(struct sp_criu *criu, const struct parser *parser, const char *path,
                       bool optional)
{
	sp_cleanup_array struct sp_array words = SP_ARRAY_OF(char *);
	bool fine;

	criu->source = path;
	sp_array_append(&words, &path);
	fine = sp_criu_read_config(criu, path, optional, &words);
	sp_array_push(&words);
	if (fine)
		fine = apply_words(criu, parser, (int)words.count - 1, words.items);
	criu->source = NULL;
	return fine;
}

static bool apply_files(struct sp_criu *criu, const struct parser *parser)
{
	const char *home = getenv("HOME"), *named = getenv("CRIU_CONFIG_FILE");
	const char *given = criu->config; /* no file names another one */
	sp_cleanup_free char *own = sp_format("%s/.criu/default.conf", home ? home : "");

	if (!criu->no_default_config) {
		if (!apply_file(criu, parser, "/etc/criu/default.conf", true))
			return false;
		if (home && !apply_file(criu, parser, own, true))
			return false;
	}
	if (named && *named && !apply_file(criu, parser, named, false))
		return false;
	return !given || apply_file(criu, parser, given, false);
}

/* --- the whole --- */

/* What is behind the command: for one of them an action, for the others nothing. */
static bool take_operands(struct sp_criu *criu, const char *const *words, size_t count)
{
	size_t most = criu->command == SP_CRIU_CPUINFO ? 2 : 1;

	if (count > most)
		return sp_criu_usage(criu, "\"%s\" is one argument too many", words[most]);
	if (criu->command != SP_CRIU_CPUINFO)
		return true;
	criu->action = count > 1 ? words[1] : "";
	return !strcmp(criu->action, "dump") || !strcmp(criu->action, "check") ||
	       sp_criu_usage(criu, "say what to do: cpuinfo dump or cpuinfo check");
}

static bool find_command(struct sp_criu *criu)
{
	size_t count = criu->operands.count;
	const char *const *words = criu->operands.items;
	const char *names[SP_COUNT_OF(commands)];
	const char *meant;
	const char *remedy = NULL;
	bool known = false;

	if (count == 0)
		return sp_criu_usage(criu, "give a command: dump, pre-dump, restore, check, dedup "
		                           "or cpuinfo");
	for (size_t i = 0; i < SP_COUNT_OF(commands); i++) {
		names[i] = commands[i].name;
		if (!strcmp(words[0], commands[i].name)) {
			criu->command = commands[i].command;
			remedy = commands[i].remedy;
			known = true;
		}
	}
	if (criu->command == SP_CRIU_SERVERS)
		return sp_criu_usage(criu, "the command %s is not supported yet: %s", words[0],
		                     remedy);
	if (known)
		return take_operands(criu, words, count);
	meant = sp_did_you_mean(words[0], names, SP_COUNT_OF(commands));
	if (meant)
		return sp_criu_usage(criu, "there is no command \"%s\"; did you mean \"%s\"?",
		                     words[0], meant);
	return sp_criu_usage(criu, "there is no command \"%s\"", words[0]);
}

bool sp_criu_parse(struct sp_criu *criu)
{
	struct sp_cli *cli = criu->cli;
	struct parser parser;
	bool fine;

	parser_init(&parser);
	criu->command = SP_CRIU_UNKNOWN;
	/* Help, version, and what is wrong with an option come before what is wrong with the rest. */
	fine = apply_words(criu, &parser, cli->argc, cli->argv) && find_command(criu) &&
	       apply_files(criu, &parser) && apply_words(criu, &parser, cli->argc, cli->argv);
	parser_release(&parser);
	return fine;
}

/* --- what is covered --- */

static void add_options(json_t *object, const char *key, enum sp_criu_fate fate)
{
	json_t *list = json_array();

	for (const struct sp_criu_option *row = sp_criu_options; row->name; row++)
		if (sp_criu_fate(row) == fate)
			json_array_append_new(list, json_string(row->name));
	json_object_set_new(object, key, list);
}

static json_t *list_commands(bool supported)
{
	json_t *list = json_array();

	for (size_t i = 0; i < SP_COUNT_OF(commands); i++)
		if ((commands[i].command != SP_CRIU_SERVERS) == supported)
			json_array_append_new(list, json_string(commands[i].name));
	return list;
}

json_t *sp_criu_coverage(void)
{
	json_t *object = json_pack("{s:o, s:o}", "commands", list_commands(true),
	                           "commands_not_yet", list_commands(false));

	add_options(object, "options", SP_CRIU_DONE);
	add_options(object, "options_without_effect", SP_CRIU_ACCEPTED);
	add_options(object, "options_not_yet", SP_CRIU_REFUSED);
	return object;
}

/* --- help --- */

/* The text from HELP_COLUMN on, where the line has come to; more lines stand under it. */
static void print_text(const char *text)
{
	int room = HELP_WIDTH - HELP_COLUMN, length = (int)strlen(text), end;

	for (; length > room; text += end + 1, length -= end + 1) {
		end = room;
		while (text[end] != ' ')
			end--;
		printf("%.*s\n%*s", end, text, HELP_COLUMN, "");
	}
	puts(text);
}

static void print_row(const struct sp_criu_option *row)
{
	sp_cleanup_free char *argument = !row->argument ? sp_strdup("")
	                                 : row->argument[0] == '['
	                                         ? sp_format("[=%s", row->argument + 1)
	                                         : sp_format(" %s", row->argument);
	sp_cleanup_free char *left =
	        row->letter ? sp_format("-%c, --%s%s", row->letter, row->name, argument)
	                    : sp_format("    --%s%s", row->name, argument);
	static const char letters[] = "cdpr";

	printf("  %-*s ", HELP_COLUMN - 9, left);
	for (int i = 0; i < 4; i++)
		putchar(row->commands & 1 << i ? letters[i] : '-');
	fputs("  ", stdout);
	print_text(row->text);
}

static void print_rows(const char *heading, enum sp_criu_fate fate)
{
	puts(heading);
	for (const struct sp_criu_option *row = sp_criu_options; row->name; row++)
		if (sp_criu_fate(row) == fate)
			print_row(row);
}

void sp_criu_help(void)
{
	puts("Usage: sealpoint criu COMMAND [OPTION]...\n\n"
	     "The command line of CRIU (as in criu(8), version 3.17) for sealpoint: a link to\n"
	     "sealpoint that is named criu takes it, too. Images are sealpoint's own, in the\n"
	     "directory \"" SP_CRIU_CHECKPOINT "\" of the images directory.\n\n"
	     "Commands:\n"
	     "  check      what this machine allows\n"
	     "  dump       save a program, and end it\n"
	     "  pre-dump   save its memory ahead, while it runs\n"
	     "  restore    bring it back\n"
	     "  dedup      make one checkpoint of all that the images stand on\n"
	     "  cpuinfo    dump or check: tell what this processor can do, or whether it suffices\n"
	     "Not yet: page-server, lazy-pages, service, swrk, exec.\n\n"
	     "Letters tell the commands that an option is for: c(heck), d(ump), p(re-dump),\n"
	     "r(estore); on others it has no effect. \"no-\" in front of an option without an\n"
	     "argument takes it back.\n");
	print_rows("Options:", SP_CRIU_DONE);
	printf("  -V, --version%*sversion, here and there\n", HELP_COLUMN - 15, "");
	printf("  -h, --help%*sthis text\n", HELP_COLUMN - 12, "");
	print_rows("\nAccepted, because they have nothing to do here:", SP_CRIU_ACCEPTED);
	print_rows("\nRefused, because not supported yet:", SP_CRIU_REFUSED);
	puts("\nExamples:\n"
	     "  sealpoint criu pre-dump -t 4242 -D images/1\n"
	     "  sealpoint criu dump -t 4242 -D images/2 --prev-images-dir ../1 -o dump.log -v4\n"
	     "  sealpoint criu restore -D images/2 -d");
}
