#!/bin/bash
# Ctrl-C and its kin end a dump, a restore, a merge and the writing of a core file in an orderly way: nothing is left on
# the disk, the program runs on (or is not there), one sentence says so, and sealpoint ends by the signal.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# A program whose memory takes seconds to compress.
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
has_begun_to_write() { [[ -s $(echo new.partial-*/pages.img) ]]; }
has_begun_a_core() { [[ -s $(echo new.partial-*) ]]; }
exists() { [[ -e /proc/$1 ]]; }

# Runs sealpoint, sends it the signals when the condition holds, and expects that it ends by the first of them.
interrupted() { # CASE SIGNAL,... CONDITION WORDS ARGUMENT...
	local name=$TEST_NAME/$1 signals=${2//,/ } signal status=0
	# shellcheck disable=SC2016
	setpriv --pdeathsig KILL python3 -c 'import os, signal, sys
for s in (signal.SIGINT, signal.SIGQUIT): signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$sealpoint" "${@:5}" >output 2>error </dev/null &
	local run=$!
	wait_until 20 eval "$3 || is_gone $run"
	for signal in $signals; do
		kill "-$signal" "$run"
	done
	wait "$run" 2>/dev/null || status=$?
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

slow_dump=(dump "$program" -o new --compress 19)
for signal in INT TERM HUP QUIT; do
	interrupted "dump, SIG$signal" "$signal" has_begun_to_write \
		"process $program (python3) runs on, and nothing was saved" "${slow_dump[@]}"
done
interrupted "dump, the signal twice" TERM,TERM has_begun_to_write "nothing was saved" "${slow_dump[@]}"
if [[ $(sed -n 's/^TracerPid:\t//p' "/proc/$program/status") == 0 && $(state_of "$program") == S ]]; then
	ok "$TEST_NAME/the program runs on"
else
	not_ok "$TEST_NAME/the program runs on" "$(grep -E 'State|TracerPid' "/proc/$program/status")"
fi

# The dump of a program under seccomp is a process of its own: it hears of the signal.
: >program.log
start_program python3 large.py filtered
wait_until 30 grep -q READY program.log || die "the filtered program does not begin: $(<program.log)"
interrupted "dump under seccomp" INT has_begun_to_write "nothing was saved" \
	dump "$PROGRAM_PID" -o new --compress 19
kill -KILL "$PROGRAM_PID"

# What the caller ignores stays ignored.
(trap '' HUP && exec "$sealpoint" dump "$program" -o saved --compress 15 >dump.log 2>&1) &
run=$!
wait_until 20 eval "test -s saved.partial-$run/pages.img || is_gone $run"
kill -HUP "$run" || not_ok "$TEST_NAME/an ignored signal" "the dump had ended before it came"
if wait "$run" && wait_until 10 is_gone "$program"; then
	ok "$TEST_NAME/an ignored signal"
else
	not_ok "$TEST_NAME/an ignored signal" "$(<dump.log)"
fi

interrupted "restore" TERM "exists $program" "nothing was restored" restore saved --detach
if exists "$program"; then
	not_ok "$TEST_NAME/restore" "the process is there"
fi
interrupted "core" INT has_begun_a_core "no core file was written" core saved -o new
interrupted "merge" TERM has_begun_to_write "nothing was merged" merge saved -o new --compress 19
interrupted "merge in place" INT "[[ -s \$(echo saved.partial-*/pages.img) ]]" "nothing was merged" \
	merge saved --in-place --compress 19
[[ -z $(compgen -G 'saved.*') ]] || not_ok "$TEST_NAME/merge in place" "leaves $(echo saved.*)"
"$sealpoint" verify saved >/dev/null 2>error || not_ok "$TEST_NAME/merge in place" "$(<error)"
