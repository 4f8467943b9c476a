#!/bin/bash
# With a limit of open files that is too low for sealpoint itself, every command says so, in one sentence, and has done
# nothing; so it does where it is started with all but a few of them in use. A program that has reached its own limit is
# named, with the way out. A holder that does not answer holds nobody up for long.
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject working
pid=$SUBJECT_PID
proc_snapshot "$pid" >before

if "$sealpoint" check | grep -q 'yes.*CAP_SYS_RESOURCE'; then
	skip_test "with CAP_SYS_RESOURCE it raises the limit"
fi
failures=0
for limit in 10 12 14 17 20 23 26; do
	for command in "dump $pid -o image --leave-running" "dump $pid -o image --leave-running --live" \
		"pre-dump $pid -o image" "track start $pid" "inspect $pid"; do
		# shellcheck disable=SC2086
		(ulimit -n "$limit" && timeout -k 5 60 "$sealpoint" $command) >output 2>error </dev/null &&
			die "$command succeeds with $limit open files"
		if ! one_sentence error || ! grep -q 'open files are needed.*ulimit' error; then
			die "$command with $limit open files: $(<error)"
		fi
		((++failures))
	done
done
expect_same_snapshot "$pid" before "after commands that failed"
ok "$TEST_NAME/too low" "$failures commands"

# --- all but a few are in use --------------------------------------------------------------------------

cat >many.py <<'P'
import os, resource, sys

left = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
opened = []
try:
    while True:
        opened.append(os.open("/dev/null", os.O_RDONLY))
        os.set_inheritable(opened[-1], True)
except OSError:
    pass
for fd in opened[-left:]:
    os.close(fd)
os.execv(sys.argv[2], sys.argv[2:])
P
for left in 1 3 8 12 20 30 40; do
	for command in "dump $pid -o image --leave-running" "dump $pid -o image --leave-running --live" "track start $pid"; do
		# shellcheck disable=SC2086
		timeout -k 5 60 /usr/bin/python3 many.py "$left" "$sealpoint" $command >output 2>error </dev/null &&
			die "$command succeeds with $left descriptors left"
		if ! one_sentence error || ! grep -q 'open files are needed.*ulimit' error; then
			die "$command with $left descriptors left: $(<error)"
		fi
	done
done
/usr/bin/python3 many.py 100 "$sealpoint" dump "$pid" -o image --leave-running >output 2>error </dev/null || die "with 100 left: $(<error)"
rm -r image
expect_same_snapshot "$pid" before "after commands with few descriptors left"
ok "$TEST_NAME/all but a few are in use"

# --- those of the program ------------------------------------------------------------------------------

exec_alone python3 -c 'import os, resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 100))
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    time.sleep(1000)' </dev/null >full.log 2>&1 &
full=$!
wait_until 20 test -e /proc/$full/fd/39 || die "the program does not open its files: $(<full.log)"
dump "$full" image --leave-running
rm -r image
for command in "dump $full -o image --leave-running --live" "track start $full"; do
	# shellcheck disable=SC2086
	refuses "${command%% *} of a program at its limit" "$sealpoint" $command -- "process $full (python3)" \
		"has reached RLIMIT_NOFILE" "prlimit --pid $full --nofile=44:"
done
# shellcheck disable=SC2046,SC2091 # the command that it names is run, as it stands there
$(grep -o "prlimit --pid [^)]*" error)
dump "$full" image --live
rm -r image

# --- a holder that is stopped --------------------------------------------------------------------------

dump "$pid" image1 --leave-running --track
holder=$("$sealpoint" track status "$pid" --json | sed -n 's/.*"holder": \([0-9]*\).*/\1/p')
kill -STOP "$holder"
timeout -k 5 60 "$sealpoint" dump "$pid" -o image2 --leave-running --parent image1 >output 2>error </dev/null &&
	die "a dump goes on without an answer of the holder"
grep -q "holder .*does not answer; let it go on" error || die "a holder that does not answer: $(<error)"
kill -CONT "$holder"
dump "$pid" image2 --leave-running --parent image1
let_go
wait "$pid" || die "did not pass: $(grep -v READY out | head -n 3)"
ok "$TEST_NAME/a stopped holder"

# --- used up on the way: not taken for the end of the program -------------------------------------------

start_program /usr/bin/python3 -c 'import mmap, time
mappings = [mmap.mmap(-1, 4096) for _ in range(300)]
for mapping in mappings: mapping[0] = 1
open("has_mapped", "w").close()
time.sleep(1000)'
wait_until 20 test -e has_mapped || die "no mappings: $(tail -n 2 program.log)"
(ulimit -n 200 && timeout -k 5 60 "$sealpoint" dump "$PROGRAM_PID" -o image --leave-running) >output 2>error </dev/null &&
	die "300 shared mappings are saved with 200 open files"
grep -q 'Too many open files.*ulimit' error || die "with 300 shared mappings: $(<error)"
is_gone "$PROGRAM_PID" && die "the program has ended"
ok "$TEST_NAME/used up on the way"
