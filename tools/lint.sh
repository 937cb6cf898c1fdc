#!/bin/sh
# Every check that no compiler makes; each prints `file:line: what is wrong`, and all of them run before it fails.
#
#     lint.sh BUILD_TREE [CHECK]...     BUILD_TREE holds the objects of a gcc build (make lint makes it)
set -u
cd "$(dirname "$0")/.." || exit 1
tree=$1
shift
[ $# -gt 0 ] || set -- text rooms calls headers symbols shell format tidy

wrong=''
for check in "$@"; do
    begin=$(date +%s)
    case $check in
    symbols) sh tools/lint/symbols.sh "$tree" ;;
    *) sh "tools/lint/$check.sh" ;;
    esac || wrong="$wrong $check"
    echo "lint: $check: $(($(date +%s) - begin)) s"
done
if [ -n "$wrong" ]; then
    echo "lint: findings of:$wrong"
    exit 1
fi
echo "lint: clean"
