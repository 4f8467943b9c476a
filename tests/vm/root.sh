#!/bin/bash
# Writes the guest's root, a cpio archive, to stdout: `root.sh KERNEL [DIRECTORY...]`. It is made of files of this
# machine under their own names, so that a program finds the same files on both sides: commands with their libraries,
# the tests, what `make test-programs` has built, and each DIRECTORY. KERNEL is what kernel.sh has unpacked; some of its
# modules go in as well. The environment gives TOP and BUILD.
set -eu
shopt -s nullglob
kernel=$(realpath "$1")
shift
packages='bash dash coreutils util-linux mount procps iproute2 grep sed mawk findutils diffutils tar kmod'
modules='virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_console
	unix_diag inet_diag tcp_diag udp_diag raw_diag netlink_diag af_packet_diag zram zsmalloc lz4_compress
	lz4_decompress lz4hc_compress 842_compress 842_decompress lzo_compress lzo_decompress lzo lzo-rle'
python=(/usr/lib/python3.*/)

commands() {
	local PATH=/usr/sbin:/usr/bin:/sbin:/bin # the guest's
	# shellcheck disable=SC2086 # packages is a list
	dpkg -L $packages | grep -E '^(/usr)?/s?bin/.'
	command -v awk mkfs.ext4 redis-server redis-cli python3 || true
}

built() { find "$BUILD/sealpoint" "$BUILD"/tests/{subjects,unit,tools,stress} -type f -executable; }

# Libraries of programs and of other libraries, and the one that the C library opens when a thread is cancelled.
libraries() { # FILE...
	ldd "$@" 2>/dev/null | awk '$2 == "=>" { print $3 } $1 ~ /^\/.*[^:]$/ { print $1 }' | sort -u
	echo /lib/x86_64-linux-gnu/libgcc_s.so.1
}

# Each path by its real name, and the symbolic links on the way to it.
resolved() {
	local path directory target
	while read -r path; do
		while directory=$(realpath "${path%/*}/") && path=${directory%/}/${path##*/} && [[ -L $path ]]; do
			echo "$path"
			target=$(readlink "$path")
			[[ $target == /* ]] || target=$directory/$target
			path=$target
		done
		echo "$path"
	done
}

with_parents() {
	awk -F/ '{ path = ""; for (i = 2; i <= NF; i++) { path = path "/" $i; print path } }' | LC_ALL=C sort -u
}

list() {
	mapfile -t programs < <({ commands; built; } | sort -u)
	{
		printf '%s\n' "${programs[@]}" /bin /sbin /lib /lib64 /etc/{passwd,group,nsswitch.conf} "$BUSYBOX"
		libraries "${programs[@]}" "${python[@]/%/lib-dynload/*.so}"
	} | resolved
	find "${python[@]}" -name __pycache__ -prune -o -type f -print
	find "$TOP/tests" "$@"
}

# What only the guest has: its first process, the places for mounts, and its kernel's modules.
add_own() { # DIRECTORY
	local version module
	mkdir -p "$1"/{dev,proc,sys,run,root,mnt,disk}
	install -m 755 "$TOP/tests/vm/init" "$1/init"
	version=$(basename "$kernel"/lib/modules/*)
	mkdir -p "$1/usr/lib/modules/$version"
	for module in $modules; do
		find "$kernel/lib/modules/$version" -name "$module.ko*" -exec cp {} "$1/usr/lib/modules/$version/" \;
	done
	cp "$kernel/lib/modules/$version"/modules.{order,builtin}* "$1/usr/lib/modules/$version/"
	(cd "$1" && ln -s usr/lib lib && depmod -b . "$version" && rm lib)
}

: "${TOP:?}" "${BUILD:?}"
BUSYBOX=$(command -v busybox)
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
add_own "$own"
# The kernel takes several archives, one after the other.
cd /
list "$@" | with_parents | sed 's,^/,,' | cpio --quiet -o -H newc
cd "$own"
find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc
