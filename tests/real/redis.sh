#!/bin/bash
# redis-server with data of every type and an append-only file that it writes to between the dumps; at the end a
# fresh server that loads the append-only file has the same data.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

port=6000 keys=30000 written=0
redis() { redis-cli -p "$port" "$@"; }
commands() { "$TOP/tests/real/programs/redis_commands.sh" "$@"; }

answers() { [[ $(redis ping) == PONG ]]; } # not while it loads

converse() {
	local socket
	exec {socket}<>"/dev/tcp/127.0.0.1/$port"
	cat >&"$socket" &
	cat <&"$socket"
	wait $!
	exec {socket}>&-
	wait_until 10 no_connections "$port"
}

digest() { commands read "$keys" | converse | cksum; }

check() {
	local now
	now=$(digest)
	[[ $now == "$data" ]] || { echo "the data are not what they were" && return 1; }
	now=$(redis incr writes)
	[[ $now == $((++written)) ]] || { echo "a counter is $now, not $written" && return 1; }
	redis config set appendfsync always >/dev/null
	redis rpush log "written after restore $written" >/dev/null
	[[ $(redis llen log) == "$written" ]] || { echo "a list that grows has $(redis llen log) items" && return 1; }
	wait_until 10 no_connections "$port"
}

start_server() {
	start_program redis-server --port "$port" --unixsocket redis.sock --dir "$TEST_DIR" --save '' \
		--appendonly yes
	wait_until 20 answers || die "redis-server does not start: $(tail -n 3 program.log)"
}

start_server
commands write "$keys" | converse >/dev/null
[[ $(redis dbsize) == "$keys" ]] || die "$(redis dbsize) keys, not $keys"
data=$(digest)
three_times "$PROGRAM_PID" check
[[ $(redis -s redis.sock ping) == PONG ]] || die "the unix socket does not answer"
redis shutdown nosave
wait_until 20 is_gone "$PROGRAM_PID" || die "the restored server does not shut down"
start_server
[[ $(digest) == "$data" ]] || die "the append-only file does not hold the data"
[[ $(redis llen log) == 3 ]] || die "the append-only file lacks what was written after the restores"
redis shutdown nosave
ok "$TEST_NAME"
