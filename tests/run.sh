#!/bin/bash
# Runs the tests and tells what came of them.
#
#	tests/run.sh [-j JOBS] [-k] [SELECTION...]
#
# A selection is a part of a test's name, such as `unit`, `subject/memory` or `real/redis`. Without one,
# everything runs. -k keeps the directories of the tests. The environment gives BUILD (default: build); SEALPOINT,
# another program to test than the one there; SANITIZED, if the unit tests were built with sanitizers, for which some
# say in their opening comment " * not sanitized: WHY".
#
# A line for each result as it comes ("ok NAME (1.2 s)" and what was counted, "FAIL NAME: why", "skip NAME: why"),
# a table of subjects and modes, and as the last line the sums. The exit status is 0 if nothing has failed.
#
# Kinds of tests: programs of cmocka tests (unit/), each subject in each of its modes (subject/), scripts
# (integration/, real/). A script says in its opening comment what the default does not give:
#
#	# timeout: SECONDS	(default 120)
#	# exclusive: WHY	it runs while nothing else does
#	# namespaces: none	see run-one.sh
set -u
TOP=$(cd "$(dirname "$0")/.." && pwd)
BUILD=$(cd "$TOP" && realpath -m "${BUILD:-build}")
export TOP BUILD

jobs=2 keep=
while getopts j:k option; do
	case $option in
	j) jobs=$OPTARG ;;
	k) keep=1 ;;
	*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
	esac
done
shift $((OPTIND - 1))
selection=("$@")
modes=(kill running twice delta pre-dump live user) # of subjects: tests/subjects/subject.h

run_dir=$(mktemp -d "${TMPDIR:-/tmp}/sealpoint-tests.XXXXXX")
chmod 755 "$run_dir"
running=()

# Ends what was started, by pid, and removes the directories, however the run ends.
finish() {
	local pid
	shrink_huge_page_pool
	for pid in "${running[@]}"; do
		pkill -KILL -P "$pid" 2>/dev/null
	done
	wait
	if [[ $keep ]]; then
		echo "kept: $run_dir"
	else
		rm -rf "$run_dir"
	fi
}
# Some tests need pages from the hugetlb pool, which is empty on most machines: it is larger while tests run. Without
# the permission or the memory for it, they say so and are skipped.
pool=/proc/sys/vm/nr_hugepages
pages_added=0
enlarge_huge_page_pool() { # BY
	local before
	before=$(<$pool)
	((EUID == 0)) && echo $((before + $1)) 2>/dev/null >$pool
	pages_added=$(($(<$pool) - before))
}

shrink_huge_page_pool() {
	((pages_added <= 0)) || echo $(($(<$pool) - pages_added)) >$pool
}

trap finish EXIT
trap 'exit 130' INT TERM

enlarge_huge_page_pool 32

# --- which tests there are -----------------------------------------------------------------------------

selected() { # NAME
	local part
	((${#selection[@]})) || return 0
	for part in "${selection[@]}"; do
		[[ $1 == *"$part"* ]] && return 0
	done
	return 1
}

list_tests() {
	local file name mode
	for file in "$TOP"/tests/unit/test_*.c; do
		[[ -e $file ]] && echo "unit/$(basename "$file" .c)"
	done
	for file in "$TOP"/tests/subjects/*.c; do
		[[ -e $file ]] || continue
		name=$(basename "$file" .c)
		for mode in $(subject_modes "$file"); do
			echo "subject/$name/$mode"
		done
	done
	for file in "$TOP"/tests/integration/*.sh "$TOP"/tests/real/*.sh; do
		[[ -e $file ]] && echo "$(basename "$(dirname "$file")")/$(basename "$file" .sh)"
	done
}

subject_modes() { # FILE
	local options except mode
	options=$(grep -m 1 -o 'subject: .*=.*' "$1")
	[[ $options != *modes=none* ]] || return # a script runs it
	except=$(grep -o 'except=[a-z,-]*' <<<"$options")
	for mode in "${modes[@]}"; do
		[[ ,${except#except=}, == *,$mode,* ]] || echo "$mode"
	done
}

header() { # SCRIPT KEY: the value of "# KEY: value" in its opening comment
	sed -n "/^[^#]/q; s/^# $2: //p" "$1"
}

# --- running one ---------------------------------------------------------------------------------------

# Runs a test and leaves its results, a line each (status, name, reason), in its directory.
run_test() { # NAME
	local name=$1 kind=${1%%/*} rest=${1#*/} script seconds reason status=0
	export TEST_NAME=$name TEST_DIR=$run_dir/$name RESULTS=$run_dir/$name.results
	mkdir -p "$TEST_DIR"
	: >"$RESULTS"
	cd "$TEST_DIR" || return
	local start=${EPOCHREALTIME/./}
	case $kind in
	unit)
		reason=$(sed -n 's/^ \* not sanitized: //p' "$TOP/tests/unit/$rest.c")
		if [[ ${SANITIZED:-} && $reason ]]; then
			printf 'skip\t%s\twith sanitizers: %s\n' "$name" "$reason" >>"$RESULTS"
			tell "$name" 0
			return
		fi
		timeout -s KILL 300 "$BUILD/tests/unit/$rest" >log 2>&1 || status=$?
		cmocka_results log >>"$RESULTS"
		;;
	*)
		if ((EUID)); then
			printf 'skip\t%s\tneeds root\n' "$name" >>"$RESULTS"
		elif [[ $kind == subject ]]; then
			seconds=$(grep -m 1 -o 'subject: .*timeout=[0-9]*' "$TOP/tests/subjects/${rest%/*}.c" | grep -o '[0-9]*$')
			"$TOP/tests/run-one.sh" $((${seconds:-60} * 3)) "$TOP/tests/subject.sh" "${rest%/*}" "${rest#*/}" \
				>log 2>&1 || status=$?
		else
			script=$TOP/tests/$name.sh
			seconds=$(header "$script" timeout)
			"$TOP/tests/run-one.sh" "${seconds:-120}" "$script" >log 2>&1 || status=$?
		fi
		;;
	esac
	if ((status == 137 || status == 124)); then
		printf 'FAIL\t%s\tran into its time limit\n' "$name" >>"$RESULTS"
	elif ((status)) && ! grep -q ^FAIL "$RESULTS"; then
		printf 'FAIL\t%s\texit status %d: %s\n' "$name" "$status" "$(tail -n 2 log | tr '\n\t' '; ')" >>"$RESULTS"
	elif [[ ! -s $RESULTS ]]; then
		printf 'ok\t%s\t\n' "$name" >>"$RESULTS"
	fi
	tell "$name" "$((${EPOCHREALTIME/./} - start))"
	[[ $keep ]] || rm -rf "$TEST_DIR"
}

