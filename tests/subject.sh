#!/bin/bash
# One subject in one mode: dumped and restored, with what /proc shows compared before and after, and then
# asked to check itself. Run by tests/run-one.sh as `subject.sh SUBJECT MODE`; tests/subjects/subject.h tells
# what subjects and modes are.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

subject=$1 mode=$2
seconds=$(subject_option "$subject" timeout 60)
ignored=$(subject_option "$subject" ignore '')
[[ $mode != user ]] || SUBJECT_USER=nobody
IFS=, read -ra dump_options <<<"$(subject_option "$subject" dump '')"
IFS=, read -ra restore_options <<<"$(subject_option "$subject" restore '')"

# What /proc shows is as it was before.
compare() { # WHEN
	expect_same_snapshot "$pid" before "$1" "$ignored"
	[[ ,$ignored, == *,resident,* ]] || expect_same_resident "$resident" "$(proc_resident "$pid")" "$1"
}

# Restores in the foreground, where the exit status of sealpoint is the program's.
restore_and_pass() { # DIRECTORY
	"$sealpoint" restore "$1" --pidfile pid "${restore_options[@]}" >>restore.log 2>&1 </dev/null &
	local restorer=$!
	wait_until 30 pid_written_or_gone "$restorer"
	[[ -s pid ]] || die "restore: $(tail -3 restore.log)"
	[[ $(<pid) == "$pid" ]] || die "restored as pid $(<pid), was $pid"
	compare "restored"
	let_go
	wait_until "$seconds" is_gone "$restorer" || die "the restored program does not end: $(tail -3 out)"
	local status=0
	wait "$restorer" || status=$?
	grep -q '^PASS$' out || die "restored, did not pass (exit status $status): $(grep -v READY out | head -5)"
	((status == 0)) || die "restore: exit status $status, the program's was 0"
}

pid_written_or_gone() { [[ -s pid ]] || is_gone "$1"; }

# Dumps without ending the program, lets it pass, and restores it as it was in the dump.
leave_running_and_restore() { # [OPTION...]
	dump "$pid" image --leave-running "${dump_options[@]}" "$@"
	is_gone "$pid" && die "gone after a dump that leaves it running"
	compare "left running"
	let_go
	wait "$pid" || die "left running, did not pass: $(grep -v READY out | head -5)"
	rewind_subject
	restore_and_pass image
}

# The program has gone on: a subject that waits looks for its trigger again and again.
expect_progress() {
	local switches
	switches=$(context_switches)
	wait_until 20 has_switched "$switches" || die "the program does not go on"
}

context_switches() { cat "/proc/$pid/task"/*/status | awk '/^voluntary_ctxt/ { sum += $2 } END { print sum }'; }
has_switched() { (($(context_switches) > $1 + 1)); }

start_and_look() {
	start_subject "$subject"
	pid=$SUBJECT_PID
	proc_snapshot "$pid" "$ignored" >before
	resident=$(proc_resident "$pid")
}

# "leave" and "arrive" are the halves of "kill" on two machines (tests/vm), with the directory carried between them. The
# process ids of one may be in use on the other, so they are high. Each kernel has its own vDSO, and where files are in
# memory, mapped ones count as shared memory.
[[ $mode == leave || $mode == arrive ]] && ignored+=,maps,resident
if [[ $mode == leave ]]; then
	# The emulated processor has no XSAVEC and fewer registers: see warn_of_larger_state() in engine/restore_check.c.
	export LD_BIND_NOW=1
	echo 20000 >/proc/sys/kernel/ns_last_pid
fi
[[ $mode == arrive ]] || start_and_look

case $mode in
leave)
	dump_and_reap "$pid" image "${dump_options[@]}"
	echo "$pid" >travel
	;;
arrive)
	grep -q '^SKIP: ' out && skip_test "did not leave: $(sed -n 's/^SKIP: //p' out)"
	pid=$(<travel)
	restore_and_pass image
	;;
kill | user)
	dump_and_reap "$pid" image "${dump_options[@]}"
	restore_and_pass image
	;;
running)
	"$sealpoint" inspect "$pid" "${dump_options[@]}" >survey 2>&1 ||
		die "inspect finds something in the way of the dump: $(grep -m 1 -A 4 'IN THE WAY' survey)"
	compare "inspected"
	leave_running_and_restore
	;;
live)
	leave_running_and_restore --live
	;;
twice)
	dump_and_reap "$pid" image1 "${dump_options[@]}"
	restore_detached image1 "${restore_options[@]}"
	compare "restored the first time"
	dump "$pid" image2 "${dump_options[@]}"
	wait_until 10 is_gone "$pid" || die "pid $pid is still there after the second dump"
	restore_and_pass image2
	;;
delta)
	dump "$pid" image1 --leave-running --track "${dump_options[@]}"
	dump "$pid" image2 --leave-running --parent image1 "${dump_options[@]}"
	compare "left running, tracked"
	dump_and_reap "$pid" image3 --parent image2 "${dump_options[@]}"
	grep -q 'full contents' dump.log && die "not a delta: $(grep 'full contents' dump.log)"
	restore_and_pass image3
	;;
pre-dump)
	for ahead in "-o ahead1" "-o ahead2 --parent ahead1"; do
		# shellcheck disable=SC2086 # words
		"$sealpoint" pre-dump "$pid" $ahead >>dump.log 2>&1 || die "pre-dump: $(tail -3 dump.log)"
		compare "saved ahead"
		expect_progress
	done
	dump_and_reap "$pid" image --parent ahead2 "${dump_options[@]}"
	grep -q 'full contents' dump.log && die "saved anew: $(grep 'full contents' dump.log)"
	restore_and_pass image
	;;
*) die "no such mode: $mode" ;;
esac
ok "$TEST_NAME"
