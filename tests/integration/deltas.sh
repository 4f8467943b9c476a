#!/bin/bash
# Deltas are exact: a program changes its memory in every way there is, step by step, and every checkpoint of the
# chain is compared with what it had (tests/tools/deltas.c).
#
# SEED=N STEPS=N repeats one run; DELTAS=many, which `make check-deltas` sets, takes 10,000 steps.
#
# timeout: 3600
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

mkdir memory
mount -t tmpfs deltas memory || die "cannot mount a tmpfs"
cd memory || exit 1

run() { # SEED STEPS RESTORE_EVERY
	mkdir "run$1" && cd "run$1" || exit 1
	"$test_tools/deltas" --seed "$1" --steps "$2" --restore "$3" "$subjects/changing" "$sealpoint" >deltas.log 2>&1
	local status=$?
	cd ..
	if ((status == 0)); then
		ok "$TEST_NAME/seed $1" "$(tail -n 1 "run$1/deltas.log")"
		rm -rf "run$1"
	else
		not_ok "$TEST_NAME/seed $1" "$(tail -n 2 "run$1/deltas.log")"
	fi
}

if [[ ${SEED:-} ]]; then
	run "$SEED" "${STEPS:-300}" 50
elif [[ ${DELTAS:-} == many ]]; then
	for seed in 11 12 13 14 15; do
		run $seed 2000 100
	done
else
	for seed in 1 2 3; do
		run $seed 200 50
	done
fi
