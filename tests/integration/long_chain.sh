#!/bin/bash
# A chain of 120 checkpoints in the place of one: all commands read through it, the program that comes back is the one
# that was saved, and merging makes one checkpoint of it again.
#
# timeout: 240
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

length=120
youngest=chain/$((length - 1))

start_subject pages
subject=$SUBJECT_PID
"$sealpoint" pre-dump "$subject" -o ahead >dump.log 2>&1 || die "pre-dump: $(<dump.log)"
dump_and_reap "$subject" saved
"$test_tools/make_chain" saved chain $length 2>error || die "make_chain: $(<error)"

# Restores a checkpoint, and lets the program check all that it had.
comes_back() { # DIR CASE
	rewind_subject
	if "$sealpoint" restore "$1" --detach >>restore.log 2>error </dev/null; then
		let_go
		expect_pass "$subject" 20
		ok "$TEST_NAME/$2"
	else
		not_ok "$TEST_NAME/$2" "$(<error)"
	fi
}

# Runs a command, and expects words in its answer.
answers() { # CASE WORDS COMMAND...
	if ! "${@:3}" >output 2>error </dev/null; then
		not_ok "$TEST_NAME/$1" "$(<error)"
	elif ! grep -q -e "$2" output; then
		not_ok "$TEST_NAME/$1" "does not say \"$2\": $(head -5 output)"
	else
		ok "$TEST_NAME/$1"
	fi
}

# --- reading -------------------------------------------------------------------------------------------

answers "verify" "in a chain of $length checkpoints" "$sealpoint" verify "$youngest"
answers "inspect" "pages, process $subject" "$sealpoint" inspect "$youngest"
answers "inspect the chain" "parent .*\.\./$((length - 2)) and $((length - 2)) below it; pages of contents: " \
	"$sealpoint" inspect "$youngest"
"$sealpoint" inspect "$youngest" --json >output || die "inspect --json"
if python3 -c 'import json; o = json.load(open("output")); c = o["checkpoint"]; p = o["pages"]
assert c["chain_length"] == '$length' and c["parent"] == "../'$((length - 2))'" and len(c["parent_id"]) == 32
assert not c["memory_only"] and p["from_chain"] > 0 and p["chain_contents_bytes"] > p["contents_bytes"]
assert p["from_chain"] * 4096 + p["contents_bytes"] == p["chain_contents_bytes"]' 2>error; then
	ok "$TEST_NAME/inspect --json"
else
	not_ok "$TEST_NAME/inspect --json" "$(tail -1 error)"
fi
comes_back "$youngest" "restore"

"$sealpoint" core saved -o core.saved >/dev/null || die "core"
"$sealpoint" core "$youngest" -o core.chain >/dev/null || die "core of a chain"
if cmp -s core.saved core.chain; then
	ok "$TEST_NAME/core"
else
	not_ok "$TEST_NAME/core" "the core files of the chain and of what it was made from differ"
fi

answers "diff with what it was made from" "say the same" "$sealpoint" diff saved "$youngest"
answers "diff inside of the chain" "pages have other contents" "$sealpoint" diff chain/100 "$youngest"

# --- merging -------------------------------------------------------------------------------------------

answers "merge" "merged $length checkpoints into merged" "$sealpoint" merge "$youngest" -o merged
answers "the merged one is whole" "merged is intact: " "$sealpoint" verify merged
answers "diff with the merged one" "say the same" "$sealpoint" diff "$youngest" merged
comes_back merged "restore of the merged one"

# In place: what it stood on can go, and those that stand on it do not notice.
answers "merge in place" "merged 61 checkpoints" "$sealpoint" merge chain/60 --in-place --compress none
rm -r chain/[0-9] chain/[1-5][0-9]
answers "the shorter chain" "in a chain of $((length - 60)) checkpoints" "$sealpoint" verify "$youngest"
comes_back "$youngest" "restore of the shorter chain"
[[ -z $(compgen -G 'chain/*partial*') ]] || not_ok "$TEST_NAME/merge in place" "leaves $(echo chain/*partial*)"

# --- memory only ---------------------------------------------------------------------------------------

answers "inspect memory only" "holds .*memory only, as a parent for others" "$sealpoint" inspect ahead
answers "verify memory only" "ahead is intact" "$sealpoint" verify ahead
answers "diff with memory only" "" "$sealpoint" diff ahead saved
answers "merge memory only" "merged 1 checkpoint into ahead.merged" "$sealpoint" merge ahead -o ahead.merged
refuses "restore memory only" "$sealpoint" restore ahead --detach -- \
	"ahead holds memory only, it is a pre-dump; use a checkpoint that stands on it"
refuses "core of memory only" "$sealpoint" core ahead -o core.ahead -- "ahead holds memory only"

# --- what can be wrong ---------------------------------------------------------------------------------

mv chain/90 moved
refuses "a missing parent" "$sealpoint" restore "$youngest" --detach -- \
	"cannot open checkpoint $youngest: " "/chain/90, the parent of " "/chain/91, is not there"
refuses "merge without a parent" "$sealpoint" merge "$youngest" -o new -- "chain/90, the parent of"
cp -r merged chain/90
refuses "another one in its place" "$sealpoint" verify "$youngest" -- \
	"chain/90 is not the checkpoint that " "/chain/91 stands on"
rm -r chain/90
mv moved chain/90
for ((i = 61; i < length - 1; i++)); do # all of them: which one has pages of the youngest is left to chance
	head -c "$(stat -c %s "chain/$i/pages.img")" /dev/zero | dd of="chain/$i/pages.img" conv=notrunc 2>/dev/null
done
refuses "a damaged parent" "$sealpoint" verify "$youngest" -- "/chain/" " is damaged, use another copy of it"
refuses "restore with a damaged parent" "$sealpoint" restore "$youngest" --detach -- "/chain/" " is damaged, use another copy of it"
refuses "merge of a damaged chain" "$sealpoint" merge "$youngest" -o new -- "cannot merge $youngest: " "/chain/" \
	" is damaged, use another copy of it"
[[ ! -e new && -z $(compgen -G 'new.partial*') ]] || not_ok "$TEST_NAME/failed merge" "leaves $(echo new*)"
