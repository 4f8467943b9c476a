#!/bin/bash
# Runs sealpoint on another kernel, in an emulated machine, and carries checkpoints between that kernel and this one.
#
#	tests/vm/run.sh [SELECTION...]
#
# The guest is an x86_64 that qemu emulates (no /dev/kvm is needed, and its processor is another than this one), with
# a cloud kernel of Debian (kernel.sh): 6.12, or VM_KERNEL (6.1 is that of Debian 12). Its root is an archive of files of this machine (root.sh) in
# memory; programs find there what they find here. The first process (init) runs guest.sh, and the machine ends:
#
# - `sealpoint check`;
# - tests/run.sh with the selection, by default write tracking, for the backends that this kernel lacks (those that 6.1
#   has alone too), and a few subjects in modes "kill" and "delta";
# - subjects that were dumped there arrive here (travel.sh): kernel, vDSO and the layout of extended registers
#   differ; those that were dumped here are refused there, where the processor has fewer features.
#
# The output is that of tests/run.sh: a line for each result, and the sums last. The environment gives BUILD (default:
# build), VM_SECONDS, after which the guest is ended (default 1500), and VM_TRAVELLERS, the subjects that travel. SEED and
# STEPS are those of integration/deltas.
set -u
TOP=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=$(cd "$TOP" && realpath -m "${BUILD:-build}")
tracking="unit/test_scan unit/test_write_watch"
TESTS=${*:-$tracking subject/basic/kill subject/threads/kill subject/sealed/kill subject/epoll/kill subject/unix_listen/kill
	subject/writing/delta subject/pages/delta subject/file_mappings/delta}
TRAVELLERS=${VM_TRAVELLERS:-basic vdso_clock registers threads signals timers blocked_calls pages epoll sealed}
TRAVEL=$BUILD/vm/travel
export TOP BUILD
version=${VM_KERNEL:-6.12}
vm=$BUILD/vm/$version
# The emulated processor has no feature that a program could begin to use there and miss on this machine.
processor=max,-mpx
grep -qw pku /proc/cpuinfo || processor+=,-pku

((EUID == 0)) || { echo "$0: needs root" >&2; exit 1; }

boot() {
	# shellcheck disable=SC2054 # the commas are qemu's
	local qemu=(
		qemu-system-x86_64 -accel "tcg,thread=multi,tb-size=512" -cpu "$processor" -smp 2 -m 2048
		-nodefaults -display none -no-reboot
		-kernel "$vm/kernel/vmlinuz" -initrd "$vm/root.cpio"
		# Addresses that do not vary let qemu use again what it has translated: programs start four times as fast.
		-append "console=ttyS0 panic=-1 quiet mitigations=off no5lvl norandmaps"
		-serial "file:$vm/console.log"
		-device virtio-serial-pci
		-chardev "file,id=out,path=$vm/output" -device virtserialport,chardev=out
		-chardev "file,id=files,path=$vm/files.cpio" -device virtserialport,chardev=files
		-drive "file=$vm/disk,format=raw,if=none,id=disk" -device nvme,drive=disk,serial=disk
	)
	: >"$vm/output"
	: >"$vm/files.cpio"
	rm -f "$vm/disk"
	truncate -s 1G "$vm/disk"
	timeout -s KILL "${VM_SECONDS:-1500}" "${qemu[@]}" &
	local guest=$!
	tail -n +1 -f --pid=$guest -s 0.3 "$vm/output" | tr -d '\r'
	wait "$guest" || echo "FAIL guest: ended with status $? (137: ran into its time limit): $(tail -n 1 "$vm/console.log")"
	rm -f "$vm/disk"
}

pack() {
	local job
	job=$(mktemp -d)
	printf '%s=%q\n' TOP "$TOP" BUILD "$BUILD" TESTS "$TESTS" TRAVELLERS "$TRAVELLERS" TRAVEL "$TRAVEL" \
		SEED "${SEED:-}" STEPS "${STEPS:-}" >"$job/job.env"
	"$TOP/tests/vm/root.sh" "$vm/kernel" "$TRAVEL" >"$vm/root.cpio" &&
		(cd "$job" && echo job.env | cpio --quiet -o -H newc) >>"$vm/root.cpio"
	rm -r "$job"
}

# Says where each result is from, and what the sums of the parts are not.
as_results() { # PREFIX
	sed -u -E "s,^(ok|FAIL|skip) ,\1 $1/,; s/^[0-9]+ passed, /guest: &/"
}

all() {
	# shellcheck disable=SC2086 # a list
	"$TOP/tests/vm/travel.sh" leave "$TRAVEL/to-guest" $TRAVELLERS | as_results host
	pack
	boot | as_results guest
	(cd "$TRAVEL" && cpio --quiet -idm <"$vm/files.cpio") || echo "FAIL guest/files: none came back"
	# shellcheck disable=SC2086 # a list
	"$TOP/tests/vm/travel.sh" arrive "$TRAVEL/to-host" $TRAVELLERS | as_results host
}

mkdir -p "$vm"
"$TOP/tests/vm/kernel.sh" "$version" "$vm/kernel" || exit
rm -rf "$TRAVEL"
mkdir -p "$TRAVEL"/to-{guest,host}
all | tee "$vm/results"
failed=$(grep -c '^FAIL ' "$vm/results")
echo
printf '%d passed, %d failed, %d skipped\n' "$(grep -c '^ok ' "$vm/results")" "$failed" "$(grep -c '^skip ' "$vm/results")"
((failed == 0))
