#!/bin/bash
# What the first write to each restored page costs: page faults, as the kernel counts them, and time, beside the same
# program that was not saved. The aim is that it costs no fault. Part of `make bench-tracking`.
set -eu
build=$(realpath "${BUILD:-build}")

directory=$(mktemp -d)
pid=
finish() {
	if [[ $pid ]]; then kill -KILL "$pid" 2>/dev/null || true; fi
	rm -rf "$directory"
}
trap finish EXIT
says() { # WORD
	until grep -q "$1" "$directory/out"; do sleep 0.05; done
}

printf 'the first write to each page of 4 KiB\n\n%-24s %10s %10s %10s\n' memory pages faults 'ns a page'
for way in "not saved" restored; do
	printf '%s:\n' "$way"
	: >"$directory/out"
	setsid "$build/tests/bench/restored" "$directory" <>/dev/null >>"$directory/out" 2>&1 &
	pid=$!
	says ready
	if [[ $way == restored ]]; then
		{ # without a word of bash's about its end
			"$build/sealpoint" dump "$pid" -o "$directory/image" --quiet 2>&3 || exit 1
			wait "$pid" || true
		} 3>&2 2>/dev/null
		"$build/sealpoint" restore "$directory/image" --detach --quiet
	fi
	kill -USR1 "$pid"
	says end
	grep -v 'ready\|end' "$directory/out"
done
