#!/bin/bash
# Ctrl-C and its kin end a dump, a restore, a merge and the writing of a core file in an orderly way: nothing is left on
# the disk, the program runs on (or is not there), one sentence says so, and sealpoint ends by the signal.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# A program with something to save.
cat >large.py <<'P'
import ctypes, os, sys, time

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

if "filtered" in sys.argv:
    allow = Program(1, bytes([6, 0, 0, 0, 0, 0, 0xff, 0x7f]))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(allow)) == 0
contents = [os.urandom(1 << 20) for _ in range(64)]
print("READY", flush=True)
while True:
    time.sleep(0.05)
P
start_program python3 large.py
program=$PROGRAM_PID
wait_until 30 grep -q READY program.log || die "the program does not begin: $(<program.log)"

nothing_left() { [[ -z $(compgen -G 'new*') ]]; }
exists() { [[ -e /proc/$1 ]]; }

# Runs sealpoint up to the moment, sends it the signals, and expects that it ends by the first of them.
interrupted() { # CASE SIGNAL,... MOMENT WORDS ARGUMENT...
	local name=$TEST_NAME/$1 signals=${2//,/ } signal status=0
	halt_at "$3" /usr/bin/python3 -c 'import os, signal, sys
for s in (signal.SIGINT, signal.SIGQUIT): signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$sealpoint" "${@:5}" >output 2>error </dev/null
	for signal in $signals; do
		kill "-$signal" "$HALTED"
	done
	proceed
	wait "$HALTED" 2>/dev/null || status=$?
	if ((status != 128 + $(kill -l "${signals%% *}"))); then
		not_ok "$name" "exit status $status: $(<error)"
	elif ! one_sentence error || ! grep -q "$4: interrupted by SIG${signals%% *}" error; then
		not_ok "$name" "says: $(<error)"
	elif ! nothing_left; then
		not_ok "$name" "leaves $(echo new*)"
	else
		ok "$name"
	fi
}

writing="pwrite64:*/new.partial-*/pages.img"
for signal in INT TERM HUP QUIT; do
	interrupted "dump, SIG$signal" "$signal" "$writing" \
		"process $program (python3) runs on, and nothing was saved" dump "$program" -o new
done
interrupted "dump, the signal twice" TERM,TERM "$writing" "nothing was saved" dump "$program" -o new
if [[ $(sed -n 's/^TracerPid:\t//p' "/proc/$program/status") == 0 && $(state_of "$program") == S ]]; then
	ok "$TEST_NAME/the program runs on"
else
	not_ok "$TEST_NAME/the program runs on" "$(grep -E 'State|TracerPid' "/proc/$program/status")"
fi

# The dump of a program under seccomp is a process of its own: it hears of the signal.
: >program.log
start_program python3 large.py filtered
wait_until 30 grep -q READY program.log || die "the filtered program does not begin: $(<program.log)"
interrupted "dump under seccomp" INT "+$writing" "nothing was saved" \
	dump "$PROGRAM_PID" -o new --compress 19
kill -KILL "$PROGRAM_PID"

# What the caller ignores stays ignored.
trap '' HUP
halt_at "pwrite64:*/saved.partial-*/pages.img" "$sealpoint" dump "$program" -o saved >dump.log 2>&1
kill -HUP "$HALTED"
proceed
if wait "$HALTED" && wait_until 10 is_gone "$program"; then
	ok "$TEST_NAME/an ignored signal"
else
	not_ok "$TEST_NAME/an ignored signal" "$(<dump.log)"
fi

trap - HUP
interrupted "restore" TERM process_vm_writev "nothing was restored" restore saved --detach
if exists "$program"; then
	not_ok "$TEST_NAME/restore" "the process is there"
fi
interrupted "core" INT "pwrite64:*/new.partial-*" "no core file was written" core saved -o new
interrupted "merge" TERM "$writing" "nothing was merged" merge saved -o new
interrupted "merge in place" INT "pwrite64:*/saved.partial-*/pages.img" "nothing was merged" \
	merge saved --in-place
[[ -z $(compgen -G 'saved.*') ]] || not_ok "$TEST_NAME/merge in place" "leaves $(echo saved.*)"
"$sealpoint" verify saved >/dev/null 2>error || not_ok "$TEST_NAME/merge in place" "$(<error)"
