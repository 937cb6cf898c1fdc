/* The machine's rates: how fast all threads together read memory and what their arithmetic units do, for one tier.
 *
 * They are what speeds are set against and never change a number that a model computes. Measured once and kept in a
 * file a processor, thread count and tier. */
#ifndef DAY0_EXEC_RATES_H
#define DAY0_EXEC_RATES_H

#include "cpu/units.h"
#include "exec/bandwidth.h"

enum rates_source { RATES_MEASURED, RATES_KEPT, RATES_GIVEN };

struct rates {
    struct bandwidth read;
    double gop_s[UNIT_COUNT]; /* 1e9 operations a second, a multiply-add being two; 0: the tier has no such unit */
    enum rates_source source;
};

/* Does: measures, for about 3 s. Fails: as bandwidth_measure. */
NEEDS_CHECK enum status rates_measure(struct rates *out, struct team *team, unsigned tiers, uint64_t memory_bytes,
                                      struct error *err);

/* The rates of an earlier run on this processor with as many threads and this tier; false if the folder (NULL: none)
 * has none. A damaged file is as good as none. */
bool rates_read(struct rates *out, const char *folder, unsigned n_threads, unsigned tiers);

/* Keeps them in `folder`, which is made if its parent is there; false if that was not possible. Those of a small buffer
 * are not kept. */
bool rates_write(const struct rates *rates, const char *folder, unsigned n_threads, unsigned tiers);

/* Whether a number can be a rate of a machine at all, in 1e9 a second. */
bool rates_believable(double value);

#endif
