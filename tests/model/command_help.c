#include "command_help.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_help.h"

enum { WORDS_MAX = 32 };

int command_run(int (*command)(int argc, char **argv), const char *name, const char *line, char **output)
{
    char copy[1024], word[32], *argv[WORDS_MAX + 1] = {word};
    int argc = 1;
    snprintf(word, sizeof word, "%s", name);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *save, *at = strtok_r(copy, " ", &save); at; at = strtok_r(NULL, " ", &save)) {
        assert_true(argc < WORDS_MAX);
        argv[argc++] = at;
    }
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    assert_true(kept >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    optind = 0; /* getopt starts anew */
    int status = command(argc, argv);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(kept);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    assert_true(bytes >= 0);
    rewind(file);
    *output = calloc((size_t)bytes + 1, 1);
    assert_int_equal(fread(*output, 1, (size_t)bytes, file), bytes);
    fclose(file);
    return status;
}
