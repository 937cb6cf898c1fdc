/* The machine's rates for a command: from the environment, an earlier run or a measurement. */
#ifndef DAY0_LAB_RATES_FIND_H
#define DAY0_LAB_RATES_FIND_H

#include <stdio.h>

#include "exec/rates.h"

/* Does: takes the rates that an earlier run kept in ~/.cache/day0 ($XDG_CACHE_HOME/day0), else, or if `fresh`, measures
 * for about 3 s, keeps them and says so in one line on standard error. $DAY0_BANDWIDTH_GB_S, $DAY0_F32_GFLOP_S,
 * $DAY0_INT8_GOP_S and $DAY0_F16_GFLOP_S stand above both, where the tier has the unit; with the first of them nothing
 * is measured but what takes a moment.
 * Fails: one of them is no believable number; as bandwidth_measure. */
NEEDS_CHECK enum status rates_find(struct rates *out, struct team *team, unsigned tiers, bool fresh, struct error *err);

/* "reads 31.2 GB/s, computes 340 GFLOP/s in float32, 1420 GOP/s in INT8", of what the tier has. */
void rates_print(FILE *out, const struct rates *rates);

#endif
