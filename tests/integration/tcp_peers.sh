#!/bin/bash
# TCP connections to programs that are not saved along and run on, in a network namespace of their own: an echo
# server is dumped and restored again and again, and its clients, one idle, the others busy over IPv4 and IPv6 all the
# while, see nothing of it but a pause. What a dump locks is unlocked however the dump ends.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

port=7000

cat >server.py <<'END'
import selectors, socket, sys
listener = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
poll = selectors.DefaultSelector()
poll.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in poll.select():
        if key.fileobj is listener:
            poll.register(listener.accept()[0], selectors.EVENT_READ)
        else:
            try:
                data = key.fileobj.recv(1 << 16)
                key.fileobj.sendall(data)
            except OSError: # it was closed in the middle, by --tcp-close for example
                data = b""
            if not data:
                poll.unregister(key.fileobj)
                key.fileobj.close()
END

# Sends what only it can know, and compares what comes back; says how often that went well in a file that is replaced.
cat >client.py <<'END'
import os, random, socket, sys
host, port, name, largest = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
connection = socket.create_connection((host, port))
rounds = 0
while True:
    data = random.randbytes(random.randrange(1, largest))
    connection.sendall(data)
    back = b""
    while len(back) < len(data):
        more = connection.recv(1 << 16)
        if not more:
            sys.exit(f"{name}: the connection ended after {rounds} rounds")
        back += more
    if back != data:
        sys.exit(f"{name}: round {rounds} came back wrong")
    rounds += 1
    with open(name + ".new", "w") as out:
        out.write(str(rounds))
    os.rename(name + ".new", name)
END

# Answers when it is told to, long after the client has said that it sends no more.
cat >late.py <<'END'
import os, socket, sys, time
connection = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6).accept()[0]
while connection.recv(100):
    pass
open("heard", "w").close()
while not os.path.exists("answer"):
    time.sleep(0.02)
connection.sendall(b"late, but here")
connection.close()
END

# --- two networks --------------------------------------------------------------------------------------

make_networks() {
	unshare --net sleep infinity &
	elsewhere=$!
	wait_until 10 other_network || die "no second network namespace"
	ip link add ours type veth peer name theirs netns "$elsewhere" || skip_test "no veth devices here"
	ip address add 10.9.0.1/24 dev ours
	ip address add fd09::1/64 dev ours nodad
	ip link set ours up
	nsenter -t "$elsewhere" -n sh -c 'ip address add 10.9.0.2/24 dev theirs
		ip address add fd09::2/64 dev theirs nodad; ip link set theirs up; ip link set lo up'
}

other_network() { [[ $(readlink "/proc/$elsewhere/ns/net") != "$(readlink /proc/self/ns/net)" ]]; }

clients=()
start_client() { # HOST NAME LARGEST
	nsenter -t "$elsewhere" -n python3 client.py "$1" $port "$2" "$3" 2>>complaints &
	clients+=("$2")
	wait_until 20 test -s "$2" || die "$2 does not come through: $(<complaints)"
}

rounds_of() { cat "$1" 2>/dev/null || echo 0; }
has_gone_on() { (($(rounds_of "$1") >= $2)); }

# Each client comes through again, several times.
expect_clients_go_on() { # WHEN
	local client
	for client in "${clients[@]}"; do
		wait_until 40 has_gone_on "$client" $(($(rounds_of "$client") + 5)) ||
			die "$1: $client does not come through any more: $(cat complaints)"
	done
	[[ ! -s complaints ]] || die "$1: $(<complaints)"
}

locks() { nft list tables | grep -c sealpoint; }
has_locks() { [[ $(locks) == "$1" ]]; }
expect_locks() { # NUMBER WHEN
	wait_until 10 has_locks "$1" || die "$2: $(locks) locks, not $1: $(nft list tables)"
}

# --- dumps and restores --------------------------------------------------------------------------------

