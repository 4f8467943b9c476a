#!/bin/bash
# Control groups: a tree is saved with those that its processes are in, and put there again, in each of the ways that
# CRIU's command line knows; a dump with --freeze-cgroup freezes one for a moment, and leaves it as it was, even if it is
# killed. Of version 1 and version 2, as far as they are mounted here.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

export HOME=$TEST_DIR # no configuration files
ln -s "$sealpoint" criu
criu=$TEST_DIR/criu
made=()
remove_groups() {
	local group
	for group in "${made[@]}"; do
		rmdir "$group"/* "$group" 2>/dev/null
	done
}
trap remove_groups EXIT

fails() { # CASE WORDS COMMAND...
	local status=0
	timeout 60 "${@:3}" >output 2>error </dev/null || status=$?
	((status == 1)) || die "$1: exit status $status, not 1: $(head -c 300 error)"
	grep -q -F -e "$2" error || die "$1: does not say \"$2\": $(head -c 300 error)"
}
succeeds() { # CASE COMMAND...
	timeout 60 "${@:2}" >output 2>error </dev/null || die "$1: exit status $?: $(tail -n 3 error)"
}

# Sets group, a new one of the hierarchy that is mounted below /sys/fs/cgroup, with the file.
new_group() { # MOUNT FILE
	group=/sys/fs/cgroup/$1/sealpoint-test-$RANDOM$RANDOM
	made+=("$group")
	mkdir "$group" 2>/dev/null && [[ -e $group/$2 ]]
}
# Sets pid: a shell with two children that sleep, in the group, and child, the last of them, in another one.
start_tree() { # GROUP CHILD_GROUP
	exec_alone sh -c 'sleep 1000 & sleep 1000 & wait' </dev/null >/dev/null 2>&1 &
	pid=$!
	wait_until 20 has_two_children || die "a shell does not start its children"
	child=$(pgrep -P "$pid" | tail -n 1)
	for one in "$pid" $(pgrep -P "$pid"); do
		echo "$one" >"$1/cgroup.procs"
	done
	echo "$child" >"$2/cgroup.procs"
}
has_two_children() { [[ $(pgrep -P "$pid" -x sleep | wc -l) == 2 ]]; }
end_tree() {
	kill -9 "$child" $(pgrep -P "$pid") "$pid" 2>/dev/null
	wait_until 20 is_gone "$pid" && wait_until 20 is_gone "$child"
}
# A group can be removed a moment after the last of its processes has gone.
are_removed() { # GROUP...
	local group
	for group; do
		[[ ! -e $group ]] || rmdir "$group" || return
	done
}

is_empty() { [[ ! -s $1/cgroup.procs ]]; }

# --- put back ------------------------------------------------------------------------------------------

put_back() { # CASE MOUNT FILE VALUE OTHER
	local group mode
	if ! new_group "$2" "$3"; then
		skip "$TEST_NAME/$1" "there is no such hierarchy at /sys/fs/cgroup/$2"
		return
	fi
	mkdir "$group/below"
	echo "$4" >"$group/$3"
	if [[ $2 == cpuset ]]; then # which nobody can enter without these
		echo 0 | tee "$group/cpuset.mems" "$group/below/cpuset.cpus" "$group/below/cpuset.mems" >/dev/null
	fi
	start_tree "$group" "$group/below"
	mkdir "$1"
	succeeds "$1: dump" "$criu" dump -t "$pid" -D "$1" --manage-cgroups
	wait_until 20 is_gone "$pid"
	inside() { # MODE...
		succeeds "$1 $*: restore" "$criu" restore -D "$case_dir" -d "${@:2}"
		grep -q "/${group##*/}\$" "/proc/$pid/cgroup" || die "$1 $*: the root is in $(<"/proc/$pid/cgroup")"
		grep -q "/${group##*/}/below\$" "/proc/$child/cgroup" || die "$1 $*: a child is in $(<"/proc/$child/cgroup")"
		end_tree
		wait_until 10 is_empty "$group"
		wait_until 10 is_empty "$group/below"
	}
	local case_dir=$1
	echo "$5" >"$group/$3"
	inside "$1" --manage-cgroups=none
	inside "$1" --manage-cgroups
	[[ $(<"$group/$3") == "$5" ]] || die "$1: a group that was there is changed"
	fails "$1: strict" "already; remove it first" "$criu" restore -D "$1" -d --manage-cgroups=strict
	is_gone "$pid" || die "$1: a process is left"
	inside "$1" --manage-cgroups=props
	[[ $(<"$group/$3") == "$4" ]] || die "$1: props: $3 is $(<"$group/$3")"
	echo "$5" >"$group/$3"
	inside "$1" --manage-cgroups=full
	[[ $(<"$group/$3") == "$4" ]] || die "$1: full: $3 is $(<"$group/$3")"
	wait_until 10 rmdir "$group/below"
	fails "$1: none" "make it first" "$criu" restore -D "$1" -d --manage-cgroups=none
	wait_until 10 rmdir "$group"
	for mode in soft strict; do
		inside "$1" "--manage-cgroups=$mode"
		[[ $(<"$group/$3") == "$4" ]] || die "$1: $mode: $3 is $(<"$group/$3")"
		wait_until 10 are_removed "$group/below" "$group" || die "$1: groups cannot be removed"
	done
	mkdir -p "$1-pid/pid"
	fails "$1: a restore that fails" 'pid file' "$criu" restore -D "$1" -d --manage-cgroups --pidfile "$TEST_DIR/$1-pid/pid"
	[[ ! -e $group ]] || die "$1: a restore that has failed leaves its groups"
	rm -rf native
	succeeds "$1: soft once more" "$criu" restore -D "$1" -d --manage-cgroups=soft
	succeeds "$1: dump --cgroups" "$sealpoint" dump "$pid" -o native --cgroups
	wait_until 20 is_gone "$pid"
	succeeds "$1: restore --cgroups" "$sealpoint" restore native --detach --cgroups none
	grep -q "/${group##*/}/below\$" "/proc/$child/cgroup" || die "$1: restore --cgroups: $(<"/proc/$child/cgroup")"
	end_tree
	wait_until 10 are_removed "$group/below" "$group" || die "$1: groups cannot be removed"
	succeeds "$1: ignore" "$criu" restore -D "$1" -d --manage-cgroups=ignore
	! grep -q "/${group##*/}" "/proc/$pid/cgroup" || die "$1: ignore: $(<"/proc/$pid/cgroup")"
	end_tree
	ok "$TEST_NAME/$1"
}
put_back "version-1" pids pids.max 77 88
put_back "cpuset" cpuset cpuset.cpus 0 0
put_back "version-2" "$([[ -d /sys/fs/cgroup/unified ]] && echo unified)" cgroup.freeze 0 0

