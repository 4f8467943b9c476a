#!/bin/bash
# One half of a move between two kernels, for some subjects: `travel.sh leave|arrive DIRECTORY SUBJECT...`. A subject
# leaves in one half of the mode "kill" of tests/subject.sh and arrives in the other, on the other kernel. What has to be
# carried between them is in DIRECTORY/SUBJECT, which must have the same path there. Prints a line for each result, as
# tests/run.sh does.
set -u
: "${TOP:?}" "${BUILD:?}"
half=$1 directory=$2
shift 2

travel() { # SUBJECT
	local status=0
	export TEST_NAME=$half/$1 TEST_DIR=$directory/$1 RESULTS=$directory/$1.$half
	mkdir -p "$TEST_DIR"
	: >"$RESULTS"
	cd "$TEST_DIR" || return
	"$TOP/tests/run-one.sh" 180 "$TOP/tests/subject.sh" "$1" "$half" >log 2>&1 || status=$?
	if [[ ! -s $RESULTS ]]; then
		printf 'FAIL\t%s\texit status %d: %s\n' "$TEST_NAME" "$status" "$(tail -n 1 log)" >>"$RESULTS"
	fi
	awk -F '\t' '{ print $1, $2 ($3 ? ": " $3 : "") }' "$RESULTS"
	[[ $(<"$RESULTS") == ok* ]] || tail -n 25 log dump.log restore.log out 2>/dev/null | sed 's/^/    | /'
}

for subject; do
	travel "$subject"
done
