#!/bin/bash
# python3 with threads, a half consumed generator and sqlite in WAL mode; its database is sound for another
# program at the end.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

step=0
check() {
	local answer
	answer=$(ask 5001 step)
	[[ $answer == "ok $((step++))" ]] || { echo "answers '$answer': $(tail -n 2 program.log)" && return 1; }
}

start_program /usr/bin/python3 "$TOP/tests/real/programs/program.py" 5001
wait_until 60 is_listening 5001 || die "does not start: $(tail -n 3 program.log)"
check || die "before any dump: $(check)"
three_times "$PROGRAM_PID" check
kill "$PROGRAM_PID"
[[ $(sqlite3 data.sqlite 'SELECT count(*) FROM numbers; PRAGMA integrity_check') == $'20004\nok' ]] ||
	die "the database is not sound for another program"
ok "$TEST_NAME"
