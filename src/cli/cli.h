/*
 * What the commands share: the description of a command, from which its help and its option parser
 * are made, and the ways to tell an answer.
 *
 * A command is one file and one row in main.c. It parses its options, calls the engine and prints;
 * with --json it prints one object on stdout, errors included. Exit status: 0, 1 (failed; a target
 * runs on), 2 (usage).
 */
#ifndef SEALPOINT_CLI_CLI_H
#define SEALPOINT_CLI_CLI_H

#include "base/error.h"
#include "base/log.h"
#include "image/pages.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SP_EXIT_OK = 0, SP_EXIT_FAILED = 1, SP_EXIT_USAGE = 2 };

struct sp_option {
	int id;           /* the letter of a short option, or from SP_OPTION_LONG for long ones */
	const char *name; /* of the long option, without dashes */
	const char *argument; /* what it takes, for the help: "DIR"; NULL: nothing */
	const char *help;     /* lines are broken by '\n' */
};

#define SP_OPTION_LONG 256
#define SP_OPTION_END (-1)
#define SP_OPTION_WRONG (-2)

/*
 * sp_next_option() handles these itself. Every command has the first two; the others are for those
 * that list them.
 */
enum {
	SP_OPTION_HELP = 'h',
	SP_OPTION_JSON = SP_OPTION_LONG + 100,
	SP_OPTION_VERBOSE = 'v',
	SP_OPTION_QUIET = 'q',
};

struct sp_cli;

struct sp_command {
	const char *name;
	const char *synopsis;            /* operands and the options one must know: "PID -o DIR" */
	const char *summary;             /* one line for the list of commands */
	const char *description;         /* what --help teaches, wrapped by hand */
	const struct sp_option *options; /* ends with a name of NULL; without --help and --json */
	const char *examples;
	void (*help)(void); /* prints all of its help, instead of what is made of the above */
	bool acts;          /* what it has done stays done, even if the answer cannot be written */
	int (*run)(struct sp_cli *cli); /* returns the exit status */
};

/** One invocation of a command. */
struct sp_cli {
	const struct sp_command *command;
	int argc;
	char **argv; /* argv[0] is the command's name; permuted by the option parser */
	bool json;
	const char *argument; /* of the option that was read last */
	struct sp_log log;
};

extern const struct sp_command sp_command_dump;
extern const struct sp_command sp_command_restore;
extern const struct sp_command sp_command_inspect;
extern const struct sp_command sp_command_verify;
extern const struct sp_command sp_command_check;
extern const struct sp_command sp_command_core;
extern const struct sp_command sp_command_pre_dump;
extern const struct sp_command sp_command_track;
extern const struct sp_command sp_command_unlock;
extern const struct sp_command sp_command_watch;
extern const struct sp_command sp_command_merge;
extern const struct sp_command sp_command_snapshot;
extern const struct sp_command sp_command_diff;
extern const struct sp_command sp_command_criu;

/* --- options and operands (options.c) --- */

/**
 * The id of the next option, its argument in cli->argument; SP_OPTION_END after the last one;
 * SP_OPTION_WRONG if there is something wrong with it, which has been said.
 */
int sp_next_option(struct sp_cli *cli);
/**
 * The command's operands, when all options are read. Says what is missing (`names`: "PID", "DIR")
 * or too much and returns NULL if there are not exactly as many as names; `names` ends with NULL.
 */
char **sp_operands(struct sp_cli *cli, const char *const *names);

/** Each says what is wrong with `text`, in the words of the user, and returns false. */
bool sp_parse_pid(struct sp_cli *cli, const char *text, pid_t *pid);
bool sp_parse_number(struct sp_cli *cli, const char *option, const char *text, long minimum,
                     long maximum, long *number);
