#!/bin/bash
# A dump that runs out of disk says so and leaves nothing: no file, and a target that works on as before. On
# file systems of several sizes, so that it happens at different steps. So do those that write what was saved in another
# form; the checkpoint is as it was.
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
	grep -q "No space left.*; make room there" error || die "$size: does not say why, and the way out: $(<error)"
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

# --- files that may not be large ---------------------------------------------------------------------

# shellcheck disable=SC2016 # the shell that is started expands it
refuses "no large files" bash -c 'ulimit -f 16; exec "$@"' - \
	"$sealpoint" dump "$pid" -o image --compress none --leave-running \
	-- "File too large; files may not be as large as that here: raise the limit"
[[ -z $(compgen -G 'image*') ]] || die "no large files: left $(ls)"
expect_same_snapshot "$pid" before "after a dump that may write no large file"

# --- what was saved, in another form -------------------------------------------------------------------

dump "$pid" image --compress none --leave-running --track
dump "$pid" image2 --compress none --leave-running --parent image

out_of_disk() { # CASE COMMAND...
	local status=0 before
	before=$(find image image2 small -type f -exec cksum {} + | sort)
	"${@:2}" >output 2>error </dev/null || status=$?
	((status == 1)) || die "$1: exit status $status: $(<error)"
	one_sentence error || die "$1: not one line: $(<error)"
	grep -q "No space left.*; make room there" error || die "$1: does not say why, and the way out: $(<error)"
	[[ $(find image image2 small -type f -exec cksum {} + | sort) == "$before" ]] || die "$1: left $(ls -A small)"
	ok "$TEST_NAME/$1"
}

for size in 16k 256k 1m; do
	mount -t tmpfs -o "size=$size,nr_inodes=100" tmpfs small || die "cannot mount a tmpfs"
	out_of_disk "merge to $size" "$sealpoint" merge image2 -o small/merged
	out_of_disk "core to $size" "$sealpoint" core image2 -o small/core
	umount small
done
mount -t tmpfs -o "size=$(($(du -sk image image2 | awk '{ sum += $1 } END { print sum }') + 256))k" tmpfs small ||
	die "cannot mount a tmpfs"
cp -r image image2 small
out_of_disk "merge in place" "$sealpoint" merge small/image2 --in-place
"$sealpoint" verify small/image2 >output 2>error || die "the chain on a full disk: $(<error)"
umount small
"$sealpoint" track stop "$pid" >output 2>error || die "track stop: $(<error)"

let_go
expect_pass "$pid" 20