start_program sleep 1000
wait_until 20 grep -q sleep "/proc/$PROGRAM_PID/comm"
mkdir without
succeeds "without: dump" "$criu" dump -t "$PROGRAM_PID" -D without
wait_until 20 is_gone "$PROGRAM_PID"
fails "without" "save them with the dump" "$criu" restore -D without -d --manage-cgroups

# --- frozen for a moment -------------------------------------------------------------------------------

# A tree that makes and ends processes all the time.
cat >breeder.sh <<'S'
while :; do sleep 0.001; (:) & wait; done
S
state() { tr -d '\n' <"$group/$1"; }
is_state() { [[ $(state "$1") == "$2" ]]; }
# What was asked for, version 2 tells at once; whether it is so, in another file.
is_frozen() {
	if [[ $1 == cgroup.freeze ]]; then
		grep -q "frozen 1" "$group/cgroup.events"
	else
		is_state "$1" "$2"
	fi
}
frozen() { # CASE MOUNT FILE THAWED FROZEN
	local group breeder status still
	if ! new_group "$2" "$3"; then
		skip "$TEST_NAME/$1" "there is no such hierarchy at /sys/fs/cgroup/$2"
		return
	fi
	exec_alone sh breeder.sh </dev/null >/dev/null 2>&1 &
	breeder=$!
	echo "$breeder" >"$group/cgroup.procs"
	mkdir "$1"
	for _ in 1 2 3 4 5; do
		succeeds "$1: dump" "$criu" dump -t "$breeder" -D "$1" -R --freeze-cgroup "$group"
		[[ $(state "$3") == "$4" ]] || die "$1: the group is $(state "$3")"
	done
	echo "$5" >"$group/$3"
	wait_until 10 is_frozen "$3" "$5"
	timeout 60 "$criu" dump -t "$breeder" -D "$1" -R --freeze-cgroup "$group" >output 2>error </dev/null && status=0 || status=$?
	still=$(state "$3")
	echo "$4" >"$group/$3" # before anything else: what is frozen cannot be killed
	((status == 1)) || die "$1: a frozen group: exit status $status"
	grep -q "is frozen with its control group.*thaw that first" error || die "$1: a frozen group: $(<error)"
	[[ $still == "$5" ]] || die "$1: a group that was frozen is $still"
	# Killed at some moment: somebody else thaws it.
	for moment in 1 2 3 4 5 6 7 8; do
		timeout --signal=KILL "0.0$moment" "$criu" dump -t "$breeder" -D "$1" -R --freeze-cgroup "$group" >/dev/null 2>&1 </dev/null
		wait_until 10 is_state "$3" "$4" || die "$1: after a kill the group is $(state "$3")"
	done
	succeeds "$1: dump" "$criu" dump -t "$breeder" -D "$1" --freeze-cgroup "$group"
	wait_until 20 is_gone "$breeder"
	succeeds "$1: restore" "$criu" restore -D "$1" -d
	fails "$1: no group" "is no control group that can be frozen" "$criu" dump -t "$breeder" -D "$1" --freeze-cgroup "$TEST_DIR"
	echo $BASHPID >"$group/cgroup.procs"
	fails "$1: ourselves" "would be frozen with it" "$criu" dump -t "$breeder" -D "$1" --freeze-cgroup "$group"
	kill -9 "$breeder"
	echo $BASHPID >"$group/../cgroup.procs"
	wait_until 10 rmdir "$group"
	ok "$TEST_NAME/$1"
}
frozen "frozen, version 1" freezer freezer.state THAWED FROZEN
frozen "frozen, version 2" "$([[ -d /sys/fs/cgroup/unified ]] && echo unified)" cgroup.freeze 0 1
