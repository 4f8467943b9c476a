#!/bin/bash
# Random trees of processes with random objects are saved in full, live, ahead and by deltas, and brought back, and
# everything that can be seen of them from outside is compared (tests/stress/trees.py).
#
# SEEDS="N..." tries those; STRESS=N, which `make stress` sets, N new ones.
#
# timeout: 86400
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

mkdir trees
mount -t tmpfs trees trees || die "cannot mount a tmpfs"
cd trees || exit 1

if [[ ${STRESS:-} ]]; then
	for ((i = 0; i < STRESS; i++)); do
		SEEDS+=" $SRANDOM"
	done
fi
read -r -a seeds <<<"${SEEDS:-103 216 225 317}"
restored=0
for seed in "${seeds[@]}"; do
	timeout -s KILL 300 unshare --ipc python3 -B "$TOP/tests/stress/trees.py" "$sealpoint" "$BUILD/tests/stress/random_tree" "$seed" >"log$seed" 2>&1 ||
		not_ok "$TEST_NAME/seed $seed" "SEEDS=$seed repeats it: $(head -n 12 "log$seed")"
	grep -q ' processes$' "log$seed" && ((++restored))
done
((restored)) || die "not one tree was restored: $(cat log*)"
ok "$TEST_NAME" "$restored of ${#seeds[@]} trees restored, $(grep -l refused log* | wc -l) refused"
