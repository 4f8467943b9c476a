#!/bin/bash
# A restore that fails, at whatever step, leaves no process behind and the checkpoint as it was: killed at evenly
# spread moments of its length, short of descriptors, of processes, of address space, and with a file missing.
#
# exclusive: it measures how long a restore takes
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject working
pid=$SUBJECT_PID
dump_and_reap "$pid" image
original=$(find image -type f -exec cksum {} + | sort)

is_whole() {
	local tasks=("/proc/$pid"/task/*)
	[[ ${#tasks[@]} == 7 && $(tr '\0' ' ' <"/proc/$pid/cmdline") == *working* ]]
}

# The subject is not there, or it is all there and working: nothing in between.
expect_whole_or_nothing() { # CASE
	if ! wait_until 20 is_gone_or_free "$pid" || { ! is_gone "$pid" && ! is_whole; }; then
		die "$1: left what is not the program: $(grep -E 'Name|State|Tracer' "/proc/$pid/status" | tr '\n' ' ')"
	fi
	if ! is_gone "$pid"; then
		let_go
		expect_pass "$pid" 20
		((++restored))
	fi
	[[ $(find image -type f -exec cksum {} + | sort) == "$original" ]] || die "$1: the checkpoint was changed"
	rewind_subject
}

# Runs a restore that must fail, with one sentence.
expect_failure() { # CASE WORDS COMMAND...
	local status=0
	"${@:3}" >output 2>error </dev/null || status=$?
	((status == 1)) || die "$1: exit status $status: $(<error)"
	one_sentence error || die "$1: not one line: $(<error)"
	grep -q -i -E "$2" error || die "$1: does not say /$2/: $(<error)"
	wait_until 5 is_gone "$pid" || die "$1: left a process"
	expect_whole_or_nothing "$1"
	ok "$TEST_NAME/$1"
}

begin=${EPOCHREALTIME/./}
restore_detached image
length=$((${EPOCHREALTIME/./} - begin))
let_go
expect_pass "$pid" 20
rewind_subject

restored=0
rounds=${FAILED_RESTORE_ROUNDS:-100}
for round in $(seq "$rounds"); do
	"$sealpoint" restore image --detach >output 2>error </dev/null &
	restorer=$!
	sleep "$(printf '%d.%06d' 0 $((length * round / rounds)))"
	kill -KILL "$restorer" 2>/dev/null
	wait "$restorer" 2>/dev/null
	# What was already released runs on; it is asked to check itself.
	expect_whole_or_nothing "killed $((length * round / rounds)) us after its start"
done
echo "$rounds restores killed; $restored had already let the program go"
ok "$TEST_NAME/killed"

mv heartbeat elsewhere
expect_failure "missing file" "heartbeat" "$sealpoint" restore image
mv elsewhere heartbeat
(ulimit -v 60000 && expect_failure "little address space" "RLIMIT_AS" "$sealpoint" restore image)
# A process cannot be given more than its maker may have, unless that has CAP_SYS_RESOURCE.
if ! "$sealpoint" check | grep -q 'yes.*CAP_SYS_RESOURCE'; then
	(ulimit -n 1000 && expect_failure "a limit too low" "RLIMIT_NOFILE" "$sealpoint" restore image)
fi

mkfifo fifo
expect_failure "a pid file that is none" "not a regular file" \
	timeout 20 "$sealpoint" restore image --detach --pidfile fifo
mkdir full
mount -t tmpfs -o size=4k full full
head -c 4096 /dev/zero >full/all
expect_failure "a pid file on a full disk" "No space left" "$sealpoint" restore image --detach --pidfile full/pid
[[ -p fifo && ! -e full/pid ]] || die "the pid file of a restore that has failed is left: $(ls -l fifo full)"

restore_detached image
let_go
expect_pass "$pid" 20
ok "$TEST_NAME/afterwards it restores"
