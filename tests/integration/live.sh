#!/bin/bash
# Live dumps of a program that writes faster than it can be copied. Its memory is held as it was at the freeze and
# saved while it runs on: every image is restored and finds each page as its twin, and the program itself notices
# nothing, whatever it does with the memory meanwhile and whatever becomes of the dump.
#
# timeout: 900
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# Without these areas the kernel touches the words that tell of a thread's end when that happens, and not before.
export GLIBC_TUNABLES=glibc.pthread.rseq=0

start() { # NAME [ARGUMENT...]
	mkdir "$1" && cd "$1" || exit 1
	start_subject hasty "${@:2}"
	pid=$SUBJECT_PID
}

finish() {
	let_go
	expect_pass "$pid" 60
	cd ..
}

# Ends the subject, and restores each image, to end as well.
restore_and_finish() { # IMAGE...
	let_go
	expect_pass "$pid" 60
	expect_restored "$pid" "$@"
	cd ..
}

# A busy machine may keep the subject from writing faster than it is copied: then once more. Sets next, a number, and out.
held_dump() { # PREFIX [OPTION...]
	for ((; next < 20; next++)); do
		out=$("$sealpoint" dump "$pid" -o "$1$next" --leave-running --json "${@:2}" 2>>dump.log) ||
			die "dump: exit status $?: $(tail -n 3 dump.log)"
		[[ $out =~ '"held_bytes": '[1-9] ]] && return
	done
	die "memory was never held: $(tail -n 3 dump.log)"
}

start "written" discard read thread
next=1
held_dump image --live
next=$((next + 1))
held_dump image --live --compress none
restore_and_finish image*
ok "$TEST_NAME/as it was at the freeze" "$next dumps"

# The freeze does not grow with memory: what is held was protected before, but for what was written at last, in a
# program that discards, too.
start "ahead" discard
next=1
for ((tries = 1; tries <= 10; tries++)); do
	held_dump image --live
	next=$((next + 1))
	((held = $(sed -n 's/.*"held_bytes": \([0-9]*\).*/\1/p' <<<"$out")))
	((late = $(sed -n 's/.*"protected_bytes": \([0-9]*\).*/\1/p' <<<"$out")))
	((late * 8 < held)) && break
done
((late * 8 < held)) || die "of $held bytes, $late were protected in the freeze: $(tail -n 3 dump.log)"
restore_and_finish image*
ok "$TEST_NAME/protected ahead of the freeze" "all but $late of $held bytes, at the dump number $tries"

start "chain" discard
dump "$pid" c0 --leave-running --track
for ((next = 1; next < 20; next++)); do
	out=$("$sealpoint" dump "$pid" -o "c$next" --leave-running --json --parent "c$((next - 1))" 2>>dump.log) ||
		die "dump: exit status $?: $(tail -n 3 dump.log)"
	[[ $out =~ '"held_bytes": '[1-9] ]] && ((next > 1)) && break
done
((next < 20)) || die "memory was never held"
dump "$pid" "c$((next + 1))" --leave-running --parent "c$next"
grep -q 'full contents' dump.log && die "no delta: $(<dump.log)"
restore_and_finish c1 "c$next" "c$((next + 1))"
ok "$TEST_NAME/with a parent" "$next dumps"

# Of a tree, the memory of each process is held, whether or not the first writes any. Each finds its own as it was.
start_tree() { # NAME COMMANDS
	mkdir "$1" && cd "$1" || exit 1
	: >go
	: >out
	exec_alone bash -c "$2" "$subjects/hasty" </dev/null >/dev/null 2>&1 &
	pid=$!
	wait_until 60 both_are READY || die "two are not ready: $(<out)"
}
both_are() { (($(grep -c "^$1\$" out) == 2)); }
restore_tree_and_finish() { # IMAGE...
	let_go
	expect_pass "$pid" 60
	for image in "$@"; do
		both_are PASS || die "one of the tree has not passed: $(<out)"
		expect_restored "$pid" "$image"
	done
	both_are PASS || die "one of the tree has not passed after the restore: $(<out)"
	cd ..
}
hold_tree() { # BYTES EIGHTHS: so many are held, and fewer of them protected in the freeze. Sets held, late, tries.
	next=1
	for ((tries = 1; tries <= 10; tries++)); do
		held_dump image --live
		next=$((next + 1))
		((held = $(sed -n 's/.*"held_bytes": \([0-9]*\).*/\1/p' <<<"$out")))
		((late = $(sed -n 's/.*"protected_bytes": \([0-9]*\).*/\1/p' <<<"$out")))
		((held >= $1 && late * 8 <= held * $2)) && return
	done
	die "of two processes, $held bytes were held, and $late of them protected in the freeze: $(tail -n 3 dump.log)"
}
# shellcheck disable=SC2016 # the shell that is started expands it
start_tree "tree" '"$0" <go >>out 2>&1 & "$0" read <go >>out 2>&1 & wait'
hold_tree $((200 << 20)) 1
restore_tree_and_finish image*
ok "$TEST_NAME/each process of a tree" "all but $late of $held bytes ahead of the freeze, at the dump number $tries"

# One ends threads all the time, and is protected in the freeze; that of the other is done before all the same.
# shellcheck disable=SC2016 # the shell that is started expands it
start_tree "mixed" '"$0" discard <go >>out 2>&1 & "$0" thread <go >>out 2>&1 & wait'
hold_tree $((200 << 20)) 8
restore_tree_and_finish image*
ok "$TEST_NAME/one of a tree ends threads" "$held bytes, at the dump number $tries"

