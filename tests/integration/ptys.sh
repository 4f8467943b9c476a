#!/bin/bash
# A program that holds the master of its terminals: they come back with their numbers, or it is said who has the
# number, and what can be done about that; nobody outside of the dump may have one of them open. What waits in them is
# still there after a dump that leaves the program running.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# Holds a terminal, and says what its slave reads.
cat >holder.py <<'P'
import fcntl, os, struct, sys, termios, time

master, slave = os.openpty()
name = os.ttyname(slave)
os.set_blocking(slave, False)
if sys.argv[1:] == ["typed"]:
    os.write(master, b"one\ntwo\x04\x04thr\x7f")
if sys.argv[1:] == ["null"]:
    fcntl.ioctl(slave, termios.TIOCSETD, struct.pack("i", 27))  # N_NULL
if sys.argv[1:] == ["packets"]:
    fcntl.ioctl(master, termios.TIOCPKT, struct.pack("i", 1))
    termios.tcflush(slave, termios.TCIFLUSH)
print(name, flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
while True:
    try:
        text = os.read(slave, 4096)
    except BlockingIOError:
        break
    print("READ", text, flush=True)
P

start() { # ARGUMENT...: Sets HOLDER and TERMINAL.
	rm -f go out
	exec_alone python3 holder.py "$@" </dev/null >out 2>&1 &
	HOLDER=$!
	wait_until 20 grep -q . out || die "the holder does not begin"
	TERMINAL=$(head -n 1 out)
}

# --- who else has it -----------------------------------------------------------------------------------

start typed
exec_alone sleep 60 <"$TERMINAL" >/dev/null 2>&1 &
other=$!
wait_until 10 grep -q sleep "/proc/$other/comm"
refuses "somebody else has the slave" "$sealpoint" dump "$HOLDER" -o refused -- \
	"process $other (sleep), which is outside of the dump, has $TERMINAL open" "end it first"
kill "$other"
wait "$other"

# Who has the same number where terminals are numbered anew has another terminal.
unshare --mount sh -c 'mount -t devpts -o ptmxmode=666 devpts /dev/pts && exec python3 -c "
import os, time; pair = os.openpty(); open(\"elsewhere\", \"w\"); time.sleep(60)"' &
other=$!
wait_until 10 test -e elsewhere || die "nobody begins elsewhere"
dump "$HOLDER" meanwhile --leave-running
kill "$other"
wait "$other"
ok "$TEST_NAME/somebody has the same number elsewhere"

refuses "without the capability to put back" setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \
	"$sealpoint" dump "$HOLDER" -o refused -- "run as root" "CAP_SYS_ADMIN"

# --- what waits stays, and the number ------------------------------------------------------------------

# The program reads it itself afterwards, and so does the one that is restored: nothing is lost, nothing comes twice.
for round in 1 2 3; do
	dump "$HOLDER" "image$round" --leave-running
done
"$sealpoint" inspect image3 >shown || die "inspect fails"
grep -q "$TERMINAL, its master, .* bytes to read, 9 written" shown ||
	die "inspect does not show what waits: $(grep pts shown)"
"$sealpoint" inspect "$HOLDER" >shown 2>&1 || die "inspect finds something in the way: $(<shown)"
grep -q "$TERMINAL, its master" shown || die "inspect PID does not show the terminal: $(grep pts shown)"
touch go
wait "$HOLDER" || die "left running, the holder fails: $(<out)"
printf '%s\n' "$TERMINAL" "READ b'one\\n'" "READ b'two'" "READ b''" >expected
diff out expected >shown || die "left running, it reads something else: $(<shown)"
ok "$TEST_NAME/what waits in a program that runs on"

restored_reads() { # WHEN
	wait_until 10 is_gone "$HOLDER" || die "$1: does not end"
	diff out expected >shown || die "$1, it reads something else: $(<shown)"
}
head -n 1 expected >out
restore_detached image3
restored_reads "restored"
ok "$TEST_NAME/what waits in a restored program"

rm go
python3 -c 'import os, time; masters = [os.openpty() for i in range(3)]; open("taken", "w"); time.sleep(60)' &
other=$!
wait_until 10 test -e taken
refuses "a number that is taken" "$sealpoint" restore image3 --detach -- "$TERMINAL is another terminal now" \
	"close that one" "mount -t devpts"
is_gone "$HOLDER" || die "a process is left"
touch go
head -n 1 expected >out
# shellcheck disable=SC2016 # the shell that is started expands them
unshare --mount sh -c 'mount -t devpts -o ptmxmode=666 devpts /dev/pts && "$0" restore image3 --detach' "$sealpoint" \
	>shown 2>&1 </dev/null || die "the way out is none: $(<shown)"
restored_reads "restored where terminals are numbered anew"
ok "$TEST_NAME/the way out of a number that is taken"
kill "$other"
wait "$other"

# --- what cannot be saved ------------------------------------------------------------------------------

start packets
refuses "a change of state that waits" "$sealpoint" dump "$HOLDER" -o refused --timeout 1s -- "packet mode" \
	"let the program read it first"
kill "$HOLDER"
wait "$HOLDER"
start null
if grep -q '^/dev/pts' out; then
	refuses "another line discipline" "$sealpoint" dump "$HOLDER" -o refused -- "line discipline is 27" \
		"let the program end that first"
	kill "$HOLDER"
else
	skip "$TEST_NAME/another line discipline" "this kernel has no N_NULL"
fi
