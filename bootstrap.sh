#!/bin/sh
# From a bare Debian 12 to a result: installs what is missing, then builds and runs.
#
#     sh bootstrap.sh demo     packages to build, make, one answer of the bundled model
#     sh bootstrap.sh check    packages to build and test, make check
#     sh bootstrap.sh lint     packages to lint, make lint
#     sh bootstrap.sh install  packages to build, make, make install (to /usr/local, or PREFIX)
#     sh bootstrap.sh deps [check] [lint] [emulation]    packages alone
#
# Only missing packages are installed. JOBS=N sets make's jobs (default: one a core).
set -eu
cd "$(dirname "$0")"

build_packages='gcc make libc6-dev libjansson-dev libpcre2-dev libhwloc-dev libxxhash-dev libzstd-dev libedit-dev'
check_packages='libcmocka-dev pkg-config g++'
lint_packages='git clang clang-format clang-tidy shellcheck'
emulation_packages='gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libsimde-dev' # for make check-slow

usage() {
    sed -n '/^#     /s/^#     //p' "$0" >&2
    exit 2
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# install WHAT PACKAGE...
install() {
    what=$1 missing=''
    shift
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "bootstrap.sh: this is no Debian; to $what, day0 needs the counterparts of: $*" >&2
        exit 1
    fi
    for package in "$@"; do
        is_installed "$package" || missing="$missing $package"
    done
    if [ -z "$missing" ]; then
        echo "bootstrap.sh: every package to $what is installed"
        return
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        echo "bootstrap.sh: to $what, these packages are missing:$missing" >&2
        echo "bootstrap.sh: it needs root or sudo; run as root: apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    echo "bootstrap.sh: to $what, installing:$missing"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    # shellcheck disable=SC2086 # a list of names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 --no-install-recommends install $missing \
        >/dev/null
}

build() {
    make -j "${JOBS:-$(nproc)}" "$@"
}

# shellcheck disable=SC2086 # lists of names
case ${1:-} in
deps)
    shift
    install build $build_packages
    for what in "$@"; do
        case $what in
        check) install check $check_packages ;;
        lint) install lint $lint_packages ;;
        emulation) install emulate $emulation_packages ;;
        *) usage ;;
        esac
    done
    ;;
demo)
    [ $# -eq 1 ] || usage
    install build $build_packages
    build
    ./day0 run
    ;;
check)
    [ $# -eq 1 ] || usage
    install check $build_packages $check_packages
    build tests
    make check
    ;;
install)
    [ $# -eq 1 ] || usage
    install build $build_packages
    build
    if [ -w "${PREFIX:-/usr/local}" ] || [ -w "$(dirname "${PREFIX:-/usr/local}")" ]; then
        make install PREFIX="${PREFIX:-/usr/local}"
    else
        as_root make install PREFIX="${PREFIX:-/usr/local}"
    fi
    ;;
lint)
    [ $# -eq 1 ] || usage
    install lint $build_packages $check_packages $lint_packages
    make lint
    ;;
*)
    usage
    ;;
esac
