#!/bin/bash
# A control group that is frozen while a dump is under way: the dump does not wait for ever, says why it has given up, and
# the program goes on as if nothing had happened when the group is thawed. Of either version, and at several moments:
# when threads are stopped, when the first is about to be driven, in the middle of that.
#
# timeout: 400
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject working
pid=$SUBJECT_PID
proc_snapshot "$pid" >before

frozen_at() { # MOMENT: in the group
	local status=0
	halt_at "$1" "$sealpoint" dump "$pid" -o image --leave-running --timeout 2s >output 2>error </dev/null
	echo "$freeze" >"$group/$file"
	proceed
	wait_until 60 is_gone "$HALTED" || { echo "$thaw" >"$group/$file"; die "$1: the dump waits for ever"; }
	wait "$HALTED" || status=$?
	echo "$thaw" >"$group/$file"
	((status == 1)) || die "$1: exit status $status: $(<error)"
	grep -q -F "is frozen with its control group /${group##*/}; thaw" error || die "$1: $(<error)"
	one_sentence error || die "$1: not one line: $(<error)"
	[[ -z $(compgen -G 'image*') ]] || die "$1: left $(echo image*)"
	expect_same_snapshot "$pid" before "$1: after the thaw"
}

frozen_at_work() { # CASE MOUNT FILE FREEZE THAW
	local group=/sys/fs/cgroup/$2/sealpoint-test-$RANDOM$RANDOM file=$3 freeze=$4 thaw=$5 before
	if ! mkdir "$group" 2>/dev/null || [[ ! -e $group/$3 ]]; then
		rmdir "$group" 2>/dev/null
		skip "$TEST_NAME/$1" "there is no such hierarchy at /sys/fs/cgroup/$2"
		return
	fi
	before=$(sed -n "s,^[0-9]*:${2/unified/}:,,p" "/proc/$pid/cgroup")
	echo "$pid" >"$group/cgroup.procs"
	frozen_at ptrace
	frozen_at process_vm_writev
	frozen_at process_vm_writev,5
	echo "$pid" >"/sys/fs/cgroup/$2$before/cgroup.procs"
	wait_until 10 rmdir "$group"
	ok "$TEST_NAME/$1"
}

frozen_at_work "version 2" "$([[ -d /sys/fs/cgroup/unified ]] && echo unified)" cgroup.freeze 1 0
frozen_at_work "version 1" freezer freezer.state FROZEN THAWED
let_go
expect_pass "$pid" 60
