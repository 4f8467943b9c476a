# What every test script stands on; `source`d by tests/run-one.sh, which gives each test an empty
# directory ($TEST_DIR, the working directory) and namespaces of its own: its processes end with it,
# and pids, ports and mounts are nobody else's.
#
# A test reports with ok, not_ok and skip, as many times as it has cases, or ends by die. A script that
# reports nothing has passed if its exit status is 0. A test must be able to fail.
# shellcheck shell=bash

: "${BUILD:?}" "${TOP:?}" "${TEST_DIR:?}" "${TEST_NAME:?}" "${RESULTS:?}"
sealpoint=${SEALPOINT:-$BUILD/sealpoint}
subjects=$BUILD/tests/subjects
# shellcheck disable=SC2034 # for the scripts
test_tools=$BUILD/tests/tools

# --- reporting -----------------------------------------------------------------------------------------

report() { # STATUS NAME [REASON]
	printf '%s\t%s\t%s\n' "$1" "$2" "${3//$'\n'/; }" >>"$RESULTS"
}
ok() { report ok "$1" "${2:-}"; } # the reason is something to know, such as what was counted
not_ok() { report FAIL "$1" "$2"; }
skip() { report skip "$1" "$2"; }

# Ends the whole test as failed.
die() {
	not_ok "$TEST_NAME" "$*"
	exit 1
}

# Ends the whole test as skipped.
skip_test() {
	skip "$TEST_NAME" "$*"
	exit 0
}

# --- waiting -------------------------------------------------------------------------------------------

