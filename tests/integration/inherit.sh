#!/bin/bash
# What belongs to somebody else is left out of a dump that is told so, and a restore puts descriptors of its caller's in
# the place of saved ones, by the names that CRIU's command line has for them: a filter in a pipeline, a log file, one
# end of a pair of sockets, a terminal with the program's session on it.
#
# timeout: 240
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

export HOME=$TEST_DIR # no configuration files
ln -s "$sealpoint" criu
criu=$TEST_DIR/criu

fails() { # CASE WORDS COMMAND...
	local status=0
	timeout 60 "${@:3}" >output 2>error </dev/null || status=$?
	((status == 1)) || die "$1: exit status $status, not 1: $(head -c 300 error)"
	grep -q -F -e "$2" error || die "$1: does not say \"$2\": $(head -c 300 error)"
}

# --- a filter between two pipes ------------------------------------------------------------------------

cat >filter.py <<'P'
import sys
for number, line in enumerate(sys.stdin, 1):
    print(f"{number}: {line}", end="", flush=True)
P
exec {null}<>/dev/null
says() { # FD LINE
	local line
	IFS= read -r -t 30 -u "$1" line || die "no answer on $1"
	[[ $line == "$2" ]] || die "the filter says \"$line\", not \"$2\""
}
# Anonymous pipes, which this shell can read and write.
exec {in}<> <(:)
exec {out}<> <(:)
exec_alone python3 filter.py <"/proc/self/fd/$in" >"/proc/self/fd/$out" 2>&"$null" &
pid=$!
echo one >&"$in"
says "$out" "1: one"
reads=$(readlink "/proc/$pid/fd/0") writes=$(readlink "/proc/$pid/fd/1")
fails "pipes to somebody else" "a process outside of the dump" "$sealpoint" dump "$pid" -o image
exec_alone python3 -c 'import os, time
os.dup2(0, 5)
os.dup2(1, 0)
open("moved", "w").close()
time.sleep(1000)' <"/proc/self/fd/$in" >/dev/null 2>&1 &
wait_until 20 test -e moved
fails "a way out" "or leave the pipe out with --external '$reads'" "$sealpoint" dump $! -o image
kill -9 $!
if "$sealpoint" inspect "$pid" --external "$reads" >output || ! grep -q -F "(pipe $writes)" output; then
	die "inspect --external does not name what is still in the way: $(<output)"
fi
"$sealpoint" inspect "$pid" --external "$reads" --external "$writes" >output || die "inspect --external: $(<output)"
"$sealpoint" snapshot "$pid" -o store --count 1 --external "$reads" --external "$writes" >output 2>error ||
	die "snapshot --external: $(<error)"
fails "a name of nothing" "--external takes TYPE[ID]" "$sealpoint" criu dump -t "$pid" --external "unix[x]"
dump "$pid" image --external "$reads" --external "$writes"
wait "$pid"
"$sealpoint" inspect image >output || die "inspect: $?"
grep -q -F "$reads, to be given to the restore" output || die "inspect does not name $reads: $(<output)"
ok "$TEST_NAME/left out"

fails "nothing is given" "give it as descriptor N with --inherit-fd 'fd[N]:$reads'" "$sealpoint" restore image --detach
exec {reader}< <(sleep 1000)
exec {in2}<> <(:)
fails "the wrong direction" "is open for reading only, and the program writes" \
	"$sealpoint" restore image --detach --inherit-fd "fd[$in2]:$reads" --inherit-fd "fd[$reader]:$writes"
fails "closed" "which is not open" "$sealpoint" restore image --detach --inherit-fd "fd[999]:$reads"
is_gone "$pid" || die "a process is left"
exec {out2}<> <(:)
restore_detached image --inherit-fd "fd[$in2]:$reads" --inherit-fd "fd[$out2]:$writes" --inherit-fd "fd[$null]:/no/such"
grep -q "is given for /no/such, which the checkpoint does not have" restore.log || die "no warning: $(<restore.log)"
echo two >&"$in2"
says "$out2" "2: two"

# As runc and podman do with the standard streams of a container: the names of the dump, other pipes at the restore.
for round in 3 4 5; do
	mkdir -p "c$round"
	reads=$(readlink "/proc/$pid/fd/0") writes=$(readlink "/proc/$pid/fd/1")
	"$criu" dump -t "$pid" -D "c$round" -o dump.log -v4 --tcp-established --ext-unix-sk --file-locks </dev/null ||
		die "round $round: dump: $(tail -n 2 "c$round/dump.log")"
	wait_until 10 is_gone "$pid" || die "round $round: it runs on"
	exec {in}<> <(:)
	exec {out}<> <(:)
	"$criu" restore -D "c$round" -d -o restore.log -v4 --tcp-established --ext-unix-sk --file-locks --pidfile pid \
		--inherit-fd "fd[$in]:$reads" --inherit-fd "fd[$out]:pipe[${writes//[!0-9]/}]" </dev/null ||
		die "round $round: restore: $(tail -n 2 "c$round/restore.log")"
	echo "$round" >&"$in"
	says "$out" "$round: $round"
