#!/bin/bash
# What `sealpoint watch` counts is what was written, page by page; it leaves the program, and a session that somebody
# keeps, as they were; its plot is well-formed; and it tells when the program ends or becomes another one.
#
# timeout: 180
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject watched
pid=$SUBJECT_PID
steps=0

# One round of writes by the subject.
step() {
	printf s >>go
	steps=$((steps + 1))
	wait_until 20 grep -q "^STEP $steps\$" out || die "step $steps is not done"
}

has_lines() { (($(wc -l <"$1") >= $2)); }

# Waits until an interval that had not begun yet has been printed.
next_intervals() { # FILE
	local lines
	lines=$(wc -l <"$1")
	wait_until 20 has_lines "$1" $((lines + 2)) || die "watch prints no more: $(tail -n 2 "$1" watch.err)"
}

# Starts a watch in the background as a shell in a terminal would: Ctrl-C is not ignored. Sets WATCH_PID.
start_watch() { # FILE ARGUMENT...
	setpriv --pdeathsig KILL python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$sealpoint" watch "${@:2}" >"$1" 2>watch.err </dev/null &
	WATCH_PID=$!
	wait_until 20 has_lines "$1" 1 || die "watch prints nothing: $(<watch.err)"
}

# Ends it by Ctrl-C, which is no failure.
end_watch() {
	kill -INT "$WATCH_PID"
	wait "$WATCH_PID" || die "after Ctrl-C watch ends with status $?: $(<watch.err)"
}

is_registered() { grep -q '^VmFlags:.* u[wm] ' "/proc/$1/smaps"; }
not_registered() { ! is_registered "$1"; }

cat >sums.py <<'P'
# Prints "NAME SUM" of all pages that were dirtied in the mapping of each name, in all lines of a file.
import json, sys
sums = dict.fromkeys(["dense", "sparse", "idle", "reserved"], 0)
for line in open(sys.argv[1]):
    sample = json.loads(line)
    assert sample["dirtied_pages"] == sum(m["dirtied_pages"] for m in sample["mappings"]), line
    assert all(sum(m["cells"]) == m["written_pages"] for m in sample["mappings"]), line
    for mapping in sample["mappings"]:
        for name in sums:
            if name in mapping["what"]:
                sums[name] += mapping["dirtied_pages"]
print(*(f"{name} {sums[name]}" for name in sums))
P

expect_sums() { # CASE FILE SUMS
	local sums
	sums=$(python3 sums.py "$2" 2>&1) || die "$1: $sums"
	[[ $sums == "$3" ]] || die "$1: counted $sums, not $3"
	ok "$TEST_NAME/$1" "$sums"
}

# --- a session of its own -------------------------------------------------------------------------------

step
start_watch own.json "$pid" --json --interval 50ms --plot plot.svg
next_intervals own.json
for _ in 1 2 3 4 5; do
	step
	next_intervals own.json
done
end_watch
expect_sums "pages" own.json "dense 320 sparse 35 idle 0 reserved 15"
not_registered "$pid" || die "the session is still there"
[[ $("$sealpoint" track status "$pid" --json) == *'"tracked": false'* ]] || die "a session is kept"
ok "$TEST_NAME/the session has ended"

python3 - plot.svg <<'P' >complaint 2>&1 || die "the plot: $(<complaint)"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
text = " ".join(root.itertext())
assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
for word in ["dense", "sparse", "reserved", "iB/s", "pages/s", " s", "watched"]:
    assert word in text, f"no {word}"
assert not any("script" in element.tag for element in root.iter())
assert len([e for e in root.iter() if e.get("class") == "rate"]) == 1
P
ok "$TEST_NAME/plot"

start_watch killed.json "$pid" --json --interval 10ms
is_registered "$pid" || die "nothing is registered while watched"
kill -KILL "$WATCH_PID"
wait "$WATCH_PID" 2>/dev/null
wait_until 10 not_registered "$pid" || die "a watch that was killed leaves the memory registered"
step
ok "$TEST_NAME/killed"

# --- a session that is kept -----------------------------------------------------------------------------

dump "$pid" c0 --leave-running --track
before=$("$sealpoint" track status "$pid" --json | grep -E '"(session|generation)"')
start_watch held.json "$pid" --json --interval 20ms
for _ in 1 2 3; do
	step
	next_intervals held.json
done
end_watch
expect_sums "a held session is only read" held.json "dense 64 sparse 7 idle 0 reserved 3"
after=$("$sealpoint" track status "$pid" --json | grep -E '"(session|generation)"')
[[ $before == "$after" ]] || die "the session has changed from $before to $after"
: >dump.log
dump "$pid" c1 --leave-running --parent c0
grep -q 'full contents' dump.log && die "the next delta is none: $(<dump.log)"
"$sealpoint" track stop "$pid" >>dump.log
ok "$TEST_NAME/the next delta"

# --- a tree ---------------------------------------------------------------------------------------------

# One that writes, with a child that does; a third begins while they are watched, and one ends.
cat >tree.sh <<'S'
"$1" <go.tree >>out.tree &
while [[ ! -e begin ]]; do sleep 0.05; done
"$1" <go.third >>out.third &
wait
S
: >go.tree
: >go.third
exec_alone bash tree.sh "$subjects/watched" </dev/null >tree.log 2>&1 &
tree=$!
wait_until 20 grep -q READY out.tree || die "the child is not ready: $(<tree.log)"

tree_step() { # NAME COUNT
	printf s >>"go.$1"
	wait_until 20 grep -q "^STEP $2\$" "out.$1" || die "step $2 of the $1 is not done"
}

