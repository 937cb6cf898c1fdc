/* The kernel test: every body of all.def against its reference bit for bit, every reference against float64.
 *
 * The driver (check.c) walks all.def and calls check_<kernel> for each kernel, so that a kernel without a check does
 * not link. A check makes cases; a case is
 *
 *     begin(c, "n=%zu", n);                               names the case for messages and drops the buffers of the last
 *     float *x = floats(c, INPUT, n), *y = floats(c, OUTPUT, n);
 *     fill_normal(c, x, n, 1.0f);
 *     while (next_body(c))                                the reference, then each body of the tiers in use
 *         CALL(c, sigmoid_f32)(y, x, n);
 *     if (exact(c)) ...                                   compares reference(c, y) with float64 by near()
 *
 * Everything else is the driver's: buffers against unreadable pages, poison, canaries, misalignment, special values,
 * comparison, signals, and with BENCH=1 the same loop repeated and timed. */
#ifndef DAY0_TESTS_KERNELS_CHECK_H
#define DAY0_TESTS_KERNELS_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "cpu/units.h"
#include "kernels/kernels.h"

enum role {
    INPUT,   /* must not change */
    OUTPUT,  /* poisoned before each body, compared after it */
    UPDATED, /* what the check filled in before each body, compared after it */
    SCRATCH, /* poisoned, not compared */
};

/* Where buffers lie. The other ends hold canaries. */
enum placement {
    PLACE_END,   /* last byte before an unreadable page */
    PLACE_FRONT, /* first byte after one */
    PLACE_ODD,   /* one element off a 64-byte boundary */
    PLACE_BENCH, /* at a 64-byte boundary, no copies kept */
};

enum { BUFFERS_MAX = 16, BODIES_MAX = 8 };

struct buffer {
    char *map; /* guard page, `capacity` bytes, guard page */
    size_t capacity;
    char *data;
    size_t bytes, element_bytes;
    bool is_float;
    enum role role;
    char *initial, *expected; /* copies: before the bodies, after the reference */
    size_t copy_bytes;
};

struct body {
    const char *tier;
    void (*function)(void);
    bool failed;
    double best_s; /* bench */
};

struct check {
    const char *kernel;
    char description[160];
    struct rng rng;
    enum placement placement;
    bool specials, bench, quick;
    struct buffer buffers[BUFFERS_MAX];
    size_t n_buffers;
    struct body bodies[BODIES_MAX]; /* the reference first */
    size_t n_bodies;
    int running; /* index of the body in progress, -1 between cases */
    void (*body)(void);
    unsigned special_class; /* of this case */
    size_t n_cases;
    size_t n_lengths_used;         /* by the loop over lengths in progress */
    double work_bytes, work_flops; /* of one call, for the bench */
    enum unit work_unit;           /* that does the flops */
    double started_s, started_processor_s, spent_s;
    size_t n_runs;
};

#define CALL(c, name) ((name##_fn *)(c)->body)

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* for (size_t n = least; next_length(c, &n);): lengths around the vector width and beyond, from `least` on (0 or 1);
 * in a bench a model's width alone. */
bool next_length(struct check *c, size_t *n);

void begin(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool next_body(struct check *c);
/* Bytes moved and flops done by one call, for the bench; and what unit does the flops, if it is not that of float32. */
void work(struct check *c, double bytes, double flops);
void work_in(struct check *c, enum unit unit);

float *floats(struct check *c, enum role role, size_t n);
uint16_t *shorts(struct check *c, enum role role, size_t n);
uint8_t *bytes(struct check *c, enum role role, size_t n);
uint64_t *longs(struct check *c, enum role role, size_t n);

/* Random values; with specials on, some of them NaN, infinite, subnormal, huge or signed zeros (fill_finite: the finite
 * of these). */
void fill_normal(struct check *c, float *x, size_t n, float scale);
void fill_finite(struct check *c, float *x, size_t n, float scale);
void fill_uniform(struct check *c, float *x, size_t n, float low, float high);
void fill_bytes(struct check *c, uint8_t *x, size_t n);
/* BF16 or F16 patterns of normal random values, with specials likewise. */
void fill_half(struct check *c, uint16_t *x, size_t n, enum dtype dtype, float scale);
float normal(struct check *c);

/* Whether the case has plain values, so that float64 gives the right answer. */
bool exact(const struct check *c);
/* What the reference wrote to an OUTPUT or UPDATED buffer. */
const float *reference(const struct check *c, const float *data);
/* The reference must be within `tolerance` of `want`. Returns false, having reported, if it is not. */
bool near(struct check *c, const char *what, size_t index, double got, double want, double tolerance);
/* Marks the running body (or the reference between cases) as failed. */
void fail(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define EPS 0x1p-24 /* half a unit of the last place of 1 */
/* Below this, float32 is no longer relative. */
#define TINY 0x1p-140

/* Functions of the contract in float64. */
static inline double sigmoid64(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static inline double softplus64(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

#define KERNEL(name, result, parameters) void check_##name(struct check *c);
#define X86(name, tier)
#define ARM(name, tier)
#include "kernels/all.def"
#undef KERNEL
#undef X86
#undef ARM

#endif
