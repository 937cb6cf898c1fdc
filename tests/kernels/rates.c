#include "rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/tiers.h"

/* What does not fit into any cache that a thread has for itself is read from memory. */
static const double cache_bytes_max = 64e6;
enum { READ_BYTES = 256 << 20, READ_WINDOW = 32 << 20, READ_ROUNDS = 3, TRIES = 100 };

static double unit_rates[TIER_COUNT][UNIT_COUNT], read_rate; /* 1e9 a second */

double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double unit_rate(struct unit_loop loop)
{
    volatile float seed = 0.5f, sink;
    double best = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        double started = processor_seconds();
        sink = loop.run(seed);
        best = fmin(best, processor_seconds() - started);
    }
    (void)sink;
    return 1e-9 * loop.operations / best;
}

/* Between two readings of a window lies the whole buffer. */
static double measure_read(void)
{
    char *buffer = aligned_alloc(64, READ_BYTES);
    volatile uint64_t sink;
    double best = INFINITY;
    if (!buffer)
        return 0;
    memset(buffer, 1, READ_BYTES);
    for (size_t at = 0; at < (size_t)READ_ROUNDS * READ_BYTES; at += READ_WINDOW) {
        double started = processor_seconds();
        sink = units_read(buffer + at % READ_BYTES, READ_WINDOW);
        best = fmin(best, processor_seconds() - started);
    }
    (void)sink;
    free(buffer);
    return 1e-9 * READ_WINDOW / best;
}

void rates_find(unsigned tiers)
{
    read_rate = measure_read();
    printf("one thread reads %.1f GB/s", read_rate);
    for (unsigned tier = 0; tier < TIER_COUNT; tier++) {
        unsigned with = tiers & ((2u << tier) - 1);
        if (!(tiers & 1u << tier))
            continue;
        printf("; %s:", tiers_name(with));
        for (int unit = 0; unit < UNIT_COUNT; unit++) {
            struct unit_loop loop = units_loop((enum unit)unit, with);
            if (loop.run)
                printf(" %s %.0f", units_name((enum unit)unit), unit_rates[tier][unit] = unit_rate(loop));
        }
    }
    printf(" GFLOP/s\n\n");
}

double rates_share(const struct check *c, const struct body *body, const char **what)
{
    double rate = 0;
    for (unsigned tier = 0; tier < TIER_COUNT; tier++)
        if (strcmp(tiers_name(1u << tier), body->tier) == 0)
            rate = unit_rates[tier][c->work_unit];
    double compute = rate > 0 ? 1e-9 * c->work_flops / rate : 0;
    double read = read_rate > 0 && c->work_bytes > cache_bytes_max ? 1e-9 * c->work_bytes / read_rate : 0;
    *what = read > compute ? "read" : units_name(c->work_unit);
    return fmax(read, compute) / body->best_s;
}