done
kill "$pid"
ok "$TEST_NAME/a filter between two pipes"

# --- a file by its path --------------------------------------------------------------------------------

cat >writer.py <<'P'
import os, signal
log = open("journal", "a")
signal.signal(signal.SIGUSR1, lambda *_: print("still", file=log, flush=True))
print("began", file=log, flush=True)
while True: signal.pause()
P
exec_alone python3 writer.py <&"$null" >&"$null" 2>&"$null" &
pid=$!
wait_until 20 grep -q began journal || die "the writer does not begin"
dump_and_reap "$pid" file
exec {other}>>other
for name in "$TEST_DIR/journal" "${TEST_DIR#/}/journal"; do
	: >other
	restore_detached file --inherit-fd "fd[$other]:$name"
	kill -USR1 "$pid"
	wait_until 20 grep -q still other || die "$name: nothing is written to the other file"
	[[ $(<journal) == began ]] || die "$name: the old file has been written to"
	kill -9 "$pid"
	wait_until 10 is_gone "$pid"
done
ok "$TEST_NAME/a file by its path"

# --- one end of a pair of sockets, and a terminal --------------------------------------------------------

cat >caller.py <<'P'
import os, pty, signal, socket, subprocess, sys, termios, time
criu, what = sys.argv[1:]
null = os.open("/dev/null", os.O_RDWR)

def run(*words, give=()):
    done = subprocess.run([criu, *words], stdin=null, capture_output=True, text=True, pass_fds=give)
    assert done.returncode == 0, done.stderr

def become(fds, program):
    for number in range(3): os.dup2(fds[number], number)
    os.closerange(3, 1000)
    os.execvp("python3", ["python3", "-c", program])

def expect(read, wanted):
    got = b""
    while wanted not in got:
        more = read()
        assert more, f"{got} and no more, not {wanted}"
        got += more

def dump(pid, directory, *words):
    os.mkdir(directory)
    run("dump", "-t", str(pid), "-D", directory, *words)
    os.waitpid(pid, 0)

echo = """
import os, socket
s = socket.socket(fileno=0)
count = 0
while (line := s.recv(100)):
    count += 1
    s.sendall(b"%d " % count + line)
open("ended", "w").write(f"after {count}")
"""
if what in ("given", "lost", "peer"):
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        become((there.fileno(), null, null), echo)
    inode, peer = (os.fstat(end.fileno()).st_ino for end in (there, here))
    there.close()
    here.sendall(b"a")
    expect(lambda: here.recv(100), b"1 a")
    dump(pid, what, "--external", f"unix[{peer if what == 'peer' else inode}]")
    if what == "lost":
        run("restore", "-D", what, "-d")
        while not os.path.exists("ended"): time.sleep(0.05)
    else:
        here, there = socket.socketpair()
        run("restore", "-D", what, "-d", "--inherit-fd", f"fd[{there.fileno()}]:socket:[{inode}]", give=(there.fileno(),))
        there.close()
        here.sendall(b"b")
        expect(lambda: here.recv(100), b"2 b")
        here.close()
        while os.path.exists(f"/proc/{pid}"): time.sleep(0.05)

shell = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print("ready", flush=True)
for line in sys.stdin: print("heard", line, flush=True)
"""
if what == "terminal":
    master, slave = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(os.open(os.ttyname(slave), os.O_RDWR))
        become((slave, slave, slave), shell)
    stat = os.fstat(slave)
    os.close(slave)
    expect(lambda: os.read(master, 100), b"ready")
    name = f"tty[{stat.st_rdev:x}:{stat.st_dev:x}]"
    dump(pid, what, "--external", name)
    master, slave = pty.openpty()
    run("restore", "-D", what, "-d", "--inherit-fd", f"fd[{slave}]:{name}", give=(slave,))
    os.close(slave)
    os.write(master, b"hello\n")
    expect(lambda: os.read(master, 100), b"heard hello")
    os.write(master, b"\x03") # which only its controlling terminal turns into a signal
    expect(lambda: os.read(master, 100), b"interrupted")
    os.kill(pid, signal.SIGKILL)
P
for what in given peer lost terminal; do
	timeout 60 python3 caller.py "$criu" "$what" >output 2>error </dev/null || die "$what: $(tail -n 3 error)"
	ok "$TEST_NAME/$what"
done
[[ $(<ended) == "after 1" ]] || die "the program that has lost its peer says $(<ended)"
