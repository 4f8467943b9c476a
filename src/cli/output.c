/*
 * How answers look: help made from a command's table, errors as a sentence or as JSON, and numbers
 * in the form in which people read them.
 */
#include "cli/cli.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/interrupt.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define HELP_COLUMN 28 /* where the explanation of an option begins */

static json_t *error_object(const char *kind, const char *name, const char *message)
{
	json_t *error = json_pack("{s:s, s:o}", "kind", kind, "message", sp_json_text(message));

	if (name)
		json_object_set_new(error, "errno", json_string(name));
	return json_pack("{s:o}", "error", error);
}

int sp_usage_error(const struct sp_cli *cli, const char *format, ...)
{
	char message[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (cli->json)
		sp_print_json(error_object("usage", NULL, message));
	else if (cli->command)
		fprintf(stderr, "sealpoint %s: %s (\"sealpoint help %s\" tells more)\n",
		        cli->command->name, message, cli->command->name);
	else
		fprintf(stderr, "sealpoint: %s (\"sealpoint help\" tells more)\n", message);
	return SP_EXIT_USAGE;
}

/* What helps against a reason that has one remedy wherever it is met, if nobody has told one yet; or "". */
static const char *way_out(const struct sp_error *err)
{
	if (strchr(err->message, ';'))
		return "";
	switch (err->code) {
	case ENOSPC:
	case EDQUOT:
		return "; make room there, or name a directory on another disk";
	case EFBIG:
		return "; files may not be as large as that here: raise the limit (ulimit -f, "
		       "RLIMIT_FSIZE)";
	case EROFS:
		return "; name a directory on another disk";
	case ENAMETOOLONG:
		return "; choose a shorter name";
	case EMFILE:
		return "; start it with fewer open files, or raise its limit of them (ulimit -n)";
	case ENFILE:
		return "; the machine has no more open files: end who has many, or raise "
		       "/proc/sys/fs/file-max";
	case EBADMSG:
		return "; use another copy of the checkpoint, or an older one "
		       "(\"sealpoint verify\" tells whether it is whole)";
	default:
		return "";
	}
}

char *sp_failure_sentence(const struct sp_error *err)
{
	return sp_format("%s%s", err->message, way_out(err));
}

int sp_command_failed(struct sp_cli *cli, const struct sp_error *err)
{
	sp_cleanup_free char *message = sp_failure_sentence(err);

	sp_log_failed(&cli->log);
	if (cli->json)
		sp_print_json(error_object("failed", strerrorname_np(err->code), message));
	else
		fprintf(stderr, "sealpoint: %s\n", message);
	if (err->code == EINTR)
		sp_interrupt_follow();
	return SP_EXIT_FAILED;
}

static int print_json(json_t *object, size_t flags)
{
	int failed = json_dumpf(object, stdout, flags) || putchar('\n') == EOF || fflush(stdout);

	json_decref(object);
	if (!failed)
		return SP_EXIT_OK;
	fprintf(stderr, "sealpoint: cannot write the answer: %s\n", strerror(errno));
	clearerr(stdout); /* it has been said */
	return SP_EXIT_FAILED;
}

int sp_print_json(json_t *object)
{
	return print_json(object, JSON_INDENT(2));
}

int sp_print_json_line(json_t *object)
{
	return print_json(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
}

json_t *sp_json_text(const char *text)
{
	json_t *string = json_string(text);
	sp_cleanup_free char *copy = NULL;

	if (string)
		return string;
	copy = sp_strdup(text);
	for (char *at = copy; *at; at++)
		if ((signed char)*at < 0)
			*at = '?';
	return json_string(copy);
}

json_t *sp_json_address(uint64_t address)
{
	return json_sprintf("0x%" PRIx64, address);
}

json_t *sp_page_counts_object(const uint64_t pages[SP_PAGE_STATES])
{
	json_t *object = json_object();

	for (int state = 0; state < SP_PAGE_STATES; state++)
		json_object_set_new(object, sp_page_state_name(state),
		                    json_integer((json_int_t)pages[state]));
	return object;
}

uint64_t sp_own_pages(const struct sp_page_stats *stats)
{
	return stats->pages[SP_PAGE_DATA] + stats->pages[SP_PAGE_ZERO] + stats->pages[SP_PAGE_FILE];
}

void sp_print_stored(const struct sp_page_stats *stats, uint64_t image_bytes)
{
	printf("%s of contents, stored as %s; %s on disk in all\n",
	       sp_show_bytes(stats->raw_bytes).text, sp_show_bytes(stats->stored_bytes).text,
	       sp_show_bytes(image_bytes).text);
}

double sp_ratio(const struct sp_page_stats *stats)
{
	return stats->stored_bytes ? (double)stats->raw_bytes / (double)stats->stored_bytes : 1;
}

/* "  -o, --output DIR", then the explanation from HELP_COLUMN on, under itself when it has lines. */
static void print_option(const struct sp_option *option)
{
	const char *line = option->help, *end;
	int used = option->id < SP_OPTION_LONG ? printf("  -%c, --%s", option->id, option->name)
	                                       : printf("      --%s", option->name);

	if (option->argument)
		used += printf(" %s", option->argument);
	if (used > HELP_COLUMN - 2) {
		putchar('\n');
		used = 0;
	}
	for (; *line; line = *end ? end + 1 : end) {
		end = strchrnul(line, '\n');
		printf("%*s%.*s\n", HELP_COLUMN - used, "", (int)(end - line), line);
		used = 0;
	}
}

void sp_print_command_help(const struct sp_command *command)
{
	static const struct sp_option json = {SP_OPTION_JSON, "json", NULL,
	                                      "answer with one JSON object on stdout"};
	static const struct sp_option help = {SP_OPTION_HELP, "help", NULL, "this text"};

	if (command->help) {
		command->help();
		return;
	}
	printf("Usage: sealpoint %s %s\n\n%s\n\nOptions:\n", command->name, command->synopsis,
	       command->description);
	for (const struct sp_option *option = command->options; option->name; option++)
		print_option(option);
	print_option(&json);
	print_option(&help);
	printf("\nExamples:\n%s\n", command->examples);
}

unsigned sp_output_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;

	if (columns && atoi(columns) >= 40)
		return (unsigned)atoi(columns);
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
		return size.ws_col;
	return 100;
}

unsigned sp_output_height(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

bool sp_output_styled(void)
{
	const char *terminal = getenv("TERM");
	const char *no_color = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && terminal && strcmp(terminal, "dumb") != 0 &&
	       !(no_color && no_color[0]);
}

void sp_print_heading(const char *format, ...)
{
	bool styled = sp_output_styled();
	va_list args;

	fputs(styled ? "\033[1m" : "", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	puts(styled ? "\033[0m" : "");
}

void sp_print_plain(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		putchar(iscntrl((unsigned char)text[i]) ? ' ' : text[i]);
}

void sp_print_path(const char *text, size_t room)
{
	size_t length = strlen(text);

	if (length > room) {
		fputs("...", stdout);
		text += length - (room - 3);
	}
	sp_print_plain(text, strlen(text));
}

void sp_print_sentence(const char *text, size_t room)
{
	size_t length = strlen(text);

	while (length && text[length - 1] == ' ')
		length--;
	sp_print_plain(text, length <= room ? length : room - 3);
	fputs(length <= room ? "" : "...", stdout);
}

size_t sp_room_behind(size_t used)
{
	size_t width = sp_output_width();

	return width > used + 8 ? width - used : 8;
}

struct sp_text sp_show_bytes(uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	struct sp_text result;
	size_t unit = 0;

	while (value >= 1023.95) {
		value /= 1024;
		unit++;
	}
	snprintf(result.text, sizeof(result.text), unit ? "%.1f %s" : "%.0f %s", value,
	         units[unit]);
	return result;
}

struct sp_text sp_show_short_bytes(uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double value = (double)bytes / 1024;
	struct sp_text result;
	size_t unit = 0;

	while (value >= 999.5) {
		value /= 1024;
		unit++;
	}
	snprintf(result.text, sizeof(result.text), value < 10 && unit ? "%.1f%c" : "%.0f%c", value,
	         units[unit]);
	return result;
}

struct sp_text sp_show_duration(uint64_t nanoseconds)
{
	struct sp_text result;

	if (nanoseconds < 1000000)
		snprintf(result.text, sizeof(result.text), "%" PRIu64 " us", nanoseconds / 1000);
	else if (nanoseconds < 1000000000)
		snprintf(result.text, sizeof(result.text), "%.1f ms", (double)nanoseconds / 1e6);
	else
		snprintf(result.text, sizeof(result.text), "%.2f s", (double)nanoseconds / 1e9);
	return result;
}

struct sp_text sp_show_count(uint64_t count)
{
	struct sp_text result;
	char digits[24];
	int length = snprintf(digits, sizeof(digits), "%" PRIu64, count);
	size_t used = 0;

	for (int i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			result.text[used++] = ',';
		result.text[used++] = digits[i];
	}
	result.text[used] = '\0';
	return result;
}

struct sp_text sp_and_descendants(unsigned processes)
{
	struct sp_text result = {""};

	if (processes > 1)
		snprintf(result.text, sizeof(result.text), " and %u descendant%s", processes - 1,
		         processes > 2 ? "s" : "");
	return result;
}
