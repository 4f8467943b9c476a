#!/bin/bash
# `make -j4` of Lua, saved and restored three times on its way: with a quarter, half and three quarters of its objects
# compiled. Every file that comes of it is, byte by byte, what comes of a build that was not disturbed.
#
# timeout: 600
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

archive=/usr/src/lua5.4.orig.tar.gz
[[ -e $archive ]] || skip_test "the source package lua5.4 is not here"

built_files() { find built -newer unpacked -type f ! -name '*.log' -exec sha256sum {} + | sort -k 2; }
has_objects() { (($(find built -name '*.o' | wc -l) >= $1)); }
is_linked() { [[ -x built/src/luac && -x built/src/lua ]]; }

unpack() {
	rm -rf built
	mkdir built
	tar -xf "$archive" -C built --strip-components=1
	: >unpacked
}

# However quick the machine is, the programs are not linked before the last restore.
cat >compiler <<'END_OF_COMPILER'
#!/bin/sh
case " $* " in
*" -o lua "* | *" -o luac "*)
	while [ ! -e "${0%/*}/may_link" ]; do
		sleep 0.1
	done
	;;
esac
exec gcc "$@"
END_OF_COMPILER
chmod 755 compiler

command=(make -C built -j4 linux "CC=$TEST_DIR/compiler -std=gnu99")

unpack
touch may_link
"${command[@]}" >undisturbed.log 2>&1 </dev/null || die "the undisturbed build fails: $(tail -n 3 undisturbed.log)"
objects=$(find built -name '*.o' | wc -l)
built_files >expected
rm may_link

unpack
start_program "${command[@]}"
make=$PROGRAM_PID
for quarter in 1 2 3; do
	wait_until 100 has_objects $((objects * quarter / 4)) || die "it stands still after $((quarter - 1)) restores: $(tail -n 3 program.log)"
	dump "$make" image
	wait_until 30 is_gone "$make" || die "make is still there"
	restore_detached image
	rm -rf image
done
touch may_link
wait_until 100 is_gone "$make" || die "it does not end: $(tail -n 3 program.log)"
is_linked || die "the build has failed: $(tail -n 5 program.log)"
built_files | diff expected - >difference || die "the build differs: $(head -n 6 difference)"
[[ $(built/src/lua -e 'print(("frozen "):rep(3) .. 6 * 7)') == "frozen frozen frozen 42" ]] || die "what was built does not work"
diff <(sort undisturbed.log) <(sort program.log) >difference || die "make says something else: $(head -n 6 difference)"
ok "$TEST_NAME" "$(wc -l <expected) files"
