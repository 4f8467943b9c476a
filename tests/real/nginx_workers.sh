#!/bin/bash
# nginx without clients, a master and two workers: pages are served after each restore, the master still rules
# its workers, and replaces one that ends.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

port=6080
mkdir www logs
echo "a page" >www/page
cat >nginx.conf <<C
daemon off;
user root;
worker_processes 2;
pid $TEST_DIR/nginx.pid;
error_log $TEST_DIR/logs/error;
events { worker_connections 64; }
http {
	access_log $TEST_DIR/logs/access;
	client_body_temp_path $TEST_DIR/body;
	proxy_temp_path $TEST_DIR/proxy;
	fastcgi_temp_path $TEST_DIR/fastcgi;
	uwsgi_temp_path $TEST_DIR/uwsgi;
	scgi_temp_path $TEST_DIR/scgi;
	server { listen 127.0.0.1:$port reuseport; root $TEST_DIR/www; }
}
C

served() { # PATH: what nginx answers, and no connection is left
	ask "$port" "GET /$1 HTTP/1.0"$'\r\n\r'
}

workers() { cat "/proc/$PROGRAM_PID/task/$PROGRAM_PID/children"; }
has_workers() { [[ $(workers | wc -w) == 2 && $(workers) != "${1:-}" ]]; }
serves() { [[ $(served page) == *"a page"* ]]; }

requests=0
check() {
	local before first
	for _ in {1..10}; do
		serves || { echo "the page is not served: $(tail -n 2 logs/error)" && return 1; }
	done
	((requests += 10))
	wait_until 10 test "$(wc -l <logs/access)" -ge "$requests" || { echo "$(wc -l <logs/access) requests were logged" && return 1; }
	# The master hears of a worker's end, and begins another one.
	before=$(workers)
	read -r first _ <<<"$before"
	kill -KILL "$first"
	wait_until 10 has_workers "$before" || { echo "the worker is not replaced: $(tail -n 2 logs/error)" && return 1; }
	wait_until 10 serves || { echo "the page is not served any more" && return 1; }
	((++requests))
	wait_until 10 no_connections "$port"
}

start_program nginx -p "$TEST_DIR" -c "$TEST_DIR/nginx.conf" -e "$TEST_DIR/logs/error"
wait_until 20 is_listening "$port" || die "nginx does not start: $(tail -n 3 program.log logs/error)"
wait_until 10 has_workers || die "nginx has no workers: $(tail -n 3 program.log logs/error)"
serves || die "nginx does not serve: $(tail -n 3 program.log logs/error)"
((++requests))
three_times "$PROGRAM_PID" check
kill -QUIT "$PROGRAM_PID"
wait_until 20 is_gone "$PROGRAM_PID" || die "the restored nginx does not end"
[[ -z $(ss -Htln "sport = :$port") ]] || die "somebody still listens"
ok "$TEST_NAME"
