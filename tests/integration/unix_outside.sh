#!/bin/bash
# Unix connections to a program that is not saved along: refused by name, or connected again with --ext-unix-sk.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# Says what comes, and by whom, over each of three listening sockets, to whoever asks.
cat >server.py <<'END'
import selectors, socket, struct
poll = selectors.DefaultSelector()
def listen(kind, name):
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(name)
    listener.listen(5)
    poll.register(listener, selectors.EVENT_READ, True)
listen(socket.SOCK_STREAM, "stream")
listen(socket.SOCK_SEQPACKET, "\0packets")
open("listening", "w").close()
accepted = 0
while True:
    for key, _ in poll.select():
        if key.data:
            poll.register(key.fileobj.accept()[0], selectors.EVENT_READ)
            accepted += 1
            continue
        data = key.fileobj.recv(100)
        if data:
            who = struct.unpack("3i", key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            key.fileobj.send(b"%s by %d of %d" % (data, who[0], who[1]) if data != b"unread" else b"x" * 100)
        else:
            poll.unregister(key.fileobj)
            key.fileobj.close()
END

# Asks once for each number that is written to the file "ask", over a relative path and an abstract name.
cat >client.py <<'END'
import os, socket, time
os.setgid(65534)
os.setuid(65534)
stream, packets = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
stream.connect("stream")
packets.connect("\0packets")
for connection in stream, packets:
    connection.settimeout(20)
done = "0"
while True:
    asked = open("ask").read()
    if asked and asked != done:  # the shell empties the file before it writes
        for connection in stream, packets:
            connection.send(asked.encode())
            connection.recv(1, socket.MSG_PEEK)
            if asked != "unread":
                answer = connection.recv(100).decode()
                expected = f"{asked} by {os.getpid()} of 65534"
                if answer != expected:
                    raise SystemExit(f"{answer} instead of {expected}")
        if connection.getpeername() != b"\0packets" or stream.getpeername() != "stream":
            raise SystemExit("another peer")
        done = asked
        with open("answered", "w") as out:
            out.write(done)
    time.sleep(0.02)
END

is_answered() { [[ $(cat answered 2>/dev/null) == "$1" ]]; }
ask() { # WORD WHEN
	printf '%s' "$1" >ask
	wait_until 20 is_answered "$1" || die "$2: no answer: $(tail -3 program.log)"
}

python3 server.py &
server=$!
wait_until 20 test -e listening || die "the server does not start"
chmod 777 . stream
printf 0 >ask
start_program python3 client.py
client=$PROGRAM_PID
ask first "before"

"$sealpoint" dump "$client" -o image >refused 2>&1 && die "saved without being asked to"
grep -q "its other end at stream is held by process $server (python3).*--ext-unix-sk" refused || die "refused otherwise: $(<refused)"
"$sealpoint" inspect "$client" --ext-unix-sk >look 2>&1 || die "a look at it says: $(tail -3 look)"
ask second "after the refusal"
ok "$TEST_NAME/refused by name"

for round in 1 2; do
	dump "$client" "image$round" --ext-unix-sk
	wait_until 20 is_gone "$client" || die "the client is still there"
	restore_detached "image$round"
	ask "round$round" "restored $round times"
done
mkdir criu
"$sealpoint" criu dump -t "$client" -D criu -o log -x </dev/null || die "in the words of criu: $(tail -3 criu/log)"
wait_until 20 is_gone "$client" || die "the client is still there"
"$sealpoint" criu restore -D criu -o log -x -d </dev/null || die "in the words of criu: $(tail -3 criu/log)"
ask criu "restored in the words of criu"
ok "$TEST_NAME/connected again"

ask unread "to be left unread"
"$sealpoint" dump "$client" -o unread --ext-unix-sk --timeout 1ms >refused 2>&1 && die "what was not read is lost"
grep -q 'let the program read that first' refused || die "refused otherwise: $(<refused)"
kill -KILL "$client"
wait_until 10 is_gone "$client"
ok "$TEST_NAME/nothing that waits is lost"

kill -KILL "$server"
"$sealpoint" restore image2 --detach >nobody 2>&1 </dev/null && die "restored although nobody listens"
grep -q 'cannot connect to .*/stream again' nobody || die "refused otherwise: $(<nobody)"
is_gone "$client" || die "a restore that has failed leaves the client"
ok "$TEST_NAME/nobody there"
