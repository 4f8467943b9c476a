#!/bin/bash
# `sealpoint inspect PID`: a running process is shown as a dump would save it, with all that stands in the way of one, and
# runs on as it was. (Mode "running" of every subject asks the same, and finds nothing in the way.)
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

inspect() { # STATUS OPERAND [OPTION...]: output and error are in files
	local status=0
	timeout 60 "$sealpoint" inspect "${@:2}" >output 2>error </dev/null || status=$?
	((status == $1)) || die "inspect ${*:2}: exit status $status, not $1: $(head -c 300 error output)"
}

says() { # CASE WORDS
	grep -q -e "$2" <(tr '\n' ' ' <output | tr -s ' ') || die "$1: does not say \"$2\": $(<output)"
}

# --- as a dump would save it ---------------------------------------------------------------------------

start_subject writing
pid=$SUBJECT_PID
inspect 0 "$pid"
says "a subject" "writing, process $pid"
says "a subject" "Nothing stands in the way of a dump"
for words in THREADS MAPPINGS "\[stack\]" DESCRIPTORS STATE; do says "a subject" "$words"; done
cat >compare.py <<'P'
import json, sys
live, saved = json.load(open("live.json")), json.load(open("saved.json"))
assert live["can_be_saved"] and not live["refusals"] and live["stopped_ns"] > 0
def without_pages(mappings): return [{k: v for k, v in m.items() if k != "pages"} for m in mappings]
assert without_pages(live["mappings"]) == without_pages(saved["mappings"]), "mappings"
for part in "descriptors", "open_files":
    assert live[part] == saved[part], part
def same(what, mine, its): assert mine == its, f"{what}: {mine}, not {its}"
def names(state): return [facet["name"] for facet in state]
same("process", names(live["process"]["state"]), names(saved["process"]["state"]))
same("threads", [t["tid"] for t in live["threads"]], [t["tid"] for t in saved["threads"]])
for mine, its in zip(live["threads"], saved["threads"]):
    same("thread", names(mine["state"]), names(its["state"]))
for mine, its in zip(live["mappings"], saved["mappings"]):
    same("pages of " + mine["start"], sum(mine["pages"].values()), sum(its["pages"].values()))
if len(sys.argv) > 1: # it does not write: zeros are contents, too, as long as nobody has read them
    counts = [sum(o["pages"]["states"][state] for state in ("data", "zero")) for o in (live, saved)]
    assert abs(counts[0] - counts[1]) <= 8, f"pages of its own: {counts}"
P
look_twice() { # DIRECTORY [quiet]
	inspect 0 "$pid" --json
	mv output live.json
	dump "$pid" "$1" --leave-running
	inspect 0 "$1" --json
	mv output saved.json
	python3 compare.py "${@:2}" 2>error || die "inspect and dump differ: $(tail -n 1 error)"
}
look_twice image
ok "$TEST_NAME/as a dump would save it"

# A session goes on, and what it has found is not lost.
dump "$pid" t0 --leave-running --track
inspect 0 "$pid"
says "tracked" "Nothing stands in the way of a dump"
: >dump.log
dump_and_reap "$pid" t1 --parent t0
! grep -q 'full contents' dump.log || die "after a look, t1 is no delta: $(<dump.log)"
expect_restored "$pid" image t1
ok "$TEST_NAME/a tracked process"

start_subject pages
pid=$SUBJECT_PID
look_twice quiet quiet
let_go
wait "$pid" || die "after a look, the subject ends with $?: $(<out)"
ok "$TEST_NAME/pages are counted"

# --- what stands in the way ----------------------------------------------------------------------------

cat >odd.py <<'P'
import os, socket, time
event, init = os.eventfd(3), os.pidfd_open(1)
rules = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
one, other = socket.socketpair()
one.send(b"unread")
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
os._exit(0 if os.read(event, 8)[0] == 3 and client.send(b"x") == 1 and peer.recv(1) == b"x" else 1)
P
exec_alone python3 odd.py </dev/null >>program.log 2>&1 &
odd=$!
rm -f go
wait_until 20 test -e ready || die "odd.py: $(<program.log)"
inspect 1 "$odd"
says "all at once" "descriptor 4 of process $odd (pidfd .*): it refers to process 1 (.*), which is not saved along"
says "all at once" "descriptor 5 of process $odd (.*): the kernel may keep rules or queues for a netlink socket of protocol 12"
says "all at once" "connection from .* is established; .* --tcp-close"
says "all at once" "IN THE WAY OF A DUMP 4"
says "what is refused is shown, too" "eventfd *count 3"
says "a pair of sockets" "connected to the file #[0-9]*, 0 messages to read"
says "a pair of sockets" "connected to the file #[0-9]*, 1 message to read"
"$sealpoint" dump "$odd" -o odd --leave-running >output 2>error && die "odd.py can be dumped"
refusal=$(sed 's/^sealpoint: //' error)
inspect 1 "$odd" --json
python3 -c 'import json, sys; o = json.load(open("output"))
sys.exit(not (not o["can_be_saved"] and sys.argv[1] in [r["message"] for r in o["refusals"]]))' "$refusal" ||
	die "what a dump says is not in the list: $refusal"
inspect 1 "$odd" --tcp-close
says "with --tcp-close" "IN THE WAY OF A DUMP 2"
inspect 1 "$odd" --tcp-established
says "with --tcp-established" "IN THE WAY OF A DUMP 2"
says "with --tcp-established" "connection to 127.0.0.1:[0-9]* established, "
: >go
wait "$odd" || die "after a look, odd.py ends with $?: $(<program.log)"
ok "$TEST_NAME/all that stands in the way"

inspect 1 99999
grep -q 'no process 99999' error || die "no process: $(<error)"
inspect 1 $$
says "its own ancestors are no exception" "IN THE WAY OF A DUMP"
ok "$TEST_NAME/others"

# --- killed while it looks -----------------------------------------------------------------------------

start_subject threads
pid=$SUBJECT_PID
proc_snapshot "$pid" maps >before
# A stack may be larger than it was: docs/architecture.md, "Acting inside another process".
mappings() { proc_mappings "$pid" | grep -v '\[stack\]'; }
mappings >mappings_before
same_mappings() { mappings | cmp -s - mappings_before; }
hits=0
for ((i = 0; i < 40; i++)); do
	"$sealpoint" inspect "$pid" >/dev/null 2>&1 &
	sleep "0.0$(printf %03d $((i * 12)))"
	kill -9 $! 2>/dev/null
	status=0
	wait $! || status=$?
	((hits += status == 137))
	[[ $(state_of "$pid") != [Tt] ]] || wait_until 5 eval "[[ \$(state_of $pid) != [Tt] ]]" || die "kill $i: it is stopped"
done 2>/dev/null
expect_same_snapshot "$pid" before "after 40 kills" maps
wait_until 5 same_mappings || die "after 40 kills, mappings differ: $(mappings | diff mappings_before -)"
let_go
wait "$pid" || die "after 40 kills, the subject ends with $?: $(<out)"
((hits)) || die "none of 40 kills came in time"
ok "$TEST_NAME/killed while it looks" "$hits times"

# --- a directory of that name --------------------------------------------------------------------------

start_subject basic
pid=$SUBJECT_PID
inspect 1 "./$pid"
grep -q "cannot open checkpoint ./$pid" error || die "a path is taken for a process: $(<error)"
mv image "$pid"
inspect 0 "$pid"
says "the directory wins" "writing, process"
inspect 0 "./$pid"
let_go
wait "$pid" || die "after a look, the subject ends with $?: $(<out)"
ok "$TEST_NAME/a directory of that name"