/** A number of bytes with an optional suffix K, M, G or T (powers of 1024; "KiB" and "KB" too). */
bool sp_parse_size(struct sp_cli *cli, const char *option, const char *text, uint64_t *bytes);
/** A time: "500ms", "2s", "0.5" (seconds), "5min"; up to a year. */
bool sp_parse_duration(struct sp_cli *cli, const char *option, const char *text,
                       uint64_t *nanoseconds);
/** A zstd level, or "none": SP_COMPRESS_NONE. */
bool sp_parse_compression(struct sp_cli *cli, const char *text, int *level);

/** Of `count` words, the one that `word` was probably meant to be, or NULL. */
const char *sp_did_you_mean(const char *word, const char *const *words, size_t count);

/* --- answers (output.c) --- */

/** Tells a usage error and where help is. Returns SP_EXIT_USAGE. */
int sp_usage_error(const struct sp_cli *cli, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/** What went wrong, and the way out where one reason has one remedy wherever it is met. For the caller to free. */
char *sp_failure_sentence(const struct sp_error *err);
/** Tells that the command failed. Returns SP_EXIT_FAILED, or ends by the signal that interrupted it. */
int sp_command_failed(struct sp_cli *cli, const struct sp_error *err);
/**
 * Prints the object on stdout and frees it. Returns SP_EXIT_OK, or SP_EXIT_FAILED if stdout is full
 * or gone.
 */
int sp_print_json(json_t *object);
/** The same on one line: for a command that prints an object now and then. */
int sp_print_json_line(json_t *object);
/**
 * A JSON string. Names and paths need not be UTF-8: what is not ASCII becomes '?' in one that is
 * not.
 */
json_t *sp_json_text(const char *text);
/** "0x7f00...": an address uses all 64 bits, which JSON readers do not promise to keep of a number. */
json_t *sp_json_address(uint64_t address);
/** {"data": 12, "zero": 3, ...}: how many pages are in each state. */
json_t *sp_page_counts_object(const uint64_t pages[SP_PAGE_STATES]);
/** How many pages it has itself: with contents, zero, or a file's. Those of its parent do not count. */
uint64_t sp_own_pages(const struct sp_page_stats *stats);
/** How many times larger the contents are than what is stored of them. */
double sp_ratio(const struct sp_page_stats *stats);
/** "14.4 MiB of contents, stored as 1.9 MiB; 2.0 MiB on disk in all", and the end of the line. */
void sp_print_stored(const struct sp_page_stats *stats, uint64_t image_bytes);
/** Prints a command's help on stdout. */
void sp_print_command_help(const struct sp_command *command);

/** Columns of the terminal on stdout; 100 if it is none. */
unsigned sp_output_width(void);
/** Lines of the terminal on stdout; 0 if it is none. */
unsigned sp_output_height(void);
/** True if stdout is a terminal that shows bold and colours, and the user has not set NO_COLOR. */
bool sp_output_styled(void);

/** Prints a line in bold, where that can be seen. */
void sp_print_heading(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Names come from a saved program: what would steer a terminal is not printed as it is. */
void sp_print_plain(const char *text, size_t length);
/** A path in at most `room` columns: its beginning gives way, because the end tells most. */
void sp_print_path(const char *text, size_t room);
/** A sentence in at most `room` columns: its end gives way. */
void sp_print_sentence(const char *text, size_t room);
/** How many columns are left in a line when `used` of them are; at least 8. */
size_t sp_room_behind(size_t used);

struct sp_text {
	char text[32];
};
/** "512 B", "4.0 KiB", "1.2 GiB". */
struct sp_text sp_show_bytes(uint64_t bytes);
/** "4K", "12.5M", "1.2G": as short as a table wants it. */
struct sp_text sp_show_short_bytes(uint64_t bytes);
/** "85 us", "13.2 ms", "2.41 s". */
struct sp_text sp_show_duration(uint64_t nanoseconds);
/** "12,345". */
struct sp_text sp_show_count(uint64_t count);
/** Behind the root of a tree of so many processes: " and 3 descendants", or "". */
struct sp_text sp_and_descendants(unsigned processes);

#endif
