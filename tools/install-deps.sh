#!/bin/bash
# Installs what sealpoint needs, on Debian: `install-deps.sh [build] [test] [demo] [example] [bench] [vm]`, one or more sets
# of packages. Does nothing, and needs no root, when everything is there. No service is started by it.
set -eu

# A package, or package=command where another package may have brought the command as well, or package=source for what
# its program is built from, as /usr/src/PACKAGE.orig.tar.gz.
build='gcc make pkg-config=pkg-config libc6-dev protobuf-c-compiler=protoc-c libprotobuf-c-dev libzstd-dev
	libxxhash-dev libjansson-dev libnftables-dev'
common='iproute2=ip nftables=nft procps=ps util-linux=unshare coreutils'
test_="$common libcmocka-dev libpng-dev clang=clang g++=g++ libclang-rt-14-dev clang-format=clang-format gdb=gdb mandoc=mandoc
	shellcheck=shellcheck python3=python3 redis-server=redis-server redis-tools=redis-cli nginx-light=nginx sqlite3=sqlite3 nodejs=node
	postgresql postgresql-client=psql openssh-server openssh-client=ssh tmux=tmux
	default-jdk-headless=javac stress-ng=stress-ng lua5.4=source"
demo="$common redis-server=redis-server redis-tools=redis-cli"
example=libpng-dev
bench="$common python3=python3 criu=criu"
vm="$common qemu-system-x86=qemu-system-x86_64 busybox-static=busybox cpio=cpio kmod=depmod e2fsprogs=mkfs.ext4"

usage() {
	echo "usage: $0 [build] [test] [demo] [example] [bench] [vm]" >&2
	exit 2
}

archive_of() { echo "/usr/src/${1%=source}.orig.tar.gz"; }

present() { # ENTRY
	if [[ $1 == *=source ]]; then
		[[ -e $(archive_of "$1") ]]
		return
	fi
	if [[ $1 == *=* ]] && command -v "${1#*=}" >/dev/null; then
		return
	fi
	[[ $(dpkg-query -W -f='${db:Status-Status}' "${1%%=*}" 2>/dev/null) == installed ]]
}

missing=() missing_sources=()
for set in "${@:-build}"; do
	case $set in
	build) entries=$build ;;
	test) entries=$test_ ;;
	demo) entries=$demo ;;
	example) entries=$example ;;
	bench) entries=$bench ;;
	vm) entries=$vm ;;
	*) usage ;;
	esac
	for entry in $entries; do
		if present "$entry"; then
			continue
		elif [[ $entry == *=source ]]; then
			missing_sources+=("${entry%=source}")
		else
			missing+=("${entry%%=*}")
		fi
	done
done
if ((${#missing[@]} + ${#missing_sources[@]} == 0)); then
	exit 0
fi

as_root=()
if ((EUID)); then
	if ! command -v sudo >/dev/null; then
		echo "missing packages, and only root can install them: ${missing[*]} ${missing_sources[*]/%/ (source)}" >&2
		exit 1
	fi
	as_root=(sudo)
fi
echo "installing: ${missing[*]} ${missing_sources[*]/%/ (source)}"

# Few machines are set up for source packages. They come from where the others do, by lists that are not kept.
fetch_sources() { # PACKAGE...
	local work package options
	work=$(mktemp -d)
	mkdir -p "$work/lists/partial" "$work/parts"
	sed 's/^deb /deb-src /' /etc/apt/sources.list >"$work/sources.list" 2>/dev/null || true
	cp /etc/apt/sources.list.d/*.{list,sources} "$work/parts" 2>/dev/null || true
	find "$work/parts" -type f -exec sed -i -E 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' {} +
	options=(-q -o "Dir::State::lists=$work/lists" -o "Dir::Etc::sourcelist=$work/sources.list"
		-o "Dir::Etc::sourceparts=$work/parts" -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache=)
	apt-get "${options[@]}" update || true # somebody else's packages may come without sources
	for package; do
		(cd "$work" && apt-get "${options[@]}" source --download-only "$package")
		"${as_root[@]}" cp "$work/$package"_*.orig.tar.gz "$(archive_of "$package")"
	done
	rm -rf "$work"
}
if ((${#missing_sources[@]})); then
	fetch_sources "${missing_sources[@]}"
fi
if ((${#missing[@]} == 0)); then
	exit 0
fi

# A policy-rc.d that forbids it keeps packages such as redis-server from starting their service.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap '"${as_root[@]}" rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
	"${as_root[@]}" chmod 755 "$policy"
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}"
