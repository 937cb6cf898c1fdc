#!/bin/sh
# Installs day0 into a temporary folder and meets it there as a user does: builds the examples with pkg-config
# and runs them on the installed model, compiles the header alone as C and C++ and every code block of
# docs/API.md, looks for global symbols besides those of day0.h, and finds nothing left after make uninstall.
# Without pkg-config it is skipped (exit status 77).
# CC is the compiler that day0 was built with; V=1 shows what happens.
set -eu
cd "$(dirname "$0")/.."
CC=${CC:-gcc}
if ! command -v pkg-config >/dev/null; then
    echo "SKIPPED: there is no pkg-config"
    exit 77
fi
stage=$(mktemp -d "${TMPDIR:-/tmp}/day0-install.XXXXXX")
trap 'rm -rf "$stage"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
prefix=$stage/prefix
mkdir -p "$stage/home"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" HOME="$stage/home"
unset MAKEFLAGS MFLAGS MAKELEVEL DAY0_MODEL DESTDIR PREFIX

say() {
    [ -z "${V:-}" ] || echo "check_install: $*" >&2
}

fail() {
    echo "check_install: $*" >&2
    exit 1
}

# quietly COMMAND...: its output is shown only if it fails
quietly() {
    "$@" >"$stage/log" 2>&1 || {
        cat "$stage/log" >&2
        fail "failed: $*"
    }
    [ -z "${V:-}" ] || cat "$stage/log" >&2
}

# expect WORD COMMAND...: succeeds and says WORD
expect() {
    word=$1
    shift
    quietly "$@"
    grep -q -e "$word" "$stage/log" || {
        cat "$stage/log" >&2
        fail "'$word' is not in the output of: $*"
    }
}

make_day0() {
    quietly make CC="$CC" "$@"
}

check_files() {
    for file in bin/day0 lib/libday0.a lib/pkgconfig/day0.pc include/day0.h \
        share/day0/models/jargon-k31/config.json; do
        [ -f "$1/$file" ] || fail "$file was not installed"
    done
}

check_nothing_left() {
    left=$(find "$1" ! -type d)
    [ -z "$left" ] || fail "left by make uninstall: $left"
    [ ! -e "$2/share/day0" ] || fail "left by make uninstall: share/day0"
}

# Packagers install below a DESTDIR for another PREFIX.
check_destdir() {
    make_day0 install DESTDIR="$stage/package" PREFIX=/opt/day0
    check_files "$stage/package/opt/day0"
    expect '^prefix=/opt/day0$' cat "$stage/package/opt/day0/lib/pkgconfig/day0.pc"
    make_day0 uninstall DESTDIR="$stage/package" PREFIX=/opt/day0
    check_nothing_left "$stage/package" "$stage/package/opt/day0"
}

# The names that day0.h declares and those that the archive defines are the same.
check_symbols() {
    sed -n 's/^[^/*]*[ *]\(day0_[a-z0-9_]*\)(.*/\1/p' "$prefix/include/day0.h" | grep -v '_fn$' |
        sort -u >"$stage/declared"
    nm -g --defined-only "$prefix/lib/libday0.a" | sed -n 's/^[0-9a-f]* [A-Z] //p' | sort -u >"$stage/defined"
    quietly diff "$stage/declared" "$stage/defined"
}

check_header() {
    echo '#include <day0.h>' >"$stage/header.c"
    cp "$stage/header.c" "$stage/header.cc"
    flags="$(pkg-config --cflags day0) -Wall -Wextra -pedantic -Werror -fsyntax-only"
    for standard in c11 c17; do
        # shellcheck disable=SC2086 # options
        quietly "$CC" -std=$standard $flags "$stage/header.c"
    done
    for compiler in g++ clang++; do
        if command -v "$compiler" >/dev/null; then
            say "header with $compiler"
            for standard in c++11 c++17; do
                # shellcheck disable=SC2086 # options
                quietly "$compiler" -std=$standard $flags "$stage/header.cc"
            done
        fi
    done
}

# Each block stands for itself; those with a main are linked and run, too.
check_documentation() {
    awk -v stage="$stage" '
        /^```c$/ { n++; file = stage "/block" n ".c"; print "#line " NR + 1 " \"docs/API.md\"" >file; next }
        /^```/ { file = "" }
        file { print >file }
        END { print n + 0 }' docs/API.md >"$stage/blocks"
    [ "$(cat "$stage/blocks")" -gt 0 ] || fail "docs/API.md has no code"
    flags="-std=c11 -Wall -Wextra -Werror $(pkg-config --cflags day0)"
    for block in "$stage"/block[0-9]*.c; do
        printf '#include <%s>\n' day0.h stdio.h stdlib.h string.h >"$stage/begun.c"
        cat "$block" >>"$stage/begun.c"
        if grep -q '^int main' "$block"; then
            # shellcheck disable=SC2046,SC2086 # options
            quietly "$CC" $flags -o "$stage/block" "$stage/begun.c" $(pkg-config --libs day0)
            quietly "$stage/block" "$model" "What is a kluge?"
        else
            # shellcheck disable=SC2086 # options
            quietly "$CC" $flags -Wno-unused-function -fsyntax-only "$stage/begun.c"
        fi
    done
    say "$(cat "$stage/blocks") blocks of docs/API.md"
}

check_examples() {
    cp -R examples "$stage/examples"
    quietly make -C "$stage/examples" clean
    quietly make -C "$stage/examples" CC="$CC" CFLAGS="-O1 -Wall -Wextra -Wpedantic -Wshadow -Werror"
    cd "$stage/examples"
    expect '^hacker: n\.' ./complete "$model" "hacker: n." "" 7
    cp "$stage/log" "$stage/first"
    expect '^hacker: n\.' ./complete "$model" "hacker: n." "" 7
    cp "$stage/log" "$stage/second"
    quietly cmp "$stage/second" "$stage/first"
    expect '^3 texts in ' ./batch "$model" "hacker: n." "kluge: n." "A {boat anchor} is"
    expect 'of [0-9]* tokens reused: the session.s text goes on' \
        ./remember "$model" "$stage/memory" "What is a hacker?" "And a kluge?"
    expect '^.[1-9][0-9]* of [0-9]* tokens reused: ' ./remember "$model" "$stage/memory" 'What "is" that?'
    ! ./complete nowhere x 2>"$stage/said" || fail "a model that is nowhere was opened"
    expect '^complete: nowhere' cat "$stage/said"
    echo damaged >"$stage/memory"
    ! ./remember "$model" "$stage/memory" "What?" >"$stage/said" 2>&1 || fail "a damaged file was accepted"
    cd - >/dev/null
}

say "below a DESTDIR"
check_destdir
make_day0 install PREFIX="$prefix"
check_files "$prefix"
model=$(pkg-config --variable=model day0)
version=$(pkg-config --modversion day0)
grep -q "define DAY0_VERSION \"$version\"" include/day0.h || fail "day0.pc has version $version"
say "symbols"
check_symbols
say "the installed command, in another folder"
(cd "$stage" && expect . "$prefix/bin/day0" run -n 8)
check_header
check_documentation
say "examples"
check_examples
make_day0 uninstall PREFIX="$prefix"
check_nothing_left "$prefix" "$prefix"
say "done"
