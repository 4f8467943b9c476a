#!/bin/bash
# Installs what sealpoint needs, on Debian: `install-deps.sh [build] [test] [demo] [bench] [vm]`, one or more sets
# of packages. Does nothing, and needs no root, when everything is there. No service is started by it.
set -eu

# A package, or package=command where another package may have brought the command as well.
build='gcc make pkg-config=pkg-config libc6-dev protobuf-c-compiler=protoc-c libprotobuf-c-dev libzstd-dev
	libxxhash-dev libjansson-dev libnftables-dev'
common='iproute2=ip nftables=nft procps=ps util-linux=unshare coreutils'
test_="$common libcmocka-dev libpng-dev clang=clang g++=g++ libclang-rt-14-dev clang-format=clang-format gdb=gdb mandoc=mandoc
	shellcheck=shellcheck python3=python3 redis-server=redis-server redis-tools=redis-cli nginx-light=nginx sqlite3=sqlite3 nodejs=node
	default-jdk-headless=javac"
demo="$common redis-server=redis-server redis-tools=redis-cli"
bench="$common python3=python3 criu=criu"
vm="$common qemu-system-x86=qemu-system-x86_64 busybox-static=busybox cpio=cpio kmod=depmod e2fsprogs=mkfs.ext4"

usage() {
	echo "usage: $0 [build] [test] [demo] [bench] [vm]" >&2
	exit 2
}

present() { # ENTRY
	if [[ $1 == *=* ]] && command -v "${1#*=}" >/dev/null; then
		return
	fi
	[[ $(dpkg-query -W -f='${db:Status-Status}' "${1%%=*}" 2>/dev/null) == installed ]]
}

missing=()
for set in "${@:-build}"; do
	case $set in
	build) entries=$build ;;
	test) entries=$test_ ;;
	demo) entries=$demo ;;
	bench) entries=$bench ;;
	vm) entries=$vm ;;
	*) usage ;;
	esac
	for entry in $entries; do
		present "$entry" || missing+=("${entry%%=*}")
	done
done
if ((${#missing[@]} == 0)); then
	exit 0
fi

as_root=()
if ((EUID)); then
	if ! command -v sudo >/dev/null; then
		echo "missing packages, and only root can install them: ${missing[*]}" >&2
		exit 1
	fi
	as_root=(sudo)
fi
echo "installing: ${missing[*]}"

# A policy-rc.d that forbids it keeps packages such as redis-server from starting their service.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap '"${as_root[@]}" rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
	"${as_root[@]}" chmod 755 "$policy"
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}"
