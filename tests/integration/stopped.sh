#!/bin/bash
# A process that was stopped by a signal stays stopped: after a dump that leaves it running, and after a restore.
# And what --leave-stopped leaves is stopped, and goes on with SIGCONT.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

is_stopped() { [[ $(state_of "$1") == T ]]; }
expect_stopped() { # PID WHEN
	wait_until 5 is_stopped "$1" || die "$2: state is $(state_of "$1"), not T"
	sleep 0.2
	is_stopped "$1" || die "$2: it does not stay stopped"
}

start_subject working
pid=$SUBJECT_PID
kill -STOP "$pid"
expect_stopped "$pid" "before"
dump "$pid" image1 --leave-running
expect_stopped "$pid" "after a dump of a stopped process"
dump_and_reap "$pid" image2
restore_detached image2
expect_stopped "$pid" "restored from a stopped process"
kill -CONT "$pid"
let_go
expect_pass "$pid" 20
ok "$TEST_NAME/stopped by SIGSTOP"

start_subject working
pid=$SUBJECT_PID
dump "$pid" image3 --leave-stopped
expect_stopped "$pid" "after a dump with --leave-stopped"
kill -CONT "$pid"
let_go
wait "$pid" || die "did not pass after --leave-stopped: $(grep FAIL out)"
grep -q '^PASS$' out || die "did not pass after --leave-stopped: $(<out)"
ok "$TEST_NAME/dump --leave-stopped"

rewind_subject
restore_detached image3 --leave-stopped
expect_stopped "$pid" "restored with --leave-stopped"
kill -CONT "$pid"
let_go
expect_pass "$pid" 20
ok "$TEST_NAME/restore --leave-stopped"