cat >tree.py <<'P'
# Prints "dense SUM" for each process that was watched, in the order of their ids.
import json, sys
sums, begun, ended = {}, 0, 0
for line in open(sys.argv[1]):
    sample = json.loads(line)
    begun, ended = begun + sample["begun"], ended + sample["ended"]
    for name in ["dirtied_pages", "written_pages", "tracked_bytes", "resident_bytes"]:
        assert sample[name] == sum(process[name] for process in sample["processes"]), (name, line)
    assert sample["dirtied_pages"] == sum(m["dirtied_pages"] for m in sample["mappings"]), line
    assert sample["pid"] == sample["processes"][0]["pid"], line
    for mapping in sample["mappings"]:
        assert mapping["pid"] in [process["pid"] for process in sample["processes"]], line
        if "dense" in mapping["what"]:
            sums[mapping["pid"]] = sums.get(mapping["pid"], 0) + mapping["dirtied_pages"]
print(*(f"dense {sums[pid]}" for pid in sorted(sums)), f"begun {begun >= 1} ended {ended >= 1}")
P
start_watch tree.json "$tree" --json --interval 50ms
next_intervals tree.json
tree_step tree 1
next_intervals tree.json
: >begin
wait_until 20 grep -q READY out.third || die "the third is not ready: $(<tree.log)"
is_watched_too() { tail -n 1 tree.json | grep -q "\"pid\":$1,\"time_s\""; }
third=$(pgrep -P "$tree" -n -x watched)
next_intervals tree.json # what it was before execve(2) may have been watched
wait_until 20 is_watched_too "$third" || die "the third is not watched"
next_intervals tree.json
# It may have been watched already when it made its memory.
head -n "$(wc -l <tree.json)" tree.json >so_far.json
sums=$(python3 tree.py so_far.json 2>&1) || die "the tree: $sums"
[[ $sums =~ ^dense\ 64(\ dense\ ([0-9]+))?\ begun ]] || die "the tree: counted $sums after its first step"
early=${BASH_REMATCH[2]:-0}
tree_step tree 2
tree_step third 1
next_intervals tree.json
kill -KILL "$third"
has_ended() { ! is_watched_too "$third"; }
wait_until 20 has_ended || die "the third has ended, and is watched"
end_watch

sums=$(python3 tree.py tree.json 2>&1) || die "the tree: $sums"
[[ $sums == "dense 128 dense $((early + 64)) begun True ended True" ]] || die "the tree: counted $sums, $early of them early"
wait_until 10 not_registered "$tree" || die "the session of the root is left"
wait_until 10 not_registered "$(pgrep -P "$tree" -o -x watched)" || die "the session of the child is left"
"$sealpoint" watch "$tree" -i 20ms -n 1 >table </dev/null || die "a table: status $?"
for words in 'and 1 descendant,' 'PID .*PAGES/S .*NAME'; do
	grep -q "$words" table || die "the table of a tree: $(<table)"
done
ok "$TEST_NAME/a tree" "$sums"
kill -KILL "$(pgrep -P "$tree" -o -x watched)" "$tree"

# --- for people -----------------------------------------------------------------------------------------

"$sealpoint" watch "$pid" -i 20ms -n 2 >table </dev/null || die "a table: status $?"
(($(grep -c 'KEEPS UP FROM' table) == 2)) || die "not two tables: $(<table)"
grep -q $'\033' table && die "a file has escape sequences: $(<table)"
ok "$TEST_NAME/not a terminal"

on_terminal() { # FILE
	script -q -e -c "stty rows 24 cols 90; TERM=xterm LC_ALL=C.UTF-8 $sealpoint watch $pid -i 20ms -n 3" "$1" \
		>/dev/null </dev/null || die "on a terminal: status $?"
}
on_terminal colours
NO_COLOR=1 on_terminal plain
grep -q $'\033\[0;2m·' colours || die "no colours"
grep -q $'\033\[[0-9;]*m' plain && die "colours in spite of NO_COLOR"
(($(grep -c $'\033\[[0-9]*A' plain) == 2)) || die "it is not redrawn in place"
ok "$TEST_NAME/terminal"

wrong() { # WORDS ARGUMENT...
	"$sealpoint" watch "${@:2}" >error 2>&1 </dev/null && die "watch ${*:2} is taken"
	grep -q -e "$1" error || die "watch ${*:2} says: $(<error)"
}
wrong "PID is missing"
wrong "--interval takes at least 10ms" "$pid" -i 1ms
wrong "cannot create no/where.svg: No such file" "$pid" --plot no/where.svg -n 1
wrong "cannot create \.: Is a directory" "$pid" --plot . -n 1
wrong "there is no process 4999999" 4999999
ok "$TEST_NAME/what is wrong"

# --- the program ----------------------------------------------------------------------------------------

cat >other.py <<'P'
import os, time
while not os.path.exists("go2"):
    time.sleep(0.02)
os.execvp("sleep", ["sleep", "1000"])
P
start_program python3 other.py
start_watch exec.json "$PROGRAM_PID" --json --interval 20ms
: >go2
wait_until 20 grep -q '"events":\["exec"\]' exec.json || die "no exec is told: $(tail -n 1 exec.json)"
next_intervals exec.json
end_watch
not_registered "$PROGRAM_PID" || die "the session of the new program is still there"
ok "$TEST_NAME/another program"

start_watch ended "$pid" --interval 60m --plot ended.svg &
wait_until 20 is_registered "$pid" || die "not watched"
kill -KILL "$pid"
wait_until 20 grep -q "process $pid has ended" ended || die "no end is told: $(cat ended watch.err)"
ok "$TEST_NAME/the end"
