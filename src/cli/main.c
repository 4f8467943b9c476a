/*
 * The program: finds the command and runs it. A command is one row in the table below; everything
 * else about it stands in its own file.
 */
#include "cli/cli.h"

#include "base/array.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* In the order of the help, which puts a heading before the first of each group. */
static const struct {
	const struct sp_command *command;
	const char *heading;
} commands[] = {
        {&sp_command_dump, "To save a program and bring it back:"},
        {&sp_command_restore, NULL},
        {&sp_command_snapshot, NULL},
        {&sp_command_pre_dump, NULL},
        {&sp_command_track, NULL},
        {&sp_command_unlock, NULL},
        {&sp_command_inspect, "To work with what was saved:"},
        {&sp_command_verify, NULL},
        {&sp_command_diff, NULL},
        {&sp_command_merge, NULL},
        {&sp_command_core, NULL},
        {&sp_command_check, "To look before anything is saved:"},
        {&sp_command_watch, NULL},
        {&sp_command_criu, "To go on with scripts that are for CRIU:"},
};

#define COMMAND_COUNT SP_COUNT_OF(commands)

static const char introduction[] =
        "sealpoint saves a running program to a directory and brings it back: here, on another\n"
        "machine, or many times over.\n"
        "\n"
        "The three commands to know:\n"
        "  sealpoint dump PID -o DIR    save the program with that process id, then end it\n"
        "  sealpoint restore DIR        bring it back where it was, and wait for it\n"
        "  sealpoint inspect DIR        look at what was saved\n";

static const char examples[] =
        "For example:\n"
        "  sealpoint check                               # what does this machine allow?\n"
        "  sealpoint dump $(pidof redis-server) -o saved # the server is saved and gone\n"
        "  sealpoint restore saved --detach              # and is back, with all its data\n"
        "  sealpoint dump 4242 -o snapshot --leave-running\n";

static void print_help(FILE *out)
{
	fputs(introduction, out);
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const struct sp_command *command = commands[i].command;

		if (commands[i].heading)
			fprintf(out, "\n%s\n", commands[i].heading);
		fprintf(out, "  %-9s %s\n", command->name, command->summary);
	}
	fprintf(out, "\n%s\n\"sealpoint help COMMAND\" tells all about one of them.\n", examples);
}

static const struct sp_command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (!strcmp(commands[i].command->name, name))
			return commands[i].command;
	return NULL;
}

static int unknown_command(const struct sp_cli *cli, const char *name)
{
	const char *names[COMMAND_COUNT + 1] = {"help"};
	const char *meant;

	for (size_t i = 0; i < COMMAND_COUNT; i++)
		names[i + 1] = commands[i].command->name;
	if (name[0] == '-')
		return sp_usage_error(cli, "the first argument is a command, not %s", name);
	meant = sp_did_you_mean(name, names, COMMAND_COUNT + 1);
	if (meant)
		return sp_usage_error(cli, "there is no command \"%s\"; did you mean \"%s\"?", name,
		                      meant);
	return sp_usage_error(cli, "there is no command \"%s\"", name);
}

static int help(const struct sp_cli *cli, const char *name)
{
	const struct sp_command *command = name ? find_command(name) : NULL;

	if (name && !command)
		return unknown_command(cli, name);
	if (command)
		sp_print_command_help(command);
	else
		print_help(stdout);
	return SP_EXIT_OK;
}

/* Before the options are parsed, because errors found while parsing are told in the same way. */
static bool wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--json"))
			return true;
	return false;
}

/*
 * An answer that could not be written is a failure of those commands that only answer. A program
 * that was saved stays saved, and whoever looks at the exit status has to know that.
 */
static int answered(const struct sp_command *command, int status)
{
	if (status != SP_EXIT_OK || (!fflush(stdout) && !ferror(stdout)))
		return status;
	fprintf(stderr, "sealpoint: cannot write the answer: %s\n", strerror(errno));
	return command && command->acts ? SP_EXIT_OK : SP_EXIT_FAILED;
}

static void fail_with_efbig(int signal_number)
{
	(void)signal_number;
}

/*
 * What sealpoint was started with may be unfit for it: it waits for children, and a file that is larger than
 * RLIMIT_FSIZE allows is an error of write(2) for it, as a full disk is.
 */
static void set_signals(void)
{
	signal(SIGCHLD, SIG_DFL);
	signal(SIGXFSZ, fail_with_efbig);
}

/* A link that is named criu takes the command line of `sealpoint criu`. */
static int run_as_criu(int argc, char **argv)
{
	struct sp_cli cli = {.command = &sp_command_criu, .argc = argc, .argv = argv};

	set_signals();
	sp_log_init(&cli.log, false, false);
	return answered(cli.command, cli.command->run(&cli));
}

int main(int argc, char **argv)
{
	struct sp_cli cli = {.argc = argc - 1, .argv = argv + 1, .json = wants_json(argc, argv)};
	const char *name = argc > 1 ? argv[1] : "";

	if (argc > 0 && !strcmp(basename(argv[0]), "criu"))
		return run_as_criu(argc, argv);
	if (argc < 2) {
		print_help(stderr);
		return SP_EXIT_USAGE;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V") || !strcmp(name, "version")) {
		printf("sealpoint %s\n", SP_VERSION);
		return SP_EXIT_OK;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
		return answered(NULL,
		                help(&cli, argc > 2 && strcmp(argv[2], "help") ? argv[2] : NULL));
	cli.command = find_command(name);
	if (!cli.command)
		return unknown_command(&cli, name);
	set_signals();
	sp_log_init(&cli.log, false, false);
	return answered(cli.command, cli.command->run(&cli));
}
