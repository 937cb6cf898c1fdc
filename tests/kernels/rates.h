/* What one thread of this machine can do, measured in the same run as the kernels that are set against it. */
#ifndef DAY0_TESTS_KERNELS_RATES_H
#define DAY0_TESTS_KERNELS_RATES_H

#include "check.h"

/* Measures the units of all tiers in the mask and reading memory, and says what it found. Takes a second or two. */
void rates_find(unsigned tiers);

/* How near a body comes to what the machine could do in its case: its work is arithmetic of the unit, and reading from
 * memory if it is more than the caches hold. *what is that which takes longer. */
double rates_share(const struct check *c, const struct body *body, const char **what);

/* Time on the processor: on a shared machine long calls are interrupted, and their wall time says little. */
double processor_seconds(void);

#endif