# Runs a command again and again until it succeeds; fails after SECONDS.
wait_until() { # SECONDS COMMAND...
	local deadline=$((SECONDS + $1))
	shift
	until "$@" 2>/dev/null; do
		((SECONDS < deadline)) || return 1
		sleep 0.02
	done
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

# Starts a command and waits until it stands at a moment that is told as to tests/tools/halt_at.c. Sets HALTED, its pid.
# Whatever is to happen in the middle of something has to be done so: a delay is too long on one machine and too short on
# another.
halt_at() { # MOMENT COMMAND...
	[[ -p halting ]] || mkfifo halting
	"$test_tools/halt_at" "$1" halting "${@:2}" &
	# shellcheck disable=SC2034 # for the scripts
	HALTED=$!
	[[ $(timeout 60 cat halting) == halted ]] || die "$2 has ended without $1"
}

# Lets it go on.
proceed() { : >halting; }

# What a restore that was killed has left: nothing, or what it had let go. Not what is only about to die with it.
is_gone_or_free() { # PID
	is_gone "$1" || { [[ $(state_of "$1") == [SRDT] && $(tr -d '\0' <"/proc/$1/cmdline") ]] &&
		! grep -q -E -e '^TracerPid:.*[1-9]' -e '^SigPnd:.*[1-9a-f]..$' "/proc/$1/status"; }
}

descendants() { # PID
	local child children
	read -r -d '' -a children < <(cat "/proc/$1/task"/*/children 2>/dev/null)
	for child in "${children[@]}"; do
		echo "$child"
		descendants "$child"
	done
}

# Becomes a command with no descriptor of ours but 0, 1 and 2: what a test or its caller has open is none of a subject's
# business, and a dump would refuse the pipes among it.
exec_bare() { # COMMAND...
	local fd
	for fd in "/proc/$BASHPID/fd"/*; do
		fd=${fd##*/}
		((fd <= 2 || fd == 255)) || exec {fd}>&- # bash closes 255 itself
	done
	exec "$@"
}

# The same, in a session of its own.
exec_alone() { exec_bare setsid "$@"; } # COMMAND...

# --- subjects ------------------------------------------------------------------------------------------

# The value of a key in the "subject:" line of a subject's opening comment, or the default.
subject_option() { # SUBJECT KEY DEFAULT
	local value
	value=$(grep -m 1 -o "subject: .*=.*" "$TOP/tests/subjects/$1.c" | tr ' ' '\n' | sed -n "s/^$2=//p")
	echo "${value:-$3}"
}

# Starts a subject in a session of its own and waits until it is ready. Sets SUBJECT_PID. The trigger file
# `go` and the output file `out` are in the directory, so that each restored copy finds them again.
start_subject() { # NAME [ARGUMENT...]
	local as=() user
	user=$(subject_option "$1" user "${SUBJECT_USER:-}")
	[[ -z $user ]] || as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
	: >go
	: >out
	[[ -z $user ]] || chown -R "$user" "$TEST_DIR"
	exec_alone "${as[@]}" "$subjects/$1" "${@:2}" <go >>out 2>&1 &
	SUBJECT_PID=$!
	wait_until 30 ready_or_gone "$SUBJECT_PID" || die "$1 is not ready after 30 s"
	if grep -q '^SKIP: ' out; then
		skip_test "$(sed -n 's/^SKIP: //p' out)"
	fi
	grep -q '^READY$' out || die "$1 ended before it was ready: $(tail -3 out)"
	wait_until 20 threads_began "$SUBJECT_PID" || die "$1: a thread keeps its signals blocked"
}

# The C library starts a thread with all signals blocked, also those that no program can block through it.
threads_began() { ! grep -q '^SigBlk:.*fffffffffffbfeff' "/proc/$1/task"/*/status; }

ready_or_gone() { grep -q '^READY$' out || is_gone "$1"; }

# Lets the waiting subject check itself.
let_go() { printf 'go\n' >>go; }

# Makes the trigger and the output what they were when the subject had just become ready, so that an
# image from that moment can be restored.
rewind_subject() {
	: >go
	echo READY >out
}

# Waits until the subject, a child or not, has said PASS and is gone.
expect_pass() { # PID SECONDS
	wait_until "$2" is_gone "$1" || die "pid $1 does not end after its trigger: $(tail -3 out)"
	grep -q '^PASS$' out || die "did not pass: $(grep -v READY out | head -5)"
}

# --- sealpoint -----------------------------------------------------------------------------------------

# Both end the test if the command fails. The output is in dump.log and restore.log.
dump() { # PID DIRECTORY [OPTION...]
	"$sealpoint" dump "$1" -o "$2" "${@:3}" >>dump.log 2>&1 ||
		die "dump: exit status $?: $(tail -3 dump.log)"
}

restore_detached() { # DIRECTORY [OPTION...]
	"$sealpoint" restore "$1" --detach "${@:2}" >>restore.log 2>&1 </dev/null ||
		die "restore: exit status $?: $(tail -3 restore.log)"
}

# Each image is the subject, which has ended, as it was when that was ready: it is restored, and passes.
expect_restored() { # PID IMAGE...
	local image
	(($# > 1)) || die "there is no image to restore"
	for image in "${@:2}"; do
		"$sealpoint" verify "$image" >>verify.log 2>&1 || die "verify $image: $(tail -n 1 verify.log)"
		rewind_subject
		restore_detached "$image"
		let_go
		expect_pass "$1" 60
	done
}

# Dumps a child of this shell, with the default --kill, and reaps it: its pid is free again.
dump_and_reap() { # PID DIRECTORY [OPTION...]
	dump "$@"
	wait "$1"
	is_gone "$1" || die "pid $1 is still there after a dump that kills"
}

# True if a command that failed has said one line to standard error.
one_sentence() { # FILE
	(($(wc -l <"$1") == 1))
}

# A command must fail, with status 1 and one sentence that has all the words in it.
refuses() { # CASE COMMAND... -- WORDS...
	local name=$TEST_NAME/$1 refused_command=() status=0 words
	shift
	while [[ $1 != -- ]]; do
		refused_command+=("$1")
		shift
	done
	shift
	timeout 20 "${refused_command[@]}" >output 2>error </dev/null || status=$?
	if ((status != 1)); then
		not_ok "$name" "exit status $status, not 1: $(head -c 300 error)"
		return
	elif ! one_sentence error; then
		not_ok "$name" "not one line: $(<error)"
		return
	fi
	for words; do
		if ! grep -q -F -e "$words" error; then
			not_ok "$name" "does not say \"$words\": $(<error)"
			return
		fi
	done
	ok "$name"
}

# --- what /proc shows of a process ---------------------------------------------------------------------

# Prints what must be the same in a restored process, one item a line, each with the name of its part
# in front: status, stat, limits, id, task, fd, fdinfo, maps. What the kernel numbers anew (inodes of pipes
# and sockets, mount ids) is numbered in the order of appearance.
proc_snapshot() { # PID [IGNORED_PART,...]
	local ignored=${2:-none}
	proc_snapshot_all "$1" | sort | grep -v -E "^(${ignored//,/|}) "
}

proc_snapshot_all() {
	local proc=/proc/$1
	sed -n -E 's/^(Name|Umask|Uid|Gid|Groups|Threads|ShdPnd|SigIgn|SigCgt|NoNewPrivs|THP_enabled):\s*/status \1 /p' \
		"$proc/status"
	# pgrp, session, exit signal, code, stack, data, brk, arguments, environment
	sed 's/^.*) //' "$proc/stat" | awk '{ print "stat ids", $3, $4, "exit signal", $36
		printf "stat areas"; split("24 25 26 43 44 45 46 47 48 49", f)
		for (i = 1; i in f; i++) printf " %s", $f[i]; print "" }'
	sed 's/^/limits /' "$proc/limits"
	find "$proc"/{exe,cwd,root} -printf 'id %f %l\n'
	cksum "$proc"/{comm,cmdline,environ,auxv,personality,oom_score_adj,coredump_filter,timerslack_ns} |
		awk '{ sub(/.*\//, "", $3); print "id", $3, $1, $2 }'
	awk '{ split(FILENAME, part, "/"); tid = part[5] }
		FILENAME ~ /stat$/ { name = $0; sub(/^[^(]*/, "", name); sub(/[^)]*$/, "", name)
			sub(/^.*\) /, ""); print "task", tid, name, "nice", $17, "rt", $38, "policy", $39 }
		/^State:/ { ended = $2 == "Z" }
		/^SigBlk:/ && ended { next } # nobody sends a signal to one that has ended
		/^(SigPnd|SigBlk|Cap...|Seccomp|Cpus_allowed):/ { print "task", tid, $1, $2 }' \
		"$proc"/task/*/{stat,status}
	find "$proc/fd" -type l -printf 'fd %f %l\n' | sort -V |
		awk '{ while (match($0, /(pipe|socket):\[[0-9]+\]/)) {
			key = substr($0, RSTART, RLENGTH)
			if (!(key in number)) number[key] = ++count
			$0 = substr($0, 1, RSTART - 1) "number " number[key] substr($0, RSTART + RLENGTH) }
			if (/ \(deleted\)$/ && $3 !~ /^.memfd:/) $0 = $1 " " $2 " (deleted)"
			print }'
	find "$proc/fdinfo" -type f -exec awk '
		/^(pos|flags|eventfd-count|tfd|clockid|settime|it_interval|sigmask|inotify|fanotify)/ {
			gsub(/ (ino|sdev|pos):[^ ]+/, ""); sub(/ fhandle.*/, "")
			number = FILENAME; sub(/.*\//, "", number); print "fdinfo", number, $0 }' {} +
	proc_mappings "$1" | sed 's/^/maps /'
}

# Mappings as ranges with the same access: whether the kernel keeps two alike neighbours as one (a heap and the
# zeroed data below it, without randomized addresses) is its own business. Names of files that are gone are left out.
proc_mappings() { # PID
	awk '{ split($1, range, "-"); name = $6; for (i = 7; i <= NF; i++) name = name " " $i
		if (name ~ /\(deleted\)$/) name = "(deleted)"
		if (name == "[heap]") name = ""
		if (range[1] == end && $2 == prot && name == last) { end = range[2]; next }
		if (end) print start "-" end, prot, last
		start = range[1]; end = range[2]; prot = $2; last = name }
		END { print start "-" end, prot, last }' "/proc/$1/maps" | grep -v vsyscall
}

