#!/bin/bash
# Prints the tables of tests/bench/tracking, one program each: `make bench-tracking`, or some of them by name. Times are
# of this machine; look at the ratios within a table.
set -eu
programs=$(realpath "${BUILD:-build}")/tests/bench/tracking

tables=("$@")
((${#tables[@]})) || tables=(operations first_write finding protection_turns vma_calls reuse)
echo "Linux $(uname -r), $(nproc) processors, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
for table in "${tables[@]}"; do
	printf '\n=== %s: ' "$table"
	"$programs/$table"
done
