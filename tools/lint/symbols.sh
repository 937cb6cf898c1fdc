#!/bin/sh
# Global names. A symbol of src/<room>/<file>.c begins with the first word of <file>, or with a prefix that
# tools/lint/prefixes gives to the file or its room. Bodies of kernels are <kernel>_<tier>: the name of a KERNEL line
# and the file's tier.
#
#     symbols.sh BUILD_TREE
set -u
tree=$1
{
    sed -n 's/^KERNEL(\([a-z0-9_]*\),.*/KERNEL \1/p' src/kernels/*.def
    grep -v -e '^#' -e '^$' tools/lint/prefixes | sed 's/^/PREFIX /'
    for source in $(git ls-files -co --exclude-standard 'src/*.c'); do
        object=$tree/${source%.c}.o
        [ ! -e "$object" ] || nm -g --defined-only "$object" | sed -n "s,^[0-9a-f]* [A-Z] \(.*\),SYMBOL $source \1,p"
    done
} | awk '
    function begins(text, prefix) { return substr(text, 1, length(prefix)) == prefix }
    $1 == "KERNEL" { kernel[$2] = 1 }
    $1 == "PREFIX" { may[$2, ++count[$2]] = $3 }
    $1 == "SYMBOL" {
        symbols++
        file = $2
        name = $3
        stem = file
        sub(/.*\//, "", stem)
        sub(/\.c$/, "", stem)
        room = file
        sub(/[^\/]*$/, "", room)
        if (room == "src/kernels/" && match(stem, /_(ref|avx2|avx512|avx512fp16|neon)$/)) {
            tier = substr(stem, RSTART)
            base = substr(name, 1, length(name) - length(tier))
            good = substr(name, length(base) + 1) == tier && base in kernel
            want = "<kernel>" tier
        } else {
            word = stem
            sub(/_.*/, "", word)
            good = name == word || begins(name, word "_") || (stem == "main" && name == "main")
            for (i = 1; i <= count[file]; i++)
                good = good || begins(name, may[file, i])
            for (i = 1; i <= count[room]; i++)
                good = good || begins(name, may[room, i])
            want = word "_..."
        }
        if (!good) {
            print file ": global symbol " name " should be " want " (or static)"
            found = 1
        }
    }
    END {
        if (symbols == 0)
            print "no objects: make lint builds them"
        exit found || symbols == 0
    }'
