#!/bin/bash
# What cannot be saved or restored is refused at once, in one sentence that names the process by its number and its name,
# says what it is, and shows a way out; the program is left as it was.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

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
kill "$child"

# They come and go while they are listed, tracked and copied.
# shellcheck disable=SC2016 # the shell that is started expands them
exec_alone sh -c 'while :; do ./sleeper 0.02; i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; done' \
	</dev/null >/dev/null 2>&1 &
parent=$!
child_of "$parent" >/dev/null || die "the shell runs no command"
"$sealpoint" dump "$parent" -o loop --live >dump.log 2>&1 || die "a shell loop: $(<dump.log)"
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

sleeping python3 -c 'import ctypes, time
mmap = ctypes.CDLL(None).mmap
mmap.restype = ctypes.c_void_p
mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
size = 1 << 46
while size >= 1 << 19:  # PROT_NONE; MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    if mmap(None, size, 0, 0x4022, -1, 0) == (1 << 64) - 1:
        size >>= 1
open("reserved", "w").close()
time.sleep(60)'
wait_until 20 test -e reserved
refuses "no address space" "$sealpoint" dump "$SLEEPER" -o new -- "process $SLEEPER" "no gap" "reserve less"
kill "$SLEEPER"

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

# What a program may hold, made in Python; what this machine does not have is skipped.
cat >holding.py <<'P'
import ctypes, fcntl, os, signal, socket, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    got = libc.syscall(*args)
    if got < 0:
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(77)
    return got
def sandbox(user):
    if user:
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    rules = call(444, ctypes.byref(ctypes.c_uint64(1)), 8, 0)  # landlock_create_ruleset
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    call(446, rules, 0)  # landlock_restrict_self
    os.close(rules)
def notify():
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE)
def packets(option, value):
    held.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
    held[0].setsockopt(263, option, value)  # SOL_PACKET
held = []
attributes = lambda *words: (ctypes.c_uint32 * 32)(*words)
done = {
    "perf": lambda: call(298, attributes(1, 128), 0, -1, -1, 0),
    "bpf": lambda: call(321, 0, attributes(2, 4, 4, 1), 128),
    "io_uring": lambda: call(425, 8, attributes()),
    "userfaultfd": lambda: call(323, 1),
    "fanotify": lambda: call(301, call(300, 4, 0), 1, 0x10000, -100, b"holding.py"),  # FAN_CLASS_CONTENT, FAN_OPEN_PERM
    "secretmem": lambda: call(447, 0),
    "landlock": lambda: call(444, ctypes.byref(ctypes.c_uint64(1)), 8, 0),
    "landlocked": lambda: sandbox(0),
    "landlocked as a user": lambda: sandbox(65534),
    "dnotify": notify,
    "packet ring": lambda: packets(5, struct.pack("4I", 4096, 1, 2048, 2)),  # PACKET_RX_RING
    "fanout program": lambda: packets(18, struct.pack("I", 5 | 6 << 16)),  # PACKET_FANOUT, by classic BPF
    "netfilter": lambda: held.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)),
}
what = sys.argv[1]
if what.startswith("/"):
    try:
        os.open(what, os.O_RDWR | os.O_NONBLOCK)
    except OSError as e:
        print(e, file=sys.stderr)
        sys.exit(77)
else:
    done[what]()
print("ready", flush=True)
time.sleep(60)
P
holds() { # WHAT WORDS...
	local name="$TEST_NAME/$1" out=holding.out
	: >$out
	exec_alone python3 holding.py "$1" </dev/null >>$out 2>&1 &
	local holder=$!
	wait_until 20 holding_or_gone $holder
	if grep -q '^ready$' $out; then
		refuses "$1" "$sealpoint" dump "$holder" -o new -- "process $holder" "${@:2}"
	else
		skip "$name" "$(<$out)"
	fi
	kill "$holder" 2>/dev/null
	wait "$holder"
}
holding_or_gone() { grep -q '^ready$' holding.out || is_gone "$1"; }
holds /dev/net/tun "an interface of the network" "stop the tunnel"
holds /dev/fuse "file system in user space" "unmount that file system"
holds /dev/kvm "virtual machines of KVM" "suspend the machine"
holds /dev/rtc0 "the hardware clock" "timerfd"
holds /dev/loop0 "a loop device" "losetup --detach"
holds perf "a performance counter" "stop profiling"
holds bpf "a BPF object" "let the program close it"
holds io_uring "io_uring" "switched off"
holds userfaultfd "a userfaultfd" "must close it first"
holds fanotify "asked for permission" "remove its marks"
holds secretmem "secret memory" "let the program close"
holds landlock "a Landlock ruleset" "let the program close it"
holds landlocked "restricted itself with Landlock" "without its sandbox"
holds "landlocked as a user" "restricted itself with Landlock" "without its sandbox"
holds dnotify "F_NOTIFY" "inotify"
holds "packet ring" "a ring of packets" "stop capturing"
holds "fanout program" "a BPF program rules its fanout group" "leave the group"
holds netfilter "a netlink socket of protocol 12" "let the program close it"

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
