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
#include "kinds/cgroups.h"
#include "kinds/inherit.h"

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

/* "-v" one more than before, "-vv" two more, "-v4" and "--verbosity=4" just so. */
static bool set_verbosity(struct sp_criu *criu, const struct sp_criu_option *option,
                          const char *argument, bool on)
{
	long number = criu->verbosity + 1;

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

static bool begins(const char *text, const char *beginning)
{
	return !strncmp(text, beginning, strlen(beginning));
}

/*
 * What belongs to somebody else. Mounts and networks are those of a namespace, and programs in one of their own are
 * refused by name. At the restore, open files are given with --inherit-fd.
 */
static bool add_external(struct sp_criu *criu, const struct sp_criu_option *option,
                         const char *argument, bool on)
{
	static const char *const of_namespaces[] = {"mnt[", "dev[",  "net[",
	                                            "pid[", "veth[", "macvlan["};

	for (size_t i = 0; i < SP_COUNT_OF(of_namespaces); i++)
		if (begins(argument, of_namespaces[i]))
			return true;
	if (!begins(argument, "unix[") && !begins(argument, "tty[") && !begins(argument, "file["))
		return sp_criu_usage(criu,
		                     "--external %s is not supported yet: take file, tty or unix",
		                     argument);
	if (!sp_resource_is_valid(argument))
		return sp_criu_usage(criu, "--external takes TYPE[ID], not \"%s\"", argument);
	sp_array_append(&criu->external, &argument);
	return true;
}

static bool set_external_unix(struct sp_criu *criu, const struct sp_criu_option *option,
                              const char *argument, bool on)
{
	char *resource;

	if (!argument) {
		criu->external_unix = on;
		return true;
	}
	resource = sp_format("unix[%s]", argument);
	sp_array_append(&criu->words, &resource);
	return add_external(criu, option, resource, on);
}

static bool add_inherited(struct sp_criu *criu, const struct sp_criu_option *option,
                          const char *argument, bool on)
{
	struct sp_inherited inherited;

	if (!sp_inherited_parse(argument, &inherited))
		return sp_criu_usage(criu,
		                     "--inherit-fd takes fd[N]:RESOURCE, with a RESOURCE like "
		                     "pipe[123] or var/log/x.log, not \"%s\"",
		                     argument);
	if (fcntl(inherited.fd, F_GETFD) < 0)
		return sp_criu_usage(criu, "--inherit-fd %s: %d is no open descriptor", argument,
		                     inherited.fd);
	sp_array_append(&criu->inherited, &inherited);
	return true;
}

static bool set_freeze_cgroup(struct sp_criu *criu, const struct sp_criu_option *option,
                              const char *argument, bool on)
{
	char *path = realpath(argument, NULL);

	if (!path)
		return sp_criu_usage(criu, "cannot find the control group %s: %s", argument,
		                     strerror(errno));
	sp_array_append(&criu->words, &path);
	criu->freeze_cgroup = path;
	return true;
}

static bool set_cgroups(struct sp_criu *criu, const struct sp_criu_option *option,
                        const char *argument, bool on)
{
	if (!argument)
		argument = "soft";
	if (sp_cgroups_parse_mode(argument, &criu->cgroups))
		return true;
	return sp_criu_usage(criu,
	                     "--manage-cgroups takes none, props, soft, full, strict or ignore, "
	                     "not \"%s\"",
	                     argument);
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

static bool set_cpu_cap(struct sp_criu *criu, const struct sp_criu_option *option,
                        const char *argument, bool on)
{
	const char *at = argument ? argument : "all";

	while (begins(at, "fpu") || begins(at, "ins")) {
		at += strlen("fpu");
		if (!*at)
			return true;
		at += *at == ',';
	}
	return sp_criu_usage(criu,
	                     "--cpu-cap=%s is not supported yet: a restore compares registers and "
	                     "instructions, no more and no less; use --cpu-cap=fpu,ins",
	                     argument ? argument : "all");
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
	return !strcmp(argument, "nftables") || !strcmp(argument, "iptables") ||
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

static const char needs_server[] = "there is no page server; copy the images (scp)";
static const char needs_mounts[] = "a program in a mount namespace of its own is refused by name";
static const char chosen_properties[] =
        "leave it out: --manage-cgroups chooses itself what is saved of a group";

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
        {"restore-sibling", 'S', NULL, RESTORE, set_flag, FIELD(sibling),
         "with -d, leave the program to the parent of this command"},
        {"shell-job", 'j', NULL, BOTH, set_flag, FIELD(shell_job),
         "save, and restore, a program that shares session and terminal"},
        {"tcp-established", 0, NULL, BOTH, set_flag, FIELD(tcp_established),
         "save established TCP connections, and bring them back"},
        {"tcp-close", 0, NULL, BOTH, set_flag, FIELD(tcp_close),
         "bring TCP connections back closed"},
        {"external", 0, "TYPE[ID]", BOTH, add_external, NONE,
         "leave out what belongs to somebody else: file, tty, unix (what is of a namespace has no "
         "meaning here)"},
        {"inherit-fd", 0, "fd[N]:RESOURCE", RESTORE, add_inherited, NONE,
         "put descriptor N in the place of a saved one: pipe, socket, tty, file or path"},
        {"ext-unix-sk", 'x', "[INODE]", BOTH, set_external_unix, NONE,
         "a unix socket may lose a peer that is not saved with it"},
        {"skip-in-flight", 0, NULL, BOTH, set_flag, FIELD(skip_in_flight),
         "TCP connections that were not accepted yet are dropped"},
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
        {"manage-cgroups", 0, "[MODE]", BOTH, set_cgroups, NONE,
         "save in which control groups the processes are, and put them there again: none, props, "
         "soft (as if not given), full, strict or ignore"},
        {"freeze-cgroup", 0, "DIR", DUMP, set_freeze_cgroup, NONE,
         "freeze this control group while the processes are stopped"},
        {"file-validation", 0, "METHOD", BOTH, set_validation, NONE, "buildid, and nothing else"},
        {"cpu-cap", 0, "[CAP,...]", BOTH, set_cpu_cap, NONE,
         "fpu and ins, which a restore always compares, and nothing else"},
        {"network-lock", 0, "METHOD", BOTH, set_network_lock, NONE,
         "nftables or iptables: one and the same here, rules of nftables"},
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
        {"config", 0, "FILE", ALL | SP_CRIU_UNKNOWN, set_text, FIELD(config),
         "read options from FILE as well"},
        {"no-default-config", 0, NULL, ALL | SP_CRIU_UNKNOWN, set_flag, FIELD(no_default_config),
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
        {"auto-dedup", 0, NULL, SAVE | RESTORE, permit, NONE,
         "older images keep what newer ones have replaced; \"sealpoint merge --in-place\" makes "
         "one "
         "of a chain"},
        {"force-irmap", 0, NULL, DUMP, permit, NONE,
         "a watch whose file cannot be found is refused by name"},

        {"root", 'r', "DIR", RESTORE, permit, NONE, needs_mounts},
        {"mntns-compat-mode", 0, NULL, BOTH, permit, NONE, needs_mounts},
        {"enable-fs", 0, "FS", BOTH, permit, NONE, needs_mounts},
        {"skip-mnt", 0, "DIR", DUMP, permit, NONE, needs_mounts},
        {"ext-mount-map", 'M', "MAP", BOTH, permit, NONE, needs_mounts},
        {"enable-external-sharing", 0, NULL, DUMP, permit, NONE, needs_mounts},
        {"enable-external-masters", 0, NULL, DUMP, permit, NONE, needs_mounts},
        {"lsm-mount-context", 0, "CONTEXT", RESTORE, permit, NONE, needs_mounts},
        {"veth-pair", 0, "IN=OUT", RESTORE, permit, NONE,
         "a program in a network namespace of its own is refused by name"},
        {"irmap-scan-path", 0, "DIR", DUMP, permit, NONE,
         "a watch whose file cannot be found is refused by name"},
        {"libdir", 'L', "DIR", BOTH, permit, NONE,
         "what a plugin would have saved is refused by name"},

        /* Not yet. */
        {"exec-cmd", 0, NULL, RESTORE, refuse, NONE, "start the command from a script"},
        {"join-ns", 'J', "NS:WHERE", RESTORE, refuse, NONE,
         "restore from inside of the namespaces (nsenter sealpoint ...)"},
        {"empty-ns", 0, "NS", BOTH, refuse, NONE,
         "restore from inside of a new namespace (unshare sealpoint ...)"},
        {"lsm-profile", 0, "TYPE:NAME", RESTORE, refuse, NONE,
         "leave it out, and start the restore with that profile (aa-exec, runcon)"},
        {"cgroup-props", 0, "SPEC", BOTH, refuse, NONE, chosen_properties},
        {"cgroup-props-file", 0, "FILE", BOTH, refuse, NONE, chosen_properties},
        {"cgroup-dump-controller", 0, "NAME", BOTH, refuse, NONE, chosen_properties},
        {"cgroup-yard", 0, "DIR", BOTH, refuse, NONE,
         "leave it out: control groups are taken where they are mounted"},
        {"cgroup-root", 0, "ROOT", BOTH, refuse, NONE,
         "start the restore in the group that is meant, with --manage-cgroups=ignore"},
        {"stream", 0, NULL, SAVE | RESTORE, refuse, NONE,
         "leave it out, and send the images directory (tar)"},
        {"lazy-pages", 0, NULL, BOTH | SP_CRIU_SERVERS, refuse, NONE,
         "leave it out: memory is restored before the program runs"},
        {"page-server", 0, NULL, SAVE, refuse, NONE, needs_server},
        {"address", 0, "ADDRESS", PAGES, refuse, NONE, needs_server},
        {"port", 0, "PORT", PAGES, refuse, NONE, needs_server},
        {"ps-socket", 0, "FD", PAGES, refuse, NONE, needs_server},
        {"daemon", 0, NULL, PAGES, refuse, NONE, needs_server},
        {"tls", 0, NULL, PAGES, refuse, NONE, needs_server},
        {"tls-cacert", 0, "FILE", PAGES, refuse, NONE, needs_server},
        {"tls-cacrl", 0, "FILE", PAGES, refuse, NONE, needs_server},
        {"tls-cert", 0, "FILE", PAGES, refuse, NONE, needs_server},
        {"tls-key", 0, "FILE", PAGES, refuse, NONE, needs_server},
        {"tls-no-cn-verify", 0, NULL, PAGES, refuse, NONE, needs_server},
        {0},
};

enum sp_criu_fate sp_criu_fate(const struct sp_criu_option *option)
{
	if (option->apply == refuse)
		return SP_CRIU_REFUSED;
	return option->apply == accept || option->apply == permit ? SP_CRIU_ACCEPTED : SP_CRIU_DONE;
}
