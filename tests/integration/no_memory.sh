#!/bin/bash
# A dump or a restore that does not get the memory it needs ends with one sentence, and nothing is left of it; one that
# the kernel kills for want of memory has not harmed the program, and the next dump to the same directory works. A
# directory that cannot be written is told before the program is stopped.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject working
pid=$SUBJECT_PID
proc_snapshot "$pid" >before

with_address_space() { # KIB COMMAND...
	ulimit -v "$1"
	exec "${@:2}" >output 2>error </dev/null
}

# --- a read-only directory -----------------------------------------------------------------------------

mkdir readonly
mount -t tmpfs -o ro tmpfs readonly || die "cannot mount a tmpfs"
status=0
"$sealpoint" dump "$pid" -o readonly/image --leave-running >output 2>error </dev/null || status=$?
if ((status == 1)) && one_sentence error && grep -q "readonly/image.*Read-only" error; then
	ok "$TEST_NAME/a read-only directory"
else
	not_ok "$TEST_NAME/a read-only directory" "exit status $status: $(<error)"
fi
umount readonly
expect_same_snapshot "$pid" before "after a dump to a read-only directory"

# --- little address space ------------------------------------------------------------------------------

# Programs do not even start with less than the first. A tenth more each time, until it is enough twice.
failures=0 successes=0
for ((size = 8000; successes < 2; size += size / 10)); do
	status=0
	(with_address_space "$size" "$sealpoint" dump "$pid" -o image --leave-running) || status=$?
	if ((status == 0)); then
		((++successes))
		rm -r image
	elif ((status != 1)) || ! one_sentence error; then
		die "a dump in $size KiB: exit status $status: $(<error)"
	else
		((++failures))
	fi
	[[ -z $(compgen -G 'image*') ]] || die "a dump in $size KiB left $(echo image*)"
	expect_same_snapshot "$pid" before "after a dump in $size KiB"
done
((failures)) || die "no dump was short of address space"
ok "$TEST_NAME/a dump in little address space" "$failures failed"

# --- killed for want of memory -------------------------------------------------------------------------

group='' limit_file=''
make_group() {
	local v1=/sys/fs/cgroup/memory v2=/sys/fs/cgroup
	if [[ -e $v1/memory.limit_in_bytes ]]; then
		group=$v1/sealpoint-test.$$.$RANDOM limit_file=memory.limit_in_bytes
	elif grep -q -w memory $v2/cgroup.subtree_control; then
		group=$v2/sealpoint-test.$$.$RANDOM limit_file=memory.max
	else
		return 1
	fi
	mkdir "$group"
}

in_group() { # COMMAND...
	echo 0 >"$group/cgroup.procs"
	exec "$@" >output 2>error </dev/null
}

killed=0
if make_group 2>/dev/null; then
	trap 'rmdir "$group"' EXIT
	for size in 1 2 3 4 6 8 12; do
		echo ${size}M >"$group/$limit_file" || die "cannot limit the memory of $group"
		status=0
		(in_group "$sealpoint" dump "$pid" -o image --leave-running --compress none) || status=$?
		((status != 137)) || ((++killed))
		((status == 0 || status == 1 || status == 137)) || die "in $size MiB: exit status $status: $(<error)"
		expect_same_snapshot "$pid" before "after a dump in $size MiB"
		rm -rf image
	done
	"$sealpoint" dump "$pid" -o image --leave-running >>dump.log 2>&1 ||
		die "a dump after $killed that were killed: $(tail -n 1 dump.log)"
	rm -rf image*
	if ((killed)); then
		ok "$TEST_NAME/killed for want of memory" "$killed times"
	else
		skip "$TEST_NAME/killed for want of memory" "the limits of this kernel's groups kill nobody"
	fi
else
	skip "$TEST_NAME/killed for want of memory" "no group of limited memory can be made here"
fi

let_go
expect_pass "$pid" 20

# --- a restore -----------------------------------------------------------------------------------------

rm heartbeat
start_subject working
pid=$SUBJECT_PID
dump_and_reap "$pid" image
failures=0
for ((size = 8000; size < 80000; size += size / 10)); do
	status=0
	(with_address_space "$size" "$sealpoint" restore image --detach) || status=$?
	if ((status == 0)); then
		kill -KILL "$pid"
	elif ((status != 1)) || ! one_sentence error; then
		die "a restore in $size KiB: exit status $status: $(<error)"
	else
		((++failures))
	fi
	wait_until 10 is_gone "$pid" || die "a restore in $size KiB left a process"
done
((failures)) || die "no restore was short of address space"
restore_detached image
let_go
expect_pass "$pid" 20
ok "$TEST_NAME/a restore in little address space" "$failures failed"
