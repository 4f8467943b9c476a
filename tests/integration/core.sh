#!/bin/bash
# A core file made from a checkpoint opens in gdb with all threads, their registers and the memory.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

command -v gdb >/dev/null || skip_test "gdb is not installed"
start_subject working
dump_and_reap "$SUBJECT_PID" image
"$sealpoint" core image -o core >core.log 2>&1 || die "core: exit status $?: $(<core.log)"
gdb -q -batch -nx "$subjects/working" core \
	-ex 'info threads' -ex 'thread apply all backtrace' -ex 'print "heartbeat", *heartbeat' \
	-ex 'thread 1' -ex 'info registers rip' >gdb.log 2>&1 || die "gdb: exit status $?: $(tail -n 3 gdb.log)"

threads=$(grep -c -E '^[* ] [0-9]+ +(Thread|LWP)' gdb.log)
((threads == 7)) || die "gdb sees $threads threads, not 7: $(head -n 20 gdb.log)"
# The main thread waits; each of the others is inside its function.
for function in subject_wait computing vectors writing reading sleeping waiting; do
	grep -q -E "\b$function\b" gdb.log || die "no thread is in $function"
done
grep -q '= 6$' gdb.log || die "the memory does not hold what it held: $(grep '^\$' gdb.log)"
ok "$TEST_NAME"
