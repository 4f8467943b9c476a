#!/bin/bash
# A chain of checkpoints of a program that writes all the time: every member is restored and finds its memory as it was at
# that moment. What cannot be a delta says why, and stores full contents.
#
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject writing
pid=$SUBJECT_PID

# The part of a summary or of a warning that the last dump must have printed.
expect_words() { # CASE WORDS
	tail -n 6 dump.log | grep -q -- "$2" || die "$1: no \"$2\" in: $(tail -n 4 dump.log)"
}

pre_dump() { # DIRECTORY PARENT
	"$sealpoint" pre-dump "$pid" -o "$1" --parent "$2" >>dump.log 2>&1 || die "pre-dump: $(tail -3 dump.log)"
}

dump "$pid" c0 --leave-running --track
for ((i = 1; i <= 12; i++)); do
	: >dump.log
	if ((i % 4 == 3)); then
		pre_dump "c$i" "c$((i - 1))"
	else
		dump "$pid" "c$i" --leave-running --parent "c$((i - 1))"
	fi
	grep -q 'full contents' dump.log && die "c$i is no delta: $(<dump.log)"
done
ok "$TEST_NAME/deltas"

: >dump.log
dump "$pid" branch --leave-running --parent c3
expect_words "a parent that is not the last" "full contents are stored: c3 cannot be the parent, it is not the last"
[[ $("$sealpoint" track status "$pid" --json) == *'"tracked": true'* ]] || die "the session has ended"
"$sealpoint" track stop "$pid" >>dump.log 2>&1 || die "track stop: $(tail -n 3 dump.log)"
dump "$pid" c13 --leave-running --parent branch
expect_words "after the session has ended" "the tracking session of that time has ended"
ok "$TEST_NAME/not the last cut"

# The same process, another program: the session knows nothing of its memory, and makes room for a new one.
cat >other.py <<'P'
import mmap, os, time
reserved = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
open("ready2", "w").close()
while not os.path.exists("go2"):
    time.sleep(0.02)
os.execvp("sleep", ["sleep", "1000"])
P
exec_alone python3 other.py >>program.log 2>&1 </dev/null &
other=$!
wait_until 20 test -e ready2 || die "other.py: $(<program.log)"
dump "$other" e0 --leave-running --track
number_of() { "$sealpoint" track status "$other" --json | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p"; }
(($(number_of tracked_bytes) > 64 << 20)) || die "not all is tracked: $(number_of tracked_bytes) bytes"
(($(number_of written_bytes) < 64 << 20)) || die "memory that is only reserved was written"
ok "$TEST_NAME/what is only reserved was not written"
: >go2
wait_until 20 eval "[[ \$(</proc/$other/comm) == sleep ]]"
: >dump.log
dump "$other" e1 --leave-running --parent e0
expect_words "after an exec" "e0 cannot be the parent, the tracking session of that time has ended"
pages_of_log() { sed -n 's/^\([0-9,]*\) pages, .*/\1/p' dump.log | tr -d ,; }
whole=$(pages_of_log)
: >dump.log
dump_and_reap "$other" e2 --parent e1
grep -q 'full contents' dump.log && die "after an exec, e2 is no delta: $(<dump.log)"
(($(pages_of_log) < whole)) || die "a delta tells of more pages than all: $(<dump.log)"
ok "$TEST_NAME/another program under the same process id"

dump_and_reap "$pid" c14 --parent c13
expect_restored "$pid" c0 c1 c2 c4 c8 c12 branch c13 c14
ok "$TEST_NAME/every member is restored"

"$sealpoint" restore c3 --detach >out 2>&1 && die "a pre-dump was restored"
grep -q 'it is a pre-dump; use a checkpoint' out || die "a pre-dump is refused with: $(<out)"
ok "$TEST_NAME/a pre-dump is refused"

# Mappings that are replaced while they are looked at keep nobody from saving the program, now or later.
start_subject replacing
pid=$SUBJECT_PID
dump "$pid" r0 --leave-running --track
for ((i = 1; i <= 40; i++)); do
	: >dump.log
	dump "$pid" "r$i" --leave-running --parent "r$((i - 1))"
done
dump_and_reap "$pid" last --parent "r40"
expect_restored "$pid" r7 last
ok "$TEST_NAME/mappings that are replaced meanwhile"
