/*
 * The options of CRIU's command line, one row each: for which commands, and what becomes of them here. They
 * are those of the manual page criu(8) 3.17, and some older ones that scripts still use. A row ends in one of
 * three ways:
 *
 *   - it is done (set_flag, set_text, ...);
 *   - it is accepted and does nothing, because that cannot matter, and its text says why (accept), or because
 *     it permits to save what a program may not even have, and what it has is refused by name (permit);
 *   - it is refused, by name (refuse).
 */
#include "cli/criu.h"

#include "base/array.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what a row does --- */

static void *field_of(struct sp_criu *criu, const struct sp_criu_option *option)
{
	return (char *)criu + option->field;
}

static bool set_flag(struct sp_criu *criu, const struct sp_criu_option *option,
                     const char *argument, bool on)
{
	*(bool *)field_of(criu, option) = on;
	return true;
}

static bool set_text(struct sp_criu *criu, const struct sp_criu_option *option,
                     const char *argument, bool on)
{
	*(const char **)field_of(criu, option) = argument;
	return true;
}

static bool accept(struct sp_criu *criu, const struct sp_criu_option *option, const char *argument,
                   bool on)
{
	return true;
}

/* Told in the log: it is not as if it had not been given. */
static bool permit(struct sp_criu *criu, const struct sp_criu_option *option, const char *argument,
                   bool on)
{
	if (on)
		sp_array_append(&criu->permitted, &option);
	return true;
}

/* What says which files are read was looked for before all others. */
static bool was_read(struct sp_criu *criu, const struct sp_criu_option *option,
                     const char *argument, bool on)
{
	return true;
}

static bool refuse(struct sp_criu *criu, const struct sp_criu_option *option, const char *argument,
                   bool on)
{
	return !on ||
	       sp_criu_usage(criu, "--%s is not supported yet: %s", option->name, option->text);
}

static bool parse_number(struct sp_criu *criu, const struct sp_criu_option *option,
                         const char *text, long minimum, long maximum, long *number)
{
	char *end;

	errno = 0;
	*number = strtol(text, &end, 10);
	if (end != text && !*end && !errno && *number >= minimum && *number <= maximum)
		return true;
	return sp_criu_usage(criu, "--%s takes a number from %ld to %ld, not \"%s\"", option->name,
	                     minimum, maximum, text);
}

static bool set_tree(struct sp_criu *criu, const struct sp_criu_option *option,
                     const char *argument, bool on)
{
	long number;

	if (!parse_number(criu, option, argument, 1, INT_MAX, &number))
		return false;
	criu->tree = (pid_t)number;
	return true;
}

static bool set_timeout(struct sp_criu *criu, const struct sp_criu_option *option,
                        const char *argument, bool on)
{
	long number;

	if (!parse_number(criu, option, argument, 1, 86400, &number))
		return false;
	criu->timeout_ns = (uint64_t)number * SP_NS_PER_S;
	return true;
}

static bool set_status_fd(struct sp_criu *criu, const struct sp_criu_option *option,
                          const char *argument, bool on)
{
	long number;

	if (!parse_number(criu, option, argument, 0, INT_MAX, &number))
		return false;
	if (fcntl((int)number, F_SETFD, FD_CLOEXEC) < 0)
		return sp_criu_usage(criu, "--status-fd %ld is no open descriptor", number);
	criu->status_fd = (int)number;
	return true;
}

static bool close_fd(struct sp_criu *criu, const struct sp_criu_option *option,
                     const char *argument, bool on)
{
	long number;

	if (!parse_number(criu, option, argument, 0, INT_MAX, &number))
		return false;
	return close((int)number) == 0 ||
	       sp_criu_usage(criu, "--close %ld is no open descriptor", number);
}

static bool set_ghost_limit(struct sp_criu *criu, const struct sp_criu_option *option,
                            const char *argument, bool on)
{
	static const char suffixes[] = "KMG";
	char *end;
	const char *suffix;
	unsigned long long number;

	errno = 0;
	number = strtoull(argument, &end, 10);
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (*argument < '0' || *argument > '9' || errno || number > UINT64_MAX >> 30 ||
	    (*end && (!suffix || end[1])))
		return sp_criu_usage(criu,
		                     "--ghost-limit takes a size like 4096, 64K, 10M or 2G, "
		                     "not \"%s\"",
		                     argument);
	criu->ghost_limit = number << (suffix ? 10 * (suffix - suffixes + 1) : 0);
	return true;
}

