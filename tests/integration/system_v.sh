#!/bin/bash
# System V shared memory belongs to the host as well: who else has attached a segment, who has changed it, and who has
# its id or its key by the time of the restore. And semaphores are the host's: who has them by then that the program held.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

cat >segment.py <<'P'
import ctypes, sys, time

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
what, number = sys.argv[1], int(sys.argv[2], 0)
if what in ("take", "give"):
    operation = (ctypes.c_short * 3)(0, -1 if what == "take" else 1, 0)
    sys.exit(libc.semop(number, operation, 1) != 0)
if what == "make":
    sys.exit(libc.shmget(number, 4096, 0o3600) < 0)  # IPC_CREAT | IPC_EXCL
memory = libc.shmat(number, None, 0)
if what == "write":
    ctypes.memset(memory, 77, 4096)
else:
    print("ATTACHED", flush=True)
    time.sleep(60)
P

# Somebody else attaches it. Sets OUTSIDER.
attach() { # ID
	: >attached
	python3 segment.py attach "$1" >attached </dev/null &
	OUTSIDER=$!
	wait_until 10 grep -q ATTACHED attached || die "cannot attach segment $1"
}

detach() {
	kill "$OUTSIDER"
	wait "$OUTSIDER" 2>/dev/null
}

segments() { ipcs -m | grep -c '^0x'; }
# The one with a key: "0x5ea10005 0 65534 640 65436 3 locked".
keyed() { ipcs -m | awk '/^0x5ea1/ { print $'"$1"' }'; }

start_subject system_v_memory
pid=$SUBJECT_PID id=$(keyed 2) key=$(keyed 1)

attach "$id"
refuses "attached by somebody else" "$sealpoint" dump "$pid" -o image -- \
	"System V shared memory" "id $id" "process $OUTSIDER (python3)" "outside of the tree" "end that first"
detach

dump_and_reap "$pid" image
[[ $(segments) == 1 ]] || not_ok "$TEST_NAME/what stays" "$(segments) segments are left, not the one with a key"
"$sealpoint" core image -o core >/dev/null 2>&1 || die "no core file"
[[ $(segments) == 1 ]] || not_ok "$TEST_NAME/core" "it leaves $(segments) segments"

attach "$id"
refuses "attached meanwhile" "$sealpoint" restore image --detach -- \
	"id $id" "other processes have attached it" "process $OUTSIDER"
detach

python3 segment.py write "$id"
rewind_subject
restore_detached image
[[ $(keyed 2) == "$id" ]] || die "the segment has id $(keyed 2), not $id"
let_go
expect_pass "$pid" 30
ok "$TEST_NAME/changed meanwhile"

# The program has removed it. Somebody else gets its id.
echo "$id" >/proc/sys/kernel/shm_next_id
python3 segment.py make 0x1234
refuses "its id is taken" "$sealpoint" restore image --detach -- "another segment has its id $id" "ipcrm -m $id"
[[ $(segments) == 1 ]] || not_ok "$TEST_NAME/its id is taken" "the other one is gone"
ipcrm -m "$id"

python3 segment.py make "$key"
refuses "its key is taken" "$sealpoint" restore image --detach -- "another segment has its key $key" "ipcrm -M $key"
[[ $(</proc/sys/kernel/shm_next_id) == -1 ]] || not_ok "$TEST_NAME/its key is taken" "the id is still reserved"
ipcrm -M "$key"
[[ $(segments) == 0 ]] || not_ok "$TEST_NAME/failed restores" "they leave $(segments) segments"

expect_restored "$pid" image
ok "$TEST_NAME/made anew"

start_subject semaphores
pid=$SUBJECT_PID
"$sealpoint" inspect "$pid" >survey 2>&1 || die "inspect: $(tail -n 3 survey)"
rm -r image
dump_and_reap "$pid" image
# The larger of the two.
set=$(ipcs -s | awk '$5 == 100 { print $2 }')
python3 segment.py take "$set" || die "the semaphore was not given back"
refuses "somebody else holds the semaphore" "$sealpoint" restore image --detach -- \
	"semaphore 0 of set $set" "a value of 0 now, and not 1" "ipcs -s -i $set"
python3 segment.py give "$set"
expect_restored "$pid" image
ok "$TEST_NAME/the semaphore is free again"
ipcrm -s "$set"
rewind_subject
refuses "the semaphores are gone" "$sealpoint" restore image --detach -- \
	"semaphore set $set" "is gone" "make it again"
