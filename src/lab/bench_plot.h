/* A picture of a bench: tokens a second over depth as SVG, both axes logarithmic, a line for each batch of generation
 * and each length of prompt, and dashed what the machine would allow. */
#ifndef DAY0_LAB_BENCH_PLOT_H
#define DAY0_LAB_BENCH_PLOT_H

#include <stdio.h>

#include "lab/bench_run.h"

/* `result` has a row at least. */
void bench_plot_print(FILE *out, const struct bench_request *request, const struct bench_result *result);

#endif
