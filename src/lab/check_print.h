/* A report as text for people and as JSON for programs. Internal to check.c. */
#ifndef DAY0_LAB_CHECK_PRINT_H
#define DAY0_LAB_CHECK_PRINT_H

#include <stdio.h>

#include "exec/rates.h"
#include "model/report.h"

void check_print_text(FILE *out, const char *directory, const struct report *report, const struct rates *rates);

NEEDS_CHECK enum status check_print_json(FILE *out, const struct report *report, const struct rates *rates,
                                         struct error *err);

/* Tokens a second if a token costs nothing but reading its weights once. */
static inline double check_tokens_per_s(const struct report *report, const struct rates *rates)
{
    return report->active_bytes_per_token ? rates->read.gb_s * 1e9 / (double)report->active_bytes_per_token : 0;
}

#endif
