#!/bin/bash
# Pages from the hugetlb pool, in each mode. The pool is enlarged for the test and put back after it.
#
# exclusive: it changes a setting of the whole machine
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

pool=/proc/sys/vm/nr_hugepages
before=$(<$pool)
trap 'echo "$before" >$pool' EXIT
echo $((before + 16)) >$pool 2>/dev/null
(($(<$pool) >= before + 16)) || skip_test "the hugetlb pool cannot be enlarged by 16 pages (memory or permission)"

for mode in kill running twice; do
	mkdir "$mode"
	cd "$mode" || exit 1
	TEST_DIR=$PWD TEST_NAME=$TEST_NAME/$mode bash "$TOP/tests/subject.sh" hugetlb "$mode"
	cat dump.log restore.log
	cd ..
done