make_networks
start_program python3 server.py $port
server=$PROGRAM_PID
wait_until 20 is_listening $port || die "the server does not start: $(tail -3 program.log)"
start_client 10.9.0.1 small 10
start_client 10.9.0.1 large 3000000
start_client fd09::1 other 30000

for round in 1 2 3; do
	dump "$server" "image$round" --tcp-established
	wait_until 20 is_gone "$server" || die "the server is still there"
	expect_locks 1 "dumped"
	sleep 0.5 # what the clients send meanwhile is lost, and sent again
	restore_detached "image$round"
	expect_locks 0 "restored"
	expect_clients_go_on "restored $round times"
done
ok "$TEST_NAME/clients see no more than a pause"

dump "$server" running --tcp-established --leave-running
expect_locks 0 "left running"
expect_clients_go_on "left running"
ok "$TEST_NAME/left running"

"$sealpoint" inspect "$server" --tcp-established >look 2>&1 || die "a look at it says: $(tail -3 look)"
grep -q 'connection to \[fd09::2\]:' look || die "a look at it shows no connection: $(<look)"
expect_locks 0 "looked at"
expect_clients_go_on "looked at"
ok "$TEST_NAME/looked at"

# A network that loses every eighth packet: what is on its way again, and again, when the program is saved.
if nsenter -t "$elsewhere" -n nft 'add table inet lossy
	add chain inet lossy input { type filter hook input priority 0; }
	add rule inet lossy input meta l4proto tcp numgen random mod 8 0 drop' 2>lossy.log; then
	for round in 1 2; do
		dump "$server" "image-lossy$round" --tcp-established
		wait_until 20 is_gone "$server" || die "the server is still there"
		restore_detached "image-lossy$round"
		expect_clients_go_on "restored $round times in a network with losses"
	done
	nsenter -t "$elsewhere" -n nft delete table inet lossy
	ok "$TEST_NAME/a network with losses"
else
	skip "$TEST_NAME/a network with losses" "$(head -n 1 lossy.log)"
fi

