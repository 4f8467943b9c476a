#!/bin/bash
# A node cluster: connections come to both workers after each restore, no message between them and the primary is lost,
# and a worker that ends is replaced.
#
# timeout: 200
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

port=5004 asked=0 returned=0

# Asks once; sets WORKER, and checks what the primary has counted.
ask_once() {
	local connections numbers wrong
	read -r WORKER connections numbers wrong < <(ask "$port" hello) || { echo "no answer: $(tail -n 2 program.log)" && return 1; }
	[[ -z $wrong ]] || { echo "$wrong" && return 1; }
	((connections == ++asked)) || { echo "the primary was told of $connections connections, not $asked" && return 1; }
	((numbers >= returned)) || { echo "the primary has forgotten what came back" && return 1; }
	returned=$numbers
}

# Both workers answer, and numbers go to and fro.
check() {
	local before=$returned deadline=$((SECONDS + 60))
	declare -A workers=()
	until ((${#workers[@]} == 2 && returned >= before + 200)); do
		ask_once || return 1
		workers[$WORKER]=1
		((SECONDS < deadline)) || { echo "${#workers[@]} workers answer, $((returned - before)) numbers came back" && return 1; }
	done
}
is_replaced() { [[ $(descendants "$PROGRAM_PID" | wc -l) == 2 && ! -e /proc/$WORKER ]]; }

start_program node "$TOP/tests/real/programs/cluster.js" "$port"
wait_until 60 is_listening "$port" || die "does not start: $(tail -n 3 program.log)"
wait_until 60 ask_once || die "no worker answers: $(tail -n 3 program.log)"
check >complaint || die "before any dump: $(<complaint)"
three_times "$PROGRAM_PID" check
kill -KILL "$WORKER"
wait_until 60 is_replaced || die "a worker that has ended is not replaced"
check >complaint || die "with a new worker: $(<complaint)"
kill "$PROGRAM_PID"
ok "$TEST_NAME" "$returned messages"
