#!/bin/bash
# redis-server with clients that stay connected while it is saved, ended, gone for two seconds, and restored: one
# that waits in a blocking command, one that is told of messages, and one that never stops to count. None sees an error,
# and the counter has counted every command once.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

port=6001
redis() { redis-cli -p "$port" "$@"; }
answers() { [[ $(redis ping) == PONG ]]; }

cat >client.py <<'END'
import os, socket, sys
what, port = sys.argv[1], int(sys.argv[2])
connection = socket.create_connection(("127.0.0.1", port))
answers = connection.makefile("rb")

def tell(text):
    with open(what + ".new", "w") as out:
        out.write(str(text))
    os.rename(what + ".new", what)

def command(*words):
    connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

def answer():
    line = answers.readline()
    if line[:1] == b"*":
        return [answer() for _ in range(int(line[1:]))]
    if line[:1] == b"$":
        return answers.read(int(line[1:]) + 2)[:-2]
    if line[:1] != b":":
        sys.exit(f"{what}: redis answers {line!r}")
    return int(line[1:])

if what == "busy":
    count = 0
    while not os.path.exists("stop"):
        command(b"INCR", b"counter")
        got = answer()
        count += 1
        if got != count:
            sys.exit(f"busy: the counter is {got}, not {count}")
        tell(count)
elif what == "blocked":
    while True:
        command(b"BLPOP", b"queue", b"0")
        tell(answer()[1].decode())
else:
    command(b"SUBSCRIBE", b"news")
    answer()
    tell("subscribed")
    while True:
        tell(answer()[2].decode())
END

start_client() { # WHAT
	python3 client.py "$1" "$port" 2>>complaints &
}
says() { [[ $(cat "$1" 2>/dev/null) == "$2" ]]; }
count() { cat busy 2>/dev/null || echo 0; }
has_counted() { (($(count) >= $1)); }
is_blocked() { redis client list | grep -q cmd=blpop; }

expect_clients_go_on() { # ROUND
	wait_until 40 has_counted $(($(count) + 100)) || die "round $1: the busy client does not go on: $(cat complaints)"
	[[ $(redis publish news "round $1") == 1 ]] || die "round $1: nobody listens any more"
	wait_until 40 says news "round $1" || die "round $1: the message does not arrive: $(cat complaints)"
	redis rpush queue "item $1" >/dev/null
	wait_until 40 says blocked "item $1" || die "round $1: the blocked client is not woken: $(cat complaints)"
	[[ ! -s complaints ]] || die "round $1: $(<complaints)"
}

start_program redis-server --port "$port" --dir "$TEST_DIR" --save ''
server=$PROGRAM_PID
wait_until 20 answers || die "redis-server does not start: $(tail -n 3 program.log)"
for what in busy blocked news; do
	start_client $what
done
wait_until 20 says news subscribed || die "no subscription: $(cat complaints)"
wait_until 20 is_blocked || die "no client is blocked: $(cat complaints)"
expect_clients_go_on 0
for round in 1 2 3; do
	wait_until 20 is_blocked || die "round $round: no client is blocked"
	dump "$server" "image$round" --tcp-established
	wait_until 30 is_gone "$server" || die "redis-server is still there"
	sleep 2 # the clients would have time to see that it is
	restore_detached "image$round"
	expect_clients_go_on "$round"
done
touch stop
ok "$TEST_NAME" "$(count) commands of the busy client"
