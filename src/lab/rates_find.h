/* The machine's rates for a command: from the environment, an earlier run or a measurement. */
#ifndef DAY0_LAB_RATES_FIND_H
#define DAY0_LAB_RATES_FIND_H

#include <stdio.h>

#include "exec/rates.h"

enum rates_from {
    RATES_FROM_CACHE, /* what an earlier run kept in ~/.cache/day0 ($XDG_CACHE_HOME/day0); without it as the next */
    RATES_FROM_PROBE, /* measured for about 3 s, kept there, and said in one line on standard error */
    RATES_FROM_RUN,   /* measured, for this run alone */
};

/* Does: finds the rates. $DAY0_BANDWIDTH_GB_S, $DAY0_F32_GFLOP_S, $DAY0_INT16_GOP_S, $DAY0_INT8_GOP_S and
 * $DAY0_F16_GFLOP_S stand above all else, where the tier has the unit; with the first of them only what takes a moment
 * is measured.
 * Fails: one of them is no believable number; as bandwidth_measure. */
NEEDS_CHECK enum status rates_find(struct rates *out, struct team *team, unsigned tiers, enum rates_from from,
                                   struct error *err);

/* "reads 31.2 GB/s, computes 340 GFLOP/s in float32, 1420 GOP/s in INT8", of what the tier has. */
void rates_print(FILE *out, const struct rates *rates);

#endif
