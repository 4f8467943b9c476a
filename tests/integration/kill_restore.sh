#!/bin/bash
# A restore that is killed at any moment leaves no process, and no file that was not there before; the next one brings the
# program back. Of programs whose restore makes files, or has to give them a name for a moment.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# Restores that are to be killed of each; one that ends before its kill is not counted, but is checked as well.
kills=${KILL_RESTORE_KILLS:-15}

# Every name below the directory of a subject but those of sockets: they are removed and bound anew, and whatever a
# restore left of that, the next one takes away.
names() {
	find . -path ./image -prune -o ! -type s -printf '%y %p\n' | grep -v -E '\./(names.*|restore.log|error|output)$' | sort
}

killed() { # SUBJECT
	local name=$1 pid round hits=0 restoring status
	mkdir "$name" && cd "$name" || exit 1
	TEST_DIR=$PWD start_subject "$name"
	pid=$SUBJECT_PID
	dump_and_reap "$pid" image
	names >names.before
	for ((round = 0; hits < kills && round < 20 * kills; round++)); do
		"$sealpoint" restore image --detach >output 2>error </dev/null &
		restoring=$!
		sleep "0.0$(printf %02d $((RANDOM % 40)))"
		kill -KILL "$restoring" 2>/dev/null
		status=0
		wait "$restoring" 2>/dev/null || status=$?
		((hits += status == 137))
		((status == 0 || status == 137)) || die "$name: exit status $status: $(<error)"
		wait_until 20 is_gone_or_free "$pid" || die "$name: left what does not run"
		# Killed too late, or never reached: then the program is all there.
		if ((status == 0)) || ! is_gone "$pid"; then
			let_go
			expect_pass "$pid" 30
			rewind_subject
		fi
		names >names.after
		cmp -s names.before names.after || die "$name: left $(diff names.before names.after | grep '^[<>]' | head -3)"
	done
	((hits == kills)) || die "$name: of $round restores, $hits were killed"
	rewind_subject
	restore_detached image
	let_go
	expect_pass "$pid" 30
	ok "$TEST_NAME/$name" "killed $hits of $round"
	cd ..
}

for subject in files unix_listen pipes deleted_mapping memfd shared_memory; do
	killed "$subject"
done
