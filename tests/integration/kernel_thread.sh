#!/bin/bash
# A kernel thread is refused by name. It can only be seen from the pid namespace that it is in.
#
# namespaces: none
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

[[ $(readlink /proc/2/exe) || $(</proc/2/comm) != kthreadd ]] && skip_test "no kernel thread can be seen from here"
cd "$TEST_DIR" || exit 1
status=0
"$sealpoint" dump 2 -o image >output 2>error || status=$?
((status == 1)) || die "exit status $status"
one_sentence error || die "not one line: $(<error)"
grep -q "kernel thread" error || die "does not say what it is: $(<error)"
[[ ! -e image ]] || die "left a directory"
ok "$TEST_NAME"
