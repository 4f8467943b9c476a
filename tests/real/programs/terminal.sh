# A program in a terminal of its own (terminal.py), what is typed there, and what appears. `source`d.
# shellcheck shell=bash

: >typed
: >screen
seen=0 # bytes of the screen
export PS1='prompt> ' LC_ALL=C TERM=dumb
# shellcheck disable=SC2034 # for the scripts
in_terminal=(/usr/bin/python3 "$TOP/tests/real/programs/terminal.py")

appears() { # WHAT: on the screen, behind what was there before
	grep -a -q -e "$1" <(tail -c +$((seen + 1)) screen)
}

type_and_see() { # TEXT WHAT
	seen=$(stat -c %s screen)
	printf '%b' "$1" >>typed
	wait_until 20 appears "$2" || { echo "no \"$2\" after \"$1\": $(tail -c +$((seen + 1)) screen | cat -v)" && return 1; }
}
