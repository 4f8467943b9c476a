#!/bin/bash
# A control group that is frozen while a dump is under way: the dump does not wait for ever, says why it has given up, and
# the program goes on as if nothing had happened when the group is thawed. Of either version. The moment is left to
# chance, so it is tried until the program stood under the control of sealpoint twice.
#
# timeout: 400
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject working
pid=$SUBJECT_PID
proc_snapshot "$pid" >before

# True if the dump was at work in the program when it gave up.
given_up_at_work() { # STATUS GROUP
	(($1 == 1)) && one_sentence error && grep -q -F "is frozen with its control group /${2##*/}; thaw" error &&
		! grep -q "^sealpoint: process $pid " error
}

frozen_at_work() { # CASE MOUNT FILE FREEZE THAW
	local group=/sys/fs/cgroup/$2/sealpoint-test-$RANDOM$RANDOM dumping status hits=0 attempt before
	if ! mkdir "$group" 2>/dev/null || [[ ! -e $group/$3 ]]; then
		rmdir "$group" 2>/dev/null
		skip "$TEST_NAME/$1" "there is no such hierarchy at /sys/fs/cgroup/$2"
		return
	fi
	before=$(sed -n "s,^[0-9]*:${2/unified/}:,,p" "/proc/$pid/cgroup")
	echo "$pid" >"$group/cgroup.procs"
	for ((attempt = 0; attempt < 200 && hits < 2; attempt++)); do
		timeout --signal=KILL 60 "$sealpoint" dump "$pid" -o image --leave-running --timeout 2s >output 2>error </dev/null &
		dumping=$!
		sleep "0.0$((RANDOM % 50 + 10))"
		echo "$4" >"$group/$3"
		status=0
		wait "$dumping" || status=$?
		echo "$5" >"$group/$3"
		((status != 137)) || die "$1: the dump waits for ever"
		((status != 1)) || [[ -z $(compgen -G 'image*') ]] || die "$1: left $(echo image*)"
		((status == 0)) || grep -q -F "is frozen with its control group" error || die "$1: $(<error)"
		if given_up_at_work "$status" "$group"; then
			((++hits))
		fi
		rm -rf image
		expect_same_snapshot "$pid" before "$1: after the thaw"
	done
	echo "$pid" >"/sys/fs/cgroup/$2$before/cgroup.procs"
	wait_until 10 rmdir "$group"
	if ((hits)); then
		ok "$TEST_NAME/$1" "given up at work $hits times in $attempt dumps"
	else
		not_ok "$TEST_NAME/$1" "in $attempt dumps none was at work when its group was frozen"
	fi
}

frozen_at_work "version 2" "$([[ -d /sys/fs/cgroup/unified ]] && echo unified)" cgroup.freeze 1 0
frozen_at_work "version 1" freezer freezer.state FROZEN THAWED
let_go
expect_pass "$pid" 60
