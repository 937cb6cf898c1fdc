#!/bin/sh
# src/ROOMS against the tree: every folder of src is a room, a room names only rooms above it, and every #include of a
# room's file (.c, .h, .def) names its own room or one that ROOMS allows. Kernels moreover include only intrinsics and
# what is pure of the C library, so that they compile for any target.
set -u
{
    sed 's/^/ROOMS:/' src/ROOMS
    find src -mindepth 1 -maxdepth 1 -type d | sed 's,^src/,FOLDER:,'
    find src \( -name '*.[ch]' -o -name '*.def' \) -exec awk -f tools/lint/code.awk {} + |
        grep -E ':[0-9]+: *# *include'
} | awk '
    function wrong(where, what) { print where ": " what; found = 1 }
    /^ROOMS:(#.*)?$/ { line++; next }
    /^ROOMS:/ {
        line++
        sub(/^ROOMS:/, "")
        n = split($0, word, /[: ]+/)
        for (i = 2; i <= n && word[i] != ""; i++) {
            if (!(word[i] in room))
                wrong("src/ROOMS:" line, word[1] " may include " word[i] ", which is not a room above it")
            may[word[1], word[i]] = 1
        }
        room[word[1]] = may[word[1], word[1]] = 1
        next
    }
    /^FOLDER:/ {
        sub(/^FOLDER:/, "")
        if (!($0 in room))
            wrong("src/" $0, "a folder that src/ROOMS does not name")
        next
    }
    {
        split($0, part, ":")
        where = part[1] ":" part[2]
        split(part[1], path, "/")
        header = $0
        sub(/^.*include */, "", header)
        if (header ~ /^</) {
            if (path[2] == "kernels" &&
                header !~ /^<(stdbool|stddef|stdint|float|limits|math|string|immintrin|arm_neon)\.h>/)
                wrong(where, "kernels do not include " header)
            next
        }
        gsub(/[" ]/, "", header)
        if (header == "day0.h")
            next
        if (header !~ /\//)
            wrong(where, "#include \"" header "\" names no room")
        else if (!((path[2], substr(header, 1, index(header, "/") - 1)) in may))
            wrong(where, "src/ROOMS does not let " path[2] " include " header)
    }
    END { exit found }'