# cmocka's own lines for each test of a program, as result lines. The reason for a failure or a skip is what
# the test itself said last.
cmocka_results() { # LOG
	awk -v program="$TEST_NAME" '
		/^\[ RUN      \]/ { said = "it does not say why"; next }
		/^\[       OK \] [A-Za-z0-9_]+$/ { print "ok\t" program "/" $4 "\t"; next }
		/^\[  FAILED  \] [A-Za-z0-9_]+$/ && !($4 in failed) { failed[$4]; print "FAIL\t" program "/" $4 "\t" said; next }
		/^\[  SKIPPED \] [A-Za-z0-9_]+$/ && !($4 in skipped) { skipped[$4]; print "skip\t" program "/" $4 "\t" said; next }
		/^\[=/ { next }
		/./ { sub(/^\[ *[A-Z]+ *\] (--- )?/, ""); said = $0 }' "$1"
}

# Prints the results of a test at once, so that lines of parallel tests do not mix.
tell() { # NAME MICROSECONDS
	local seconds
	seconds=$(printf '%d.%d' $(($2 / 1000000)) $(($2 / 100000 % 10)))
	{
		awk -F '\t' -v s="$seconds" -v program="$([[ $1 != unit/* ]] || echo "$1")" '
			$1 == "ok" && program { passed++; next }
			{ print $1, $2 ($1 == "ok" ? " (" s " s)" : "") ($3 ? ": " $3 : "") }
			END { if (passed) print "ok", program ": " passed " tests (" s " s)" }' "$RESULTS"
		if grep -q ^FAIL "$RESULTS"; then
			tail -n 25 "$TEST_DIR"/{log,dump.log,restore.log,out} 2>/dev/null | sed 's/^/    | /'
		fi
	} >"$run_dir/telling.$BASHPID"
	flock "$run_dir" cat "$run_dir/telling.$BASHPID"
	rm "$run_dir/telling.$BASHPID"
}

# --- running all ---------------------------------------------------------------------------------------

start() { # NAME
	while ((${#running[@]} >= jobs)); do
		wait -n
		reap
	done
	run_test "$1" &
	running+=($!)
}

reap() {
	local pid alive=()
	for pid in "${running[@]}"; do
		kill -0 "$pid" 2>/dev/null && alive+=("$pid")
	done
	running=("${alive[@]}")
}

exclusive=()
for test in $(list_tests); do
	selected "$test" || continue
	script=$TOP/tests/$test.sh
	if [[ -e $script && -n $(header "$script" exclusive) ]]; then
		exclusive+=("$test")
	else
		start "$test"
	fi
done
wait
running=()
jobs=1
for test in "${exclusive[@]}"; do
	start "$test"
done
wait
running=()

# --- the end -------------------------------------------------------------------------------------------

all_results=$(find "$run_dir" -name '*.results' -exec cat {} +)
results() { printf '%s\n' "$all_results"; }

subject_table() {
	results | awk -F '\t' -v modes="${modes[*]}" 'BEGIN { count = split(modes, order, " ") }
		$2 ~ /^subject\// { split($2, part, "/"); seen[part[2]]; cell[part[2], part[3]] = $1 }
		END { for (name in seen) {
			printf "%-24s", name
			for (i = 1; i <= count; i++) {
				value = cell[name, order[i]]; printf " %-8s", value ? value : "-"
			}
			print "" } }' | sort
}

count() { results | grep -c "^$1"; }

table=$(subject_table)
[[ -z $table ]] || { printf '\n%-24s' subject && printf ' %-8s' "${modes[@]}" && printf '\n%s\n' "$table"; }
if (($(count skip))); then
	printf '\nskipped:\n'
	results | awk -F '\t' '$1 == "skip" { print "  " $2 ": " $3 }' | sort
fi
failed=$(count FAIL)
if ((failed)); then
	printf '\nfailed:\n'
	results | awk -F '\t' '$1 == "FAIL" { print "  " $2 ": " $3 }' | sort
fi
printf '\n%d passed, %d failed, %d skipped\n' "$(count ok)" "$failed" "$(count skip)"
((failed == 0))
