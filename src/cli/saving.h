/*
 * What the commands that save a program share, in the same words: dump, pre-dump, snapshot, and of
 * the options that of compression merge, too.
 */
#ifndef SEALPOINT_CLI_SAVING_H
#define SEALPOINT_CLI_SAVING_H

#include "cli/cli.h"
#include "engine/engine.h"

enum {
	SP_OPTION_COMPRESS = SP_OPTION_LONG + 200,
	SP_OPTION_UNLINKED_LIMIT,
	SP_OPTION_EXTERNAL,
	SP_OPTION_TCP_CLOSE,
	SP_OPTION_SHELL_JOB,
	SP_OPTION_EXT_UNIX_SK,
};

/* Rows of a table of options. */
#define SP_OPTION_ROW_COMPRESS                                                               \
	{                                                                                    \
		SP_OPTION_COMPRESS, "compress", "LEVEL",                                     \
		        "zstd level from -100 (fast) to 22 (small), or \"none\";\ndefault 1" \
	}
#define SP_OPTION_ROW_UNLINKED_LIMIT                                             \
	{                                                                        \
		SP_OPTION_UNLINKED_LIMIT, "unlinked-limit", "SIZE",              \
		        "how large a file without a name may be that is saved\n" \
		        "with the program; default 1G"                           \
	}
#define SP_OPTION_ROW_EXTERNAL                                                                  \
	{                                                                                       \
		SP_OPTION_EXTERNAL, "external", "RESOURCE",                                     \
		        "leave out what belongs to somebody else, by the name that\nls -l "     \
		        "/proc/PID/fd "                                                         \
		        "shows: \"pipe:[123]\", \"/dev/pts/3\"; the\nrestore is given another " \
		        "(--inherit-fd)"                                                        \
	}
#define SP_OPTION_ROW_TCP_CLOSE                                                                    \
	{                                                                                          \
		SP_OPTION_TCP_CLOSE, "tcp-close", NULL,                                            \
		        "save established TCP connections as closed ones; without\nthis they are " \
		        "refused"                                                                  \
	}
#define SP_OPTION_ROW_EXT_UNIX_SK                                                               \
	{                                                                                       \
		SP_OPTION_EXT_UNIX_SK, "ext-unix-sk", NULL,                                     \
		        "connect unix sockets again that are connected to a\nlistening one of " \
		        "another program; else they are refused"                                \
	}
#define SP_OPTION_ROW_SHELL_JOB                                                                 \
	{                                                                                       \
		SP_OPTION_SHELL_JOB, "shell-job", NULL,                                         \
		        "save a program that was started from a shell and shares\nits session " \
		        "and "                                                                  \
		        "terminal"                                                              \
	}

/** What a dump does if nothing else is said; the program runs on. */
struct sp_dump_options sp_saving_defaults(struct sp_cli *cli);
/** Tells of a dump that has succeeded. */
typedef void sp_saving_answer(const struct sp_dump_options *dump,
                              const struct sp_dump_result *result);
/** Saves as the options say, and tells the answer as the user wants it. Returns the exit status. */
int sp_save(struct sp_cli *cli, const struct sp_dump_options *dump, sp_saving_answer *json,
            sp_saving_answer *people);
/** Applies one of the options above; for --external, `dump->kinds.external` is an array of the caller's. False if its argument is wrong, or it is none of them. */
bool sp_apply_saving_option(struct sp_cli *cli, struct sp_dump_options *dump, int option);

#endif
