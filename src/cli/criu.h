/*
 * The command line that people know from CRIU, as a translation: criu_options.c reads options into the
 * struct below (criu_table.c says which there are), from configuration files too (criu_config.c); the
 * commands (criu.c, criu_images.c, criu_check.c) ask for what `sealpoint dump` and the others ask for; criu_log.c and
 * criu_script.c tell of it as people expect. No mechanism lives here.
 *
 * Images: CRIU's -D is a directory that exists and is filled; a checkpoint of sealpoint is one that appears
 * in one step. So the checkpoint is the directory "sealpoint" in it.
 */
#ifndef SEALPOINT_CLI_CRIU_H
#define SEALPOINT_CLI_CRIU_H

#include "cli/cli.h"
#include "engine/engine.h"

#include <stdio.h>

#define SP_CRIU_CHECKPOINT "sealpoint" /* in the images directory */

/* Which commands an option is for: it has no effect on others. */
enum sp_criu_command {
	SP_CRIU_CHECK = 1,
	SP_CRIU_DUMP = 2,
	SP_CRIU_PRE_DUMP = 4,
	SP_CRIU_RESTORE = 8,
	SP_CRIU_DEDUP = 16,
	SP_CRIU_CPUINFO = 32,
	SP_CRIU_SERVERS = 64,  /* page-server, lazy-pages, service, ...: not yet */
	SP_CRIU_UNKNOWN = 128, /* none has been found yet */
};
#define SP_CRIU_SAVE (SP_CRIU_DUMP | SP_CRIU_PRE_DUMP)
#define SP_CRIU_BOTH (SP_CRIU_DUMP | SP_CRIU_RESTORE)
#define SP_CRIU_ALL 127

enum sp_criu_level { SP_CRIU_ERROR = 1, SP_CRIU_WARNING, SP_CRIU_INFO, SP_CRIU_DEBUG };

struct sp_criu {
	struct sp_cli *cli;
	enum sp_criu_command command;
	const char *source;    /* the file that options are read from now; NULL: the command line */
	struct sp_array words; /* char *: what was read from files, for as long as it is used */
	struct sp_array operands;  /* char *: words of the command line that are no options */
	const char *action;        /* the word behind `cpuinfo` */
	struct sp_array permitted; /* const struct sp_criu_option *: given, and of no effect */

	/* Paths as given; the directories are resolved before anything begins. */
	const char *images, *work, *log_file, *previous, *pidfile;
	const char *config; /* what says which files to read is looked at before them */
	bool no_default_config;
	struct sp_array scripts;   /* char *, absolute */
	struct sp_array external;  /* char * */
	struct sp_array inherited; /* struct sp_inherited */
	pid_t tree;
	uint64_t ghost_limit;
	uint64_t timeout_ns;
	bool leave_running, leave_stopped, track_memory;
	bool detach, sibling, shell_job, tcp_close, tcp_established;
	const char *freeze_cgroup;
	enum sp_cgroup_mode cgroups;
	bool external_unix, skip_in_flight;
	bool display_stats;
	int status_fd; /* -1: none */
	bool extra, experimental, all;
	const char *feature;

	/* The log (criu_log.c). */
	FILE *log;     /* NULL: standard error */
	int verbosity; /* the highest level that is told */
	uint64_t started_ns;
};

/* --- options (criu_options.c, criu_table.c) --- */

struct sp_criu_option {
	const char *name;
	char letter;          /* 0: none */
	const char *argument; /* NULL: none; "[...]": optional */
	unsigned commands;    /* that it is for */
	/*
	 * Does what the option says (`on` is false for --no-NAME), or says what is wrong and returns
	 * false.
	 */
	bool (*apply)(struct sp_criu *criu, const struct sp_criu_option *option,
	              const char *argument, bool on);
	size_t field;     /* of struct sp_criu, for `apply` */
	const char *text; /* for the help; of one that does nothing, why that cannot matter */
};

/** Ends with a name of NULL. (criu_table.c) */
extern const struct sp_criu_option sp_criu_options[];
enum sp_criu_fate { SP_CRIU_DONE, SP_CRIU_ACCEPTED, SP_CRIU_REFUSED };
/** What becomes of an option. */
enum sp_criu_fate sp_criu_fate(const struct sp_criu_option *option);

/**
 * Reads configuration files and the command line, in that order, and finds the command. False if
 * something is wrong with them, which has been said.
 */
bool sp_criu_parse(struct sp_criu *criu);
/** Tells a usage error, naming the file if it is in one. Returns false. */
bool sp_criu_usage(const struct sp_criu *criu, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/** All about the command line: which options there are, by what becomes of them. */
void sp_criu_help(void);

/** Which commands and options there are, and which not yet, by name; the caller's to release. */
json_t *sp_criu_coverage(void);

/* --- configuration files (criu_config.c) --- */

/**
 * Appends the words that a configuration file stands for ("--work-dir=/x") to `words`. A file that is
 * not there is empty if it is `optional`.
 */
bool sp_criu_read_config(struct sp_criu *criu, const char *path, bool optional,
                         struct sp_array *words);

/* --- the log (criu_log.c) --- */

/** Opens the log file in the working directory, if there is to be one; lines go there from now on. */
int sp_criu_log_open(struct sp_criu *criu, struct sp_error *err);
/** One line, if the verbosity wants it; an error goes to standard error, too. */
void sp_criu_tell(struct sp_criu *criu, enum sp_criu_level level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/** The last line: it goes to a log file whatever the verbosity. */
void sp_criu_finished(struct sp_criu *criu, const char *line);

/* --- action scripts (criu_script.c) --- */

/**
 * Runs all action scripts, one after the other, for a moment ("pre-dump"); `pid` is the process that
 * is saved or restored, 0 while there is none. Fails if one of them does.
 */
int sp_criu_run_scripts(struct sp_criu *criu, const char *action, pid_t pid, struct sp_error *err);
/** The same, of the actions that belong to a moment; `context` is the struct sp_criu. */
int sp_criu_run_scripts_at(void *context, enum sp_moment moment, pid_t pid, struct sp_error *err);

/* --- images (criu_images.c) --- */

bool sp_criu_has_checkpoint(const char *directory);
/**
 * The checkpoint in an images directory, which may itself be one of `sealpoint dump`. The caller's to
 * free.
 */
int sp_criu_find_checkpoint(const char *images, char **path, struct sp_error *err);
/** `dedup`: the checkpoint needs no other one any more. */
int sp_criu_dedup(struct sp_criu *criu, struct sp_error *err);
/** `cpuinfo dump` and `cpuinfo check`. */
int sp_criu_cpuinfo(struct sp_criu *criu, struct sp_error *err);

/* --- commands --- */

/** `check`. Returns the exit status. */
int sp_criu_check(struct sp_criu *criu);

#endif
