#!/bin/sh
# `make demo` and `make test` as a new user runs them: the last commit, on a Debian with Python alone.
#
#   tools/fresh_debian.sh bookworm
#
# Needs root and mmdebstrap. What it installs is in build/fresh, and removed in the end.
set -eu
cd "$(dirname "$0")/.."
release=${1:-bookworm}
certificates=/etc/ssl/certs/ca-certificates.crt

fail() {
    rm -rf "$root"
    echo "$1" >&2
    exit 1
}

root=$PWD/build/fresh
[ "$(id -u)" -eq 0 ] || fail "A fresh Debian needs root: it mounts file systems."
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing: apt-get install mmdebstrap"
rm -rf "$root"
mkdir -p "$root"
mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,make,git,ca-certificates,procps \
    "$release" "$root" || fail "No Debian $release was made; expected a release such as bookworm or trixie."
cp "$certificates" "$root$certificates"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
git clone --quiet . "$root/root/holdfast"

# In namespaces of its own: no mount and no process outlives it.
status=0
unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
    root=$1
    mount --rbind "$root" "$root"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t sysfs sysfs "$root/sys"
    mount -t proc proc "$root/proc"
    proxies=$(env | grep -i "^[a-z]*_proxy=" || true)
    exec chroot "$root" env -i $proxies HOME=/root PIP_CERT="$2" SSL_CERT_FILE="$2" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        bash -c "cd ~/holdfast && python3 --version && make demo && rm -rf .venv && time make test"
' sh "$root" "$certificates" || status=$?
rm -rf "$root"
exit "$status"
