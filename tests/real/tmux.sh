#!/bin/bash
# A tmux server with two sessions and three windows: a shell, one that scrolls all the time, and less with a file. Its clients
# find all of it after each restore: what stood on the screens, shells that still do what they are told, sizes, names.
#
# timeout: 180
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

export LC_ALL=C TERM=dumb PS1='prompt> '
unset TMUX
terminals() { timeout 20 tmux -S "$TEST_DIR/socket" -f /dev/null "$@" 2>&1 </dev/null; }
shows() { # WINDOW WHAT
	terminals capture-pane -p -t "$1" | grep -q -e "$2"
}
see() { # WINDOW WHAT
	wait_until 20 shows "$1" "$2" || { echo "no \"$2\" in $1: $(terminals capture-pane -p -t "$1" | grep . | tail -n 3)" && return 1; }
}
list() { terminals list-windows -a -F '#{session_name}:#{window_index} #{window_name} #{pane_tty} #{pane_pid} #{window_width} x #{window_height}'; }

has_lines() { (($(wc -l <"$1") >= $2)); }
step=0
check() {
	((++step))
	diff <(list) windows || return 1
	shows work:0 'before the first dump' || { echo "the screen is not what it was: $(terminals capture-pane -p -t work:0)" && return 1; }
	terminals send-keys -t work:0 "echo round \$((10 * $step)) on \$(tty)" Enter
	see work:0 "^round ${step}0 on $(terminals display -p -t work:0 '#{pane_tty}')" || return 1
	wait_until 20 has_lines scrolled $(($(wc -l <scrolled) + 50)) || { echo "the other window does not scroll" && return 1; }
	terminals send-keys -t reading g
	see reading '^line 1$' || return 1
	terminals send-keys -t reading G
	see reading '^line 500$' || return 1
	# New windows are possible, and the server knows when they end.
	terminals new-window -d -t work:7 'echo new >new; sleep 0.1'
	wait_until 20 test -s new || { echo "no new window" && return 1; }
	rm new
	wait_until 20 same_windows || { echo "the new window does not end: $(list)" && return 1; }
}
same_windows() { diff <(list) windows >/dev/null; }

seq -f 'line %g' 500 >text
(exec_alone tmux -S "$TEST_DIR/socket" -f /dev/null new-session -d -s work -n shell -x 90 -y 30 'exec bash --norc --noprofile' \
	</dev/null >program.log 2>&1)
# shellcheck disable=SC2016 # the shell that is started expands it
terminals new-window -d -t work:1 -n scrolling 'i=0; while :; do i=$((i + 1)); echo "scroll $i" | tee -a scrolled; done'
terminals new-session -d -s reading -n text -x 70 -y 20 'less text'
server=$(terminals display -p '#{pid}')
[[ $server =~ ^[0-9]+$ ]] || die "tmux does not begin: $server $(<program.log)"
terminals send-keys -t work:0 "echo before the first dump" Enter
see work:0 '^before the first dump' >complaint || die "no shell: $(<complaint)"
see reading '^line 1$' >complaint || die "no less: $(<complaint)"
wait_until 20 has_lines scrolled 10
list >windows
(($(wc -l <windows) == 3)) || die "tmux has not three windows: $(<windows)"
three_times "$server" check
"$sealpoint" inspect "$server" >shown 2>&1 || die "inspect finds something in the way: $(<shown)"
for line in '/dev/pts/0, its master, 90 x 30' 'bash  on /dev/pts/0, in the foreground'; do
	grep -q "$line" shown || die "inspect does not show \"$line\": $(grep pts shown)"
done
terminals kill-server
awk '$0 != "scroll " NR { exit 1 }' scrolled || die "lines were lost or came twice"
wait_until 20 is_gone "$server" || die "the server does not end"
ok "$TEST_NAME"
