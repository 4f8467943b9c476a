#!/bin/bash
# Unpacks the newest cloud kernel of Debian that has this version: `kernel.sh 6.12 DIRECTORY`. Nothing is installed on this machine.
# Afterwards DIRECTORY has vmlinuz, config and lib/modules. Does nothing if it is there already.
set -eu
version=$1 directory=$(realpath -m "$2")
[[ ! -d $directory ]] || exit 0

scratch=$directory.partial
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

newest() { apt-cache pkgnames "linux-image-$version." | grep -E '^linux-image-[^-]*(-[0-9]+)?-cloud-amd64$' | sort -V | tail -n 1; }
download() { [[ -n $(newest) ]] && apt-get -q -q -o APT::Sandbox::User=root download "$(newest)"; }

# The lists may be older than what the mirror still has.
download 2>/dev/null || { apt-get -q -q update && download; }
dpkg-deb -x linux-image-*.deb .
rm linux-image-*.deb
mv boot/vmlinuz-* vmlinuz
mv boot/config-* config
depmod -b . "$(basename lib/modules/*)"
mv "$scratch" "$directory"
