#!/bin/bash
# A tree whose processes all write their own memory: a chain of deltas with a child that is born and one that ends in
# between, every member of which is restored and finds each page as it was; snapshots; and no session stays of a dump
# that was killed.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject siblings
pid=$SUBJECT_PID

children() { cat "/proc/$pid/task"/*/children; }
has_children() { (($(children | wc -w) == $1)); }
is_untracked() { "$sealpoint" track status "$1" --json | grep -m 1 '"tracked"' | grep -q false; }
no_full_contents() { ! grep -q 'full contents' dump.log || die "$1 is no delta: $(<dump.log)"; }

# The oldest child ends, and another is born with its pid, and with its mappings. Sets oldest.
replace_oldest() {
	read -r oldest _ < <(children)
	began=$(began_at "$oldest")
	kill -HUP "$pid"
	wait_until 10 is_another "$oldest" "$began" || die "process $oldest is not replaced"
}
began_at() { cut -d ' ' -f 22 "/proc/$1/stat"; }
is_another() { [[ -e /proc/$1 && $(began_at "$1") != "$2" ]]; }

# Ends all, so that their ids are free.
end_all() {
	local child all
	read -r -d '' -a all < <(children)
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	for child in "${all[@]}"; do
		wait_until 10 is_gone "$child" || die "process $child does not end"
	done
}

dump "$pid" c0 --leave-running --track
for child in $(children); do
	is_untracked "$child" && die "child $child is not tracked"
done
dump "$pid" c1 --leave-running --parent c0 --track
no_full_contents c1
read -r oldest _ < <(children)
kill -USR1 "$pid"
wait_until 10 has_children 3 || die "no child was born"
read -r _ _ born < <(children)
: >dump.log
dump "$pid" c2 --leave-running --parent c1 --track
grep -q "full contents of process $born (siblings) are stored: c1 cannot be its parent, this process is not in it" dump.log ||
	die "nothing is told of the child that was born: $(<dump.log)"
(($(grep -c 'full contents' dump.log) == 1)) || die "others than the new one are no deltas: $(<dump.log)"
kill -USR2 "$pid"
wait_until 10 is_gone "$oldest" || die "the oldest does not end"
: >dump.log
dump "$pid" c3 --leave-running --parent c2
no_full_contents c3
"$sealpoint" pre-dump "$pid" -o p4 --parent c3 >>dump.log 2>&1 || die "pre-dump: $(tail -n 3 dump.log)"
dump "$pid" c5 --leave-running --parent p4
no_full_contents c5
end_all
expect_restored "$pid" c0 c1 c2 c3 c5
ok "$TEST_NAME/a chain, with a child born and one ended"

"$sealpoint" merge c5 -o merged >merge.log 2>&1 || die "merge: $(<merge.log)"
expect_restored "$pid" merged
ok "$TEST_NAME/merged"

start_subject siblings
pid=$SUBJECT_PID
dump "$pid" d0 --leave-running --track
replace_oldest
: >dump.log
dump "$pid" d1 --leave-running --parent d0 --track
grep -q "full contents of process $oldest (siblings) are stored: .*the tracking session of that time has ended" dump.log ||
	die "nothing is told of the process id that was used again: $(<dump.log)"
(($(grep -c 'full contents' dump.log) == 1)) || die "others are no deltas: $(<dump.log)"
dump "$pid" d2 --leave-running --parent d1
end_all
expect_restored "$pid" d0 d1 d2
ok "$TEST_NAME/a process id used again"

start_subject siblings
pid=$SUBJECT_PID
processes="$pid $(children)"
"$sealpoint" track start "$(children | cut -d ' ' -f 1)" --quiet || die "cannot track a child"
"$sealpoint" inspect "$pid" >inspect.log 2>&1 || die "a child that is tracked is in the way: $(<inspect.log)"
"$sealpoint" track start "$pid" >track.log 2>&1 || die "track start: $(<track.log)"
for process in $processes; do
	is_untracked "$process" && die "track start has left out process $process"
	grep -q "the writes of process $process (siblings) are tracked" track.log || die "of $process: $(<track.log)"
done
"$sealpoint" track start "$pid" >again.log 2>&1 && die "what is tracked is tracked once more"
grep -q "are tracked already" again.log || die "track start again: $(<again.log)"
"$sealpoint" track status "$pid" --json >status.log || die "track status: $(<status.log)"
for process in $processes; do
	grep -q "\"pid\": $process\b" status.log || die "track status tells nothing of $process: $(<status.log)"
done
(($(grep -c '"tracked": true' status.log) == 3)) || die "track status: $(<status.log)"
"$sealpoint" track stop "$pid" >stop.log 2>&1 || die "track stop: $(<stop.log)"
for process in $processes; do
	is_untracked "$process" || die "track stop has left out process $process"
done
end_all
ok "$TEST_NAME/track start, status, stop"

start_subject siblings
pid=$SUBJECT_PID
"$sealpoint" snapshot "$pid" -o store --every 10ms --share 100 --count 8 --keep 3 --max-chain 3 >snapshot.log 2>&1 ||
	die "snapshot: $(tail -n 3 snapshot.log)"
for process in "$pid" $(children); do
	is_untracked "$process" || die "the session of $process is left behind"
done
for signal in TERM KILL; do
	"$sealpoint" snapshot "$pid" -o killed --every 1ms --share 100 >killed.log 2>&1 &
	victim=$!
	wait_until 20 grep -q frozen killed.log || die "no snapshot: $(<killed.log)"
	kill -s "$signal" "$victim"
	wait "$victim" 2>/dev/null
	for process in "$pid" $(children); do
		wait_until 10 is_untracked "$process" || die "after SIG$signal the session of $process is left behind"
	done
done
"$sealpoint" snapshot "$pid" -o again --every 1ms --share 100 >again.log 2>&1 &
victim=$!
has_made() { (($(grep -c frozen again.log) >= $1)); }
wait_until 20 has_made 1 || die "no snapshot: $(<again.log)"
replace_oldest
wait_until 20 has_made $(($(grep -c frozen again.log) + 2)) || die "no more snapshots: $(<again.log)"
kill -TERM "$victim"
wait "$victim" || die "snapshots of an id used again: $(<again.log)"
end_all
expect_restored "$pid" store/latest killed/latest again/latest
ok "$TEST_NAME/snapshots, also killed ones"
