#!/bin/bash
# Prints the tables of tests/bench/tracking, one program each, and those of saving a program that is tracked:
# `make bench-tracking`, or some of them by name. Times are of this machine; look at the ratios within a table.
set -eu
here=$(dirname "$(realpath "$0")")
programs=$(realpath "${BUILD:-build}")/tests/bench/tracking

tables=("$@")
((${#tables[@]})) || tables=(operations first_write finding protection_turns vma_calls reuse restored freeze snapshots)
echo "Linux $(uname -r), $(nproc) processors, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
for table in "${tables[@]}"; do
	printf '\n=== %s: ' "$table"
	case $table in
	restored) "$here/restored.sh" ;;
	freeze | snapshots) "$here/$table.py" ;;
	*) "$programs/$table" ;;
	esac
done
