#!/bin/bash
# Bad input of every sort gets one sentence on standard error that names the thing, the exit status that the
# documentation promises, and nothing else: no process, no file, no change to what was there.
#
# timeout: 300
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

processes() { find /proc -maxdepth 1 -name '[0-9]*' -printf '%f\n' | grep -c -v -x -F "$BASHPID"; }
files() { find . -not -path ./error -not -path ./out | sort; }
digest() { find "$1" -type f -exec cksum {} + 2>/dev/null | sort; }

# A command must end with STATUS and say one line that matches WORDS.
refused() { # CASE STATUS WORDS COMMAND...
	local name=$TEST_NAME/$1 expected=$2 words=$3 status=0
	local before_files before_processes
	shift 3
	before_files=$(files)
	before_processes=$(processes)
	timeout 20 "$@" >output 2>error </dev/null || status=$?
	rm -f output
	if ((status != expected)); then
		not_ok "$name" "exit status $status, not $expected: $(head -c 300 error)"
	elif ! one_sentence error; then
		not_ok "$name" "not one line: $(head -c 500 error)"
	elif ! grep -q -i -E -- "$words" error; then
		not_ok "$name" "does not say /$words/: $(<error)"
	elif [[ $(files) != "$before_files" ]]; then
		not_ok "$name" "files came or went: $(diff <(echo "$before_files") <(files) | head -3)"
	elif ! wait_until 5 no_more_processes "$before_processes"; then
		not_ok "$name" "a process was left behind"
	else
		ok "$name"
	fi
}

no_more_processes() { (($(processes) <= $1)); }

# A checkpoint to spoil, of a subject that has been killed.
start_subject basic
subject=$SUBJECT_PID
dump_and_reap "$subject" good
original=$(digest good)
"$sealpoint" verify good >verify.log 2>&1 || die "verify of a good checkpoint: $(<verify.log)"

spoiled() { # a fresh copy to spoil
	rm -rf spoiled
	cp -a good spoiled
}

# --- directories ---------------------------------------------------------------------------------------

mkdir empty foreign
echo "nothing of ours" >foreign/file
echo "a file" >plain_file
for command in restore verify inspect; do
	refused "$command: missing directory" 1 missing "$sealpoint" "$command" missing
	refused "$command: empty directory" 1 empty "$sealpoint" "$command" empty
	refused "$command: foreign directory" 1 foreign "$sealpoint" "$command" foreign
	refused "$command: a file" 1 plain_file "$sealpoint" "$command" plain_file
done
mkdir store
cp -a good store/00000001
ln -s 00000001 store/latest
refused "restore: a store of snapshots" 1 "store/latest is the newest" "$sealpoint" restore store
refused "core: missing directory" 1 missing "$sealpoint" core missing -o core

# --- damage --------------------------------------------------------------------------------------------

