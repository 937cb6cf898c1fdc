/* What `day0 eval` prints: a table for people, one JSON object for programs (keys: docs/EVAL.md). */
#ifndef DAY0_LAB_EVAL_REPORT_H
#define DAY0_LAB_EVAL_REPORT_H

#include <stdio.h>

#include "lab/eval_run.h"

/* The text's name, and the request that made `result`. */
NEEDS_CHECK enum status eval_report_table(FILE *out, const char *text_name, const struct eval_request *request,
                                          const struct eval_result *result, struct error *err);
NEEDS_CHECK enum status eval_report_json(FILE *out, const char *text_name, const struct eval_request *request,
                                         const struct eval_result *result, struct error *err);

#endif
