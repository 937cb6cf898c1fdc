#!/bin/sh
# Text of the sources: no tabs, blanks at the end, characters that are not ASCII, lines over 120 columns, files over 600
# lines. Files that may be longer stand in tools/lint/long_files with a reason.
set -u
columns_max=120 lines_max=600
sources=$(git ls-files -co --exclude-standard 'src/*' 'include/*' 'tests/*.[ch]' 'tests/*.sh' 'tools/*.sh' \
    bootstrap.sh Makefile .ci/run)
# shellcheck disable=SC2086 # a list of names without blanks
LC_ALL=C awk -v columns_max=$columns_max -v lines_max=$lines_max '
    BEGIN {
        while ((getline line < "tools/lint/long_files") > 0)
            if (line !~ /^#/ && split(line, word, " ") > 1)
                may_be_long[word[1]] = 1
    }
    function wrong(what) { printf "%s:%d: %s\n", FILENAME, FNR, what; found = 1 }
    /\t/ && FILENAME != "Makefile" { wrong("a tab") }
    /[ \t\r]$/ { wrong("a blank at the end") }
    /[^\t -~]/ { wrong("a character that is not ASCII") }
    length($0) > columns_max { wrong(length($0) " columns; at most " columns_max) }
    FNR == lines_max + 1 && !(FILENAME in may_be_long) { wrong("over " lines_max " lines: split it by noun") }
    END { exit found }
' $sources
