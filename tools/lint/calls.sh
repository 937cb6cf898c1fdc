#!/bin/sh
# Calls that only some places may make. A line of the table: functions, where they are allowed, why; the first two are
# regular expressions.
set -u
find src -name '*.[ch]' -exec awk -f tools/lint/code.awk {} + | awk '
    function forbid(functions, allowed, why) {
        n++
        pattern[n] = "(^|[^A-Za-z0-9_>.])(" functions ") *\\("
        where[n] = "^(" allowed ")"
        reason[n] = why
    }
    BEGIN {
        forbid("exit|_exit|_Exit|quick_exit", "src/app/main\\.c", "only the command line exits; return a status")
        forbid("abort|__builtin_trap", "src/base/check\\.c", "bugs abort through CHECK")
        forbid("assert", "nowhere", "checks are CHECK, on in every build")
        forbid("printf|vprintf|puts|putchar|putchar_unlocked|perror", "src/(lab|app)/",
               "only commands write to standard output")
        forbid("malloc|calloc|realloc|free|aligned_alloc|posix_memalign",
               "src/(base|cpu|text|weights|model|lab|app|exec|decode|engine)/", "this room has memory from its callers")
        forbid("sprintf|vsprintf|strcpy|gets|strtok|atoi|atol|atoll|atof|alloca", "nowhere", "no bound or no error")
        forbid("system|popen|rand|srand|random", "nowhere", "hidden state")
        forbid("setlocale", "src/app/chat\\.c", "hidden state; only a line editor needs it")
        forbid("getenv|secure_getenv", "src/(lab|app)/", "only commands read the environment")
    }
    {
        split($0, part, ":")
        code = $0
        sub(/^[^:]*:[^:]*:/, "", code)
        for (i = 1; i <= n; i++)
            if (part[1] !~ where[i] && match(code, pattern[i])) {
                call = substr(code, RSTART, RLENGTH)
                gsub(/[^A-Za-z0-9_]/, "", call)
                printf "%s:%s: %s(): %s\n", part[1], part[2], call, reason[i]
                found = 1
            }
        if (code ~ /(^|[^A-Za-z0-9_])stdout([^A-Za-z0-9_]|$)/ && part[1] !~ /^src\/(lab|app)\//) {
            printf "%s:%s: stdout: only commands write to standard output\n", part[1], part[2]
            found = 1
        }
    }
    END { exit found }'
