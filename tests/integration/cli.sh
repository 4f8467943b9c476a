#!/bin/bash
# The command line itself: wrong usage ends with status 2 and one line that leads on, help teaches, answers in
# JSON can be parsed, and man pages and completion know every command and every option.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

commands=(dump restore snapshot pre-dump track unlock inspect verify diff merge core check watch criu)

# A command must end with STATUS and say WORDS, in one line on standard error.
expect() { # CASE STATUS WORDS COMMAND...
	local name=$TEST_NAME/$1 expected=$2 words=$3 status=0
	shift 3
	timeout 20 "$@" >output 2>error </dev/null || status=$?
	if ((status != expected)); then
		not_ok "$name" "exit status $status, not $expected: $(head -c 300 error)"
	elif ! grep -q -e "$words" error; then
		not_ok "$name" "does not say \"$words\": $(<error)"
	elif (($(wc -l <error) != 1)); then
		not_ok "$name" "not one line: $(<error)"
	elif [[ -s output ]]; then
		not_ok "$name" "writes to standard output: $(<output)"
	else
		ok "$name"
	fi
}

# --- usage ---------------------------------------------------------------------------------------------

expect "unknown command" 2 'no command "frobnicate"' "$sealpoint" frobnicate
expect "misspelt command" 2 'did you mean "restore"' "$sealpoint" restroe x
expect "option before the command" 2 'first argument is a command' "$sealpoint" -v dump
expect "unknown option" 2 'no option --frobnicate' "$sealpoint" dump 1 -o new --frobnicate
expect "misspelt option" 2 'did you mean --leave-running' "$sealpoint" dump 1 -o new --leave-runing
expect "ambiguous option" 2 'leave-running or --leave-stopped' "$sealpoint" dump 1 -o new --leave
expect "unknown letter" 2 'no option -x' "$sealpoint" dump 1 -o new -x
expect "argument missing" 2 'output needs an argument' "$sealpoint" dump 1 -o
expect "argument too many" 2 'kill takes no argument' "$sealpoint" dump 1 -o new --kill=yes
expect "no process id" 2 'PID is missing' "$sealpoint" dump -o new
expect "a word for a process id" 2 '"abc" is not a process id' "$sealpoint" dump abc -o new
expect "a negative process id" 2 '"-1" is not a process id' "$sealpoint" dump -o new -- -1
expect "a huge process id" 2 '"99999999999" is not a process id' "$sealpoint" dump 99999999999 -o new
expect "no directory" 2 '-o DIR' "$sealpoint" dump 1
expect "two directories" 2 '"b" is one argument too many' "$sealpoint" restore a b
expect "wrong size" 2 '--unlinked-limit takes a size' "$sealpoint" dump 1 -o new --unlinked-limit 10X
expect "size beyond 64 bits" 2 '--unlinked-limit takes a size' \
	"$sealpoint" dump 1 -o new --unlinked-limit 99999999999999T
expect "wrong level" 2 '--compress takes a number' "$sealpoint" dump 1 -o new --compress best
expect "no time at all" 2 '--timeout takes at least 1ms' "$sealpoint" dump 1 -o new --timeout 0
expect "wrong time" 2 '--timeout takes a time like 500ms, 2s' "$sealpoint" dump 1 -o new --timeout soon
for time in 1ms 500ms 2s 5min 7; do # a process that is not there, but the time is right
	expect "a timeout of $time" 1 'there is no process' "$sealpoint" dump 4194303 -o new --timeout "$time"
done
expect "two fates for the program" 2 'one of --kill, --leave-running' \
	"$sealpoint" dump 1 -o new --leave-running --leave-stopped
expect "core without a file" 2 '-o FILE' "$sealpoint" core somewhere
expect "merge to nowhere" 2 '-o OUT' "$sealpoint" merge somewhere
expect "merge to two places" 2 'exclude each other' "$sealpoint" merge somewhere -o there --in-place
expect "diff with nothing" 2 'B is missing' "$sealpoint" diff somewhere
expect "failure is not usage" 1 'missing' "$sealpoint" inspect missing
expect "no such process to unlock" 1 "process 3999999: No such process" "$sealpoint" unlock --pid 3999999

# Nothing but the command: what it is for, and status 2, because nothing was asked for.
status=0
"$sealpoint" >output 2>error || status=$?
if ((status == 2)) && [[ ! -s output ]] && grep -q 'sealpoint dump PID -o DIR' error; then
	ok "$TEST_NAME/no arguments"
else
	not_ok "$TEST_NAME/no arguments" "exit status $status: $(head -1 error)"
fi

# --- help ----------------------------------------------------------------------------------------------

same_help() { # COMMAND
	"$sealpoint" help "$1" >by_help && "$sealpoint" "$1" --help >by_option && cmp -s by_help by_option &&
		grep -q "^Usage: sealpoint $1" by_help && grep -q '^Examples:' by_help
}

wide_lines() { awk 'length($0) > 90' "$1"; }

