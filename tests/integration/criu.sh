#!/bin/bash
# The command line of CRIU: a real redis-server and a subject that writes all the time are saved and restored by it, as
# `sealpoint criu` and as a link named criu; every option of its manual page is done, has nothing to do, or is refused
# by name; logs, action scripts, configuration files and exit statuses are as people know them.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

export HOME=$TEST_DIR/home # no configuration files but those of this test
unset CRIU_CONFIG_FILE
mkdir home
ln -s "$sealpoint" criu
criu=$TEST_DIR/criu

succeeds() { # CASE COMMAND...
	"${@:2}" >output 2>error </dev/null || die "$1: exit status $?: $(tail -n 3 error)"
}

# A command must end with status 1 and say the words on standard error.
fails() { # CASE WORDS COMMAND...
	local status=0
	timeout 60 "${@:3}" >output 2>error </dev/null || status=$?
	((status == 1)) || die "$1: exit status $status, not 1: $(head -c 300 error)"
	grep -q -e "$2" error || die "$1: does not say \"$2\": $(head -c 300 error)"
}

last_line() { # FILE WORDS
	[[ $(tail -n 1 "$1") == *"$2" ]] || die "the last line of $1 is not \"$2\": $(tail -n 1 "$1")"
}

# --- every option --------------------------------------------------------------------------------------

: >script && chmod +x script
: >empty
# COMMAND OPTION [ARGUMENT], each once for a command that it is for.
done_here="
dump --tree 1; dump -t 1; pre-dump --tree 1; dump --images-dir x; dump -D x; dump --work-dir x; dump -W x; dump --leave-running; dump -R
dump --leave-stopped; dump -s; restore --leave-stopped; restore --restore-detached; restore -d; restore --restore-sibling -d; restore -S -d; dump --shell-job; dump -j
restore -j; dump --tcp-established; restore --tcp-established; dump --tcp-close; restore --tcp-close; dump --ghost-limit 10M; dump --timeout 5; dump --track-mem; pre-dump --track-mem
dump --prev-images-dir ../x; pre-dump --pre-dump-mode=splice; pre-dump --pre-dump-mode read; restore --pidfile x
dump --action-script script; restore --status-fd 2; dump --manage-cgroups=ignore; dump --manage-cgroups; dump --manage-cgroups=full; dump --manage-cgroups=none; dump --manage-cgroups=props; dump --manage-cgroups=soft; restore --manage-cgroups=strict; dump --freeze-cgroup .; dump --file-validation buildid
dump --log-file x; dump -o x; dump --verbosity; dump --verbosity=4; dump -v; dump -v -v; dump -vv; dump -v4; dump --display-stats
dump --external unix[1]; dump --external tty[8801:d]; dump --external file[1a:2b]; restore --inherit-fd fd[2]:pipe[1]; restore --inherit-fd fd[2]:x/y
dump --ext-unix-sk; dump -x; dump -x12; dump --skip-in-flight; restore --skip-in-flight
dump --cpu-cap=fpu; dump --cpu-cap=fpu,ins; restore --cpu-cap=ins;
dump --network-lock nftables; dump --network-lock=iptables; dump --no-display-stats; dump --config empty; dump --no-default-config; dump --no-leave-running"
nothing_to_do="
dump --file-locks; restore -l; restore --log-pid; restore --weak-sysctls; dump --unprivileged; dump --evasive-devices
dump --link-remap; dump --force-irmap; dump --auto-dedup; restore --auto-dedup; restore --external dev[x]:/dev/x; dump --external mnt[]
dump --external net[1]:x; dump --external pid[1]:x; restore --external veth[x]:y; restore --external macvlan[x]:y; restore --root x; restore -r x
restore --veth-pair a=b; restore --lsm-mount-context x; dump --enable-fs all; dump --libdir x; dump -L x; dump --irmap-scan-path x
dump --ext-mount-map x:y; dump --enable-external-sharing; dump --enable-external-masters; dump --skip-mnt x; dump --mntns-compat-mode"
refused="

dump --external frob[1]; restore --join-ns net:1; restore -J net:1
dump --cgroup-props x; dump --cgroup-props-file x; dump --cgroup-dump-controller x; dump --cgroup-yard x
restore --cgroup-root x; restore --lsm-profile selinux:x; dump --stream; dump --page-server; dump --address x; dump --port 1
dump --ps-socket 3; dump --lazy-pages; restore --lazy-pages; dump --cpu-cap; restore --cpu-cap=none; dump --cpu-cap=fpu,cpu; dump --daemon
dump --file-validation filesize; dump --tls; dump --tls-cacert x; dump --tls-cacrl x; dump --tls-cert x; dump --tls-key x
dump --tls-no-cn-verify; dump --empty-ns net; restore --exec-cmd; dump --network-lock skip"

