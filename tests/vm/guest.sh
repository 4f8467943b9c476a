#!/bin/bash
# What happens in the guest, started by tests/vm/init: the tests that run.sh has chosen, then the moves. The environment
# is run.sh's (its file job.env): TOP, BUILD, TESTS, TRAVELLERS, TRAVEL.
set -u
cd "$TOP" || exit
export TMPDIR=/disk

uname -sr
"$BUILD/sealpoint" check
echo "ok check"

if [[ $TESTS ]]; then
	# shellcheck disable=SC2086 # lists
	tests/run.sh $TESTS
fi

# From here on with randomized addresses, as on the other side.
echo 2 >/proc/sys/kernel/randomize_va_space

# The emulated processor has fewer features than the one that the travellers have left.
refusal() {
	local answer
	if answer=$("$BUILD/sealpoint" restore "$TRAVEL/to-guest/$1/image" 2>&1); then
		echo "FAIL arrive/$1: restored on a processor with fewer features"
	elif [[ $answer == *"this processor lacks "* ]]; then
		echo "ok arrive/$1 is refused"
	else
		echo "FAIL arrive/$1: $answer"
	fi
}
for traveller in $TRAVELLERS; do
	refusal "$traveller"
done

# The other side may be a container, whose root lacks this one.
# shellcheck disable=SC2086 # a list
setpriv --bounding-set=-sys_resource tests/vm/travel.sh leave "$TRAVEL/to-host" $TRAVELLERS
# a format that knows sockets
cd "$TRAVEL" && find to-host | busybox cpio -o -H newc >/dev/vport0p2
