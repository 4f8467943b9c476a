#!/bin/bash
# Swapped-out memory: on a swap device of compressed memory (zram) that is made for the test and removed after
# it, pages are told from the markers that are not swapped out although they look so, and a program whose memory is
# swapped out is dumped and restored in each mode.
#
# exclusive: it gives the whole machine a swap device
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

control=/sys/class/zram-control
[[ -d $control ]] || modprobe zram 2>/dev/null
number=$(cat $control/hot_add 2>/dev/null) || skip_test "the kernel makes no zram device (module zram, root)"
device=/dev/zram$number

remove_device() {
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

for mode in kill running twice; do
	mkdir "$mode"
	cd "$mode" || exit 1
	TEST_DIR=$PWD TEST_NAME=$TEST_NAME/$mode bash "$TOP/tests/subject.sh" swapped "$mode"
	cat dump.log restore.log
	cd ..
done