/* "-v" one more than usual, "-vv" two more, "-v4" and "--verbosity=4" just so. */
static bool set_verbosity(struct sp_criu *criu, const struct sp_criu_option *option,
                          const char *argument, bool on)
{
	long number = SP_CRIU_INFO;

	if (argument && strspn(argument, "v") == strlen(argument))
		number += (long)strlen(argument);
	else if (argument && !parse_number(criu, option, argument, 0, 1000, &number))
		return false;
	criu->verbosity = (int)number;
	return true;
}

/* Looked for from where the command was given: later the working directory is another one. */
static bool add_script(struct sp_criu *criu, const struct sp_criu_option *option,
                       const char *argument, bool on)
{
	char *path = realpath(argument, NULL);

	if (!path || access(path, X_OK) < 0) {
		int code = errno;

		free(path);
		return sp_criu_usage(criu, "cannot run the action script %s: %s", argument,
		                     strerror(code));
	}
	sp_array_append(&criu->scripts, &path);
	return true;
}

static bool set_cgroups(struct sp_criu *criu, const struct sp_criu_option *option,
                        const char *argument, bool on)
{
	return !on || (argument && !strcmp(argument, "ignore")) ||
	       sp_criu_usage(criu,
	                     "--manage-cgroups=%s is not supported yet: cgroups are neither "
	                     "saved nor restored; use --manage-cgroups=ignore, and put "
	                     "the restored process where it belongs",
	                     argument ? argument : "soft");
}

static bool set_validation(struct sp_criu *criu, const struct sp_criu_option *option,
                           const char *argument, bool on)
{
	return !strcmp(argument, "buildid") ||
	       sp_criu_usage(criu,
	                     "--file-validation=%s is not supported yet: build ids are "
	                     "always compared; use --file-validation=buildid",
	                     argument);
}

static bool set_pre_dump_mode(struct sp_criu *criu, const struct sp_criu_option *option,
                              const char *argument, bool on)
{
	return !strcmp(argument, "splice") || !strcmp(argument, "read") ||
	       sp_criu_usage(criu, "--pre-dump-mode takes splice or read, not \"%s\"", argument);
}

static bool set_network_lock(struct sp_criu *criu, const struct sp_criu_option *option,
                             const char *argument, bool on)
{
	return !strcmp(argument, "nftables") ||
	       sp_criu_usage(criu,
	                     "--network-lock=%s is not supported yet: connections are locked "
	                     "with nftables; use --network-lock=nftables",
	                     argument);
}

/* --- the rows --- */

#define FIELD(name) offsetof(struct sp_criu, name)
#define CHECK SP_CRIU_CHECK
#define DUMP SP_CRIU_DUMP
#define PRE_DUMP SP_CRIU_PRE_DUMP
#define SAVE SP_CRIU_SAVE
#define RESTORE SP_CRIU_RESTORE
#define BOTH SP_CRIU_BOTH
#define ALL SP_CRIU_ALL
#define PAGES (SP_CRIU_SAVE | SP_CRIU_SERVERS)
#define NONE 0 /* no field */

static const char needs_server[] = "there is no page server; copy the images";
static const char needs_tls[] = "there is no page server, so nothing to encrypt";
static const char needs_namespaces[] = "for programs in namespaces of their own, which are refused";
static const char needs_cgroups[] = "cgroups are neither saved nor restored";

