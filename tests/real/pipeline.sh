#!/bin/bash
# A long pipeline as a job of a shell in a terminal, with numbers on their way through all of it. It is saved and restored
# in the foreground, stopped by ^Z, and in the background; in the end no number is missing, and none came twice.
#
# timeout: 240
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"
# shellcheck source=tests/real/programs/terminal.sh
source "$TOP/tests/real/programs/terminal.sh"

sent() { stat -c %s sent 2>/dev/null || echo 0; }
has_sent() { (($(sent) >= $1)); }
goes_on() { wait_until 40 has_sent $(($(sent) + 100000)) || { echo "the pipeline stands still" && return 1; }; }
all_states() { # STATE COUNT: do as many of the shell's descendants have this state?
	local pid
	(($(for pid in $(descendants "$shell"); do state_of "$pid"; done | grep -c "$1") >= $2))
}

# What a round finds after its restore, and what it leaves for the next one.
in_front() {
	goes_on && type_and_see '\x1a' 'Stopped' && wait_until 20 all_states T 6
}
stopped() {
	wait_until 20 all_states T 6 || { echo "the job is not stopped any more" && return 1; }
	type_and_see 'jobs\n' '^\[1\]+  *Stopped' && type_and_see 'bg\n' '\[1\]+' && goes_on
}
in_background() {
	goes_on && type_and_see 'jobs\n' '^\[1\]+  *Running' &&
		type_and_see 'fg\n' 'sha256sum' && goes_on
}

cat >produce <<'END_OF_PRODUCER'
for ((from = 1; ; from += 1000)); do
	[[ ! -e enough ]] || exit 0
	seq "$from" $((from + 999))
	sleep 0.01
done
END_OF_PRODUCER
start_program "${in_terminal[@]}" bash --norc --noprofile -i
wait_until 20 appears 'prompt> ' || die "no shell begins: $(tail -n 3 program.log)"
read -r shell _ <"/proc/$PROGRAM_PID/task/$PROGRAM_PID/children"
type_and_see 'bash produce | tee sent | gzip -1 | gunzip | sort -n -r | tac | sha256sum >sum\n' 'sum' ||
	die "no pipeline begins"
goes_on >complaint || die "before any dump: $(<complaint)"
rounds=(in_front stopped in_background)
check() {
	local round=${rounds[0]}
	rounds=("${rounds[@]:1}")
	"$round"
}
three_times "$PROGRAM_PID" check
touch enough
wait_until 60 appears '^prompt> $' || die "the pipeline does not end: $(tail -c 300 screen)"
wait_until 60 test -s sum || die "the pipeline has no result"
numbers=$(wc -l <sent)
diff -q <(seq "$numbers") sent >/dev/null || die "numbers are missing, or came twice, of $numbers"
[[ $(<sum) == "$(sha256sum <sent)" ]] || die "what came through the pipeline is not what went in"
printf 'exit 7\n' >>typed
wait_until 20 is_gone "$PROGRAM_PID" || die "the terminal does not end"
ok "$TEST_NAME" "$numbers numbers"
