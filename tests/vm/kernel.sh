#!/bin/bash
# Unpacks the newest cloud kernel 6.12 of Debian: `kernel.sh DIRECTORY`. Nothing is installed on this machine.
# Afterwards DIRECTORY has vmlinuz, config and lib/modules. Does nothing if it is there already.
set -eu
directory=$(realpath -m "$1")
[[ ! -d $directory ]] || exit 0

scratch=$directory.partial
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

newest() { apt-cache pkgnames linux-image-6.12 | grep -x 'linux-image-6\.12\..*+deb12-cloud-amd64' | sort -V | tail -n 1; }
download() { [[ -n $(newest) ]] && apt-get -q -q -o APT::Sandbox::User=root download "$(newest)"; }

# The lists may be older than what the mirror still has.
download 2>/dev/null || { apt-get -q -q update && download; }
dpkg-deb -x linux-image-*.deb .
rm linux-image-*.deb
mv boot/vmlinuz-* vmlinuz
mv boot/config-* config
depmod -b . "$(basename lib/modules/*)"
mv "$scratch" "$directory"
