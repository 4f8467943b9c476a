#!/bin/bash
# POSIX message queues that cannot be saved, or are not what they were by the time of the restore.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

cat >queue.py <<'P'
import ctypes, sys, time

librt = ctypes.CDLL("librt.so.1", use_errno=True)
librt.mq_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
librt.mq_send.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint]
librt.mq_notify.argtypes = [ctypes.c_int, ctypes.c_void_p]
librt.mq_unlink.argtypes = [ctypes.c_char_p]
queue = librt.mq_open(b"/test", 0o102, 0o600, (ctypes.c_long * 8)(0, int(sys.argv[1]), 32))
assert queue >= 0
for what in sys.argv[2:]:
    if what == "send":
        assert librt.mq_send(queue, b"message", 7, 0) == 0
    elif what == "unlink":
        assert librt.mq_unlink(b"/test") == 0
    elif what == "notify":
        event = (ctypes.c_int * 16)(0, 0, 0, 1)  # SIGEV_NONE
        assert librt.mq_notify(queue, event) == 0
    elif what == "wait":
        print("READY", flush=True)
        time.sleep(60)
P

start() { # WHAT... : sets PROGRAM
	: >ready
	exec_alone python3 queue.py "$@" wait >ready 2>&1 </dev/null &
	PROGRAM=$!
	wait_until 10 grep -q READY ready || die "no queue: $(<ready)"
}

end() {
	kill -KILL "$1"
	wait "$1" 2>/dev/null
}

start 4 send unlink
refuses "unlinked, with a message" "$sealpoint" dump "$PROGRAM" -o image --timeout 1s -- \
	"process $PROGRAM" "message queue /test" "holds 1 messages" "let the program receive"
end "$PROGRAM"

start 4 notify
refuses "to be notified" "$sealpoint" dump "$PROGRAM" -o image -- \
	"process $PROGRAM waits to be notified" "mq_notify with NULL"
other=$PROGRAM
start 4
dump "$PROGRAM" image --leave-running
end "$PROGRAM"
end "$other"
rm -r image
ok "$TEST_NAME/somebody else is to be notified"

start 4 send
dump_and_reap "$PROGRAM" image
python3 queue.py 4 unlink
refuses "it is gone, with a message" "$sealpoint" restore image --detach -- \
	"/test" "the queue is gone, and the 1 messages"
python3 queue.py 5
refuses "another one has its name" "$sealpoint" restore image --detach -- \
	"another queue has its name" "5 messages of 32 bytes instead of 4" "rm /dev/mqueue/test"
python3 queue.py 5 unlink
rm -r image

start 4
dump_and_reap "$PROGRAM" image
python3 queue.py 4 unlink
restore_detached image
end "$PROGRAM"
python3 queue.py 4 unlink || die "the queue was not made again"
ok "$TEST_NAME/gone, but empty"
