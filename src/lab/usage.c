#include <getopt.h>
#include <stdio.h>

#include "lab/commands.h"

int lab_bad_option(const char *command, int option, char **argv)
{
    const char *what = option == ':' ? "a value is missing after" : "unknown option";
    if (optopt)
        fprintf(stderr, "day0 %s: %s `-%c`; try --help\n", command, what, optopt);
    else
        fprintf(stderr, "day0 %s: %s `%s`; try --help\n", command, what, argv[optind - 1]);
    return LAB_USAGE;
}

int lab_fail(const char *command, const struct error *err, int exit_status)
{
    fprintf(stderr, "day0 %s: %s\n", command, err->text);
    return exit_status;
}