# Resident kilobytes that a restore must bring back: anonymous and shared memory, not cached files. The sums in status
# lag behind on kernels before 6.2, those of the mappings do not.
proc_resident() { # PID
	awk '/^[0-9a-f]+-/ { shmem = $6 ~ "^(/memfd:|/dev/zero|/dev/shm/|/SYSV)" }
		/^Rss:/ && shmem || /^Anonymous:/ && !shmem { sum += $2 } END { print sum + 0 }' "/proc/$1/smaps"
}

# Compares what /proc shows of a process with an earlier snapshot; ends the test if it stays different. It is given
# some seconds, because a process that has just been let go takes its last step by itself: it unmaps the pages from
# which it was driven.
expect_same_snapshot() { # PID BEFORE WHEN [IGNORED_PART,...]
	wait_until 5 same_snapshot "$1" "$2" "${4:-}" ||
		die "$3, /proc differs: $(grep '^[<>]' "$2.diff" | head -6)"
}

same_snapshot() { diff "$2" <(proc_snapshot "$1" "$3") >"$2.diff"; }

# Resident size within 1%; of a small program, 64 KiB (the stack of the first thread, a few tables).
expect_same_resident() { # BEFORE AFTER WHEN
	local slack=$(($1 / 100 > 64 ? $1 / 100 : 64)) difference=$(($1 > $2 ? $1 - $2 : $2 - $1))
	((difference <= slack)) || die "$3, resident size is $2 KiB, was $1 KiB"
}

