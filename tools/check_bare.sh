#!/bin/sh
# Proves that bootstrap.sh works from nothing: makes a minimal Debian 12 with debootstrap, copies the files of the
# working tree into it and runs `sh bootstrap.sh WHAT` there as root. Needs root and debootstrap.
#
#     check_bare.sh [deps|demo|check|lint|install]     default: check
#
# install is followed by make check-install and an answer of the installed command.
#
# The minimal system is made once, kept as an archive and unpacked for every run (BARE_DIR, default /tmp/day0-bare).
# Debian's mirror and apt's settings are the host's: what /etc/apt says of proxies, sources and keys holds inside, too.
set -eu
cd "$(dirname "$0")/.."
what=${1:-check}
bare=${BARE_DIR:-/tmp/day0-bare}
suite=bookworm

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "check_bare.sh: needs root and the package debootstrap" >&2
    exit 1
fi

seconds() {
    date +%s
}

# The first mirror in the host's sources, without a user and password.
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\).*/\2/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)
proxy=$(apt-config dump | sed -n 's/^Acquire::http::Proxy "\(.*\)";/\1/p')
[ -z "$proxy" ] || export http_proxy="$proxy"

# shellcheck disable=SC2317 # called by the trap
remove() {
    for place in proc dev/pts dev; do
        if mountpoint -q "$root/$place"; then
            umount "$root/$place" 2>/dev/null || umount -l "$root/$place"
        fi
    done
    rm -rf --one-file-system "$root"
}

mkdir -p "$bare"
root=$(mktemp -d "$bare/root.XXXXXX") # one a run: two may go on at once
trap remove EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ ! -e "$bare/minbase.tar" ]; then
    begin=$(seconds)
    rm -rf "$bare/making"
    debootstrap --variant=minbase "$suite" "$bare/making" "${mirror:-http://deb.debian.org/debian}" \
        >"$bare/debootstrap.log" 2>&1 || {
        tail -n 20 "$bare/debootstrap.log" >&2
        exit 1
    }
    rm -f "$bare"/making/var/cache/apt/archives/*.deb
    tar -C "$bare/making" -cf "$bare/minbase.tar.part" .
    mv "$bare/minbase.tar.part" "$bare/minbase.tar"
    rm -rf "$bare/making"
    echo "check_bare.sh: minimal $suite made in $(($(seconds) - begin)) s"
fi

tar -C "$root" -xf "$bare/minbase.tar"
rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" "$root/etc/apt/apt.conf.d"
for name in apt.conf apt.conf.d auth.conf auth.conf.d sources.list sources.list.d preferences.d \
    trusted.gpg trusted.gpg.d keyrings; do
    [ ! -e "/etc/apt/$name" ] || cp -a "/etc/apt/$name" "$root/etc/apt/"
done
for name in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "$name" ] || { mkdir -p "$root/$(dirname "$name")" && cp -L "$name" "$root/$name"; }
done
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mountpoint -q /dev/pts && mount --bind /dev/pts "$root/dev/pts" # terminals, for the tests of the command line

mkdir "$root/day0"
git ls-files -z --cached --others --exclude-standard | tar --null -T - --ignore-failed-read -cf - |
    tar -C "$root/day0" -xf -

steps="sh /day0/bootstrap.sh $what"
[ "$what" != install ] || steps="$steps && sh /day0/bootstrap.sh deps check && make -C /day0 check-install V=1 &&
    cd / && day0 run -n 8 && make -C /day0 uninstall && test ! -e /usr/local/bin/day0"
begin=$(seconds)
status=0
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C TERM=dumb \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    chroot "$root" sh -c "$steps" || status=$?
echo "check_bare.sh: sh bootstrap.sh $what: exit status $status after $(($(seconds) - begin)) s" >&2
exit $status
