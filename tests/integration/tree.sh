#!/bin/bash
# Trees of processes: a shell pipeline and python's multiprocessing are saved, ended and brought back with nothing lost
# and nothing twice; a storm of processes that begin and end is frozen and runs on; what keeps a tree from being
# restored is found before anything is there.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start() { # COMMAND...: in a session of its own. Sets ROOT.
	exec_alone "$@" </dev/null >out 2>&1 &
	ROOT=$!
}

has_descendants() { # PID COUNT
	(($(descendants "$1" | wc -l) == $2))
}

# Ends a tree, the root first, and waits until all are gone.
end_tree() { # PID
	local pid all
	mapfile -t all < <(echo "$1" && descendants "$1")
	kill -KILL "${all[@]}" 2>/dev/null
	for pid in "${all[@]}"; do
		wait_until 10 is_gone "$pid" || die "process $pid does not end"
	done
}

# The root and all its descendants are gone after a dump; the restore that follows may not be disturbed by their ids.
dump_and_end() { # DIRECTORY [OPTION...]
	local pid all
	mapfile -t all < <(descendants "$ROOT")
	dump "$ROOT" "$@" --kill
	for pid in "$ROOT" "${all[@]}"; do
		wait_until 10 is_gone "$pid" || die "process $pid is there after the dump"
	done
}

has_lines() { # FILE COUNT
	(($(wc -l <"$1") >= $2))
}

# --- a shell pipeline ----------------------------------------------------------------------------------

# Numbers go through two pipes into a file.
# shellcheck disable=SC2016 # the shell that is started expands them
start bash -c 'i=0; while :; do echo $((i++)); read -t 0.001 < /dev/zero; done |
	while read -r n; do echo "$n"; done | while read -r n; do echo "$n" >>numbers; done'
wait_until 10 has_descendants "$ROOT" 3 || die "the pipeline has not begun: $(<out)"
"$sealpoint" inspect "$ROOT" >shown 2>&1 || die "inspect finds something in the way: $(<shown)"
grep -q 'PROCESSES.*4' shown || die "inspect shows no processes: $(<shown)"
lines=0
for round in 1 2 3; do
	wait_until 20 has_lines numbers $((lines + 100)) || die "round $round: the pipeline stands still"
	dump_and_end "pipeline$round"
	lines=$(wc -l <numbers)
	restore_detached "pipeline$round"
done
wait_until 20 has_lines numbers $((lines + 100)) || die "restored, the pipeline stands still"
end_tree "$ROOT"
awk '$1 != NR - 1 { exit 1 }' <(head -n -1 numbers) || die "numbers were lost or came twice"
ok "$TEST_NAME/a shell pipeline" "$(wc -l <numbers) numbers"

# --- python's multiprocessing --------------------------------------------------------------------------

cat >pool.py <<'P'
import multiprocessing, os, time

def square(number):
    time.sleep(0.002)
    return number * number

if __name__ == "__main__":
    done = 0
    with multiprocessing.Pool(3) as pool, open("squares", "w", buffering=1) as squares:
        while not os.path.exists("enough"):
            for result in pool.imap(square, range(done, done + 20)):
                print(result, file=squares)
                done += 1
    print("complete", flush=True)
P
start python3 pool.py
wait_until 20 has_lines squares 50 || die "the pool has not begun: $(<out)"
for round in 1 2 3; do
	dump_and_end "pool$round"
	lines=$(wc -l <squares)
	restore_detached "pool$round"
	wait_until 20 has_lines squares $((lines + 20)) || die "round $round: the pool stands still: $(<out)"
done
touch enough
wait_until 30 is_gone "$ROOT" || die "the pool does not end: $(<out)"
rm enough
grep -q complete out || die "the pool has failed: $(<out)"
awk '$1 != (NR - 1) * (NR - 1) { exit 1 } END { exit NR % 20 != 0 }' squares || die "squares are missing or wrong"
ok "$TEST_NAME/python's multiprocessing"

# --- what is in common --------------------------------------------------------------------------------

# Four children of a process with 32 MiB of noise: a checkpoint has it once, and each of them has all of it again.
cat >noise.py <<'P'
import hashlib, os, signal

noise = os.urandom(32 << 20)
before = hashlib.sha256(noise).digest()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        signal.sigwait([signal.SIGUSR1])
        os._exit(hashlib.sha256(noise).digest() != before)
    children.append(child)
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
for child in children:
    os.kill(child, signal.SIGUSR1)
print(sum(os.waitpid(child, 0)[1] for child in children), flush=True)
P
start python3 noise.py
wait_until 20 grep -q ready out || die "no children: $(<out)"
dump_and_end noise --compress none
(($(du -sm noise | cut -f 1) < 64)) || die "what is in common was stored more than once: $(du -sh noise)"
"$sealpoint" verify noise >/dev/null || die "verify does not like it"
restore_detached noise
kill -USR1 "$ROOT"
wait_until 30 is_gone "$ROOT" || die "the noise does not end: $(<out)"
[[ $(tail -n 1 out) == 0 ]] || die "children have other memory than before: $(<out)"
ok "$TEST_NAME/what is in common is stored once"

# --- a storm -------------------------------------------------------------------------------------------

# Processes begin and end all the time, some that are not collected for a while.
# shellcheck disable=SC2016
start bash -c 'blow() { while :; do (:) & /bin/true; (/bin/true & /bin/true); echo >>"$1"; done; }
	for i in 1 2 3; do blow gusts$i & done; wait'