for file in good/*; do
	name=$(basename "$file")
	spoiled
	rm "spoiled/$name"
	refused "missing $name" 1 "$name|spoiled" "$sealpoint" restore spoiled
	spoiled
	truncate -s $(($(stat -c %s "$file") / 2)) "spoiled/$name"
	refused "truncated $name" 1 "$name" "$sealpoint" restore spoiled
	spoiled
	truncate -s 0 "spoiled/$name"
	refused "emptied $name" 1 "$name" "$sealpoint" restore spoiled
	spoiled
	echo more >>"spoiled/$name"
	refused "lengthened $name" 1 "$name.*; use another copy" "$sealpoint" restore spoiled
done

flip() { # FILE OFFSET: inverts one byte
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	# shellcheck disable=SC2059 # the format is the byte
	printf "\\x$(printf %x $((255 - byte)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# Every byte of a checkpoint is covered by a checksum: 200 places in each file, the first 64 among them.
flips=0 unnoticed=
spoiled
for file in spoiled/*; do
	size=$(stat -c %s "$file")
	step=$((size / 136 + 1))
	for offset in $(seq 0 $((size < 64 ? size - 1 : 63))) $(seq 64 $step $((size - 1))); do
		flip "$file" "$offset"
		status=0
		timeout 20 "$sealpoint" verify spoiled >/dev/null 2>error || status=$?
		{ ((status == 1)) && one_sentence error; } ||
			unnoticed+="$(basename "$file") byte $offset (status $status): $(head -c 200 error) "
		flip "$file" "$offset"
		((++flips))
	done
done
if [[ -z $unnoticed ]]; then
	echo "$flips flipped bytes, all noticed by verify"
	ok "$TEST_NAME/flipped bytes"
else
	not_ok "$TEST_NAME/flipped bytes" "${unnoticed:0:500}"
fi

# Restore checks what it uses: it refuses, too, or it is harmless.
harmful=
for file in spoiled/*; do
	size=$(stat -c %s "$file")
	for offset in $(seq 0 $((size / 10 + 1)) $((size - 1))); do
		flip "$file" "$offset"
		status=0
		rewind_subject
		let_go
		timeout 20 "$sealpoint" restore spoiled >/dev/null 2>error </dev/null || status=$?
		if ((status == 0)); then
			grep -q '^PASS$' out || harmful+="$(basename "$file") byte $offset: restored, and fails "
		else
			{ ((status == 1)) && one_sentence error; } ||
				harmful+="$(basename "$file") byte $offset (status $status): $(head -c 200 error) "
			is_gone "$subject" || harmful+="$(basename "$file") byte $offset: left a process "
		fi
		flip "$file" "$offset"
	done
done
if [[ -z $harmful ]]; then
	ok "$TEST_NAME/restoring flipped bytes"
else
	not_ok "$TEST_NAME/restoring flipped bytes" "${harmful:0:500}"
fi

# --- checkpoints from elsewhere ------------------------------------------------------------------------

edited() { # ITEM VALUE
	spoiled
	"$test_tools/edit_manifest" spoiled "$@" || die "edit_manifest $*"
}

edited version_major 99
refused "newer major version" 1 "version.*99|99.*version" "$sealpoint" restore spoiled
edited page_size 65536
refused "another page size" 1 "pages of 65536" "$sealpoint" restore spoiled
edited cpu_feature a_feature_of_the_future
refused "missing processor feature" 1 a_feature_of_the_future "$sealpoint" restore spoiled
edited cpu_xfeatures $((1 << 30))
refused "missing register state" 1 0x40000000 "$sealpoint" restore spoiled
edited arch a_machine_of_the_past
refused "another architecture" 1 a_machine_of_the_past "$sealpoint" restore spoiled
accepted() { # CASE REASON
	rewind_subject
	let_go
	if timeout 20 "$sealpoint" restore spoiled >restore.log 2>&1 </dev/null && grep -q '^PASS$' out; then
		ok "$TEST_NAME/$1"
	else
		not_ok "$TEST_NAME/$1" "$2: $(<restore.log)"
	fi
}

edited version_minor 99
accepted "newer minor version" "a checkpoint with new, unknown details is not read"
edited cpu_xfeatures $((3 << 3))
accepted "bound registers" "register state that no program can use is missed"

# --- processes -----------------------------------------------------------------------------------------

exec_alone sleep 1000 </dev/null >/dev/null 2>&1 &
victim=$!
refused "dump: dead pid" 1 99999 "$sealpoint" dump 99999 -o new
refused "dump: no pid" 2 "pid|number|usage" "$sealpoint" dump not-a-pid -o new
refused "dump: no directory given" 2 "directory|usage|-o" "$sealpoint" dump "$victim"
refused "dump: existing directory" 1 foreign "$sealpoint" dump "$victim" -o foreign
refused "dump: parent directory missing" 1 nowhere "$sealpoint" dump "$victim" -o nowhere/new
refused "dump: where none can be made" 1 "cannot create /proc/new" "$sealpoint" dump "$victim" -o /proc/new
refused "core: a directory" 1 "is a directory; name a file" "$sealpoint" core good -o foreign
refused "unknown command" 2 frobnicate "$sealpoint" frobnicate
refused "unknown option" 2 frobnicate "$sealpoint" dump "$victim" -o new --frobnicate
refused "dump: oneself" 1 "itself|own|oneself|sealpoint" bash -c "exec \"$sealpoint\" dump \$\$ -o new"
refused "dump: not ours to trace" 1 "$victim.*(permi|privileg|allow|root|CAP)" \
	setpriv --reuid=nobody --regid=nogroup --clear-groups "$sealpoint" dump "$victim" -o /tmp/new-$$

# Traced already: by a debugger that holds it.
mkfifo debugger
gdb -q -p "$victim" <debugger >gdb.log 2>&1 &
gdb=$!
exec 5>debugger
tracer_of() { sed -n 's/^TracerPid:\s*//p' "/proc/$1/status"; }
is_traced() { [[ $(tracer_of "$victim") != 0 ]]; }
wait_until 20 is_traced || die "gdb does not attach: $(tail -2 gdb.log)"
refused "dump: traced already" 1 "$(tracer_of "$victim")|traced" "$sealpoint" dump "$victim" -o new
is_traced || not_ok "$TEST_NAME/dump: traced already" "the debugger has lost the process"
exec 5>&-
wait "$gdb"

sleeps_again() { [[ $(state_of "$victim") == S ]]; }
wait_until 10 sleeps_again || not_ok "$TEST_NAME/victim" "state $(state_of "$victim") after refused dumps"

# --- the pid of a restored process is taken ------------------------------------------------------------

rewind_subject
restore_detached good
refused "restore: pid is taken" 1 "$subject" "$sealpoint" restore good
is_gone "$subject" && not_ok "$TEST_NAME/restore: pid is taken" "the process that had the pid is gone"
let_go
expect_pass "$subject" 20

[[ $(digest good) == "$original" ]] || not_ok "$TEST_NAME/images" "the good checkpoint was changed"
