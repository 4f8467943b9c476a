#!/bin/bash
# A dump that runs out of disk says so and leaves nothing: no file, and a target that works on as before. On
# file systems of several sizes, so that it happens at different steps.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject working
pid=$SUBJECT_PID
mkdir small
proc_snapshot "$pid" >before

for size in 16k 64k 256k 1m 4m; do
	mount -t tmpfs -o "size=$size,nr_inodes=100" tmpfs small || die "cannot mount a tmpfs"
	status=0
	"$sealpoint" dump "$pid" -o small/image --compress none --leave-running >output 2>error || status=$?
	((status == 1)) || die "$size: exit status $status: $(<error)"
	one_sentence error || die "$size: not one line: $(<error)"
	grep -q "No space left" error || die "$size: does not say why: $(<error)"
	[[ -z $(ls -A small) ]] || die "$size: left $(ls -A small)"
	umount small
	expect_same_snapshot "$pid" before "after a dump to a disk of $size"
	[[ $(state_of "$pid") != [tT] ]] || die "$size: the target is stopped"
	ok "$TEST_NAME/$size"
done

mount -t tmpfs -o "size=100k,nr_inodes=2" tmpfs small || die "cannot mount a tmpfs"
status=0
"$sealpoint" dump "$pid" -o small/image --leave-running >output 2>error || status=$?
((status == 1)) || die "no inodes: exit status $status: $(<error)"
[[ -z $(ls -A small) ]] || die "no inodes: left $(ls -A small)"
umount small
ok "$TEST_NAME/no inodes"

let_go
expect_pass "$pid" 20
