#!/bin/bash
# A redis-server, its replica, a client of each that stays connected, and one that writes all the time. Both servers, two
# trees of their own, are saved one after the other, ended, and restored in the other order, three times. The replica takes
# up where it was: it is never sent all data again, and no write is lost or done twice.
#
# timeout: 200
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

master_port=6011 replica_port=6012
master() { redis-cli -p "$master_port" "$@"; }
replica() { redis-cli -p "$replica_port" "$@"; }
answers() { [[ $("$1" ping) == PONG ]]; }
is_linked() { replica info replication | grep -q '^master_link_status:up'; }
full_copies() { master info stats | sed -n 's/^sync_full:\([0-9]*\).*/\1/p'; }
replica_has() { [[ $(replica get "$1") == "$2" ]]; }

# A client that counts in the database, without a break.
count_on() { exec stdbuf -oL redis-cli -p "$master_port" -r 100000000 -i 0.002 incr counter >counted 2>&1 </dev/null; }
counted() { wc -l <counted; }
has_counted() { (($(counted) >= $1)); }

# A client that keeps its connection and asks for a key whenever a line comes.
connect_client() { # PORT: sets CLIENT
	exec {CLIENT}<>"/dev/tcp/127.0.0.1/$1"
}
asks() { # CLIENT KEY
	local line value
	printf 'GET %s\r\n' "$2" >&"$1"
	read -r -t 60 line <&"$1" || return 1
	[[ $line != '$-1'* ]] || return 1
	read -r -t 60 value <&"$1" && echo "${value%$'\r'}"
}

expect_all_go_on() { # ROUND
	master set "key$1" "value $1" >/dev/null || die "round $1: the master does not answer"
	wait_until 60 replica_has "key$1" "value $1" || die "round $1: what is written does not come to the replica"
	[[ $(asks "$of_master" "key$1") == "value $1" ]] || die "round $1: the client of the master has lost its connection"
	[[ $(asks "$of_replica" "key$1") == "value $1" ]] || die "round $1: the client of the replica has lost its connection"
	[[ $(full_copies) == 1 ]] || die "round $1: the replica was sent all data $(full_copies) times"
	wait_until 60 has_counted $(($(counted) + 50)) || die "round $1: the counting client does not go on: $(tail -n 1 counted)"
	is_linked || die "round $1: the replica has lost its master"
}

mkdir a b
start_program redis-server --port "$master_port" --dir "$TEST_DIR/a" --save '' --repl-diskless-sync-delay 0
first=$PROGRAM_PID
start_program redis-server --port "$replica_port" --dir "$TEST_DIR/b" --save '' --replicaof 127.0.0.1 "$master_port"
second=$PROGRAM_PID
wait_until 30 answers master || die "the master does not start: $(tail -n 3 program.log)"
wait_until 30 answers replica || die "the replica does not start: $(tail -n 3 program.log)"
wait_until 60 is_linked || die "the replica does not find its master: $(tail -n 3 program.log)"
connect_client "$master_port" && of_master=$CLIENT
connect_client "$replica_port" && of_replica=$CLIENT
count_on &
counter=$!
expect_all_go_on 0
for round in 1 2 3; do
	dump "$first" "a$round" --tcp-established
	dump "$second" "b$round" --tcp-established
	for server in "$first" "$second"; do
		wait_until 30 is_gone "$server" || die "round $round: process $server is still there"
	done
	restore_detached "b$round"
	restore_detached "a$round"
	expect_all_go_on "$round"
done
kill "$counter"
wait "$counter"
awk '$1 != NR { exit 1 }' counted || die "writes were lost, or done twice: $(awk '$1 != NR' counted | head -n 3)"
wait_until 60 replica_has counter "$(master get counter)" || die "the replica does not have what was counted"
ok "$TEST_NAME" "$(counted) writes"