# All three go on.
expect_storm() { # WHEN
	local i
	for i in 1 2 3; do
		wait_until 20 has_lines gusts$i $(($(wc -l <gusts$i) + 20)) || die "$1, the storm has died down: $(<out)"
	done
}
wait_until 20 test -e gusts1 -a -e gusts2 -a -e gusts3 || die "the storm does not begin: $(<out)"
expect_storm "at first"
for round in {1..8}; do
	dump "$ROOT" "storm$round" --leave-running
	expect_storm "in round $round"
done
[[ -s out ]] && die "the storm complains: $(<out)"
end_tree "$ROOT"
sizes=$(for round in {1..8}; do "$sealpoint" inspect "storm$round" --json | python3 -c '
import json, sys; print(len(json.load(sys.stdin)["processes"]))'; done | tr '\n' ' ')
restore_detached storm8
expect_storm "restored"
end_tree "$ROOT"
ok "$TEST_NAME/a storm" "of $sizes processes"

# --- looking at one ------------------------------------------------------------------------------------

"$sealpoint" verify pool1 >/dev/null || die "verify fails"
worker=$("$sealpoint" inspect pool1 --json | python3 -c '
import json, sys; image = json.load(sys.stdin); print(image["processes"][1]["pid"])')
"$sealpoint" inspect pool1 >shown || die "inspect fails"
grep -q 'PROCESSES.*4' shown || die "inspect shows no processes"
"$sealpoint" inspect pool1 --pid "$worker" | grep -q "python3, process $worker" || die "inspect --pid shows another"
"$sealpoint" core pool1 -o worker.core --pid "$worker" >/dev/null || die "core --pid fails"
readelf -n worker.core 2>/dev/null | grep -q NT_PRSTATUS || die "the core file has no thread"
"$sealpoint" inspect pool1 --pid 1 >shown 2>&1 && die "inspect shows a process that is not there"
grep -q "no living process 1" shown || die "inspect does not say what is wrong: $(<shown)"
"$sealpoint" diff pool1 pool2 >shown 2>&1 && die "diff compares trees"
grep -q "holds 4 processes; say with --pid" shown || die "diff does not say what is wrong: $(<shown)"
"$sealpoint" diff pool1 pool1 --pid "$worker" >shown 2>&1 || die "diff --pid: $(<shown)"
grep -q "say the same" shown || die "a checkpoint is not the same as itself: $(<shown)"
"$sealpoint" diff pool1 pool2 --pid "$worker" --json >shown 2>&1 || die "diff --pid: $(<shown)"
python3 -c 'import json, sys; o = json.load(open("shown")); sys.exit(o["same"] or
	{thread["tid"] for thread in o["threads"]} - {int(sys.argv[1])} != set())' "$worker" ||
	die "diff --pid tells of another process, or of none: $(head -c 300 shown)"
ok "$TEST_NAME/looking at one"

# --- what cannot be restored ---------------------------------------------------------------------------

# Somebody has the id of a child: it is named, and nothing is left.
echo $((worker - 1)) >/proc/sys/kernel/ns_last_pid
sleep 60 &
holder=$!
[[ $holder == "$worker" ]] || die "process id $worker could not be taken"
wait_until 10 grep -q sleep "/proc/$holder/comm"
echo $((worker + 1000)) >/proc/sys/kernel/ns_last_pid # what comes next, sealpoint's own threads too, has none of the ids
"$sealpoint" restore pool1 --detach >shown 2>&1 && die "restored although an id is taken"
grep -q "process id $worker is taken by \"sleep\"" shown || die "does not name the id: $(<shown)"
kill "$holder"
root=$("$sealpoint" inspect pool1 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["process"]["pid"])')
is_gone "$root" || die "a process is left"
ok "$TEST_NAME/an id that is taken"

# --- a restore that fails ------------------------------------------------------------------------------

mapfile -t members < <("$sealpoint" inspect pool1 --json | python3 -c '
import json, sys; [print(process["pid"]) for process in json.load(sys.stdin)["processes"]]')
wait_until 10 is_gone "$worker" || die "process id $worker stays taken"

all_gone() {
	local pid
	for pid in "${members[@]}"; do
		is_gone "$pid" || return 1
	done
}

all_settled() {
	local pid
	for pid in "${members[@]}"; do
		is_gone_or_free "$pid" || return 1
	done
}

# At its last step, when all processes stand as the program's.
mkdir directory
"$sealpoint" restore pool1 --detach --pidfile directory >shown 2>&1 && die "restored without a pid file"
all_gone || die "a restore that failed has left one of ${members[*]}"
ok "$TEST_NAME/a restore that fails"

# Killed at any moment before that, it leaves nobody either; behind it the program runs.
begin=${EPOCHREALTIME/./}
restore_detached pool1
length=$((${EPOCHREALTIME/./} - begin))
end_tree "$root"
wait_until 10 all_gone
restored=0
for round in {1..30}; do
	"$sealpoint" restore pool1 --detach >shown 2>&1 </dev/null &
	restorer=$!
	sleep "$(printf '%d.%06d' 0 $((length * round / 35)))"
	kill -KILL "$restorer" 2>/dev/null
	wait "$restorer" 2>/dev/null
	wait_until 20 all_settled || die "round $round: left what does not run"
	if ! all_gone; then
		has_descendants "$root" $((${#members[@]} - 1)) || die "round $round: left a part of the tree"
		((++restored))
		end_tree "$root"
		wait_until 10 all_gone
	fi
done
((restored < 30)) || die "no restore was killed in time"
ok "$TEST_NAME/a restore that is killed" "30 killed, $restored of them when the program ran already"