# What is unmapped or moved before it was saved is lost to the hold: the dump begins again.
start "remapped" discard remap
for i in 1 2 3; do dump "$pid" "image$i" --leave-running --live; done
again=$(grep -c 'saved once more' dump.log)
restore_and_finish image1 image2 image3
ok "$TEST_NAME/unmapped and moved meanwhile" "$again of 3 dumps began again"

# The freeze waits for a child that lives; others must not disturb.
start "forked" fork
dump "$pid" image --leave-running --live --timeout 60
restore_and_finish image
ok "$TEST_NAME/children meanwhile"

# One that may not make such a userfaultfd itself is handed one, and keeps nothing of it.
start_as_nobody() { # NAME [ARGUMENT...]
	mkdir "$1" && cd "$1" || exit 1
	: >go
	: >out
	chown -R nobody "$TEST_DIR"
	exec_alone setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups \
		"$subjects/hasty" "${@:2}" <go >>out 2>&1 &
	pid=$!
	wait_until 60 ready_or_gone "$pid"
	is_gone "$pid" && die "not ready: $(<out)"
}
start_as_nobody "nobody" discard read
proc_snapshot "$pid" | grep '^fd ' >before
next=1
held_dump image --live
diff before <(proc_snapshot "$pid" | grep '^fd ') >fds || die "descriptors differ: $(<fds)"
restore_and_finish image*
ok "$TEST_NAME/without privileges"

# Nothing is left of dumps that are killed, whenever that is. The dump is of the first. Sets length_ms.
kill_dumps() { # PID...
	length_ms=$("$sealpoint" dump "$1" -o measured --leave-running --live --json 2>>dump.log |
		sed -n 's/.*"total_ns": \([0-9]*\).*/\1/p' | sort -n | tail -n 1) # of the freeze, and of all
	length_ms=$((length_ms / 1000000))
	((length_ms > 0)) || die "a dump could not be measured"
	rm -rf measured
	for ((i = 0; i < ${LIVE_KILLS:-20}; i++)); do
		"$sealpoint" dump "$1" -o image --leave-running --live >>dump.log 2>&1 &
		moment=$((RANDOM % length_ms))
		sleep "$((moment / 1000)).$(printf '%03d' $((moment % 1000)))"
		kill -KILL $! 2>/dev/null
		wait $! 2>/dev/null
		rm -rf image image.partial*
	done
	for process in "$@"; do
		[[ $(state_of "$process") != [tT] ]] || die "process $process is stopped"
		# What the last of them had it do is done when it gets to run.
		wait_until 20 has_no_userfaultfd "$process" || die "a userfaultfd was left in process $process"
		wait_until 20 is_untracked "$process" || die "a session of process $process was left"
	done
}
has_no_userfaultfd() { ! readlink "/proc/$1/fd"/* | grep -q userfaultfd; }
is_untracked() { "$sealpoint" track status "$1" --json | grep -m 1 '"tracked"' | grep -q false; }

# shellcheck disable=SC2016 # the shell that is started expands it
start_tree "killed_tree" '"$0" discard thread <go >>out 2>&1 & "$0" read <go >>out 2>&1 & wait'
read -r -a processes < <(echo "$pid" "$(<"/proc/$pid/task/$pid/children")")
((${#processes[@]} == 3)) || die "the tree is ${processes[*]}"
kill_dumps "${processes[@]}"
let_go
expect_pass "$pid" 60
both_are PASS || die "one of the tree has not passed: $(<out)"
cd ..
ok "$TEST_NAME/of a tree, killed at any moment"

start "killed" discard read thread
kill_dumps "$pid"
finish
ok "$TEST_NAME/killed at any moment"

start "full" discard read
mkdir small
mount -t tmpfs -o size=40m tmpfs small || die "cannot mount a tmpfs"
status=0
"$sealpoint" dump "$pid" -o small/image --leave-running --live --compress none >dump.log 2>&1 || status=$?
((status == 1)) || die "a full disk: exit status $status"
grep -q 'No space left' dump.log || die "a full disk: $(<dump.log)"
[[ -z $(ls -A small) ]] || die "left $(ls -A small)"
umount small
finish
ok "$TEST_NAME/a full disk"

# While a session is made, in the rounds, in the freeze, or while it is held.
moments=("ptrace" "ptrace,9" "process_vm_writev" "process_vm_writev,10" "pwrite64:*/pages.img"
	"pwrite64,9:*/pages.img" "pwrite64,50:*/pages.img")
for ((i = 0; i < ${#moments[@]}; i++)); do
	start "ended$i" discard
	halt_at "${moments[i]}" "$sealpoint" dump "$pid" -o image --leave-running --live --quiet >dump.log 2>&1
	kill -KILL "$pid"
	proceed
	if wait "$HALTED"; then
		"$sealpoint" verify image >>dump.log 2>&1 || die "verify: $(tail -n 1 dump.log)"
	else
		one_sentence dump.log || die "not one sentence: $(<dump.log)"
		grep -q "process $pid (hasty) has ended before it was saved" dump.log || die "${moments[i]}: $(<dump.log)"
		[[ ! -e image ]] || die "there is an image"
	fi
	[[ -z $(ls -d image.partial* 2>/dev/null) ]] || die "left $(ls -d image.partial*)"
	cd ..
done
ok "$TEST_NAME/the program ends"
