#!/bin/bash
# In the foreground, restore behaves as the program that it brings back: its exit status and its death by a signal
# are those of the program, signals reach it, and it stops and goes on with it.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# A program that says what it gets. It leads its own session; the clock ticks every 50 ms.
cat >program.py <<'P'
import os, signal, sys, time

def say(word):
    os.write(1, (word + "\n").encode())

def on_signal(number, frame):
    say(signal.Signals(number).name)
    if number == signal.SIGTERM:
        os._exit(3)

for name in ("SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGINT", "SIGTERM"):
    signal.signal(getattr(signal, name), on_signal)
say("READY")
while True:
    time.sleep(0.05)
P
: >said
exec_alone python3 program.py >>said </dev/null 2>&1 &
program=$!
wait_until 20 grep -q READY said || die "the program is not ready"
dump_and_reap "$program" saved

# What the restored program says is appended to `said`.
in_foreground() { # [COMMAND...]
	: >said
	rm -f restore.log
	"$@" "$sealpoint" restore saved >restore.log 2>&1 </dev/null &
	restorer=$!
	wait_until 20 grep -q 'restored process' restore.log || die "restore: $(<restore.log)"
}

ends_with() { # CASE STATUS
	local status=0
	wait "$restorer" || status=$?
	if ((status != $2)); then
		not_ok "$TEST_NAME/$1" "exit status $status, not $2: $(<restore.log)"
	elif ! is_gone "$program"; then
		not_ok "$TEST_NAME/$1" "the program is still there"
	else
		ok "$TEST_NAME/$1"
	fi
}

in_foreground
[[ $(ps -o ppid= -p "$program" | tr -d ' ') == "$restorer" ]] ||
	not_ok "$TEST_NAME/parent" "the program is no child of the command"
for name in USR1 USR2 WINCH; do
	kill -"$name" "$restorer"
	if wait_until 10 grep -q "SIG$name" said; then
		ok "$TEST_NAME/passes SIG$name on"
	else
		not_ok "$TEST_NAME/passes SIG$name on" "the program got: $(<said)"
	fi
done

in_state() { [[ $(state_of "$1") == "$2" ]]; }
kill -TSTP "$restorer"
if wait_until 10 in_state "$program" T && wait_until 10 in_state "$restorer" T; then
	ok "$TEST_NAME/stops with it"
else
	not_ok "$TEST_NAME/stops with it" "program $(state_of "$program"), command $(state_of "$restorer")"
fi
kill -CONT "$restorer"
if wait_until 10 in_state "$program" S && wait_until 10 in_state "$restorer" S; then
	ok "$TEST_NAME/goes on with it"
else
	not_ok "$TEST_NAME/goes on with it" "program $(state_of "$program"), command $(state_of "$restorer")"
fi
kill -TERM "$restorer"
ends_with "exit status" 3

in_foreground
kill -SEGV "$program"
ends_with "death by a signal" $((128 + 11))

in_foreground nohup
kill -HUP "$restorer"
kill -USR1 "$restorer"
wait_until 10 grep -q SIGUSR1 said
if is_gone "$program"; then
	not_ok "$TEST_NAME/nohup" "SIGHUP was passed on although it is ignored"
else
	ok "$TEST_NAME/nohup"
fi
kill -TERM "$restorer"
ends_with "exit status after nohup" 3

# With --detach the program is a child of init, and with --leave-stopped it waits.
: >said
restore_detached saved --leave-stopped --pidfile pid
if [[ $(<pid) == "$program" ]] && wait_until 10 in_state "$program" T; then
	ok "$TEST_NAME/left stopped"
else
	not_ok "$TEST_NAME/left stopped" "pid file $(<pid), state $(state_of "$program")"
fi
kill -CONT "$program"
kill -USR2 "$program"
if wait_until 10 grep -q SIGUSR2 said; then
	ok "$TEST_NAME/goes on detached"
else
	not_ok "$TEST_NAME/goes on detached" "state $(state_of "$program")"
fi
kill -TERM "$program"
wait_until 10 is_gone "$program" || not_ok "$TEST_NAME/end" "the program does not end"
