#!/bin/bash
# Checkpoints that are wrong behind right checksums (tests/tools/mutate.c): every command works, or refuses in one
# sentence. It does not crash, hang or take memory without end, and what a restore has made goes away with it.
#
# MUTATIONS is how many are tried, MUTATION_SEED the number of the first: one that fails is tried again with
# MUTATIONS=1 and its number.
#
# timeout: 7200
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

mutations=${MUTATIONS:-250} first=${MUTATION_SEED:-1}
kinds=(working segments files pipes socketpair epoll timers signals memfd shared_memory unix_listen tcp_listen udp settings
	credentials locks inotify timerfd signalfd eventfd seccomp guard_pages file_mappings deleted_mapping
	conversing tcp_half_closed)

# A wrong path must not lead to the machine's own files: nothing is writable but what is here.
keep_files_safe() {
	local results
	results=$(dirname "$RESULTS")
	mount --bind "$results" "$results" && mount -t tmpfs -o mode=777 tmpfs "$TEST_DIR" && cd "$TEST_DIR" &&
		mount -o remount,bind,ro /
}
keep_files_safe || die "cannot keep the machine's files from being written"

options_of() { # SUBJECT dump|restore
	IFS=, read -ra options <<<"$(subject_option "$1" "$2" '')"
}

for kind in "${kinds[@]}"; do
	start_subject "$kind"
	options_of "$kind" dump
	dump_and_reap "$SUBJECT_PID" "seed-$kind" "${options[@]}"
done

if [[ ${SANITIZED:-} ]]; then
	export ASAN_OPTIONS=exitcode=99:max_allocation_size_mb=1024 UBSAN_OPTIONS=halt_on_error=1:exitcode=99
fi

complain() { # WHAT
	not_ok "$TEST_NAME/seed $seed" "$kind: $1; $(head -c 300 changes)"
	echo "--- seed $seed"
	cat error
}

tried() { # COMMAND...
	local status=0
	(
		[[ ${SANITIZED:-} ]] || ulimit -S -v 2000000
		exec timeout -s KILL 20 "$sealpoint" "$@" >output 2>error </dev/null
	) || status=$?
	if ((status == 0)); then
		((++worked[$1]))
	elif ((status != 1)); then
		complain "$1: exit status $status: $(grep -m 3 -E 'ERROR|error' error || head -c 300 error)"
	elif [[ $* == *--json* ]]; then # the sentence is on stdout, in an object
		cat output >>error
		grep -q '"error":' error || complain "$1: no error in its answer: $(head -c 300 error)"
	elif ! one_sentence error; then
		complain "$1: not one sentence: $(head -c 300 error)"
	fi
	return "$status"
}

no_processes() {
	local all=(/proc/[0-9]*)
	((${#all[@]} == 1))
}

end_restored() {
	kill -KILL "$(<pid)" 2>/dev/null
	wait_until 10 no_processes
}

declare -A worked
for ((seed = first; seed < first + mutations; seed++)); do
	kind=${kinds[seed % ${#kinds[@]}]}
	"$test_tools/mutate" "seed-$kind" mutant "$seed" >changes || die "mutate $seed: exit status $?"
	tried verify mutant
	tried inspect mutant
	tried inspect mutant --json
	tried core mutant -o core
	rm -f core pid
	rewind_subject
	options_of "$kind" restore
	if tried restore mutant --detach --leave-stopped --pidfile pid "${options[@]}"; then
		end_restored || complain "restored, and not to be ended"
	else
		wait_until 10 no_processes || complain "left a process: $(head -c 300 error)"
	fi
done
# One change more or less is often none that matters: if nothing works any more, the mutants are no checkpoints.
((mutations < 100 || (${worked[verify]:-0} && ${worked[restore]:-0}))) || die "of $mutations mutants none is any good"
ok "$TEST_NAME" "$mutations mutants; of each, ${worked[verify]} verified, ${worked[restore]} restored"
