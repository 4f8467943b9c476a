#!/bin/bash
# The libraries as their users get them: installed somewhere, found by pkg-config, used from C++, shared and static,
# with no symbol but the declared ones and a man page for each of these.
#
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

root=$PWD/root
make -s -C "$TOP" BUILD="$BUILD" PREFIX="$root" install >install.log 2>&1 || die "make install: $(tail -n 2 install.log)"
export PKG_CONFIG_PATH=$root/lib/pkgconfig

# --- the programs of users -----------------------------------------------------------------------------

try() { # LIBRARY SOURCE
	local library=$1 source=$2 flags
	flags=$(pkg-config --cflags --libs "sealpoint-$library") || die "pkg-config does not find sealpoint-$library"
	# shellcheck disable=SC2086 # flags are words
	if ! g++ -Wall -Wextra -Werror -pedantic -o "$library" "$source" $flags 2>error; then
		not_ok "$TEST_NAME/$library" "$(<error)"
	elif ! LD_LIBRARY_PATH=$root/lib timeout 20 "./$library" >output; then
		not_ok "$TEST_NAME/$library" "the program fails"
	elif ! readelf -d "$library" | grep -q "NEEDED.*libsealpoint-$library.so.0"; then
		not_ok "$TEST_NAME/$library" "it is not linked with the shared library"
	else
		ok "$TEST_NAME/$library" "$(<output)"
	fi
}

try_static() { # LIBRARY SOURCE
	local flags
	flags=$(pkg-config --cflags --libs --static "sealpoint-$1")
	flags=${flags/-lsealpoint-watch/-l:libsealpoint-watch.a}
	flags=${flags/-lsealpoint-rewind/-l:libsealpoint-rewind.a}
	# shellcheck disable=SC2086
	if g++ -o "$1-static" "$2" $flags && timeout 20 "./$1-static" >output; then
		ok "$TEST_NAME/$1-static"
	else
		not_ok "$TEST_NAME/$1-static" "does not build or fails"
	fi
}

# --- what is visible -----------------------------------------------------------------------------------

check_symbols() { # LIBRARY HEADER
	local symbol
	grep -o '\bsp_[a-z_]*(' "$TOP/include/sealpoint/$2" | tr -d '(' | sort -u >mentioned
	nm -D --defined-only "$root/lib/libsealpoint-$1.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort >exported
	if [[ -s exported && -z $(comm -13 mentioned exported) ]]; then
		ok "$TEST_NAME/$1-symbols" "$(wc -l <exported) functions"
	else
		not_ok "$TEST_NAME/$1-symbols" "exported, but not in $2: $(comm -13 mentioned exported)"
	fi
	while read -r symbol; do
		grep -q "^\.Fn $symbol\b" "$root/share/man/man3/$symbol.3" ||
			not_ok "$TEST_NAME/$1-man" "no man page tells about $symbol()"
	done <exported
}

# A library must need exactly these.
check_needed() { # LIBRARY LIBRARIES...
	local needed
	needed=$(readelf -d "$root/lib/libsealpoint-$1.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
	if [[ $needed == "$2" ]]; then
		ok "$TEST_NAME/$1-needed" "$needed"
	else
		not_ok "$TEST_NAME/$1-needed" "needs $needed, not $2"
	fi
}

try watch "$TOP/tests/library/watch.cc"
try_static watch "$TOP/tests/library/watch.cc"
check_symbols watch write_watch.h
check_needed watch 'libc.so.6 '
try rewind "$TOP/tests/library/rewind.cc"
try_static rewind "$TOP/tests/library/rewind.cc"
check_symbols rewind rewind.h
check_needed rewind 'libc.so.6 libsealpoint-watch.so.0 libzstd.so.1 '
warnings=$(mandoc -T lint -W warning "$TOP"/docs/man/*.[37]) || not_ok "$TEST_NAME/man" "$(head -n 3 <<<"$warnings")"
