#!/bin/sh
# clang-format over the sources: says what differs, or writes it.
#
#     format.sh [--write] [FILE]...
#
# Left as written: *.def, lists with long comments, and src/kernels/*_body.h, whose UNROLL before a loop clang-format 14
# takes for the statement itself.
set -u
how='--dry-run -Werror'
if [ "${1:-}" = --write ]; then
    how=-i
    shift
fi
# shellcheck disable=SC2046 # names without blanks
[ $# -gt 0 ] || set -- $(git ls-files -co --exclude-standard 'src/*.[ch]' 'include/*.h' 'tests/*.[ch]')
names() {
    for file in "$@"; do
        case $file in
        src/kernels/*_body.h | *.def) ;;
        *) [ ! -e "$file" ] || printf '%s\n' "$file" ;;
        esac
    done
}

# shellcheck disable=SC2086 # options
names "$@" | xargs -r -n 8 clang-format --style=file $how
