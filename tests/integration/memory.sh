#!/bin/bash
# What sealpoint itself needs of memory does not grow with the program: each command has about the same peak for a
# program of 32 MiB and for one of 768 MiB, in the same run.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

target=$BUILD/tests/bench/target
measure=$BUILD/tests/bench/measure

# Runs a command and leaves its peak, in bytes, in peak/NAME.SIZE.
peak_of() { # NAME SIZE COMMAND...
	"$measure" measured "${@:3}" >output 2>error </dev/null || die "$1 of $2 MiB: $(tail -n 3 error)"
	awk '{ print $3 }' measured >"peak/$1.$2"
}

peaks() { # SIZE
	: >go
	: >out
	exec_alone "$target" $(($1 << 20)) zero 4k <go >>out 2>&1 &
	local pid=$!
	wait_until 60 grep -q '^READY$' out || die "the program of $1 MiB is not ready"
	peak_of dump "$1" "$sealpoint" dump "$pid" -o image
	wait "$pid" 2>/dev/null
	peak_of verify "$1" "$sealpoint" verify image
	peak_of merge "$1" "$sealpoint" merge image -o merged
	peak_of core "$1" "$sealpoint" core image -o core
	rm -r core merged
	peak_of restore "$1" "$sealpoint" restore image --detach
	rm -r image
	let_go
	expect_pass "$pid" 60
}

mkdir peak
peaks 32
peaks 768
for command in dump verify merge core restore; do
	small=$(<peak/$command.32) large=$(<peak/$command.768)
	# Where the pages are has to be known: twelve bytes for each. And the buffers of a merge hold 42 MiB of contents,
	# which the small program does not have.
	growth=$((736 * 256 * 12))
	[[ $command != merge ]] || growth=$((growth + (42 << 20)))
	if ((large - small < growth)) && ((large < 64 << 20)); then
		ok "$TEST_NAME/$command" "$((small >> 10)) KiB for 32 MiB, $((large >> 10)) KiB for 768 MiB"
	else
		not_ok "$TEST_NAME/$command" "$((small >> 10)) KiB for 32 MiB, $((large >> 10)) KiB for 768 MiB"
	fi
done