# Neither end reads, and each has more to send than the other has room for.
cat >stalled.py <<'END'
import os, socket, sys, threading, time
what, address = sys.argv[1], (sys.argv[2], 7004)
connection = socket.create_server(address).accept()[0] if what == "server" else socket.create_connection(address)
data = {name: bytes((i * 7 + i // 251 + len(name)) % 256 for i in range(12000000)) for name in ("server", "client")}
sending = threading.Thread(target=connection.sendall, args=(data.pop(what),))
sending.start()
while not os.path.exists("read"):
    time.sleep(0.02)
left = memoryview(data.popitem()[1])
while left:
    came = connection.recv(1 << 20)
    if not came or came != left[:len(came)]:
        sys.exit(f"{what}: {len(left)} bytes are missing, or others came")
    left = left[len(came):]
sending.join()
open(what + " done", "w").close()
connection.recv(1) # until the other end is done, too, and closes
END
is_stuck() { ss -Htno "sport = :7004 or dport = :7004" | grep -q 'timer:(persist'; }
theirs_is_stuck() { nsenter -t "$elsewhere" -n ss -Htno "dport = :7004" | grep -q 'timer:(persist'; }
start_program python3 stalled.py server 10.9.0.1
stalled=$PROGRAM_PID
wait_until 20 is_listening 7004 || die "the stalled server does not start: $(tail -3 program.log)"
nsenter -t "$elsewhere" -n python3 stalled.py client 10.9.0.1 2>>complaints &
wait_until 30 is_stuck || die "the window of the client is not closed: $(ss -tno)"
wait_until 30 theirs_is_stuck || die "the window of the server is not closed: $(ss -tno)"
dump "$stalled" image-stalled --tcp-established
wait_until 20 is_gone "$stalled" || die "the stalled server is still there"
restore_detached image-stalled
touch read
wait_until 60 test -e "client done" || die "what the server has sent does not come: $(cat complaints)"
wait_until 60 test -e "server done" || die "what the client has sent does not come: $(tail -3 program.log)"
ok "$TEST_NAME/closed windows"

start_program python3 late.py 7001
late=$PROGRAM_PID
wait_until 20 is_listening 7001 || die "the late server does not start: $(tail -3 program.log)"
nsenter -t "$elsewhere" -n python3 -c 'import socket
connection = socket.create_connection(("fd09::1", 7001))
connection.sendall(b"question")
connection.shutdown(socket.SHUT_WR)
open("answered", "wb").write(connection.recv(100) + connection.recv(100))' &
asking=$!
wait_until 20 test -e heard || die "the question does not arrive"
dump "$late" image-late --tcp-established
wait_until 20 is_gone "$late" || die "the late server is still there"
restore_detached image-late
touch answer
wait "$asking" || die "whoever waits for an answer gets none"
[[ $(<answered) == "late, but here" ]] || die "the answer is $(<answered)"
ok "$TEST_NAME/half closed"

# What was not accepted yet has no descriptor: the dump waits until the program has accepted it.
start_program python3 -c 'import os, socket, time
listener = socket.create_server(("::", 7003), family=socket.AF_INET6)
while not os.path.exists("accept"):
    time.sleep(0.02)
connection = listener.accept()[0]
connection.sendall(connection.recv(100))
time.sleep(1000)'
accepting=$PROGRAM_PID
wait_until 20 is_listening 7003 || die "the slow server does not start: $(tail -3 program.log)"
nsenter -t "$elsewhere" -n python3 -c 'import socket
connection = socket.create_connection(("fd09::1", 7003))
open("connected", "w").close()
connection.sendall(b"patience")
open("echoed", "wb").write(connection.recv(100))' &
patient=$!
wait_until 20 test -e connected || die "the slow server cannot be reached"
"$sealpoint" dump "$accepting" -o image-early --tcp-established --timeout 1 2>early.log && die "a connection is lost"
grep -q '1 connections to .* wait for the program to accept them' early.log || die "waiting connections: $(<early.log)"
"$sealpoint" dump "$accepting" -o image-accepted --tcp-established --timeout 60 >accepted.log 2>&1 </dev/null &
dumping=$!
has_begun() { ls -d image-accepted.partial-* >/dev/null 2>&1; }
wait_until 20 has_begun || die "no dump: $(<accepted.log)"
touch accept
wait $dumping || die "the dump does not wait for a connection to be accepted: $(<accepted.log)"
restore_detached image-accepted
wait "$patient" || die "whoever was patient gets nothing"
[[ $(<echoed) == patience ]] || die "the echo is $(<echoed)"
ok "$TEST_NAME/not accepted yet"

# A firewall at the other end is silent for as long as it takes.
nsenter -t "$elsewhere" -n nft 'add table inet silent
	add chain inet silent input { type filter hook input priority 0; }
	add rule inet silent input tcp dport 7002 drop' || die "no nftables in the other network"
start_program python3 -c 'import socket
connection = socket.create_connection(("10.9.0.2", 7002))
connection.sendall(b"at last")
connection.recv(1)'
opening=$PROGRAM_PID
is_opening() { ss -Htn state syn-sent "dport = :7002" | grep -q 10.9.0.2; }
wait_until 20 is_opening || die "no connection is being opened: $(tail -3 program.log)"
dump "$opening" image-opening --tcp-established
wait_until 20 is_gone "$opening" || die "the program that opens a connection is still there"
is_opening && die "the connection is still being opened"
restore_detached image-opening
wait_until 20 is_opening || die "the connection is not being opened any more"
nsenter -t "$elsewhere" -n python3 -c 'import socket
listener = socket.create_server(("10.9.0.2", 7002))
open("open", "w").close()
open("opened", "wb").write(listener.accept()[0].recv(100))' &
asked=$!
wait_until 20 test -e open || die "nobody listens"
nsenter -t "$elsewhere" -n nft delete table inet silent
wait "$asked"
[[ $(<opened) == "at last" ]] || die "what comes over the opened connection is $(<opened)"
ok "$TEST_NAME/being opened"

mkdir tmpfs
mount -t tmpfs -o size=256k tmpfs tmpfs || die "no small file system"
"$sealpoint" dump "$server" -o tmpfs/image --tcp-established --compress none >full.log 2>&1 && die "a dump to a full disk succeeds"
grep -q 'No space' full.log || die "the dump fails otherwise: $(<full.log)"
expect_locks 0 "after a dump that failed"
expect_clients_go_on "after a dump that failed"
ok "$TEST_NAME/a dump that fails"

# Killed at different moments; its worker ends in an orderly way, or has come too far to turn back.
none_at_work() { ! ls -d killed.partial-* >/dev/null 2>&1; }
killed=0
for delay in 0.00{1,3,5,8} 0.0{1,15,2,25,3,35,4,5,6,8} 0.1; do
	"$sealpoint" dump "$server" -o killed --tcp-established --leave-running >killed.log 2>&1 </dev/null &
	command=$!
	sleep "$delay"
	kill -KILL $command 2>/dev/null
	status=0
	wait $command || status=$?
	((killed += status == 137))
	expect_locks 0 "after a dump that was killed"
	wait_until 20 none_at_work || die "a killed dump leaves something behind: $(ls -d killed*)"
	expect_clients_go_on "after a dump that was killed"
	[[ $("$sealpoint" unlock --pid "$server") == "0 connections "* ]] || die "a killed dump leaves repair mode on"
	rm -rf killed
done 2>/dev/null
((killed)) || die "no kill came in time"
ok "$TEST_NAME/killed" "$killed dumps"

# --- what comes after ----------------------------------------------------------------------------------

# Killed when all but the last step is done: it takes back what it did, or does that, too. Its output ends when nothing
# of it is left.
mkfifo output
for ((round = 0; round < 8; round++)); do
	rm -rf image pidfile
	dump "$server" image --tcp-established
	cat output >killed.log &
	reader=$!
	"$sealpoint" restore image --detach --pidfile pidfile >output 2>&1 </dev/null &
	command=$!
	until [[ -e pidfile ]] || is_gone "$command"; do :; done
	kill -KILL "$command"
	wait "$command" "$reader"
	if is_gone "$server"; then
		expect_locks 1 "after a restore that was killed"
		restore_detached image
	fi
	expect_locks 0 "restored after a kill"
	expect_clients_go_on "restored after a kill"
done 2>/dev/null
ok "$TEST_NAME/a restore that is killed"

rm -rf image
dump "$server" image --tcp-established
restore_detached image
expect_clients_go_on "restored before it is tried twice"
kill -KILL "$server"
wait_until 10 is_gone "$server"
"$sealpoint" restore image --detach >again.log 2>&1 </dev/null && die "connections are restored a second time"
grep -q 'are not locked here.*--tcp-close' again.log || die "a second restore is refused otherwise: $(<again.log)"
restore_detached image --tcp-close
wait_until 10 is_listening $port || die "restored with --tcp-close, it does not listen"
clients=() && : >complaints
start_client 10.9.0.1 fresh 100
ok "$TEST_NAME/no second time"

rm -rf image
dump "$server" image --tcp-established
expect_locks 1 "dumped to be given up"
mv image moved # it is known by its id
(cd moved && "$sealpoint" unlock . >../unlock.log) || die "unlock fails"
mv moved image
expect_locks 0 "given up"
"$sealpoint" unlock image 2>unlock.log && die "unlocked twice"
grep -q 'no connections of the checkpoint image are locked' unlock.log || die "unlock says: $(<unlock.log)"
ok "$TEST_NAME/unlock"
