#!/bin/bash
# postgresql under pgbench, saved, ended, gone for two seconds and restored, three times. Clients are connected by TCP all
# the time: four of pgbench, and one that counts its own transactions. None sees an error, each transaction that was
# confirmed is there once, and the sums of all tables agree. A client on the unix socket, which is not saved with the
# server, is refused by name.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

port=7432
programs=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
[[ -x $programs/initdb ]] || skip_test "postgresql is not installed"
as_user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)

sql() { psql -h 127.0.0.1 -p "$port" -U bench -X -A -t -v ON_ERROR_STOP=1 "$@" postgres; }
answers() { [[ $(sql -c 'select 1' </dev/null) == 1 ]]; }
confirmed() { grep -c '^INSERT 0 1$' counted; }
history() { sql -c 'select count(*) from pgbench_history' </dev/null; }
has_confirmed() { (($(confirmed) >= $1)); }
has_history() { (($(history) >= $1)); }

expect_clients_go_on() { # ROUND
	wait_until 60 has_confirmed $(($(confirmed) + 50)) || die "round $1: the counting client does not go on: $(tail -n 2 complaints)"
	wait_until 60 has_history $(($(history) + 50)) || die "round $1: pgbench does not go on: $(tail -n 2 pgbench.log)"
	[[ ! -s complaints ]] || die "round $1: $(<complaints)"
	! grep -i -E 'error|fatal|abort' pgbench.log || die "round $1: $(tail -n 2 pgbench.log)"
}

refuse_unix_client() {
	local client
	mkfifo held
	psql -h "$TEST_DIR/run" -p "$port" -U bench -X -q postgres <held >psql.log 2>&1 &
	client=$!
	exec {hold}>held
	echo '\! touch connected' >&"$hold"
	wait_until 20 test -e connected || die "no connection by the unix socket: $(<psql.log)"
	"$sealpoint" dump "$server" -o refused --tcp-established >refused.log 2>&1 && die "saved without the other end of a unix socket"
	grep -q "its other end .*is held by process $client (psql)" refused.log || die "not refused by name: $(<refused.log)"
	exec {hold}>&-
	wait "$client" || die "the refused dump has broken the connection"
}

mkdir run
chmod 755 "$TEST_DIR"
chown nobody run
"${as_user[@]}" "$programs/initdb" -D run/data -U bench -A trust -N >initdb.log 2>&1 || die "initdb: $(tail -n 3 initdb.log)"
cat >>run/data/postgresql.conf <<C
port = $port
listen_addresses = '127.0.0.1'
unix_socket_directories = '$TEST_DIR/run'
C
start_program "${as_user[@]}" "$programs/postgres" -D "$TEST_DIR/run/data"
server=$PROGRAM_PID
wait_until 40 answers || die "postgresql does not start: $(tail -n 3 program.log)"
sql -c 'create table counted (number int primary key)' >/dev/null </dev/null
"$programs/pgbench" -h 127.0.0.1 -p "$port" -U bench -i -q postgres >pgbench.log 2>&1 || die "pgbench: $(tail -n 3 pgbench.log)"
refuse_unix_client

"$programs/pgbench" -h 127.0.0.1 -p "$port" -U bench -n -c 4 -T 1000 postgres >pgbench.log 2>&1 </dev/null &
bench=$!
for ((i = 1; ; i++)); do
	[[ ! -e stop ]] || break
	echo "insert into counted values ($i);"
done | sql >counted 2>complaints &
counter=$!
expect_clients_go_on 0
for round in 1 2 3; do
	dump "$server" "image$round" --tcp-established
	wait_until 30 is_gone "$server" || die "postgresql is still there"
	sleep 2 # the clients would have time to see that it is
	restore_detached "image$round"
	expect_clients_go_on "$round"
done
touch stop
wait "$counter" || die "the counting client fails: $(<complaints)"
[[ $(sql -c 'select count(*), max(number) from counted' </dev/null) == "$(confirmed)|$(confirmed)" ]] ||
	die "$(confirmed) transactions were confirmed, and there are $(sql -c 'select count(*) from counted' </dev/null)"
kill "$bench"
wait "$bench" || true
no_backends() { [[ $(sql -c "select count(*) from pg_stat_activity where application_name = 'pgbench'" </dev/null) == 0 ]]; }
wait_until 20 no_backends || die "pgbench has ended, and its sessions have not"
sums=$(sql -c 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
	(select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history),
	(select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)' </dev/null)
[[ $sums == 't|t|t' ]] || die "the sums of pgbench do not agree: $sums"
transactions=$(history)
kill -INT "$server" # a fast shutdown
wait_until 30 is_gone "$server" || die "the restored server does not end"
ok "$TEST_NAME" "$transactions transactions of pgbench"
