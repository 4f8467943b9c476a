#!/bin/bash
# The demonstration, `make demo`: a real redis-server with 200,000 keys of mixed types is dumped, is gone, comes
# back, and has lost nothing. It uses a port and a directory of its own and leaves nothing behind.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
sealpoint=$(cd "$top" && realpath "${BUILD:-build}")/sealpoint
keys=${DEMO_KEYS:-200000}

if ((EUID)); then
	echo "the demo dumps and restores a process of the system: run it as root" >&2
	exit 1
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/sealpoint-demo.XXXXXX")
server=
finish() {
	[[ -z $server ]] || kill "$server" 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() {
	echo "demo: $*" >&2
	exit 1
}

say() { printf '\n%s\n' "$*"; }

redis() { redis-cli -p "$port" "$@"; }

# Waits until a command succeeds, 20 seconds at most.
await() {
	local deadline=$((SECONDS + 20))
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || fail "waited in vain for: $*"
		sleep 0.05
	done
}

gone() { ! kill -0 "$server"; }

# Sends commands from standard input over one connection; prints what the server answers.
converse() {
	local socket sender
	exec {socket}<>"/dev/tcp/127.0.0.1/$port"
	cat >&"$socket" &
	sender=$!
	cat <&"$socket"
	wait "$sender"
	exec {socket}>&-
}

# A digest of the answers to reads of every key.
read_every_key() { "$top/tests/real/programs/redis_commands.sh" read "$keys" | converse | sha256sum | cut -d ' ' -f 1; }

# The server shares nothing with us: a session of its own, and no descriptor but its log.
start_server() {
	local fd
	for fd in "/proc/$BASHPID/fd"/*; do
		fd=${fd##*/}
		((fd <= 2 || fd == 255)) || exec {fd}>&- # bash closes 255 itself
	done
	exec setsid redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --save '' --appendonly yes \
		--daemonize no
}

no_client() { ! ss -Htn state connected "sport = :$port" | grep -q -v TIME-WAIT; }

free_port() {
	local port
	for port in $(shuf -i 20000-29999 -n 20); do
		ss -Htan "sport = :$port" | grep -q . || { echo "$port" && return; }
	done
	fail "no free port"
}

cd "$dir"
port=$(free_port)
say "Starting redis-server with $keys keys of mixed types, and an append-only file"
start_server </dev/null >server.log 2>&1 &
server=$!
disown # or bash would report its end
await redis ping
"$top/tests/real/programs/redis_commands.sh" write "$keys" | converse | grep -c -v '^-' >/dev/null
stored=$(redis dbsize)
((stored == keys)) || fail "the server has $stored keys, not $keys"
before=$(read_every_key)
await no_client
echo "pid $server, $stored keys, $(awk '/VmRSS/ { printf "%d MiB", $2 / 1024 }' "/proc/$server/status") resident"

say "sealpoint dump $server -o image"
"$sealpoint" dump "$server" -o image
await gone
echo "The server is gone: $(redis ping 2>&1 | head -n 1)"

say "sealpoint restore image --detach"
"$sealpoint" restore image --detach
[[ $(redis dbsize) == "$keys" ]] || fail "the restored server has $(redis dbsize) keys, not $keys"

say "Reading every key of the restored server"
after=$(read_every_key)
[[ $before == "$after" ]] || fail "some key has another value than before"
echo "all $keys keys have the values that they had: $after"

say "Writing and reading again"
[[ $(redis set after-the-restore yes) == OK && $(redis get after-the-restore) == yes ]] ||
	fail "the restored server does not take a new key"
[[ $(redis incr counter) == 1 && $(redis dbsize) == $((keys + 2)) ]] || fail "the restored server does not count"
grep -q after-the-restore appendonlydir/*.incr.aof || fail "the append-only file has not got the new key"
echo "written, read back, and in the append-only file"

say "Done."
