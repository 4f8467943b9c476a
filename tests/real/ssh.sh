#!/bin/bash
# An ssh client and its server, with a session open in a terminal: saved together, and the server alone, while the client
# waits. What is typed reaches the shell behind both, and new sessions are possible.
#
# timeout: 180
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"
# shellcheck source=tests/real/programs/terminal.sh
source "$TOP/tests/real/programs/terminal.sh"

sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || skip_test "there is no sshd"
port=6022
mount -t tmpfs tmpfs /run && mkdir /run/sshd # where it confines itself
for key in host_key key; do
	ssh-keygen -q -t ed25519 -N '' -f $key || die "no key"
done
cat >sshd_config <<C
Port $port
ListenAddress 127.0.0.1
HostKey $TEST_DIR/host_key
AuthorizedKeysFile $TEST_DIR/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
C
client=(ssh -F none -p "$port" -i "$TEST_DIR/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null
	-o ConnectionAttempts=30 -o LogLevel=ERROR root@127.0.0.1)
shell='exec bash --norc --noprofile -i'

begin_session() {
	# shellcheck disable=SC2016 # the shell in the terminal expands it
	wait_until 30 appears 'prompt\|[$#] $' && type_and_see 'PS1="prompt> "\n' '^prompt> ' &&
		type_and_see 'tty; stty size\n' '^/dev/pts/'
}

step=0
check() {
	((++step))
	# shellcheck disable=SC2016
	type_and_see "echo round \$(($step * 10)) \$(tty)\n" "^round ${step}0 $terminal" &&
		type_and_see 'sleep 60\n' 'sleep' &&
		type_and_see '\x03' '^prompt> ' &&
		type_and_see 'seq 20000 | tail -n 1\n' '^20000' || return 1
	[[ $("${client[@]}" echo new 2>&1 </dev/null) == new ]] || { echo "no new session: $(tail -n 2 sshd.log)" && return 1; }
	wait_until 20 only_one || { echo "the new session does not end" && return 1; }
}
only_one() { (($(ss -Htan "sport = :$port" | grep -c -v 'LISTEN\|TIME-WAIT') == 1)); }

three_rounds() { # PID CASE
	local number
	for number in 1 2 3; do
		dump "$1" "image$number" --tcp-established
		wait_until 30 is_gone "$1" || die "$2: dump $number: pid $1 is still there"
		restore_detached "image$number"
		check >complaint || die "$2: after restore $number: $(<complaint)"
		rm -rf "image$number"
	done
	ok "$TEST_NAME/$2"
}

# --- both ----------------------------------------------------------------------------------------------

# shellcheck disable=SC2016 # the shell that is started expands them
start_program sh -c '"$0" -D -e -f sshd_config 2>sshd.log & exec "$@"' "$sshd" "${in_terminal[@]}" "${client[@]}" -tt "$shell"
begin_session >complaint || die "no session begins: $(<complaint) $(tail -n 3 sshd.log program.log screen)"
terminal=/dev/pts/1 # /dev/pts/0 is that of the client
check >complaint || die "before any dump: $(<complaint)"
read -r server _ <"/proc/$PROGRAM_PID/task/$PROGRAM_PID/children"
three_rounds "$PROGRAM_PID" "client and server"
printf 'exit 7\n' >>typed
wait_until 20 is_gone "$PROGRAM_PID" || die "the client does not end"
kill "$server"
wait_until 20 is_gone "$server" || die "the server does not end"

# --- the server alone ----------------------------------------------------------------------------------

: >typed
: >screen
seen=0
exec_alone "$sshd" -D -e -f sshd_config </dev/null >/dev/null 2>sshd.log &
server=$!
start_program "${in_terminal[@]}" "${client[@]}" -tt "$shell"
begin_session >complaint || die "no second session begins: $(<complaint) $(tail -n 3 sshd.log program.log screen)"
check >complaint || die "before any dump of the server: $(<complaint)"
three_rounds "$server" "the server alone"
printf 'exit 7\n' >>typed
wait "$PROGRAM_PID"
(($? == 7)) || die "the client has not seen how the shell ended"
kill "$server"
wait_until 20 is_gone "$server" || die "the server does not end"
