/* A picture of a bench: tokens a second over depth as SVG, both axes logarithmic, a line for each batch of generation
 * and each length of prompt, and dashed what the machine would allow. */
#ifndef DAY0_LAB_BENCH_PLOT_H
#define DAY0_LAB_BENCH_PLOT_H

#include "lab/bench_run.h"

/* Writes `path`, whole or not at all. */
NEEDS_CHECK enum status bench_plot_write(const char *path, const struct bench_request *request,
                                         const struct bench_result *result, struct error *err);

#endif