# A name may have a line break in it.
state_of() { sed -n '$ { s/^.*) //; s/ .*//; p }' "/proc/$1/stat"; }

# --- real software -------------------------------------------------------------------------------------

# Starts a program in a session of its own, sharing nothing with the test but its output file. Sets PROGRAM_PID.
start_program() { # COMMAND...
	exec_alone "$@" </dev/null >>program.log 2>&1 &
	# shellcheck disable=SC2034 # for the scripts
	PROGRAM_PID=$!
}

# Hundredths of a second that a program, its descendants and those that they have waited for have run.
run_time() { # PID
	local process
	for process in "$1" $(descendants "$1"); do
		cat "/proc/$process/stat"
	done 2>/dev/null | awk '{ sub(/.*\) /, ""); sum += $12 + $13 + $14 + $15 } END { print sum + 0 }'
}

has_run() { (($(run_time "$1") >= $2)); }

# A check for programs that work all the time: they still do.
works_on() { # PID
	wait_until 60 has_run "$1" $(($(run_time "$1") + 3)) || { echo "it stands still: $(tail -n 3 program.log)" && return 1; }
}

# Was a command refused because another one is saving the same process? That one is met as the user of the session or, in
# the freeze, as the tracer.
refused_for_another_command() { # LOG PID
	grep -q "another command is just saving what process $2 .*wait until it has ended" "$1" ||
		grep -q "process $2 .* is already traced by process [0-9]* (sealpoint)" "$1"
}

# Sends a line to a server on this machine and prints what it answers until it closes the connection.
ask() { # PORT REQUEST
	local socket
	exec {socket}<>"/dev/tcp/127.0.0.1/$1" || return 1
	printf '%s\n' "$2" >&"$socket"
	timeout 60 cat <&"$socket"
	exec {socket}>&-
	wait_until 10 no_connections "$1"
} 2>/dev/null

no_connections() { ! ss -Htan "sport = :$1" | grep -q -v -E '^(LISTEN|TIME-WAIT)'; }

is_listening() { ss -Htln "sport = :$1" | grep -q .; }

# Dumps and restores a program three times in a row, each time the one restored before, and runs the check
# after each restore. The check prints what is wrong and fails, or is silent.
three_times() { # PID CHECK [ARGUMENT...]
	local round
	for round in 1 2 3; do
		dump "$1" "image$round"
		wait_until 30 is_gone "$1" || die "dump $round: pid $1 is still there"
		restore_detached "image$round"
		"${@:2}" >complaint || die "after restore $round: $(<complaint)"
		rm -rf "image$round"
	done
	cat dump.log restore.log
}
