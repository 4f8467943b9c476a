#!/bin/bash
# A tracking session that no longer tells what was written is never believed: whatever ends it or comes between two
# cuts, the next dump stores full contents and says why, and the one after it is a delta again.
#
# timeout: 600
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

images=0
next() { # dumps the program on the checkpoint before
	: >dump.log
	images=$((images + 1))
	dump "$pid" "c$images" --leave-running --parent "c$((images - 1))"
}

expect_delta() { # CASE
	next
	! grep -q 'full contents' dump.log || die "$1: no delta: $(<dump.log)"
}

expect_full() { # CASE WORDS
	next
	grep -q "full contents are stored: .*$2" dump.log || die "$1: no \"$2\", but: $(<dump.log)"
	expect_delta "after $1"
	ok "$TEST_NAME/$1"
}

status_of() { "$sealpoint" track status "$pid" --json | sed -n "s/.*\"$1\": \"\?\([0-9a-z-]*\).*/\1/p"; }

# Starts a program that becomes another one when there is a trigger. Sets pid. Its words on the command line tell nothing:
# those who start it have them too, before they become it.
start_to_exec() {
	rm -f trigger
	: >program.log
	# shellcheck disable=SC2016
	start_program bash -c 'echo RUNS; until [[ -s trigger ]]; do :; done; exec sleep 1000'
	pid=$PROGRAM_PID
	wait_until 10 grep -q RUNS program.log || die "the program does not start"
}

# Starts a dump and holds it when it has cut, but not committed yet.
hold_dump() {
	halt_at "renameat:held" "$sealpoint" dump "$pid" -o held --leave-running --parent "c$images" >held.log 2>&1
}

start_subject writing
pid=$SUBJECT_PID

# What has failed leaves nothing that was not there before.
mkdir small
mount -t tmpfs -o size=64k small small
for command in "dump --leave-running --track" pre-dump; do
	# shellcheck disable=SC2086
	"$sealpoint" $command "$pid" -o small/image >failed.log 2>&1 && die "$command to a full disk has succeeded"
	grep -q 'No space left' failed.log || die "$command to a full disk: $(<failed.log)"
	[[ $(status_of tracked) == false ]] || die "$command has failed and left its session"
	[[ $(status_of backend) == null ]] || die "no session, but tracked by $(status_of backend)"
done
ok "$TEST_NAME/a failed first dump"

dump "$pid" c0 --leave-running --track
expect_delta "undisturbed"

# Whoever makes a session removes the sockets where nobody listens, in whatever pid namespace that was.
stale=/run/sealpoint/track-1-$pid
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(sys.argv[1])' "$stale"
[[ -S $stale ]] || die "no socket at $stale"
kill -KILL "$(status_of holder)"
expect_full "a killed holder" "the tracking session of that time has ended"
[[ ! -e $stale ]] || die "a stale socket stays at $stale"

"$sealpoint" dump "$pid" -o small/image --leave-running --parent "c$images" >failed.log 2>&1 &&
	die "a dump to a full disk has succeeded"
grep -q 'No space left' failed.log || die "a full disk: $(<failed.log)"
expect_full "a full disk" "it is not the last that was cut"

hold_dump
kill -KILL "$HALTED"
proceed
wait "$HALTED" 2>/dev/null
expect_full "a killed dump" "it is not the last that was cut"

hold_dump
"$sealpoint" dump "$pid" -o second --leave-running --parent "c$images" >second.log 2>&1 && die "two dumps at a time"
refused_for_another_command second.log "$pid" || die "two dumps at a time: $(<second.log)"
proceed
wait "$HALTED" || die "the first of two dumps: $(<held.log)"
ok "$TEST_NAME/two dumps at a time"
expect_full "a dump by another" "it is not the last that was cut"

# What listens there is another user's: it gets no say.
holder=$(status_of holder)
socket=$(find /run/sealpoint -name "track-$(stat -L -c %i /proc/self/ns/pid)-$pid")
mv "$socket" "$socket.away"
python3 - "$socket" >impostor.out <<'PROGRAM' &
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
os.seteuid(65534)
listener.listen()
print("listening", flush=True)
time.sleep(60)
PROGRAM
impostor=$!
wait_until 10 test -s impostor.out || die "nobody listens at $socket"
"$sealpoint" dump "$pid" -o impostor --leave-running --parent "c$images" >impostor.log 2>&1 &&
	die "a session of another user was used"
grep -q "what answers at $socket belongs to another user" impostor.log || die "another user: $(<impostor.log)"
kill "$impostor"
wait "$impostor" 2>/dev/null
mv "$socket.away" "$socket"
[[ $(status_of holder) == "$holder" ]] || die "the session is not found again"
expect_delta "another user's session"
ok "$TEST_NAME/another user's session"

# The holder ends with its program; another one with the same process id has nothing to do with it.
kill -KILL "$pid"
wait "$pid" 2>/dev/null
wait_until 10 is_gone "$holder" || die "the holder has survived its program"
: >go
: >out # the READY of the one before is not its own
echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid
exec_alone "$subjects/writing" <go >out 2>&1 &
[[ $! == "$pid" ]] || die "the process id was not used again"
wait_until 30 ready_or_gone "$pid"
expect_full "a process id used again" "the tracking session of that time has ended"
kill -KILL "$pid"
wait "$pid" 2>/dev/null

# Another program in the same process.
start_to_exec
dump "$pid" d0 --leave-running --track
rm -rf "c$images" && mv d0 "c$images"
expect_delta "before execve"
holder=$(status_of holder)
echo go >trigger
is_sleep() { [[ $(<"/proc/$pid/comm") == sleep ]]; }
wait_until 10 is_sleep || die "no sleep"
expect_full "execve" "the tracking session of that time has ended"
is_gone "$holder" || die "the holder of the program before execve is still there"
kill -KILL "$pid"
wait "$pid" 2>/dev/null

start_to_exec
"$sealpoint" track start "$pid" --quiet || die "cannot begin to track"
echo go >trigger
wait_until 10 is_sleep || die "no sleep"
[[ $(status_of tracked) == false ]] || die "after execve the session of the program before is taken for its own"
"$sealpoint" track start "$pid" --quiet || die "cannot begin to track the program after execve"
ok "$TEST_NAME/track after execve"
kill -KILL "$pid"

# The other way to track, where the kernel has it.
start_subject writing
pid=$SUBJECT_PID
if "$sealpoint" check | grep -q 'yes tracking: soft-dirty'; then
	"$sealpoint" track start "$pid" --backend soft-dirty --quiet || die "cannot track with soft-dirty bits"
	[[ $(status_of backend) == soft-dirty ]] || die "tracked by $(status_of backend)"
	images=$((images + 1))
	dump "$pid" "c$images" --leave-running
	expect_delta "soft-dirty bits"
else
	"$sealpoint" track start "$pid" --backend soft-dirty >wrong.log 2>&1 && die "tracked by bits that are not there"
	grep -q "process $pid .* no soft-dirty bits" wrong.log || die "refused with: $(<wrong.log)"
	[[ $(status_of tracked) == false ]] || die "a session stays that could not be made"
fi
"$sealpoint" track start "$pid" --backend hashing >wrong.log 2>&1 && die "a backend that does not exist"
grep -q 'takes scan or soft-dirty' wrong.log || die "refused with: $(<wrong.log)"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
ok "$TEST_NAME/backends"
