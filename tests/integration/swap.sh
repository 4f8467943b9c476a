#!/bin/bash
# Swapped-out memory: on a swap device of compressed memory (zram) that is made for the test and removed after
# it, pages are told from the markers that are not swapped out although they look so, and a program whose memory is
# swapped out is dumped and restored in each mode. Then deltas are proved exact (deltas.sh) while pages are swapped out
# and alike ones are merged (KSM).
#
# exclusive: it gives the whole machine a swap device
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

control=/sys/class/zram-control
[[ -d $control ]] || modprobe zram 2>/dev/null
number=$(cat $control/hot_add 2>/dev/null) || skip_test "the kernel makes no zram device (module zram, root)"
device=/dev/zram$number

merging=/sys/kernel/mm/ksm/run
merged_before=$(cat $merging 2>/dev/null)

remove_device() {
	[[ -z $merged_before ]] || echo "$merged_before" >$merging
	swapoff "$device" 2>/dev/null
	echo 1 >"/sys/block/zram$number/reset"
	echo "$number" >$control/hot_remove
}
trap remove_device EXIT

make_swap() { echo 64M >"/sys/block/zram$number/disksize" && mkswap "$device" && swapon "$device"; }
make_swap >swap.log 2>&1 || skip_test "$device cannot be used for swapping: $(tail -1 swap.log)"

"$BUILD/tests/unit/test_page_scan" >scan.log 2>&1
if grep -q '^\[ *OK \] swapped_pages_are_told_from_markers' scan.log; then
	ok "$TEST_NAME/told from markers"
else
	not_ok "$TEST_NAME/told from markers" "$(grep -v -E '^\[ *(RUN|OK)' scan.log | head -5)"
fi

for mode in kill running twice delta; do
	mkdir "$mode"
	cd "$mode" || exit 1
	TEST_DIR=$PWD TEST_NAME=$TEST_NAME/$mode bash "$TOP/tests/subject.sh" swapped "$mode" ||
		not_ok "$TEST_NAME/$mode" "exit status $?"
	cat dump.log restore.log
	cd ..
done

swapped_out() { sed -n 's/^pswpout //p' /proc/vmstat; }

[[ -z $merged_before ]] || echo 1 >$merging
before=$(swapped_out)
mkdir memory
mount -t tmpfs deltas memory || die "cannot mount a tmpfs"
cd memory || exit 1
if "$test_tools/deltas" --seed 4 --steps 150 --restore 50 "$subjects/changing" "$sealpoint" >deltas.log 2>&1; then
	ok "$TEST_NAME/deltas" "$(tail -n 1 deltas.log), $(($(swapped_out) - before)) pages swapped out"
else
	not_ok "$TEST_NAME/deltas" "$(tail -n 2 deltas.log)"
fi
