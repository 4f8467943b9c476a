#!/bin/bash
# Programs that came to be in other ways than most: each is saved and restored, looks the same from outside, and still
# answers with its own arguments and environment.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

cat >program.c <<'P'
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static void ask(int signal) { asked = signal; }

int main(int argc, char **argv)
{
	size_t size = 0, count = 0;

	for (int i = 0; i < argc; i++)
		size += strlen(argv[i]) + 1;
	if (argc > 1 && !strcmp(argv[1], "title")) {
		memset(argv[0], 'x', size - 1);
		memcpy(argv[0], "program: idle", 13);
	}
	if (argc > 1 && !strcmp(argv[1], "private"))
		prctl(PR_SET_DUMPABLE, 0);
	if (argc > 1 && !strcmp(argv[1], "odd"))
		prctl(PR_SET_NAME, ") S 1 (\n");
	if (argc > 1 && !strcmp(argv[1], "closed"))
		for (int fd = 0; fd < 3; fd++)
			close(fd);
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = ask}, NULL);
	for (;;) {
		pause();
		for (char **entry = environ; asked && *entry; entry++)
			count += strlen(*entry) + 1;
		if (asked)
			dprintf(1, "%s: %d of %zu, environment %zu, user %d, dumpable %d\n",
				program_invocation_short_name, argc, size, count, geteuid(), prctl(PR_GET_DUMPABLE));
		asked = count = 0;
	}
}
P
waits() { [[ $(state_of "$1") == S && $(</proc/"$1"/comm) != @(bash|setsid|setpriv) ]]; }

answered() { (($(wc -l <program.log) == $1)); }

# Starts a command, has it changed by another one, and saves and restores it. A silent one is not asked.
survives() { # CASE IGNORED CHANGE COMMAND...
	local name=$TEST_NAME/$1
	: >program.log
	start_program "${@:4}"
	wait_until 20 waits "$PROGRAM_PID" || die "$1 does not start: $(head -c 300 program.log)"
	$3
	if [[ ! ${silent:-} ]]; then
		kill -USR1 "$PROGRAM_PID"
		wait_until 10 answered 1 || die "$1 does not answer"
	fi
	proc_snapshot "$PROGRAM_PID" "$2" >before
	if ! "$sealpoint" dump "$PROGRAM_PID" -o image >log 2>&1 || ! wait_until 10 is_gone "$PROGRAM_PID" ||
		! "$sealpoint" restore image --detach >log 2>&1 </dev/null; then
		not_ok "$name" "$(tail -n 1 log)"
		kill -KILL "$PROGRAM_PID"
		wait_until 10 is_gone "$PROGRAM_PID"
		return
	fi
	rm -r image
	if wait_until 5 same_snapshot "$PROGRAM_PID" before "$2"; then
		ok "$name"
	else
		not_ok "$name" "/proc differs: $(grep '^[<>]' before.diff | head -6)"
	fi
	if [[ ! ${silent:-} ]]; then
		kill -USR1 "$PROGRAM_PID"
		wait_until 10 answered 2 || not_ok "$name" "it does not answer any more"
		(($(uniq program.log | wc -l) == 1)) || not_ok "$name" "it answers otherwise: $(<program.log)"
	fi
	kill -KILL "$PROGRAM_PID"
	wait_until 10 is_gone "$PROGRAM_PID"
}

cc -w program.c -o program || skip_test "no compiler"

loader=$(readelf -l program | sed -n 's/.*interpreter: \(.*\)\]$/\1/p')
survives "by the dynamic loader" "" : "$loader" ./program one two
echo 'int main(void) { for (;;) pause(); }' >quiet.c
cc -w -include unistd.h quiet.c -o quiet
silent=1 survives "with no gap between its mappings" "" : "$loader" ./quiet

cc -w -no-pie program.c -o program-fixed
survives "at a fixed address" "" : ./program-fixed
for how in static-pie static; do
	if cc -w -$how program.c -o program-$how 2>/dev/null; then
		survives "$how" "" : ./program-$how
	else
		skip "$TEST_NAME/$how" "no static C library"
	fi
done

# shellcheck disable=SC2016 # it is assembly
printf '.globl _start\n_start: mov $34, %%eax\n syscall\n jmp _start\n' >bare.S
cc -nostdlib -static bare.S -o bare
silent=1 survives "without a C library" "" : ./bare

printf '#!%s one\n' "$PWD/program" >script
chmod +x script
survives "by an interpreter script" "" : ./script two

remove() { rm doomed; }
replace() { cp program-fixed new && mv new doomed; }
cp program doomed
survives "whose file is deleted" "id exe" remove ./doomed
cp program doomed
survives "whose file is replaced" "id exe" replace ./doomed

survives "with its own title over its arguments" "" : ./program title and some more arguments to write over

large=$(head -c 100000 /dev/zero | tr '\0' a)
arguments=()
for _ in {1..17}; do arguments+=("$large"); done
survives "with large arguments and environment" "" : env A="$large" B="$large" ./program "${arguments[@]}"

chmod 755 .
chmod a+w program.log
user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
survives "of another user" "" : "${user[@]}" ./program
survives "of another user, who may not look at it" "" : "${user[@]}" ./program private

# What has more privileges than who started it: the kernel lets nobody look at it, and its privileges come back.
cp program privileged
chmod 4755 privileged
survives "set-user-ID root, started by another user" "" : "${user[@]}" ./privileged
grep -q 'user 0, dumpable 0' program.log || not_ok "$TEST_NAME/set-user-ID" "it is not: $(<program.log)"
cp program capable
if setcap cap_net_raw,cap_net_bind_service+ep capable 2>/dev/null; then
	survives "with capabilities of its file" "" : "${user[@]}" ./capable
else
	skip "$TEST_NAME/with capabilities of its file" "files can have none here, or there is no setcap"
fi
cp program unreadable
chmod 711 unreadable
survives "whose file its user may not read" "" : "${user[@]}" ./unreadable

silent=1 survives "without standard input, output and error" "" : ./program closed
survives "with a name that looks like something else" "" : ./program odd
