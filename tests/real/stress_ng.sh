#!/bin/bash
# stress-ng, one stressor after another, each saved and restored three times while it works. It checks itself (--verify),
# and it says in the end that its run was successful and how much of it there was.
#
# STRESSORS names others than the default ones, or is "all" for more of them; WORKERS is how many processes each has.
#
# timeout: 3600
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

default='mmap vm malloc mprotect memfd shm-sysv
	fork futex sem sigq switch matrix
	pipe fifo eventfd epoll flock dir
	timerfd itimer udp'
more='shm clone cpu access chmod dentry dup fstat get getdent hdd iomix kill link list lockf madvise memcpy mincore
	mremap msg msync mutex nice poll rename ring-pipe seek sendfile session sigfd sigpending sigsegv sigsuspend
	sockfd splice symlink tee urandom utime vm-rw wait yield zero inotify schedpolicy remap'
stressors=${STRESSORS:-$default}
[[ $stressors != all ]] || stressors="$default $more"

small=()
for what in mmap malloc memfd vm shm shm-sysv mremap msync vm-rw hdd iomix; do
	small+=("--$what-bytes" 16M)
done

has_workers() { [[ $(descendants "$1") ]]; }

run() { # STRESSOR
	local operations
	rm -rf stressor image?
	mkdir stressor
	: >program.log
	start_program stress-ng "--$1" "${WORKERS:-1}" "${small[@]}" --timeout 0 --verify --metrics --temp-path "$TEST_DIR/stressor"
	wait_until 60 has_workers "$PROGRAM_PID" || die "it does not begin: $(tail -n 2 program.log)"
	works_on "$PROGRAM_PID" >complaint || die "before any dump: $(<complaint)"
	three_times "$PROGRAM_PID" works_on "$PROGRAM_PID"
	kill -INT "$PROGRAM_PID"
	wait_until 60 is_gone "$PROGRAM_PID" || die "it does not end: $(tail -n 2 program.log)"
	if ! grep -q 'successful run completed' program.log || grep -q 'fail:' program.log; then
		die "not successful: $(grep -v metrc program.log | tail -n 3)"
	fi
	operations=$(awk -v name="$1" '$2 == "metrc:" && $4 == name && !found++ { print $5 }' program.log)
	[[ ${operations:-0} != 0 ]] || die "it has done nothing: $(grep metrc program.log | tail -n 1)"
	ok "$TEST_NAME" "$operations operations"
}

for stressor in $stressors; do
	# One that fails ends its subshell, what is left of it is ended, and the next one has its turn.
	# shellcheck disable=SC2046 # words are wanted
	(TEST_NAME+=/$stressor && run "$stressor") || kill -KILL $(descendants $$) 2>/dev/null
done
