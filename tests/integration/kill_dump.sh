#!/bin/bash
# A dump that is killed at any moment leaves a working, self-checking program as it was: at random moments of its
# whole length, then at evenly spread system calls of the dump itself. First, two commands that do harm show that
# harm is noticed. Then the same, less often, of programs that it is hard to leave without harm.
#
# KILL_DUMP=many, which `make check-kills` sets, kills 1,000 dumps at random moments. KILL_DUMP_ROUNDS and
# KILL_DUMP_CALLS change the numbers, KILL_DUMP_CORNER_ROUNDS and _CALLS those of the hard cases; KILL_DUMP_CALLS=100000
# tries every system call. KILL_DUMP_TREE_ROUNDS and _CALLS are those of a tree of processes.
#
# timeout: 3000
# exclusive: it measures how long a dump takes
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

if [[ ${KILL_DUMP:-} == many ]]; then
	numbers=(1000 500 300 100 150 50 500 200)
else
	numbers=(200 100 60 40 40 20 60 40)
fi
mkdir scratch

subject=(working)

# Runs kill_dump against a subject of its own, PID in the command; its output is in $1.log.
kill_dumps() { # NAME MODE ROUNDS COMMAND...
	local status=0 command=("${@:4}")
	mkdir "$1" && cd "$1" || exit 1
	start_subject "${subject[@]}"
	"$test_tools/kill_dump" "$2" "$3" "$SUBJECT_PID" heartbeat "$TEST_DIR/scratch" \
		"${command[@]/#PID/$SUBJECT_PID}" >"../$1.log" 2>&1 || status=$?
	kill -CONT "$SUBJECT_PID" 2>/dev/null
	cd ..
	return $status
}

expect_noticed() { # NAME WORDS COMMAND...
	kill_dumps "$1" random 20 "${@:3}"
	if (($? == 1)) && grep -q "harmed: .*$2" "$1.log"; then
		ok "$TEST_NAME/notices $1"
	else
		not_ok "$TEST_NAME/notices $1" "$(tail -n 1 "$1.log")"
	fi
	kill -KILL "$SUBJECT_PID" 2>/dev/null
}

# The target goes on: it finds nothing wrong with itself.
expect_unharmed() { # NAME MODE ROUNDS [OPTION...]
	if ! kill_dumps "$1" "$2" "$3" "$sealpoint" dump PID -o % --leave-running "${@:4}"; then
		not_ok "$TEST_NAME/$1" "$(tail -n 1 "$1.log")"
		return
	fi
	cd "$1" || exit 1
	let_go
	expect_pass "$SUBJECT_PID" 30
	cd ..
	ok "$TEST_NAME/$1" "$(tail -n 1 "$1.log")"
}

# shellcheck disable=SC2016
expect_noticed "a stop" "stopped" /bin/bash -c 'kill -STOP "$1"; sleep 0.01' bash PID
# shellcheck disable=SC2016
expect_noticed "a death" "dead" /bin/bash -c 'sleep 0.01; kill -KILL "$1"; sleep 0.05' bash PID
expect_unharmed "random moments" random "${KILL_DUMP_ROUNDS:-${numbers[0]}}"
expect_unharmed "system calls" calls "${KILL_DUMP_CALLS:-${numbers[1]}}"
# That opens a userfaultfd in the target each time.
expect_unharmed "a session, random moments" random "${KILL_DUMP_SESSION_ROUNDS:-${numbers[2]}}" --live
expect_unharmed "a session, system calls" calls "${KILL_DUMP_SESSION_CALLS:-${numbers[3]}}" --live
subject=(crew)
expect_unharmed "a tree, random moments" random "${KILL_DUMP_TREE_ROUNDS:-${numbers[6]}}"
expect_unharmed "a tree, system calls" calls "${KILL_DUMP_TREE_CALLS:-${numbers[7]}}"
# That opens one in each process.
expect_unharmed "a tracked tree, random moments" random "${KILL_DUMP_TREE_ROUNDS:-${numbers[6]}}" --live
expect_unharmed "a tracked tree, system calls" calls "${KILL_DUMP_TREE_CALLS:-${numbers[7]}}" --live
for corner in filtered strict deep elsewhere; do
	subject=(cornered "$corner")
	expect_unharmed "$corner, random moments" random "${KILL_DUMP_CORNER_ROUNDS:-${numbers[4]}}"
	expect_unharmed "$corner, system calls" calls "${KILL_DUMP_CORNER_CALLS:-${numbers[5]}}"
done
# Its connection goes on, too: nothing is left locked, and no socket in repair mode.
subject=(conversing)
expect_unharmed "a connection, random moments" random "${KILL_DUMP_CORNER_ROUNDS:-${numbers[4]}}" --tcp-established
expect_unharmed "a connection, system calls" calls "${KILL_DUMP_CORNER_CALLS:-${numbers[5]}}" --tcp-established
