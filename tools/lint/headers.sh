#!/bin/sh
# Every header compiles alone. Not headers: *_body.h, which a tier's file includes after its simd_<tier>.h, and
# simd_<tier>.h, which needs the tier's flags.
set -u
found=0
for header in $(git ls-files -co --exclude-standard 'src/*.h' 'include/*.h'); do
    case $header in *_body.h | */simd_*.h) continue ;; esac
    [ -e "$header" ] || continue
    printf '#include "%s"\n' "${header#*/}" |
        gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Isrc -Iinclude -fsyntax-only -x c - || found=1
done
exit $found
