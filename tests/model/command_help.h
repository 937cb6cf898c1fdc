/* Runs a command inside the test program. */
#ifndef DAY0_TESTS_COMMAND_HELP_H
#define DAY0_TESTS_COMMAND_HELP_H

/* Calls a command (lab/commands.h) as `name` with the words of `line`; gives its exit status, and what it
 * wrote to standard output to the caller, who frees it. */
int command_run(int (*command)(int argc, char **argv), const char *name, const char *line, char **output);

#endif
