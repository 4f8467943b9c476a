#!/bin/bash
# Runs one test in namespaces of its own: `run-one.sh SECONDS SCRIPT [ARGUMENT...]`. Everything that the test
# starts lives in a pid namespace whose init is the test itself, so all of it ends with the test, however
# that ends: no process is ever searched for or killed by name. Mounts and ports end likewise. Its
# pseudoterminals are nobody else's: a number that is to come back is not taken by another test.
#
# A test that says "namespaces: none" in its opening comment stays in the caller's; it has to clean up itself.
set -u
seconds=$1 script=$2
shift 2
if grep -q '^# namespaces: none' "$script"; then
	exec timeout -s KILL "$seconds" bash "$script" "$@"
fi
# shellcheck disable=SC2016 # for the inner shell
exec timeout -s KILL "$seconds" setpriv --pdeathsig KILL unshare --pid --fork --kill-child --mount-proc --ipc --net \
	bash -c 'ip link set lo up; mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts; cd "$TEST_DIR" || exit 1; source "$0" "$@"' "$script" "$@"
