#!/bin/bash
# java with 200 threads and a heap of 1 GiB, all of it resident.
#
# timeout: 600
# exclusive: it needs 1.5 GiB of memory and as much of disk
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

step=0
check() {
	local answer
	answer=$(ask 5003 step)
	[[ $answer == "ok $((step++))" ]] || { echo "answers '$answer': $(tail -n 2 program.log)" && return 1; }
}

javac -d . "$TOP/tests/real/programs/Program.java" || die "does not compile"
start_program java -Xms1g -Xmx1g -XX:+AlwaysPreTouch -cp "$TEST_DIR" Program 5003
wait_until 60 is_listening 5003 || die "does not start: $(tail -n 3 program.log)"
check || die "before any dump"
three_times "$PROGRAM_PID" check
kill "$PROGRAM_PID"
ok "$TEST_NAME"