# What is accepted comes to the images directory, which is not there.
try_options() { # WORDS LIST
	local line words option
	tr '\n' ';' <<<"$2" | tr ';' '\n' >lines
	while read -r -a words; do
		((${#words[@]})) || continue
		option=${words[1]} line="${words[*]}"
		set -- "$1" "$2" "${words[@]}"
		[[ ${words[0]} == restore ]] || set -- "$@" -t 1
		fails "$line" "$1" "$sealpoint" criu "${@:3}" -D nowhere
		[[ $1 != *"not supported yet"* || $option == -? ]] || grep -q -e "${option%%=*}" error ||
			die "$line: is not refused by name: $(<error)"
	done <lines
}

mkdir nothing
try_options 'cannot open the images directory nowhere' "$done_here"
try_options 'cannot open the images directory nowhere' "$nothing_to_do"
try_options 'not supported yet' "$refused"
for command in page-server lazy-pages service swrk; do
	fails "$command" "the command $command is not supported yet" "$criu" "$command"
done
ok "$TEST_NAME/every option"

# Each long option of the table is in one of the lists above, and the other way round.
"$sealpoint" criu --help >help
sed -n 's/^  \(-[a-zA-Z],\|   \) --\([a-z-]*\).*/\2/p' help | sort -u >offered
grep -oE '\-\-[a-z-]{2,}' <<<"$done_here $nothing_to_do $refused" | sed 's/^--//; s/^no-leave.*//; s/^no-display.*//' |
	sort -u >tried
printf '%s\n' help version extra experimental all feature close >>tried
missing=$(comm -23 offered <(sort -u tried))
[[ -z $missing ]] || die "these options are tried nowhere: $missing"
extra=$(comm -13 offered <(grep . tried | sort -u))
[[ -z $extra ]] || die "help does not tell of these options: $extra"
ok "$TEST_NAME/help tells of every option"

# --- wrong usage ---------------------------------------------------------------------------------------

fails "no command" 'give a command' "$criu"
fails "unknown command" 'did you mean "restore"' "$criu" restroe
fails "unknown option" 'did you mean --leave-running' "$criu" dump --leave-runing
fails "no argument" 'images-dir needs an argument' "$criu" dump -t 1 -D
fails "no process" 'say with -t PID' "$criu" dump
fails "a word for a process" 'tree takes a number' "$criu" dump -t abc
fails "one argument too many" '"x" is one argument too many' "$criu" restore x
fails "wrong size" 'ghost-limit takes a size' "$criu" dump -t 1 --ghost-limit 10X
fails "no images directory" 'images directory nowhere: No such file' "$criu" restore -D nowhere
fails "two fates of connections" 'one of --tcp-established and --tcp-close' "$criu" dump -t 1 --tcp-established --tcp-close
fails "a sibling in the foreground" 'restore-sibling needs --restore-detached' "$criu" restore -S -D nothing
fails "no images" 'there are no images in' "$criu" restore -D nothing
fails "no working directory" 'working directory nowhere' "$criu" restore -D nothing -W nowhere
fails "no JSON" 'no option --json' "$criu" restore -D nothing --json
: >nothing/inventory.img
fails "images of CRIU" 'were made by CRIU itself' "$criu" restore -D nothing
[[ $("$criu" --version) == Version:* ]] || die "version: $("$criu" --version)"
ok "$TEST_NAME/wrong usage"

# --- a sibling -----------------------------------------------------------------------------------------

# The restored program is a child of this shell, which collects it, and what a failed restore leaves.
start_program sleep 1000
wait_until 20 grep -q sleep "/proc/$PROGRAM_PID/comm" || die "sleep does not begin"
mkdir sibling
succeeds "sibling: dump" "$criu" dump -t "$PROGRAM_PID" -D sibling
wait_until 10 is_gone "$PROGRAM_PID" || die "the program runs on after its dump"
mkdir sibling/pid
fails "sibling: no pid file" 'pid file pid' "$criu" restore -S -d -D sibling --pidfile pid
wait_until 10 is_gone "$PROGRAM_PID" || die "a failed restore leaves a sibling"
succeeds "sibling: restore" "$criu" restore --restore-sibling --restore-detached -D sibling
[[ $(sed -n 's/^PPid:\t//p' "/proc/$PROGRAM_PID/status") == "$BASHPID" ]] || die "the restored program is not a child of the caller"
kill "$PROGRAM_PID"
wait_until 10 is_gone "$PROGRAM_PID" || die "the sibling does not end"
ok "$TEST_NAME/a sibling"

# --- check ---------------------------------------------------------------------------------------------

succeeds "check" "$criu" check
[[ $(<output) == "Looks good." ]] || die "check says $(<output)"
succeeds "check --feature" "$criu" check --feature clone3_set_tid
fails "check --feature frobnicate" 'no feature frobnicate' "$criu" check --feature frobnicate
for feature in mem_dirty_track mnt_id fdinfo_lock kcmp_epoll pidfd_store network_lock_nftables memfd_hugetlb; do
	succeeds "check --feature $feature" "$criu" check --feature "$feature"
done
for feature in tun userns timens uffd-noncoop compat_cr; do
	fails "check --feature $feature" "$feature: sealpoint is not able" "$criu" check --feature "$feature"
done
"$sealpoint" check --json >output || die "sealpoint check: exit status $?"
python3 -c 'import json
covered = json.load(open("output"))["criu"]
assert covered["commands"] == ["check", "dump", "pre-dump", "restore", "dedup", "cpuinfo"], covered["commands"]
assert "inherit-fd" in covered["options"] and "root" in covered["options_without_effect"] and "stream" in covered["options_not_yet"]
' 2>error || die "sealpoint check does not list what is covered: $(tail -n 1 error)"
succeeds "check --feature list" "$criu" check --feature list
grep -q '^mem_dirty_track$' output || die "mem_dirty_track is not listed"
ok "$TEST_NAME/check"

# --- the processor -------------------------------------------------------------------------------------

mkdir processor
fails "cpuinfo without an action" 'cpuinfo dump or cpuinfo check' "$criu" cpuinfo
fails "cpuinfo with another action" 'cpuinfo dump or cpuinfo check' "$criu" cpuinfo show
fails "cpuinfo with one word more" '"x" is one argument too many' "$criu" cpuinfo dump x
fails "cpuinfo check of nothing" 'there are no images in' "$criu" cpuinfo check -D processor
for _ in 1 2; do
	succeeds "cpuinfo dump" "$criu" cpuinfo dump -D processor
	succeeds "cpuinfo check" "$criu" cpuinfo check -D processor -o check.log
	last_line processor/check.log "Cpuinfo finished successfully"
done
printf x | dd of=processor/processor bs=1 seek=40 conv=notrunc status=none
fails "cpuinfo check of a damaged file" 'Cpuinfo FAILED' "$criu" cpuinfo check -D processor
ok "$TEST_NAME/the processor"

# --- a subject in a chain, three times -----------------------------------------------------------------

start_subject writing
pid=$SUBJECT_PID
for round in 1 2 3; do
	mkdir -p "w$round/1" "w$round/2" "w$round/3"
	succeeds "pre-dump" "$criu" pre-dump -t "$pid" -D "w$round/1" -o pre.log -v4
	last_line "w$round/1/pre.log" "Pre-dumping finished successfully"
	succeeds "dump -R" "$criu" dump --tree "$pid" --images-dir "w$round/2" --prev-images-dir ../1 --track-mem -R -v1
	[[ ! -s output && ! -s error ]] || die "dump -R says $(cat output error)"
	succeeds "dump" "$criu" dump -t "$pid" -D "w$round/3" --prev-images-dir ../2/ -o dump.log -v
	last_line "w$round/3/dump.log" "Dumping finished successfully"
	! grep -q 'full contents' "w$round/3/dump.log" || die "round $round is no delta: $(<"w$round/3/dump.log")"
	((round > 1)) || wait "$pid"
	fails "a pre-dump is restored" 'it is a pre-dump' "$criu" restore -D "w$round/1"
	succeeds "restore" "$criu" restore -D "w$round/3" -d -o restore.log --pidfile pid -v4
	last_line "w$round/3/restore.log" "Restore finished successfully. Tasks resumed."
	[[ $(<"w$round/3/pid") == "$pid" ]] || die "the pid file says $(<"w$round/3/pid")"
done
let_go
expect_pass "$pid" 60
rewind_subject
succeeds "cpuinfo check of a checkpoint" "$criu" cpuinfo check -D w3/3
succeeds "dedup" "$criu" dedup -D w3/3 -o dedup.log
last_line w3/3/dedup.log "Deduplication finished successfully"
grep -q '^Warn: .* stands alone now: the 2 checkpoints' w3/3/dedup.log || die "dedup does not tell what can go: $(<w3/3/dedup.log)"
succeeds "dedup of what stands alone" "$criu" dedup -D w3/3
[[ ! -s error ]] || die "dedup has done something to what stands alone: $(<error)"
succeeds "the second of a chain" "$criu" restore -D w3/2 -d
let_go
expect_pass "$pid" 60
rm -r w3/1 w3/2
rewind_subject
succeeds "the third, without the others" "$criu" restore -D w3/3 -d
let_go
expect_pass "$pid" 60
rm -rf w1 w2 w3
ok "$TEST_NAME/a chain, three times"

# --- redis, three times --------------------------------------------------------------------------------

if command -v redis-server >/dev/null; then
	redis() { redis-cli -p 6000 "$@"; }
	answers() { [[ $(redis ping) == PONG ]]; }
	start_program redis-server --port 6000 --dir "$TEST_DIR" --save '' --appendonly no
	wait_until 20 answers || die "redis-server does not start: $(tail -n 3 program.log)"
	redis set greeting "hello from before" >/dev/null
	wait_until 10 no_connections 6000
	for round in 1 2 3; do
		mkdir -p "r$round/pre" "r$round/last" "r$round/logs"
		succeeds "redis: pre-dump" "$sealpoint" criu pre-dump -t "$PROGRAM_PID" -D "r$round/pre" --track-mem
		succeeds "redis: dump" "$sealpoint" criu dump -t "$PROGRAM_PID" -D "r$round/last" --prev-images-dir ../pre \
			--track-mem -W "r$round/logs" -o dump.log -v4 --display-stats
		last_line "r$round/logs/dump.log" "Dumping finished successfully"
		grep -q '^Frozen time: [0-9]* us$' output || die "no statistics: $(<output)"
		wait_until 30 is_gone "$PROGRAM_PID" || die "round $round: the server is still there"
		succeeds "redis: restore" "$criu" restore -D "r$round/last" -W "r$round/logs" --restore-detached -o restore.log
		wait_until 20 answers || die "round $round: the server does not answer"
		[[ $(redis get greeting) == "hello from before" ]] || die "round $round: the data are lost"
		[[ $(redis incr counter) == "$round" ]] || die "round $round: the counter is lost"
		wait_until 10 no_connections 6000
	done
	ok "$TEST_NAME/redis, three times"

	# A client that stays connected all the while.
	exec {client}<>/dev/tcp/127.0.0.1/6000
	talk() { # REQUEST: sets REPLY
		printf '%s\r\n' "$1" >&"$client"
		IFS= read -r -t 60 -u "$client" || die "$1: no answer on the connection"
		REPLY=${REPLY%$'\r'}
	}
	talk "INCR counter"
	[[ $REPLY == ":4" ]] || die "the counter is $REPLY"
	mkdir connected
	for round in 5 6 7; do
		succeeds "redis: dump --tcp-established" "$criu" dump -t "$PROGRAM_PID" -D connected --tcp-established -o dump.log -v4
		wait_until 30 is_gone "$PROGRAM_PID" || die "round $round: the server is still there"
		succeeds "redis: restore --tcp-established" "$criu" restore -D connected --tcp-established -d -o restore.log -v4
		talk "INCR counter"
		[[ $REPLY == ":$round" ]] || die "round $round: the counter is $REPLY"
	done

	# Scripts hear of the network.
	cat >network <<'S'
#!/bin/sh
case $CRTOOLS_SCRIPT_ACTION in network-*) echo "$CRTOOLS_SCRIPT_ACTION $CRTOOLS_INIT_PID" >>network-told ;; esac
[ "$CRTOOLS_SCRIPT_ACTION" != "$FAIL_AT" ]
S
	chmod +x network
	heard() { # WHEN ACTION...
		[[ $(sed "s/ $PROGRAM_PID\$//" connected/network-told | tr '\n' ' ') == "${*:2} " ]] || die "$1: scripts heard $(<connected/network-told)"
		rm connected/network-told
	}
	export FAIL_AT=network-lock
	fails "redis: network-lock fails" "network has failed at network-lock" "$criu" dump -t "$PROGRAM_PID" -D connected --tcp-established --action-script ./network
	heard "a failed lock" network-lock network-unlock
	FAIL_AT=
	succeeds "redis: dump -R" "$criu" dump -t "$PROGRAM_PID" -D connected --tcp-established -R --action-script ./network
	heard "a dump -R" network-lock network-unlock
	talk "INCR counter"
	succeeds "redis: dump" "$criu" dump -t "$PROGRAM_PID" -D connected --tcp-established --action-script ./network
	heard "a dump" network-lock
	succeeds "redis: restore" "$criu" restore -D connected --tcp-established -d --action-script ./network
	heard "a restore" network-unlock
	talk "INCR counter"
	[[ $REPLY == ":9" ]] || die "the counter is $REPLY"
	exec {client}>&-
	redis shutdown nosave
	wait_until 20 is_gone "$PROGRAM_PID" || die "the restored server does not shut down"
	ok "$TEST_NAME/redis with a client, three times"
else
	skip "$TEST_NAME/redis, three times" "there is no redis-server"
fi

# --- a process with children, three times --------------------------------------------------------------

exec_alone sh -c 'sleep 1000 & sleep 1000 & wait' </dev/null >/dev/null 2>&1 &
tree=$!
family() { ps -o pid=,ppid=,sid=,comm= --ppid "$tree"; }
is_whole() { [[ $(family | grep -c sleep) == 2 ]]; }
wait_until 20 is_whole || die "a shell does not start its children"
before=$(family)
mkdir tree
for round in 1 2 3; do
	succeeds "a tree: dump" "$criu" dump -t "$tree" -D tree -v1
	for pid in "$tree" $(awk '{ print $1 }' <<<"$before"); do
		wait_until 30 is_gone "$pid" || die "round $round: pid $pid is still there"
	done
	succeeds "a tree: restore" "$criu" restore -D tree -d -v1
	[[ $(family) == "$before" ]] || die "round $round: the children are $(family), not $before"
done
pkill -P "$tree"
kill "$tree"
ok "$TEST_NAME/a process with children, three times"

# --- images and logs -----------------------------------------------------------------------------------

# What is there already gives way to the new images, and stays if they cannot be made.
start_subject basic
pid=$SUBJECT_PID
mkdir images work
succeeds "dump" "$criu" dump -t "$pid" -D images -R -W work -o log --link-remap --file-locks
grep -q '^Warn: --link-remap has no effect yet' work/log || die "--link-remap is ignored without a word: $(<work/log)"
! grep -q -e '--file-locks' work/log || die "what has nothing to do is warned of: $(<work/log)"
before=$(cksum images/sealpoint/manifest)
"$criu" dump -t $$ -D images -W work -o log -v0 >output 2>error && die "this shell was saved"
[[ ! -s error && ! -s work/log ]] || die "with -v0 there is output: $(cat error work/log)"
fails "a dump that fails" 'Dumping FAILED.' "$criu" dump -t $$ -D images -W work -o log
last_line work/log "Error: Dumping FAILED."
[[ $(cksum images/sealpoint/manifest) == "$before" ]] || die "the images of before are gone"
fails "images that stand on themselves" 'cannot stand on those that they replace' \
	"$criu" dump -t "$pid" -D images --prev-images-dir ../images -R
succeeds "dump" "$criu" dump -t "$pid" -D images -s -v3
grep -q -E '^\([0-9]{2}\.[0-9]{6}\) Dumping finished successfully$' error || die "no times at level 3: $(<error)"
[[ $(cksum images/sealpoint/manifest) != "$before" ]] || die "the images of before are still there"
wait_until 5 eval "[[ \$(state_of $pid) == T ]]" || die "--leave-stopped: $(state_of "$pid")"
kill -9 "$pid"
wait "$pid"
succeeds "restore -s" "$criu" restore -D images -d -s
wait_until 5 eval "[[ \$(state_of $pid) == T ]]" || die "restore -s: $(state_of "$pid")"
kill -CONT "$pid"
let_go
expect_pass "$pid" 20
ok "$TEST_NAME/images and logs"

# In the foreground it waits for the program, and ends with 0 however that ends.
rewind_subject
"$criu" restore -D images -v4 >output 2>error </dev/null &
waiting=$!
wait_until 20 grep -q 'Tasks resumed' error || die "restore does not begin: $(<error)"
kill -TERM "$pid"
wait "$waiting" || die "restore in the foreground ends with $?: $(<error)"
is_gone "$pid" || die "restore in the foreground does not wait"
ok "$TEST_NAME/in the foreground"

# --- configuration files -------------------------------------------------------------------------------

mkdir home/.criu
printf '%s\n' '# a comment' 'verbosity 3 # another' 'images-dir "images"' '' 'no-leave-running' >home/.criu/default.conf
printf 'work-dir "a \\"quoted\\" directory"\nlog-file by-config\n' >named.conf
mkdir 'a "quoted" directory'
rewind_subject
succeeds "by files" env CRIU_CONFIG_FILE=named.conf "$criu" restore -d
last_line 'a "quoted" directory/by-config' ") Restore finished successfully. Tasks resumed."
let_go
expect_pass "$pid" 20
fails "no default files" 'no images in' "$criu" restore --no-default-config
echo 'dump' >wrong.conf
fails "a command in a file" 'wrong.conf: there is no option --dump' "$criu" restore --config wrong.conf
echo 'images-dir "x' >wrong.conf
fails "an open quote" 'wrong.conf: line 1: a double quote' "$criu" restore --config wrong.conf
echo 'stream' >wrong.conf
fails "refused in a file" 'wrong.conf: --stream is not supported yet' "$criu" restore --config wrong.conf
fails "no such file" 'missing.conf: cannot read it' "$criu" restore --config missing.conf
rm -r home/.criu
ok "$TEST_NAME/configuration files"

# --- action scripts ------------------------------------------------------------------------------------

cat >moments <<'S'
#!/bin/sh
state=-
[ -z "$CRTOOLS_INIT_PID" ] || state=$(sed 's/^.*) //; s/ .*//; s/R/S/' "/proc/$CRTOOLS_INIT_PID/stat")
echo "$CRTOOLS_SCRIPT_ACTION $state $CRTOOLS_IMAGE_DIR $CRTOOLS_INIT_PID" >>"$MOMENTS"
[ "$CRTOOLS_SCRIPT_ACTION" != "$FAIL_AT" ]
S
chmod +x moments
export MOMENTS=$TEST_DIR/told FAIL_AT=
scripted() { # WHEN: the lines that the script must have told, S for a program that runs
	local told
	told=$(sed "s| $TEST_DIR/images||; s| $pid||; s/ $//" told 2>/dev/null | tr '\n' ' ')
	[[ $told == "$2 " ]] || die "$1: the script has told \"$told\", not \"$2 \""
	rm -f told
}
start_subject basic
pid=$SUBJECT_PID
succeeds "scripts: pre-dump" "$criu" pre-dump -t "$pid" -D images --action-script ./moments
[[ ! -e told ]] || die "a pre-dump has run a script: $(<told)"
succeeds "scripts: dump -R" "$criu" dump -t "$pid" -D images -R --action-script ./moments
scripted "dump -R" "pre-dump S post-dump t"
for FAIL_AT in pre-dump post-dump; do
	fails "scripts: $FAIL_AT fails" "moments has failed at $FAIL_AT, with status 1" \
		"$criu" dump -t "$pid" -D images --action-script ./moments
	rm -f told
	[[ $(state_of "$pid") == [SR] ]] || die "the program does not run on after a $FAIL_AT script that fails"
done
FAIL_AT=
succeeds "scripts: dump" "$criu" dump -t "$pid" -D images --action-script ./moments
scripted "dump" "pre-dump S post-dump t"
wait "$pid"
for FAIL_AT in pre-restore setup-namespaces post-setup-namespaces post-restore; do
	fails "scripts: $FAIL_AT fails" "moments has failed at $FAIL_AT" "$criu" restore -D images -d --action-script ./moments
	rm -f told
	is_gone "$pid" || die "there is a program after a $FAIL_AT script that fails"
done
FAIL_AT=pre-resume
succeeds "scripts: restore" "$criu" restore -D images -d --action-script ./moments
scripted "restore" "pre-restore - setup-namespaces t post-setup-namespaces t post-restore t pre-resume t post-resume S"
grep -q 'Warn: .* has failed at pre-resume' error || die "a late script that fails is not told: $(<error)"
let_go
expect_pass "$pid" 20
fails "no such script" 'cannot run the action script missing' "$criu" restore -D images --action-script missing
ok "$TEST_NAME/action scripts"

# --- status --------------------------------------------------------------------------------------------

rewind_subject
succeeds "restore --status-fd" bash -c 'exec 7>status; exec "$@"' - "$criu" restore -D images -d --status-fd 7
[[ $(od -An -tx1 status) == " 00" ]] || die "--status-fd: $(od -An -tx1 status)"
let_go
expect_pass "$pid" 20
ok "$TEST_NAME/status"