for command in "${commands[@]}"; do
	if ! same_help "$command"; then
		not_ok "$TEST_NAME/help $command" "\"help $command\" and \"$command --help\" differ, or teach nothing"
	elif [[ -n $(wide_lines by_help) ]]; then
		not_ok "$TEST_NAME/help $command" "wider than 90 columns: $(wide_lines by_help | head -1)"
	elif ! "$sealpoint" help | grep -q "^  $command "; then
		not_ok "$TEST_NAME/help $command" "the command is not in the list of commands"
	else
		ok "$TEST_NAME/help $command"
	fi
done
if [[ $("$sealpoint" --version) =~ ^sealpoint\ [0-9]+\.[0-9]+\.[0-9]+$ ]]; then
	ok "$TEST_NAME/version"
else
	not_ok "$TEST_NAME/version" "$("$sealpoint" --version)"
fi

if "$sealpoint" help help | cmp -s - <("$sealpoint" help); then
	ok "$TEST_NAME/help help"
else
	not_ok "$TEST_NAME/help help" "$("$sealpoint" help help 2>&1 | head -1)"
fi

# An answer that cannot be written is noticed.
status=0
"$sealpoint" help >/dev/full 2>error || status=$?
if ((status == 1)) && grep -q 'cannot write the answer: No space' error; then
	ok "$TEST_NAME/standard output is full"
else
	not_ok "$TEST_NAME/standard output is full" "exit status $status: $(<error)"
fi

# --- JSON ----------------------------------------------------------------------------------------------

# The command's standard output must be one JSON object for which the Python expression is true.
expect_json() { # CASE STATUS EXPRESSION COMMAND...
	local name=$TEST_NAME/$1 expected=$2 expression=$3 status=0
	shift 3
	timeout 60 "$@" >output 2>error </dev/null || status=$?
	if ((status != expected)); then
		not_ok "$name" "exit status $status, not $expected: $(head -c 300 output error)"
		return 1
	elif ! python3 -c "import json, sys; o = json.load(sys.stdin); sys.exit(not ($expression))" <output 2>error; then
		not_ok "$name" "not $expression: $(head -c 200 output) $(tail -1 error)"
	else
		ok "$name"
	fi
}

start_subject basic
subject=$SUBJECT_PID
expect_json "usage error" 2 'o["error"]["kind"] == "usage" and "abc" in o["error"]["message"]' \
	"$sealpoint" dump abc -o new --json
expect_json "failure" 1 'o["error"]["kind"] == "failed" and o["error"]["errno"] == "ENOENT"' \
	"$sealpoint" inspect missing --json
expect_json "check" 0 'o["usable"] and all(f["needed"] in ("always", "sometimes") for f in o["features"])' \
	"$sealpoint" check --json
expect_json "what is in a dump" 0 "o['threads'] == 1 and o['mappings'] > 5 and o['descriptors'] > 2" \
	"$sealpoint" dump "$subject" -o running --leave-running --json
"$sealpoint" snapshot "$subject" -o store --count 2 --every 20ms --json >output 2>error || die "snapshot: $(<error)"
[[ $(grep -c '^{"directory":.*}$' output) == 2 && $(wc -l <output) == 2 ]] || die "snapshot --json: no line for each: $(<output)"
expect_json "dump" 0 "o['pid'] == $subject and o['freeze']['total_ns'] > 0 and o['pages']['data'] > 0" \
	"$sealpoint" dump "$subject" -o saved --json || exit 1
wait "$subject"
expect_json "inspect" 0 "o['process']['pid'] == $subject and o['threads'] and o['descriptors'] and
	sum(m['pages']['data'] for m in o['mappings']) > 0 and o['process']['name'] == 'basic'" \
	"$sealpoint" inspect saved --json
expect_json "verify" 0 'o["intact"] and o["bytes"] > 0' "$sealpoint" verify saved --json
expect_json "diff" 0 'o["same"] and not o["mappings"] and not o["threads"]' "$sealpoint" diff saved saved --json
expect_json "core" 0 'o["bytes"] > 0' "$sealpoint" core saved -o core --json
status=0
"$sealpoint" core saved -o core --json >/dev/full 2>error || status=$?
if ((status == 0)) && grep -q 'cannot write the answer: No space' error; then
	ok "$TEST_NAME/what is done stays done"
else
	not_ok "$TEST_NAME/what is done stays done" "exit status $status: $(<error)"
fi
expect_json "restore" 0 "o['pid'] == $subject and o['program'] == 'running'" \
	"$sealpoint" restore saved --detach --json
let_go
expect_pass "$subject" 20

# --- at a glance ---------------------------------------------------------------------------------------

COLUMNS=80 "$sealpoint" inspect saved >glance 2>error || die "inspect: $(<error)"
for words in "basic, process $subject" "frozen" "THREADS" "MAPPINGS" "\[stack\]" "DESCRIPTORS" "STATE"; do
	grep -q "$words" glance || not_ok "$TEST_NAME/inspect" "does not show \"$words\""
done
if [[ -n $(awk 'length($0) > 80' glance) ]]; then
	not_ok "$TEST_NAME/inspect" "wider than the terminal: $(awk 'length($0) > 80' glance | head -1)"
else
	ok "$TEST_NAME/inspect"
