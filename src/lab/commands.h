/* The commands that look inside. Each takes its own arguments (argv[0] is the command's name), writes results
 * to standard output and one sentence of error to standard error, and gives an exit status: 0 done, 1 failed,
 * 2 wrongly called. */
#ifndef DAY0_LAB_COMMANDS_H
#define DAY0_LAB_COMMANDS_H

#include "base/error.h"

enum { LAB_OK = 0, LAB_FAILED = 1, LAB_USAGE = 2 };

int lab_tokenize(int argc, char **argv);
int lab_render(int argc, char **argv);
int lab_logits(int argc, char **argv);
int lab_eval(int argc, char **argv);
int lab_bench(int argc, char **argv);
int lab_trace(int argc, char **argv);
int lab_check(int argc, char **argv);
int lab_synth(int argc, char **argv);

/* The model directory to use if none is named: the environment's DAY0_MODEL, else the bundled model, which
 * lies above the executable. Lives as long as the process; gives the bundled name as it stands if nothing is
 * found. */
const char *lab_default_model(void);

/* Says what getopt_long found wrong when it gave `option` (? or :), under an option string led by a colon;
 * gives LAB_USAGE. */
int lab_bad_option(const char *command, int option, char **argv);

/* Prints the sentence of an error for a command; gives the exit status back. */
int lab_fail(const char *command, const struct error *err, int exit_status);

#endif
