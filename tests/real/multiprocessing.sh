#!/bin/bash
# Python's multiprocessing, with workers that are begun by fork, by spawn and by a server of forks: a pool, queues, a
# manager, shared memory and locks, all of them busy when they are saved.
#
# timeout: 400
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

has_done() { (($(<rounds) >= $1)); }
check() {
	wait_until 60 has_done $(($(<rounds) + 3)) || { echo "no rounds are done: $(tail -n 2 program.log)" && return 1; }
}

no_process_is_left() {
	local left=()
	read -r -a left <"/proc/$$/task/$$/children"
	((${#left[@]} == 0))
}

for method in fork spawn forkserver; do
	rm -f stop
	echo 0 >rounds
	start_program /usr/bin/python3 "$TOP/tests/real/programs/workers.py" "$method"
	check >complaint || die "$method, before any dump: $(<complaint)"
	three_times "$PROGRAM_PID" check
	touch stop
	wait_until 60 is_gone "$PROGRAM_PID" || die "$method: it does not end"
	[[ $(<program.log) == "all is as it should be" ]] || die "$method: $(tail -n 3 program.log)"
	wait_until 20 no_process_is_left || die "$method: a worker is left"
	ok "$TEST_NAME/$method" "$(<rounds) rounds"
	rm program.log
done
