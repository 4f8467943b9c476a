#!/bin/bash
# What cannot be saved or restored is refused at once, in one sentence that names the process by its number and its name,
# says what it is, and shows a way out; the program is left as it was.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

# A command must fail with status 1 and one sentence that has all the words in it.
refuses() { # CASE COMMAND... -- WORDS...
	local name=$TEST_NAME/$1 command=() status=0 words
	shift
	while [[ $1 != -- ]]; do
		command+=("$1")
		shift
	done
	shift
	timeout 20 "${command[@]}" >output 2>error </dev/null || status=$?
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

# The only child of a process.
child_of() { # PID
	wait_until 10 grep -q . "/proc/$1/task/$1/children" && tr -d ' \n' <"/proc/$1/task/$1/children"
}

sleeping() { # COMMAND... : starts it in a session of its own. Sets SLEEPER.
	exec_alone "$@" </dev/null >/dev/null 2>&1 &
	SLEEPER=$!
	wait_until 10 has_begun "$SLEEPER"
}
has_begun() { [[ $(state_of "$1") == S && $(</proc/"$1"/comm) != bash ]]; }

has_ended() { [[ $(state_of "$1") == Z ]]; }

cp "$(command -v sleep)" sleeper

# --- dump ----------------------------------------------------------------------------------------------

exec_alone sh -c './sleeper 60; true' </dev/null >/dev/null 2>&1 &
parent=$!
child=$(child_of "$parent")
# shellcheck disable=SC2016 # the shell that is started expands it
refuses "the shell that it is started from" setsid -w bash -c '"$0" dump $$ -o new; exit $?' "$sealpoint" -- \
	"has started sealpoint itself" "another terminal"
refuses "a process with a child, tracked" "$sealpoint" dump "$parent" -o new --live --timeout 1s -- \
	"process $parent (sh) has children, process $child (sleeper) among them" "--live" "wait until" "--timeout"
kill "$child"

# Between two of them it can be saved: here it counts for a while.
# shellcheck disable=SC2016 # the shell that is started expands them
exec_alone sh -c 'while :; do ./sleeper 0.02; i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; done' \
	</dev/null >/dev/null 2>&1 &
parent=$!
child_of "$parent" >/dev/null || die "the shell runs no command"
"$sealpoint" dump "$parent" -o loop --live --timeout 30 >dump.log 2>&1 || die "a shell loop: $(<dump.log)"
ok "$TEST_NAME/a process with children for moments, tracked"

sleeping ./sleeper 60
gone=$SLEEPER
refuses "another user's process" setpriv --reuid=65534 --regid=65534 --clear-groups \
	"$sealpoint" dump "$gone" -o new -- "process $gone (sleeper)" "run as root" "CAP_SYS_PTRACE"
refuses "without the capability" setpriv --bounding-set=-checkpoint_restore,-sys_admin \
	--inh-caps=-checkpoint_restore,-sys_admin "$sealpoint" dump "$gone" -o new -- \
	"run as root" "CAP_CHECKPOINT_RESTORE" "sealpoint check"
kill "$gone"
wait "$gone"
refuses "no process" "$sealpoint" dump "$gone" -o new -- "there is no process $gone"
refuses "no process to ask about" "$sealpoint" track status "$gone" -- "there is no process $gone"

refuses "the init of the namespace" "$sealpoint" dump 1 -o new -- "process 1 (" "init" "that it has started"

exec_alone unshare --pid --fork ./sleeper 60 </dev/null >/dev/null 2>&1 &
contained=$(child_of $!)
wait_until 10 has_begun "$contained"
refuses "the init of another namespace" "$sealpoint" dump "$contained" -o new -- \
	"process $contained (sleeper)" "where it is process 1" "nsenter --target $contained"
[[ $(state_of "$contained") == S ]] || not_ok "$TEST_NAME/the init of another namespace" "it does not sleep any more"
kill -KILL "$contained"

# shellcheck disable=SC2016 # it is assembly
printf '.globl _start\n_start: mov $29, %%eax\n int $0x80\n jmp _start\n' >narrow.S # pause(2)
can_run() { timeout 0.1 "$1" 2>/dev/null || (($? == 124)); }
if cc -m32 -nostdlib -static narrow.S -o narrow 2>/dev/null && can_run ./narrow; then
	sleeping ./narrow
	refuses "a 32-bit program" "$sealpoint" dump "$SLEEPER" -o new -- "process $SLEEPER (narrow) is a 32-bit" "64-bit"
	kill "$SLEEPER"
else
	skip "$TEST_NAME/a 32-bit program" "no 32-bit programs can be built or run here"
fi

cat >tracer.py <<'P'
import ctypes, sys, time

libc = ctypes.CDLL(None)
libc.ptrace.argtypes = [ctypes.c_long] * 4
time.sleep(60 if libc.ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0 else 0)  # PTRACE_SEIZE
P
is_traced() { ! grep -q '^TracerPid:.0$' "/proc/$1/status"; }
sleeping ./sleeper 60
traced=$SLEEPER
sleeping python3 tracer.py "$traced"
wait_until 10 is_traced "$traced"
refuses "a process that traces another one" "$sealpoint" dump "$SLEEPER" -o new -- \
	"process $SLEEPER (python3) traces process $traced (sleeper)" "detach"
if "$sealpoint" inspect "$SLEEPER" 2>&1 </dev/null | grep -q "traces process $traced"; then
	ok "$TEST_NAME/inspect tells of a process that traces another one"
else
	not_ok "$TEST_NAME/inspect tells of a process that traces another one" "it does not"
fi
kill "$SLEEPER" "$traced"
wait "$SLEEPER" "$traced"

# A process in a frozen control group, of either version.
frozen_case() { # CASE MOUNT FILE FREEZE THAW
	local group=/sys/fs/cgroup/$2/sealpoint-test-$RANDOM$RANDOM
	if ! mkdir "$group" 2>/dev/null || [[ ! -e $group/$3 ]]; then
		rmdir "$group" 2>/dev/null
		skip "$TEST_NAME/$1" "there is no such hierarchy at /sys/fs/cgroup/$2"
		return
	fi
	sleeping ./sleeper 60
	echo "$SLEEPER" >"$group/cgroup.procs"
	echo "$4" >"$group/$3"
	wait_until 10 grep -q -e 'frozen 1' -e FROZEN "$group/cgroup.events" "$group/freezer.state"
	timeout --signal=KILL 20 "$sealpoint" dump "$SLEEPER" -o new >output 2>error </dev/null
	local status=$?
	echo "$5" >"$group/$3"
	if ((status == 1)) && grep -q -F "process $SLEEPER (sleeper) is frozen with its control group /" error; then
		ok "$TEST_NAME/$1"
	else
		not_ok "$TEST_NAME/$1" "exit status $status: $(<error)"
	fi
	kill "$SLEEPER"
	wait "$SLEEPER"
	wait_until 10 rmdir "$group"
}
frozen_case "in a frozen control group" "$([[ -d /sys/fs/cgroup/unified ]] && echo unified)" cgroup.freeze 1 0
frozen_case "in a frozen control group of version 1" freezer freezer.state FROZEN THAWED

# A program at one of its limits has no room for the temporary pages. It is not harmed, and the way out works.
cat >limited.py <<'P'
import ctypes, mmap, resource, sys, time

kind, field = {"as": (resource.RLIMIT_AS, "VmSize"), "data": (resource.RLIMIT_DATA, "VmData"),
               "memlock": (resource.RLIMIT_MEMLOCK, "VmLck")}[sys.argv[1]]
if sys.argv[1] == "memlock":
    ctypes.CDLL(None).mlockall(2)  # MCL_FUTURE
    locked = mmap.mmap(-1, 1 << 20)
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))
resource.setrlimit(kind, ((used + 64) << 10, resource.getrlimit(kind)[1]))
open("limited.ready", "w").write("ready")
time.sleep(60)
P
is_ready() { [[ -s limited.ready && $(state_of "$1") == S ]]; }
for limit in as data memlock; do
	# Locks of root have no limit.
	as=()
	[[ $limit != memlock ]] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	: >limited.ready
	chmod 666 limited.ready
	sleeping "${as[@]}" /usr/bin/python3 limited.py $limit
	wait_until 10 is_ready "$SLEEPER" || die "the program at its limit of $limit is not ready"
	refuses "a process at its limit of $limit" "$sealpoint" dump "$SLEEPER" -o new -- \
		"process $SLEEPER (python3)" "has reached RLIMIT_${limit^^}" "prlimit --pid $SLEEPER --$limit="
	[[ $(state_of "$SLEEPER") == S ]] || not_ok "$TEST_NAME/a process at its limit of $limit" "it does not sleep any more"
	# shellcheck disable=SC2046,SC2091 # the command that it names is run, as it stands there
	"${as[@]}" $(grep -o "prlimit --pid [^)]*" error)
	dump_and_reap "$SLEEPER" "limited-$limit"
	for own in as=30000000 data=2000000; do
		name="$TEST_NAME/restored at its limit of $limit, sealpoint with $own"
		if prlimit "--$own:" "$sealpoint" restore "limited-$limit" --detach >restore.log 2>&1 </dev/null; then
			ok "$name"
		else
			not_ok "$name" "$(<restore.log)"
		fi
		kill -KILL "$SLEEPER"
		wait_until 10 is_gone "$SLEEPER"
	done
