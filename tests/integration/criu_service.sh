#!/bin/bash
# The sequence of commands that container runtimes have: a service of several processes, with a client, is saved ahead
# twice, saved with all the options that such callers give, and brought back with its connection, its locks and what its
# processes share. Three times, and each time what was restored is saved.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

export HOME=$TEST_DIR
unset CRIU_CONFIG_FILE
ln -s "$sealpoint" criu
criu=$TEST_DIR/criu

# A master with two workers, who count together, and ask the master for what only that knows.
cat >service.py <<'P'
import fcntl, mmap, os, socket, struct

listening = socket.socket()
listening.bind(("127.0.0.1", 6100))
listening.listen()
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
replaced = open("state", "a+")  # loses its name, and has another
os.link("state", "state.kept")
os.rename("new", "state")
counter = mmap.mmap(-1, 4096)
asked = [socket.socketpair() for _ in range(2)]


def work(master):
    while True:
        client, _ = listening.accept()
        with client, client.makefile("rw") as stream:
            for _ in stream:
                count = struct.unpack_from("I", counter)[0] + 1
                struct.pack_into("I", counter, 0, count)
                replaced.write(f"{count}\n")
                replaced.flush()
                master.send(b"?")
                print(count, os.getpid(), master.recv(64).decode(), file=stream, flush=True)


for ours, theirs in asked:
    if os.fork() == 0:
        work(theirs)
if os.fork() == 0:
    while True:
        asked[0][0].recv(1) and asked[0][0].send(str(os.getppid()).encode())
while True:
    asked[1][0].recv(1) and asked[1][0].send(str(os.getpid()).encode())
P
: >new

run() { # NAME COMMAND...
	"${@:2}" >output 2>error </dev/null || die "round $round: $1: exit status $?: $(tail -n 3 error) $(tail -n 3 ./*/"$1.log" 2>/dev/null)"
}
ends_with() { # LOG WORDS
	[[ $(tail -n 1 "$1") == *"$2" ]] || die "round $round: the last line of $1 is $(tail -n 1 "$1")"
}
ask() { # CLIENT
	echo more >&"$1"
	read -r -t 60 count worker master <&"$1" || die "round $round: no answer on the connection"
	expected=$((expected + 1))
	[[ $count == "$expected" && $master == "$service" ]] ||
		die "round $round: the answer is $count $worker $master, not $expected of $service"
}
family() { ps -o pid= --ppid "$service" -p "$service" | tr -d ' ' | sort; }
can_connect() { (: <>/dev/tcp/127.0.0.1/6100) 2>/dev/null; }

exec_bare python3 service.py </dev/null >service.log 2>&1 & # a job of this shell
service=$!
wait_until 30 can_connect || die "the service does not start: $(tail -n 1 service.log)"
expected=0 round=0
exec {client}<>/dev/tcp/127.0.0.1/6100
ask "$client"
server=$worker
mapfile -t pids < <(family)
((${#pids[@]} == 4)) || die "the service is ${pids[*]}"

common=(--tcp-established --shell-job --file-locks --link-remap --manage-cgroups=soft --ext-mount-map auto
	--enable-external-sharing --enable-external-masters --enable-fs hugetlbfs --enable-fs tracefs)
for round in 1 2 3; do
	rm -rf pre.1 pre.2 last work
	mkdir pre.1 pre.2 last work
	run pre-dump "$criu" pre-dump -t "$service" -D pre.1 -W work -o pre-dump.log -vvvv --track-mem "${common[@]}"
	ends_with work/pre-dump.log "Pre-dumping finished successfully"
	ask "$client"
	run pre-dump "$criu" pre-dump -t "$service" -D pre.2 -W work -o pre-dump.log -vvvv --track-mem --prev-images-dir ../pre.1 "${common[@]}"
	ask "$client"
	run dump "$criu" dump -t "$service" -D last -W work -o dump.log -vvvv --track-mem --prev-images-dir ../pre.2 --ghost-limit 10M \
		--external 'mnt[]' --display-stats "${common[@]}"
	ends_with work/dump.log "Dumping finished successfully"
	grep -q '^Memory pages skipped from parent: [1-9]' output || die "round $round: the dump is no delta: $(<output)"
	((round > 1)) || wait "$service"
	for pid in "${pids[@]}"; do
		wait_until 30 is_gone "$pid" || die "round $round: pid $pid is still there"
	done
	flock -n lock true || die "round $round: the lock outlives the dump"
	restore=(--tcp-established --shell-job --file-locks --link-remap --manage-cgroups=soft --ext-mount-map auto --root /)
	((round < 3)) || restore+=(--restore-sibling)
	run restore "$criu" restore -d -D last -W work -o restore.log -vvvv --pidfile pid "${restore[@]}"
	ends_with work/restore.log "Restore finished successfully. Tasks resumed."
	[[ $(<work/pid) == "$service" ]] || die "round $round: the pid file says $(<work/pid)"
	ask "$client"
	[[ $worker == "$server" ]] || die "round $round: $worker answers in the place of $server"
	! flock -n lock true || die "round $round: the lock is not taken again"
	[[ $(tail -n 1 state.kept) == "$expected" && ! -s state ]] || die "round $round: the file of two names is another one"
	[[ $(family) == "$(printf '%s\n' "${pids[@]}")" ]] || die "round $round: the processes are $(family)"
	exec {other}<>/dev/tcp/127.0.0.1/6100
	ask "$other"
	[[ $worker != "$server" ]] || die "round $round: one worker serves two clients"
	exec {other}>&-
done
[[ $(ps -o ppid= -p "$service" | tr -d ' ') == "$BASHPID" ]] || die "the restored service is not a sibling of criu"
exec {client}>&-
kill -9 "${pids[@]}"
ok "$TEST_NAME"
