#!/bin/bash
# Any system call of a dump or a restore may fail (with EIO, ENOMEM or EINTR): the command ends with one sentence or
# does its work all the same, a dump leaves the program as it was and nothing on the disk, a restore no process.
#
# FAILING_CALLS changes how many calls are tried of each; 100000 tries every call with each of the errors.
#
# timeout: 7200
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

rounds=${FAILING_CALLS:-100}
mkdir scratch

taken_well() { # NAME ARGUMENT...
	if "$test_tools/fail_calls" "${@:2}" >"$1.log" 2>&1; then
		ok "$TEST_NAME/$1" "$(tail -n 1 "$1.log")"
	else
		cat "$1.log"
		not_ok "$TEST_NAME/$1" "$(head -n 1 "$1.log")"
	fi
}

start_subject working
pid=$SUBJECT_PID
taken_well dump dump "$rounds" "$pid" heartbeat scratch "$sealpoint" dump "$pid" -o % --leave-running
let_go
expect_pass "$pid" 30
ok "$TEST_NAME/the program goes on"

rm -f heartbeat
start_subject working
dump_and_reap "$SUBJECT_PID" image
taken_well restore restore "$rounds" "$SUBJECT_PID" scratch "$sealpoint" restore image --detach

# A tree of processes, which end with the first of them.
for what in dump restore; do
	rm -f heartbeat
	start_subject crew
	pid=$SUBJECT_PID
	if [[ $what == dump ]]; then
		taken_well "dump of a tree" dump "$rounds" "$pid" heartbeat scratch "$sealpoint" dump "$pid" -o % --leave-running
		let_go
		expect_pass "$pid" 30
	else
		dump_and_reap "$pid" image-crew
		taken_well "restore of a tree" restore "$rounds" "$pid" scratch "$sealpoint" restore image-crew --detach
	fi
done

# Each restore but the first has to make way for itself: the connection of the one before is not quite closed.
rm -f heartbeat
start_subject conversing
dump_and_reap "$SUBJECT_PID" image-conversing --tcp-established
taken_well "restore of a connection" restore "$rounds" "$SUBJECT_PID" scratch "$sealpoint" restore image-conversing --detach \
	--tcp-established
