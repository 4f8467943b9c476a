#!/bin/bash
# Signals from outside that arrive while a program is dumped or restored reach it, each once and with its value: those,
# too, that sealpoint uses itself to end batches of remote calls.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

names=(SIGURG SIGWINCH SIGCHLD SIGRTMIN)

# All four with this value have arrived.
arrived() { # VALUE
	local name
	for name in "${names[@]}"; do
		grep -q "^$name $1\$" out || return 1
	done
}

# Each of these values has arrived exactly once with each signal, and nothing else has.
expect_signals() { # WHEN VALUE...
	diff <(grep ^SIG out | sort) <(for value in "${@:2}"; do printf "%s $value\n" "${names[@]}"; done | sort) >difference ||
		die "$1: $(grep '^[<>]' difference | head -5)"
}

# Around the first remote calls, in the middle, at the end, and afterwards.
delay() { echo $(((RANDOM % 4) * (RANDOM % 8000))); }

# Runs a command while the subject gets all four signals with this value, which have been sent when it returns.
while_signalled() { # VALUE COMMAND...
	"$test_tools/queue_signals" "$SUBJECT_PID" "$1" "$(delay)" &
	local sender=$!
	"${@:2}"
	wait $sender || die "the signals with value $1 cannot be sent"
}

# Restores the image again and again, with a value each time, and lets the program go when `$2 VALUE` is true.
expect_restored() { # HOW READY
	for value in $rounds; do
		while_signalled "$value" restore_detached image
		wait_until 10 "$2" "$value" || die "restore $value: only $(grep " $value\$" out | tr '\n' ' ')arrived"
		let_go
		expect_pass "$SUBJECT_PID" 10
		expect_signals "$1 while it is restored" "$value"
		rewind_subject
	done
	rm -r image
	ok "$TEST_NAME/$1"
}

rounds=$(seq 12)
start_subject signalled
for value in $rounds; do
	while_signalled "$value" dump "$SUBJECT_PID" image --leave-running
	wait_until 10 arrived "$value" || die "dump $value: only $(grep " $value\$" out | tr '\n' ' ')arrived"
	rm -r image
done
# shellcheck disable=SC2086 # a list
expect_signals "handled while it is dumped" $rounds
rewind_subject
dump_and_reap "$SUBJECT_PID" image
expect_restored handled arrived

start_subject signalled blocks
while_signalled 1 dump "$SUBJECT_PID" image --leave-running
let_go
expect_pass "$SUBJECT_PID" 10
expect_signals "blocked while it is dumped" 1
rm -r image
start_subject signalled blocks
dump_and_reap "$SUBJECT_PID" image
expect_restored blocked : # they arrive when it is let go