done
refuses "more memory than sealpoint may have" prlimit --data=2000000 "$sealpoint" restore limited-as -- \
	"RLIMIT_DATA" "raise that"

# --- where to ------------------------------------------------------------------------------------------

sleeping ./sleeper 60
refuses "no directory for the checkpoint" "$sealpoint" dump "$SLEEPER" -o missing/saved -- \
	"missing/saved" "directory missing does not exist" "create it first"
[[ -e new || -n $(compgen -G '*.partial-*') ]] && not_ok "$TEST_NAME" "something was left: $(ls)"
kill -0 "$SLEEPER" || not_ok "$TEST_NAME" "the program has ended"

mkdir saved.partial-1
refuses "an unfinished checkpoint" "$sealpoint" inspect saved.partial-1 -- "still writing it" "remove it"
rmdir saved.partial-1

# --- restore -------------------------------------------------------------------------------------------

dump_and_reap "$SLEEPER" saved
refuses "restore without the capability" setpriv --bounding-set=-checkpoint_restore,-sys_admin \
	--inh-caps=-checkpoint_restore,-sys_admin "$sealpoint" restore saved -- \
	"run as root" "CAP_CHECKPOINT_RESTORE" "sealpoint check"
restore_detached saved
refuses "restored twice" "$sealpoint" restore saved -- "process id $SLEEPER is taken by \"sleeper\"" "unshare --pid"

