/* What `day0 bench` prints: a table for people, CSV or one JSON object for programs. */
#ifndef DAY0_LAB_BENCH_REPORT_H
#define DAY0_LAB_BENCH_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "lab/bench_run.h"

typedef enum status bench_report_fn(FILE *out, const struct bench_request *request, const struct bench_result *result,
                                    struct error *err);
bench_report_fn bench_report_table, bench_report_csv, bench_report_json;

/* Parts of such reports. The two lines above a table: model, options and machine. */
void bench_report_head(FILE *out, const struct bench_request *request, const struct rates *rates, unsigned n_threads,
                       const char *tier);
json_t *bench_report_machine(const struct bench_request *request, const struct rates *rates, unsigned n_threads,
                             const char *tier);
/* Writes and takes a report. */
NEEDS_CHECK enum status bench_report_dump(FILE *out, json_t *report, struct error *err);
/* Writes {"machine": machine, key: rows}; takes both. */
NEEDS_CHECK enum status bench_report_object(FILE *out, json_t *machine, const char *key, json_t *rows,
                                            struct error *err);
/* Fails if not everything could be written. */
NEEDS_CHECK enum status bench_report_written(FILE *out, struct error *err);

#endif
