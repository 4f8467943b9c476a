#!/bin/bash
# The emulator in examples/tiny8: what it shows after going back, loading and running again is what it showed the
# first time, to the byte of the picture; and only a part of the picture is drawn for each frame.
#
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

tiny8=$BUILD/examples/tiny8

same() { # NAME PNG PNG
	if cmp "$2" "$3" >difference 2>&1; then
		ok "$TEST_NAME/$1"
	else
		not_ok "$TEST_NAME/$1" "$(<difference)"
	fi
}

timeout 60 "$tiny8" run 60 shot 60.png run 67 shot 127.png save 127.state run 120 shot 247.png run 53 \
	back 53 shot back-247.png back 120 shot back-127.png back 67 shot back-60.png \
	run 187 shot again-247.png load 127.state shot loaded-127.png run 120 shot loaded-247.png \
	back 121 shot unloaded-247.png >output || die "tiny8 failed: $(<output)"

for png in ./*.png; do
	[[ $(head -c 8 "$png" | od -An -tx1) == " 89 50 4e 47 0d 0a 1a 0a" ]] || die "$png is no PNG"
done
cmp -s 60.png 127.png && not_ok "$TEST_NAME/frames" "frames 60 and 127 do not differ"
cmp -s 127.png 247.png && not_ok "$TEST_NAME/frames" "frames 127 and 247 do not differ"
same back-53-frames 247.png back-247.png
same back-173-frames 127.png back-127.png
same back-240-frames 60.png back-60.png
same run-again 247.png again-247.png
same load 127.png loaded-127.png
same run-after-load 247.png loaded-247.png
same undo-load 247.png unloaded-247.png

# The ball and a row lie in a few of eight pages.
drawn=$(sed -n 's/.*; \([0-9]*\)\..* % of the picture.*/\1/p' output)
if ((drawn > 0 && drawn < 100)); then
	ok "$TEST_NAME/redraw" "$drawn % of the picture for each frame"
else
	not_ok "$TEST_NAME/redraw" "$(<output)"
fi
"$tiny8" load /dev/null shot x.png 2>error && not_ok "$TEST_NAME/damaged" "loads an empty file"
grep -q "cannot be loaded" error || not_ok "$TEST_NAME/damaged" "$(<error)"
