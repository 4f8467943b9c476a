#!/bin/bash
# Proves for hours that deltas are exact (tests/integration/deltas.sh), with new seeds: `soak.sh HOURS`. Ends at the
# first failure, whose seed is in what it prints, and keeps its directory.
set -u
deadline=$((SECONDS + ${1:-4} * 3600))
while ((SECONDS < deadline)); do
	SEED=$((SRANDOM)) STEPS=2000 "$(dirname "$0")/run.sh" -k integration/deltas || exit 1
done
