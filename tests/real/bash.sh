#!/bin/bash
# An interactive bash in a terminal, with a pipeline in the background and one in front, and the program that draws the
# terminal: what is typed reaches the one in front, ^Z stops it, fg and bg work, and the other goes on.
#
# timeout: 180
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"
# shellcheck source=tests/real/programs/terminal.sh
source "$TOP/tests/real/programs/terminal.sh"

has_lines() { (($(wc -l <"$1") >= $2)); }
goes_on() {
	wait_until 20 has_lines numbers $(($(wc -l <numbers) + 20)) ||
		{ echo "the pipeline in the background stands still" && return 1; }
}

step=0
check() {
	((++step))
	# shellcheck disable=SC2016 # the shell in the terminal expands it
	goes_on && type_and_see "hello $step\n" "read: hello $step" &&
		type_and_see '\x1a' 'Stopped' &&
		type_and_see 'jobs\n' '\[2\]+  *Stopped' &&
		type_and_see 'bg\n' '\[2\]+' &&
		type_and_see 'echo $((40 + 2))\n' '^42' &&
		type_and_see "fg %2\nagain $step\n" "read: again $step" &&
		goes_on
}

start_program "${in_terminal[@]}" bash --norc --noprofile -i
wait_until 20 appears 'prompt> ' || die "no shell begins: $(tail -n 3 program.log)"
# shellcheck disable=SC2016 # the shell in the terminal expands them
background='i=0; while :; do echo $((i++)); done | while read -r n; do echo "$n"; done >numbers &\n' \
	front='while read -r line; do echo "read: $line"; done | cat\n'
type_and_see "$background" '\[1\]' || die "no pipeline begins"
wait_until 20 has_lines numbers 20
type_and_see "$front" 'cat' || die "no second pipeline begins"
check >complaint || die "before any dump: $(<complaint)"
three_times "$PROGRAM_PID" check
# The shell in the terminal is in charge to the end, of both.
type_and_see '\x03' 'prompt> ' || die "^C does not end the pipeline in front"
# shellcheck disable=SC2016
type_and_see 'kill %1; wait %1; echo status $?\n' 'status 143' >complaint ||
	die "the pipeline in the background does not end: $(<complaint)"
printf 'exit 7\n' >>typed
wait_until 20 is_gone "$PROGRAM_PID" || die "the terminal does not end"
awk '$1 != NR - 1 { exit 1 }' <(head -n -1 numbers) || die "numbers were lost or came twice"
ok "$TEST_NAME" "$(wc -l <numbers) numbers"
