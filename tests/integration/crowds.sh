#!/bin/bash
# Programs with many of one thing, which check themselves behind the restore: 1,000 processes, 2,000 threads, 10,000
# descriptors. And bombs: threads, and processes up to a limit, that begin and end as fast as they can, and processes
# that kill one another, while they are frozen again and again; they go on, and so does what is restored of them.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

crowd=$BUILD/tests/bench/crowd

# --- crowds --------------------------------------------------------------------------------------------

check_crowd() { # KIND COUNT
	local pid
	: >go
	exec_alone "$crowd" "$1" "$2" <go >said 2>&1 &
	pid=$!
	wait_until 60 grep -q READY said || die "$1: does not begin: $(<said)"
	dump "$pid" "$1" --timeout 120
	wait_until 60 is_gone "$pid" || die "$1: there after the dump"
	"$sealpoint" restore "$1" --detach >restore.log 2>&1 </dev/null || die "$1: restore: $(tail -n 3 restore.log)"
	echo go >go
	wait_until 60 grep -q PASS said || die "$1: not what they were: $(<said)"
	wait_until 60 is_gone "$pid" || die "$1: does not end"
	rm -rf "$1"
	ok "$TEST_NAME/$2 $1" "$(grep -o 'frozen [^ ]* [^ ]*' dump.log | tail -n 1)"
}
check_crowd processes 1000
check_crowd threads 2000
check_crowd descriptors 10000

# --- bombs ---------------------------------------------------------------------------------------------

cat >threads.py <<'P'
import threading

def blow():
    while True:
        threads = [threading.Thread(target=int) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with open("beats", "a") as file:
            file.write("beat\n")

for _ in range(3):
    threading.Thread(target=blow).start()
P
# Children that kill one another, also those that are stopped already; half of them leave a child of their own.
cat >killers.py <<'P'
import ctypes, mmap, os, random, signal, struct, time

table = mmap.mmap(-1, 4096)
beats = os.open("beats", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def kill(parent):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    while os.getppid() == parent:
        victim = struct.unpack_from("i", table, 4 * random.randrange(12))[0]
        if victim and victim != os.getpid():
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.002)

places = {}
def beget(place):
    parent = os.getpid()
    child = os.fork()
    if not child:
        random.seed()
        if place % 2:
            own = os.getpid()
            parent = parent if os.fork() else own
        kill(parent)
        os._exit(0)
    places[child] = place
    struct.pack_into("i", table, 4 * place, child)

for place in range(12):
    beget(place)
while True:
    child = os.wait()[0]
    os.write(beats, b"beat\n")
    beget(places.pop(child))
P
# A user of its own, whose processes the kernel counts; orphans come to the root.
cat >processes.py <<'P'
import ctypes, os, resource, signal, time

root = os.getpid()
beats = os.open("beats", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
ctypes.CDLL(None).prctl(36, 1)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_NPROC, (30, 30))
os.setgid(64123)
os.setuid(64123)
while True:
    try:
        os.fork()
    except BlockingIOError:
        time.sleep(0.002)
    if os.getpid() == root:
        os.write(beats, b"beat\n")
    elif os.urandom(1)[0] < 80:
        os._exit(0)
P

expect_beats() { # WHEN
	local before
	before=$(wc -l <beats)
	wait_until 60 has_beats $((before + 20)) || die "$1, the bomb of $kind goes on no more: $(tail -n 3 said)"
}
has_beats() { (($(wc -l <beats) >= $1)); }

none_left() { ! pgrep -f "^python3 $kind.py" >pgrep.out; }

# Stopped first, the root and whoever it bears cannot multiply; an orphan comes back to the root, or ends.
end_bomb() { # PID
	kill -STOP "$1"
	while [[ $kind != killers && $(descendants "$1") ]]; do
		# shellcheck disable=SC2046
		kill -KILL $(descendants "$1") 2>/dev/null
	done
	kill -KILL "$1"
	wait_until 30 is_gone "$1" || die "the bomb of $kind does not end"
	wait_until 30 none_left || die "the bomb of $kind leaves somebody"
}

for kind in threads killers processes; do
	: >beats
	exec_alone python3 "$kind.py" </dev/null >said 2>&1 &
	pid=$!
	expect_beats "at first"
	for round in 1 2 3 4; do
		dump "$pid" "$kind$round" --leave-running --timeout 60
		expect_beats "after dump $round"
	done
	end_bomb "$pid"
	"$sealpoint" restore "${kind}4" --detach >restore.log 2>&1 </dev/null ||
		die "bomb of $kind: restore: $(tail -n 3 restore.log)"
	expect_beats "restored"
	end_bomb "$pid"
	ok "$TEST_NAME/a bomb of $kind"
done
