/* What `day0 bench` prints: a table for people, CSV or one JSON object for programs. */
#ifndef DAY0_LAB_BENCH_REPORT_H
#define DAY0_LAB_BENCH_REPORT_H

#include <stdio.h>

#include "lab/bench_run.h"

typedef enum status bench_report_fn(FILE *out, const struct bench_request *request, const struct bench_result *result,
                                    struct error *err);
bench_report_fn bench_report_table, bench_report_csv, bench_report_json;

#endif
