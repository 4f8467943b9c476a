#!/bin/bash
# node with timers, worker threads and a Map of a million entries.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

step=0
check() {
	local answer
	answer=$(ask 5002 step)
	[[ $answer == "ok $((step++))" ]] || { echo "answers '$answer': $(tail -n 2 program.log)" && return 1; }
}

start_program node "$TOP/tests/real/programs/program.js" 5002
wait_until 60 is_listening 5002 || die "does not start: $(tail -n 3 program.log)"
check || die "before any dump"
three_times "$PROGRAM_PID" check
kill "$PROGRAM_PID"
ok "$TEST_NAME"