# A program is told by its build id: another build of the same size and time is refused, the same one put back is not
# even worth a warning.
echo 'int main(void) { return pause(); }' >waits.c
cc -w -include unistd.h -Wl,--build-id=0x11111111 waits.c -o first
cc -w -include unistd.h -Wl,--build-id=0x22222222 waits.c -o second
cp first waits
restored=$SLEEPER
sleeping ./waits
dump_and_reap "$SLEEPER" built
rm waits
cp second waits
touch -r first waits
refuses "another build of the program" "$sealpoint" restore built -- \
	"$PWD/waits is another build" "build id 22222222, not 11111111" "put back the file"
rm waits
cp first waits
restore_detached built
if grep -q waits restore.log; then
	not_ok "$TEST_NAME/the same build with another time" "$(<restore.log)"
else
	ok "$TEST_NAME/the same build with another time"
fi
kill "$SLEEPER"
wait_until 10 is_gone "$SLEEPER"
SLEEPER=$restored

# Whoever collects the status of an ended process late does not make a restore fail; whoever never does is named.
kill "$SLEEPER"
wait_until 10 is_gone "$SLEEPER"
cat >parent.py <<'P'
import ctypes, os, subprocess, sys, time

ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: the restored process becomes our child
pid, sealpoint = int(sys.argv[1]), sys.argv[2]
subprocess.run([sealpoint, "restore", "saved", "--detach"], check=True)
os.kill(pid, 9)
time.sleep(0.3)
again = subprocess.Popen([sealpoint, "restore", "saved", "--detach"])
time.sleep(0.3)
print("waits" if again.poll() is None else "does not wait", flush=True)
os.waitpid(pid, 0)
print("again" if again.wait() == 0 else "failed", flush=True)
os.kill(pid, 9)
time.sleep(60)
P
python3 parent.py "$SLEEPER" "$sealpoint" </dev/null >late 2>&1 &
reaper=$!
wait_until 20 grep -q -E '^(again|failed)$' late
if grep -q '^waits$' late && grep -q '^again$' late; then
	ok "$TEST_NAME/restored before its parent has collected it"
else
	not_ok "$TEST_NAME/restored before its parent has collected it" "$(<late)"
fi
wait_until 10 has_ended "$SLEEPER"
refuses "never collected" "$sealpoint" restore saved -- "\"sleeper\", which has ended" \
	"process $reaper (python3)" "end that parent"
kill "$reaper"