fi

# All that count the same thing come to the same number.
files=$(find saved -type f | wc -l) bytes=$(find saved -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
mappings=$(grep -o '^MAPPINGS  [0-9]*' glance | grep -o '[0-9]*$')
grep -q " in $files files;" glance || not_ok "$TEST_NAME/inspect" "does not count $files files: $(grep image glance)"
expect_json "inspect counts" 0 "o['checkpoint']['image_bytes'] == $bytes and len(o['mappings']) == $mappings" \
	"$sealpoint" inspect saved --json
expect_json "verify counts" 0 "o['files'] == $files and o['bytes'] == $bytes" "$sealpoint" verify saved --json

start_subject basic
"$sealpoint" dump "$SUBJECT_PID" -o told -v >output 2>error || die "dump -v: $(<error)"
wait "$SUBJECT_PID"
for words in "threads stopped, " "state saved, " "pages of memory read, "; do
	grep -q "^sealpoint: ${words}[0-9.]* ms$" error || not_ok "$TEST_NAME/dump -v" "does not tell \"$words\": $(<error)"
done
# One makes the temporary pages writable, and one is of all facets.
grep -q '^sealpoint: 2 batches of system calls made by the program$' error ||
	not_ok "$TEST_NAME/dump -v" "takes more than two batches: $(grep batches error)"
grep -o 'descriptors of kind .*: [0-9]*$' error >kinds || not_ok "$TEST_NAME/dump -v" "does not tell of kinds: $(<error)"
grep -q '^[0-9,]* pages, [0-9.]* [KM]iB of contents, stored as [0-9.]* [KM]iB; [0-9.]* [KM]iB on disk in all$' output ||
	not_ok "$TEST_NAME/dump -v" "does not tell what was stored: $(<output)"
"$sealpoint" restore told --detach -v >output 2>error || die "restore -v: $(<error)"
for words in "files opened, " "memory mapped and filled, " "threads started, "; do
	grep -q "^sealpoint: ${words}[0-9.]* ms$" error || not_ok "$TEST_NAME/restore -v" "does not tell \"$words\": $(<error)"
done
cmp kinds <(grep -o 'descriptors of kind .*: [0-9]*$' error) || not_ok "$TEST_NAME/restore -v" "tells of other kinds: $(<error)"
let_go
expect_pass "$SUBJECT_PID" 20

# --- man pages -----------------------------------------------------------------------------------------

options_of() { # COMMAND
	"$sealpoint" help "$1" | sed -n '/^Options:/,/^$/s/^  \(-[a-zA-Z],\|   \) --\([a-z-]*\).*/\2/p'
}

for page in "$TOP"/docs/man/*.1; do
	name=$(basename "$page" .1)
	mandoc -Tlint -W warning "$page" >lint 2>&1 || not_ok "$TEST_NAME/$name(1)" "$(head -3 lint)"
	command=${name#sealpoint-}
	missing=
	if [[ $command != "$name" ]]; then
		for option in $(options_of "$command"); do
			[[ $option == help ]] || grep -q -e "Fl -$option\b" "$page" || missing+=" --$option"
		done
	fi
	[[ -z $missing ]] || not_ok "$TEST_NAME/$name(1)" "does not tell about$missing"
	[[ -s lint || -n $missing ]] || ok "$TEST_NAME/$name(1)"
done
for command in "${commands[@]}"; do
	[[ -f $TOP/docs/man/sealpoint-$command.1 ]] || not_ok "$TEST_NAME/sealpoint-$command(1)" "there is no such page"
done

# --- completion ----------------------------------------------------------------------------------------

complete_words() { # WORD... : what the last word can become
	bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sealpoint; printf "%s\n" "${COMPREPLY[@]}"' \
		"$TOP/tools/completion/sealpoint.bash" "$sealpoint" "$@" 2>/dev/null | sort | tr '\n' ' '
}

expect_completion() { # EXPECTED WORD...
	local found
	found=$(complete_words "${@:2}")
	if [[ $found == "$1 " ]]; then
		ok "$TEST_NAME/complete ${*:2}"
	else
		not_ok "$TEST_NAME/complete ${*:2}" "gives \"$found\", not \"$1\""
	fi
}

expect_completion "dump" du
expect_completion "restore" re
expect_completion "inspect" help i
expect_completion "--leave-running --leave-stopped" dump 1 --le
expect_completion "--detach" restore saved --d
expect_completion "saved" inspect sav
expect_completion "dump" criu du
expect_completion "--images-dir" criu dump --im
expect_completion "none" dump 1 --compress n

# --- installing ----------------------------------------------------------------------------------------

if make -s -C "$TOP" BUILD="$BUILD" DESTDIR="$TEST_DIR/root" PREFIX=/usr install >make.log 2>&1 &&
	[[ -x root/usr/bin/sealpoint && -f root/usr/share/man/man1/sealpoint-dump.1 &&
		-f root/usr/share/bash-completion/completions/sealpoint ]]; then
	ok "$TEST_NAME/install"
else
	not_ok "$TEST_NAME/install" "$(tail -3 make.log) $(find root -type f)"
fi
