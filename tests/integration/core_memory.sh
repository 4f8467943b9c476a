#!/bin/bash
# A debugger opens the core file of a checkpoint: every thread is there, with a backtrace that leads through the
# C library to the program's own functions, and with its memory.
#
# timeout: 120
# shellcheck disable=SC2016 # the dollars are the debugger's
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

cat >threads.c <<'C'
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

static volatile char buffer[1 << 20];
static const uint64_t constant = 0x1122334455667788;
static volatile uint64_t counter = 41;
static atomic_int waiting;

static void __attribute__((noinline)) wait_in_a_thread(volatile long *local)
{
	*local += 1000;
	waiting++;
	for (;;)
		pause();
}

static void *thread_main(void *number)
{
	volatile long local = (long)number;

	wait_in_a_thread(&local);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	counter += constant != 0;
	for (unsigned i = 0; i < sizeof(buffer); i++)
		buffer[i] = (char)(i / 4096);
	for (long i = 1; i <= 3; i++)
		pthread_create(&thread, NULL, thread_main, (void *)i);
	while (waiting < 3)
		sched_yield();
	(void)!write(1, "READY\n", 6);
	for (;;)
		pause();
}
C
cc -g -O1 -pthread -o threads threads.c || die "cannot build the program"
exec_alone ./threads >ready </dev/null 2>&1 &
program=$!
wait_until 20 grep -q READY ready || die "the program is not ready"
dump_and_reap "$program" saved
"$sealpoint" core saved -o core >core.log 2>&1 || die "core: $(<core.log)"

look() { # EXECUTABLE GDB-COMMAND...
	local arguments=() command
	for command in "${@:2}"; do
		arguments+=(-ex "$command")
	done
	gdb -q -nx -batch -ex 'set debuginfod enabled off' "${arguments[@]}" "$1" core 2>&1
}

expect_output() { # CASE FILE WORDS
	if grep -q -e "$3" "$2"; then
		ok "$TEST_NAME/$1"
	else
		not_ok "$TEST_NAME/$1" "no \"$3\" in: $(tail -5 "$2")"
	fi
}

look ./threads 'info threads' 'thread apply all backtrace' >backtraces
if (($(grep -c '^#.* wait_in_a_thread' backtraces) == 3 && $(grep -c '^#.* main ()' backtraces) == 1)); then
	ok "$TEST_NAME/backtraces"
else
	not_ok "$TEST_NAME/backtraces" "$(grep '^#' backtraces | head -20)"
fi
expect_output "leader first" backtraces "^\* 1 .*$program"

look ./threads 'print counter' 'print/x constant' 'print (int)buffer[200 * 4096]' 'print buffer[(1 << 20) - 1]' \
	'info proc mappings' 'info auxv' 'print/x $mxcsr' >memory
expect_output "written data" memory '^\$1 = 42$'
expect_output "constants" memory '^\$2 = 0x1122334455667788$'
expect_output "large arrays" memory '^\$3 = -56$'
expect_output "last byte" memory '^\$4 = -1 '
expect_output "mapped files" memory "$PWD/threads"
expect_output "auxiliary vector" memory 'AT_ENTRY'
expect_output "vector registers" memory '0x1f[0-9a-f]0'

# The core alone holds the C library's text: the debugger needs no file beside it to see the system call.
mv threads elsewhere
gdb -q -nx -batch -ex 'x/2xb $pc - 2' -c core >alone 2>&1
expect_output "without the executable" alone '0x0f.0x05'
