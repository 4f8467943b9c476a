#!/bin/bash
# Snapshots of a program that writes all the time: the newest can be restored at any time, also after sealpoint was killed
# at whatever moment; old ones go; a store is gone on with.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

start_subject writing
pid=$SUBJECT_PID

members() { find store -maxdepth 1 -regex 'store/[0-9]*' | sort; }

# Makes some, from one that stands on the newest where the session allows it.
snapshot() { # COUNT [OPTION...]
	"$sealpoint" snapshot "$pid" -o store --every 20ms --share 100 --count "$1" "${@:2}" >snapshot.log 2>&1 ||
		die "snapshot: exit status $?: $(tail -n 3 snapshot.log)"
}

snapshot 16 --keep 3 --max-chain 5
[[ $(grep -c 'frozen' snapshot.log) == 16 ]] || die "not a line for each: $(<snapshot.log)"
count=$(members | wc -l)
((count >= 3 && count <= 14)) || die "$count members are left of 16 with --keep 3 --max-chain 5"
[[ $(readlink store/latest) == 00000016 ]] || die "latest is $(readlink store/latest)"
oldest=$(members | head -n 1)
ok "$TEST_NAME/old ones are merged and removed" "$count left of 16, the oldest is $oldest"

is_untracked() { "$sealpoint" track status "$pid" >status.log 2>&1 && grep -q 'not tracked' status.log; }
is_untracked || die "the session is left behind"
snapshot 2 --keep 3 --max-chain 50
[[ $(readlink store/latest) == 00000018 ]] || die "the store is not gone on with: $(readlink store/latest)"
ok "$TEST_NAME/a store is gone on with"

# However often they are asked for. The last one is not waited for, nor is time counted finely: twice the share.
TIMEFORMAT='%R %U %S'
used=$({ time snapshot 4 --every 1ms --share 8 --keep 3 --max-chain 50; } 2>&1) || die "$used"
awk -v processors="$(nproc)" '{ exit !($2 + $3 <= 2 * 0.08 * $1 * processors) }' <<<"$used" ||
	die "with --share 8, on $(nproc) processors: real, user and system time $used"
ok "$TEST_NAME/no more of the machine is taken than allowed" "real, user, system: $used"

# A store that would be empty is not left behind; one that was there is.
failing() { # STORE
	"$sealpoint" snapshot 4999999 -o "$1" >failing.log 2>&1 && die "a snapshot of nobody"
	grep -q 'there is no process 4999999' failing.log || die "refused with: $(<failing.log)"
}
failing new
mkdir old
failing old
[[ ! -e new && -d old ]] || die "after a first snapshot that fails there is: $(ls -d new old)"
ok "$TEST_NAME/no store without a snapshot"

# Others see its session, and it ends with the command, also when that is killed.
for signal in TERM KILL; do
	rm -f seen.log # of the last round, which it would be taken for
	"$sealpoint" snapshot "$pid" -o seen --every 10ms --share 100 >seen.log 2>&1 &
	victim=$!
	wait_until 20 grep -q frozen seen.log || die "no snapshot: $(<seen.log)"
	is_untracked && die "the session of a snapshot that is running is not seen: $(tail -n 2 seen.log status.log)"
	"$sealpoint" dump "$pid" -o other --leave-running >other.log 2>&1 && die "a dump in between"
	refused_for_another_command other.log "$pid" || die "refused with: $(<other.log)"
	kill -s "$signal" "$victim"
	wait "$victim" 2>/dev/null
	wait_until 10 is_untracked || die "after SIG$signal the session is left behind"
	rm -r seen
done
ok "$TEST_NAME/others see its session"

# A second one in the same store is refused; the first is killed, again and again, at no particular moment.
for ((i = 0; i < 8; i++)); do
	rm -f killed.log
	"$sealpoint" snapshot "$pid" -o store --every 1ms --share 100 --keep 2 --max-chain 2 >killed.log 2>&1 &
	victim=$!
	wait_until 20 grep -q frozen killed.log || die "no snapshot: $(<killed.log)"
	if ((i == 0)); then
		"$sealpoint" snapshot "$pid" -o store >second.log 2>&1 && die "two in one store"
		grep -q 'another process is making snapshots in it' second.log || die "refused with: $(<second.log)"
	fi
	sleep "0.0$((i * 8 % 10))"
	kill -9 "$victim"
	wait "$victim"
	newest=$(members | tail -n 1)
	"$sealpoint" verify "$newest" >verify.log 2>&1 || die "after a kill, $newest: $(tail -n 1 verify.log)"
done 2>/dev/null
ok "$TEST_NAME/the newest is whole after a kill"

snapshot 1 --keep 2 --max-chain 2
[[ -z $(find store -name '*.partial-*' -o -name '.removed-*') ]] || die "left behind: $(ls -A store)"
ok "$TEST_NAME/what a killed one has left is removed"

# The end of the program is the end of its snapshots, and no failure, whatever was just being done.
halt_at "pwrite64:*/00000002.partial-*/pages.img" "$sealpoint" snapshot "$pid" -o ended --every 1ms --share 100 >ended.log 2>&1
kill -9 "$pid"
proceed
wait "$HALTED" || die "the program has ended, and the snapshots end with status $?: $(tail -n 1 ended.log)"
[[ $(readlink ended/latest) == 00000001 ]] || die "there is another snapshot: $(ls ended)"
wait "$pid" 2>/dev/null
ok "$TEST_NAME/the program ends"
mapfile -t images < <(members)
expect_restored "$pid" "${images[@]}"
ok "$TEST_NAME/every member is restored"
