#!/bin/bash
# The sqlite3 shell in the middle of a transaction: what it has not committed is there after each restore, other
# programs are still locked out, and in the end all of it is in the file. The shell reads its commands from a FIFO
# that it holds open for reading and writing, so that both ends are its own.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

rows=1000
mkfifo commands
: >answers

# Sends a line of SQL and prints what the shell answers.
query() {
	local seen
	seen=$(wc -l <answers)
	printf '%s\nSELECT "--end--";\n' "$1" >commands
	wait_until 20 has_ended $((seen + 1)) || { echo "no answer" && return 1; }
	tail -n +$((seen + 1)) answers | grep -v -- --end--
}

has_ended() { tail -n +"$1" answers | grep -q -- --end--; }

check() {
	local count
	count=$(query "INSERT INTO t SELECT max(n) + 1, 'later' FROM t; SELECT count(*) FROM t;")
	[[ $count == $((++rows)) ]] || { echo "there are $count rows, not $rows" && return 1; }
	count=$(query "SELECT count(*) FROM memory.m;")
	[[ $count == 500 ]] || { echo "the database in memory has $count rows" && return 1; }
	sqlite3 data.sqlite "INSERT INTO t VALUES (-1, 'intruder')" 2>&1 | grep -q locked ||
		{ echo "the transaction does not lock others out any more" && return 1; }
}

# shellcheck disable=SC2094 # both ends of the FIFO
exec_alone sqlite3 -batch data.sqlite <>commands >>answers 2>&1 &
PROGRAM_PID=$!
query "ATTACH ':memory:' AS memory; CREATE TABLE memory.m (n);
	WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 500) INSERT INTO memory.m SELECT n FROM c;
	CREATE TABLE t (n, text); BEGIN IMMEDIATE;
	WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000) INSERT INTO t SELECT n, 'text ' || n FROM c;"
check || die "before any dump: $(check)"
three_times "$PROGRAM_PID" check
query "COMMIT;"
printf '.quit\n' >commands
wait_until 20 is_gone "$PROGRAM_PID" || die "does not quit"
[[ $(sqlite3 data.sqlite "SELECT count(*) FROM t; PRAGMA integrity_check") == "$rows"$'\nok' ]] ||
	die "the file does not hold what was committed"
ok "$TEST_NAME"