const struct sp_criu_option sp_criu_options[] = {
        /* Done. */
        {"tree", 't', "PID", SAVE, set_tree, NONE, "the process to save"},
        {"images-dir", 'D', "DIR", ALL, set_text, FIELD(images),
         "where the images are; the current directory if not given"},
        {"work-dir", 'W', "DIR", ALL, set_text, FIELD(work),
         "where the log and the pid file are; as --images-dir if not given"},
        {"leave-running", 'R', NULL, DUMP, set_flag, FIELD(leave_running),
         "let the program run on"},
        {"leave-stopped", 's', NULL, BOTH, set_flag, FIELD(leave_stopped),
         "leave the program stopped"},
        {"restore-detached", 'd', NULL, RESTORE, set_flag, FIELD(detach),
         "return when the program is restored, and leave it to init"},
        {"shell-job", 'j', NULL, BOTH, set_flag, FIELD(shell_job),
         "save, and restore, a program that shares session and terminal"},
        {"tcp-established", 0, NULL, BOTH, set_flag, FIELD(tcp_established),
         "save established TCP connections, and bring them back"},
        {"tcp-close", 0, NULL, BOTH, set_flag, FIELD(tcp_close),
         "bring TCP connections back closed"},
        {"ghost-limit", 0, "SIZE", DUMP, set_ghost_limit, NONE,
         "how large a file without a name may be; 1M if not given"},
        {"timeout", 0, "SECONDS", DUMP, set_timeout, NONE,
         "how long to try to stop the program; 10 if not given"},
        {"track-mem", 0, NULL, SAVE, set_flag, FIELD(track_memory),
         "track writes from now on, for the next dump to stand on this one"},
        {"prev-images-dir", 0, "DIR", SAVE, set_text, FIELD(previous),
         "the images to stand on, as seen from --images-dir"},
        {"pre-dump-mode", 0, "MODE", PRE_DUMP, set_pre_dump_mode, NONE,
         "splice or read: one and the same here, the program is not stopped"},
        {"pidfile", 0, "FILE", RESTORE, set_text, FIELD(pidfile),
         "write the process id of the restored program to FILE"},
        {"action-script", 0, "FILE", BOTH, add_script, NONE, "a program to run at certain moments"},
        {"status-fd", 0, "FD", SAVE | RESTORE, set_status_fd, NONE,
         "write one zero byte to FD, and close it, when all is done"},
        {"close", 0, "FD", ALL, close_fd, NONE, "close FD first of all"},
        {"manage-cgroups", 0, "[MODE]", BOTH, set_cgroups, NONE, "ignore, and nothing else"},
        {"file-validation", 0, "METHOD", BOTH, set_validation, NONE, "buildid, and nothing else"},
        {"network-lock", 0, "METHOD", BOTH, set_network_lock, NONE, "nftables, and nothing else"},
        {"log-file", 'o', "FILE", ALL, set_text, FIELD(log_file),
         "write the log to FILE in the working directory"},
        {"verbosity", 'v', "[NUM]", ALL, set_verbosity, NONE,
         "0 nothing, 1 errors, 2 warnings (as if not given), 3 and 4 more"},
        {"display-stats", 0, NULL, SAVE | RESTORE, set_flag, FIELD(display_stats),
         "tell times and sizes at the end"},
        {"extra", 0, NULL, CHECK, set_flag, FIELD(extra), "what some programs need, too"},
        {"experimental", 0, NULL, CHECK, set_flag, FIELD(experimental),
         "what experiments need, too: nothing here"},
        {"all", 0, NULL, CHECK, set_flag, FIELD(all), "all of that"},
        {"feature", 0, "NAME", CHECK, set_text, FIELD(feature),
         "one feature only; \"list\" lists them"},
        {"config", 0, "FILE", ALL, was_read, NONE, "read options from FILE as well"},
        {"no-default-config", 0, NULL, ALL, was_read, NONE,
         "do not read /etc/criu/default.conf and ~/.criu/default.conf"},

        /* Of no consequence. */
        {"file-locks", 'l', NULL, BOTH, accept, NONE,
         "file locks are saved and taken again without it"},
        {"log-pid", 0, NULL, RESTORE, accept, NONE,
         "one process restores all, so there is one log"},
        {"weak-sysctls", 0, NULL, RESTORE, accept, NONE, "no sysctl is changed by a restore"},
        {"unprivileged", 0, NULL, ALL, accept, NONE,
         "what privileges are there is used without it"},
        {"evasive-devices", 0, NULL, BOTH, permit, NONE,
         "a device whose path leads elsewhere is refused by name"},
        {"link-remap", 0, NULL, BOTH, permit, NONE,
         "a file that has lost its name but has another is refused by name"},
        {"force-irmap", 0, NULL, DUMP, permit, NONE,
         "a watch whose file cannot be found is refused by name"},
        {"ext-unix-sk", 'x', "[INODE]", BOTH, permit, NONE,
         "a unix socket whose peer is not saved with it is refused by name"},
        {"skip-in-flight", 0, NULL, BOTH, permit, NONE,
         "a connection that is not complete yet is refused by name"},

        /* Not yet. */
        {"restore-sibling", 'S', NULL, RESTORE, refuse, NONE,
         "the program is restored as a child of sealpoint; use --restore-detached"},
        {"exec-cmd", 0, NULL, RESTORE, refuse, NONE, "start the command from a script"},
        {"auto-dedup", 0, NULL, SAVE | RESTORE, refuse, NONE,
         "older images stay as they are; \"sealpoint merge --in-place\" makes one of a chain"},
        {"external", 0, "RESOURCE", BOTH, refuse, NONE,
         "a program is saved with all it has open, or not at all"},
        {"inherit-fd", 0, "fd[N]:RESOURCE", RESTORE, refuse, NONE,
         "files are opened where they were"},
        {"root", 'r', "DIR", RESTORE, refuse, NONE, needs_namespaces},
        {"join-ns", 'J', "NS:WHERE", RESTORE, refuse, NONE,
         "restore from inside of the namespaces (nsenter sealpoint ...)"},
        {"empty-ns", 0, "NS", BOTH, refuse, NONE, needs_namespaces},
        {"mntns-compat-mode", 0, NULL, BOTH, refuse, NONE, needs_namespaces},
        {"enable-fs", 0, "FS", BOTH, refuse, NONE, needs_namespaces},
        {"skip-mnt", 0, "DIR", DUMP, refuse, NONE, needs_namespaces},
        {"ext-mount-map", 'M', "MAP", BOTH, refuse, NONE, needs_namespaces},
        {"enable-external-sharing", 0, NULL, DUMP, refuse, NONE, needs_namespaces},
        {"enable-external-masters", 0, NULL, DUMP, refuse, NONE, needs_namespaces},
        {"veth-pair", 0, "IN=OUT", RESTORE, refuse, NONE, needs_namespaces},
        {"lsm-profile", 0, "TYPE:NAME", RESTORE, refuse, NONE,
         "profiles of security modules are not restored"},
        {"lsm-mount-context", 0, "CONTEXT", RESTORE, refuse, NONE, needs_namespaces},
        {"freeze-cgroup", 0, "DIR", SAVE, refuse, NONE,
         "the program is stopped thread by thread; leave the option out"},
        {"cgroup-props", 0, "SPEC", BOTH, refuse, NONE, needs_cgroups},
        {"cgroup-props-file", 0, "FILE", BOTH, refuse, NONE, needs_cgroups},
        {"cgroup-dump-controller", 0, "NAME", BOTH, refuse, NONE, needs_cgroups},
        {"cgroup-yard", 0, "DIR", BOTH, refuse, NONE, needs_cgroups},
        {"cgroup-root", 0, "ROOT", BOTH, refuse, NONE, needs_cgroups},
        {"cpu-cap", 0, "[CAP]", BOTH, refuse, NONE,
         "a restore compares the registers of both processors; leave the option out"},
        {"irmap-scan-path", 0, "DIR", DUMP, refuse, NONE, "no directories are searched"},
        {"libdir", 'L', "DIR", BOTH, refuse, NONE, "there are no plugins"},
        {"stream", 0, NULL, SAVE | RESTORE, refuse, NONE, "images are files"},
        {"lazy-pages", 0, NULL, BOTH | SP_CRIU_SERVERS, refuse, NONE,
         "memory is restored before the program runs"},
        {"page-server", 0, NULL, SAVE, refuse, NONE, needs_server},
        {"address", 0, "ADDRESS", PAGES, refuse, NONE, needs_server},
        {"port", 0, "PORT", PAGES, refuse, NONE, needs_server},
        {"ps-socket", 0, "FD", PAGES, refuse, NONE, needs_server},
        {"daemon", 0, NULL, PAGES, refuse, NONE, needs_server},
        {"tls", 0, NULL, PAGES, refuse, NONE, needs_tls},
        {"tls-cacert", 0, "FILE", PAGES, refuse, NONE, needs_tls},
        {"tls-cacrl", 0, "FILE", PAGES, refuse, NONE, needs_tls},
        {"tls-cert", 0, "FILE", PAGES, refuse, NONE, needs_tls},
        {"tls-key", 0, "FILE", PAGES, refuse, NONE, needs_tls},
        {"tls-no-cn-verify", 0, NULL, PAGES, refuse, NONE, needs_tls},
        {0},
};

enum sp_criu_fate sp_criu_fate(const struct sp_criu_option *option)
{
	if (option->apply == refuse)
		return SP_CRIU_REFUSED;
	return option->apply == accept || option->apply == permit ? SP_CRIU_ACCEPTED : SP_CRIU_DONE;
}
