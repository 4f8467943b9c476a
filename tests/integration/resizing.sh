#!/bin/bash
# A program that maps, resizes and unmaps memory all the time never sees that its writes are tracked: no mapping of it is
# registered in part, so that mremap(2) would find two.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

rounds=60
start_subject resizing
pid=$SUBJECT_PID
dump "$pid" image0 --leave-running --track
for ((round = 1; round <= rounds; round++)); do
	"$sealpoint" pre-dump "$pid" -o "image$round" --parent "image$((round - 1))" >>dump.log 2>&1 ||
		die "pre-dump $round: $(tail -n 1 dump.log)"
	grep -q FAIL out && die "after $round pre-dumps: $(grep -m 1 FAIL out)"
done
for ((round = 1; round <= rounds / 4; round++)); do
	"$sealpoint" dump "$pid" -o "live$round" --live --leave-running >>dump.log 2>&1 ||
		die "live dump $round: $(tail -n 1 dump.log)"
	grep -q FAIL out && die "after $round live dumps: $(grep -m 1 FAIL out)"
done
# All mappings join when a session begins.
for ((round = 1; round <= rounds; round++)); do
	"$sealpoint" track stop "$pid" >>dump.log 2>&1 || die "track stop $round: $(tail -n 1 dump.log)"
	"$sealpoint" pre-dump "$pid" -o "first$round" >>dump.log 2>&1 || die "session $round: $(tail -n 1 dump.log)"
	grep -q FAIL out && die "after $round sessions: $(grep -m 1 FAIL out)"
	rm -r "first$round"
done
"$sealpoint" watch "$pid" --interval 20ms --count 20 >>dump.log 2>&1 || die "watch: $(tail -n 1 dump.log)"
let_go
wait "$pid" || die "did not pass: $(grep -m 1 FAIL out)"
ok "$TEST_NAME" "$rounds pre-dumps, $rounds sessions, $((rounds / 4)) live dumps"
