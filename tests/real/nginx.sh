#!/bin/bash
# nginx, a master and two workers, with clients that keep their connections: all is saved, ended, and restored three times
# in a row, and each client gets every file that it asks for, whole, over the one connection that it has opened.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

port=6002

cat >client.py <<'END'
import http.client, os, sys
name, port = sys.argv[1], int(sys.argv[2])
connection = http.client.HTTPConnection("127.0.0.1", port)
connection.connect()
first = connection.sock
rounds = 0
while True:
    number = rounds % 100 + 1
    connection.request("GET", f"/{number}")
    body = connection.getresponse().read()
    if body != b"%d\n" % number * 1000:
        sys.exit(f"{name}: file {number} came as {len(body)} bytes")
    if connection.sock is not first:
        sys.exit(f"{name}: the connection was closed after {rounds} files")
    rounds += 1
    with open(name + ".new", "w") as out:
        out.write(str(rounds))
    os.rename(name + ".new", name)
END

rounds_of() { cat "$1" 2>/dev/null || echo 0; }
has_gone_on() { (($(rounds_of "$1") >= $2)); }
clients_go_on() {
	local client
	for client in client{1..4}; do
		wait_until 40 has_gone_on "$client" $(($(rounds_of "$client") + 150)) ||
			{ echo "$client gets nothing any more: $(cat complaints)" && return 1; }
	done
	[[ ! -s complaints ]] || { cat complaints && return 1; }
}

chmod a+x .
mkdir files
for number in {1..100}; do
	yes "$number" | head -n 1000 >files/"$number"
done
cat >nginx.conf <<END
user root;
worker_processes 2;
daemon off;
pid $TEST_DIR/nginx.pid;
events { worker_connections 100; }
http {
	access_log off;
	keepalive_timeout 1000;
	keepalive_requests 1000000000;
	server { listen 127.0.0.1:$port; root $TEST_DIR/files; }
}
END
start_program nginx -c "$TEST_DIR/nginx.conf" -e "$TEST_DIR/program.log"
wait_until 20 is_listening $port || die "nginx does not start: $(tail -3 program.log)"
for number in {1..4}; do
	python3 client.py client"$number" $port 2>>complaints &
done
clients_go_on >complaint || die "before any dump: $(<complaint)"
master=$(<nginx.pid)
for round in 1 2 3; do
	dump "$master" image$round --tcp-established
	wait_until 20 is_gone "$master" || die "nginx is still there"
	sleep 0.5
	restore_detached image$round
	clients_go_on >complaint || die "after restore $round: $(<complaint)"
done
ok "$TEST_NAME" "$(($(rounds_of client1) + $(rounds_of client2) + $(rounds_of client3) + $(rounds_of client4))) files"
