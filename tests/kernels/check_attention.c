#include "check.h"

#include <string.h>

struct shape {
    size_t n_heads, n_rows, width, latent;
};

static const struct shape shapes[] = {
    {1, 1, 1, 1},       {1, 17, 40, 32},  {2, 16, 64, 64}, {3, 5, 33, 17},   {8, 31, 96, 80},
    {16, 64, 576, 512}, {5, 100, 48, 48}, {65, 7, 32, 16}, {130, 3, 15, 15}, {7, 130, 528, 512},
};
static const struct shape shapes_bench[] = {
    {16, 256, 576, 512}, {32, 256, 576, 512}, {96, 256, 576, 512}, {1, 256, 576, 512}};

enum { ROWS_MAX = 256 };

struct arrays {
    float *acc, *peak, *total, *scores, *q;
    const void *rows[ROWS_MAX];
};

static double element(const void *row, size_t i, enum dtype dtype)
{
    return dtype == DTYPE_F32 ? ((const float *)row)[i] : f32_from_bf16(((const uint16_t *)row)[i]);
}

/* One head against float64. The peak is float32's own, so that scores and sums are compared like with like. */
static bool compare_head(struct check *c, const struct arrays *a, const struct shape *shape, size_t h, enum dtype dtype)
{
    double weight[ROWS_MAX], weight_error[ROWS_MAX], total = 0.0, total_error = 0.0;
    double peak = reference(c, a->peak)[h], best = -INFINITY, best_error = 0.0;
    for (size_t i = 0; i < shape->n_rows; i++) {
        double score = 0.0, magnitude = 0.0;
        for (size_t d = 0; d < shape->width; d++) {
            double term = a->q[h * shape->width + d] * element(a->rows[i], d, dtype);
            score += term, magnitude += fabs(term);
        }
        double error = ((double)shape->width / 16 + 8) * EPS * magnitude + EPS * fabs(score - peak);
        if (score > best)
            best = score, best_error = error;
        weight[i] = exp(score - peak);
        weight_error[i] = weight[i] * (2.0 * error + 6.0 * EPS) + 0x1p-126;
        total += weight[i];
        total_error += weight_error[i] + (double)shape->n_rows * EPS * weight[i];
    }
    if (!near(c, "peak", h, peak, best, best_error + TINY) ||
        !near(c, "total", h, reference(c, a->total)[h], total, total_error))
        return false;
    for (size_t d = 0; d < shape->latent; d++) {
        double sum = 0.0, error = TINY;
        for (size_t i = 0; i < shape->n_rows; i++) {
            double value = element(a->rows[i], d, dtype);
            sum += weight[i] * value;
            error += fabs(value) * (weight_error[i] + (double)shape->n_rows * EPS * weight[i]);
        }
        size_t at = h * shape->latent + d;
        if (!near(c, "acc", at, reference(c, a->acc)[at], sum, error))
            return false;
    }
    return true;
}

static void check_attend(struct check *c, enum dtype dtype)
{
    const struct shape *list = c->bench ? shapes_bench : shapes;
    for (size_t s = 0; s < (c->bench ? COUNT(shapes_bench) : COUNT(shapes)); s++) {
        struct shape shape = list[s];
        CHECK(shape.n_rows <= ROWS_MAX);
        begin(c, "heads=%zu rows=%zu width=%zu latent=%zu", shape.n_heads, shape.n_rows, shape.width, shape.latent);
        struct arrays a;
        a.acc = floats(c, OUTPUT, shape.n_heads * shape.latent);
        a.peak = floats(c, OUTPUT, shape.n_heads);
        a.total = floats(c, OUTPUT, shape.n_heads);
        a.scores = floats(c, SCRATCH, shape.n_heads * shape.n_rows);
        a.q = floats(c, INPUT, shape.n_heads * shape.width);
        fill_normal(c, a.q, shape.n_heads * shape.width, 3.0f / sqrtf((float)shape.width));
        size_t n = shape.n_rows * shape.width, element_bytes = dtype == DTYPE_F32 ? 4 : 2;
        char *cache = dtype == DTYPE_F32 ? (char *)floats(c, INPUT, n) : (char *)shorts(c, INPUT, n);
        if (dtype == DTYPE_F32)
            fill_normal(c, (float *)(void *)cache, n, 1.0f);
        else
            fill_half(c, (uint16_t *)(void *)cache, n, dtype, 1.0f);
        for (size_t i = 0; i < shape.n_rows; i++) /* in another order than they lie */
            a.rows[i] = cache + (i * 7 % shape.n_rows) * shape.width * element_bytes;
        for (size_t i = 0; shape.n_rows % 7 == 0 && i < shape.n_rows; i++)
            a.rows[i] = cache + i * shape.width * element_bytes;
        double pairs = (double)(shape.n_heads * shape.n_rows);
        work(c, (double)(n * element_bytes), pairs * (2.0 * (double)(shape.width + shape.latent) + 20.0));
        while (next_body(c))
            CALL(c, attend_f32)
        (a.acc, a.peak, a.total, a.scores, a.q, a.rows, shape.n_heads, shape.n_rows, shape.width, shape.latent);
        for (size_t h = 0; exact(c) && h < shape.n_heads; h++)
            if (!compare_head(c, &a, &shape, h, dtype))
                return;
    }
}

/* Scores that underflow to zeros of both signs after a negative one: the peak is the first zero, sign and all. */
static void check_zero_peaks(struct check *c)
{
    enum { ROWS = 37, WIDTH = 32, TRIALS = 20 };
    for (int trial = 0; trial < TRIALS; trial++) {
        begin(c, "scores of zero, trial %d", trial);
        float *acc = floats(c, OUTPUT, WIDTH), *peak = floats(c, OUTPUT, 1), *total = floats(c, OUTPUT, 1);
        float *scores = floats(c, SCRATCH, ROWS), *q = floats(c, INPUT, WIDTH), *cache = floats(c, INPUT, ROWS * WIDTH);
        const void *rows[ROWS];
        fill_uniform(c, q, WIDTH, 0x1p-101f, 0x1p-100f);
        for (size_t i = 0; i < ROWS; i++) {
            float size = i == 0 ? -1.0f : rng_below(&c->rng, 2) ? 0x1p-100f : -0x1p-100f;
            fill_uniform(c, cache + i * WIDTH, WIDTH, size * 0.5f, size);
            rows[i] = cache + i * WIDTH;
        }
        while (next_body(c))
            CALL(c, attend_f32)(acc, peak, total, scores, q, rows, 1, ROWS, WIDTH, WIDTH);
        if (*reference(c, peak) != 0.0f)
            fail(c, "the peak is not zero");
    }
}

void check_attend_f32(struct check *c)
{
    check_attend(c, DTYPE_F32);
    if (!c->bench)
        check_zero_peaks(c);
}

void check_attend_bf16(struct check *c)
{
    check_attend(c, DTYPE_BF16);
}

void check_attend_merge_f32(struct check *c)
{
    static const struct shape merge_shapes[] = {
        {1, 0, 0, 1}, {2, 0, 0, 17}, {15, 0, 0, 16}, {17, 0, 0, 33}, {32, 0, 0, 512}};
    for (size_t s = c->bench ? COUNT(merge_shapes) - 1 : 0; s < COUNT(merge_shapes); s++) {
        size_t n_heads = merge_shapes[s].n_heads, latent = merge_shapes[s].latent, n = n_heads * latent;
        begin(c, "heads=%zu latent=%zu", n_heads, latent);
        float *acc = floats(c, UPDATED, n), *acc2 = floats(c, INPUT, n), *old = floats(c, INPUT, n);
        float *peak = floats(c, UPDATED, n_heads), *peak2 = floats(c, INPUT, n_heads),
              *old_peak = floats(c, INPUT, n_heads);
        float *total = floats(c, UPDATED, n_heads), *total2 = floats(c, INPUT, n_heads);
        float *old_total = floats(c, INPUT, n_heads);
        fill_normal(c, acc, n, 1.0f);
        fill_normal(c, acc2, n, 1.0f);
        fill_normal(c, peak, n_heads, 5.0f);
        fill_normal(c, peak2, n_heads, 5.0f);
        fill_uniform(c, total, n_heads, 1.0f, 64.0f);
        fill_uniform(c, total2, n_heads, 1.0f, 64.0f);
        memcpy(old, acc, n * sizeof *old);
        memcpy(old_peak, peak, n_heads * sizeof *peak);
        memcpy(old_total, total, n_heads * sizeof *total);
        work(c, 12.0 * (double)n, 3.0 * (double)n);
        while (next_body(c))
            CALL(c, attend_merge_f32)(acc, peak, total, acc2, peak2, total2, n_heads, latent);
        for (size_t h = 0; exact(c) && h < n_heads; h++) {
            double top = fmax(old_peak[h], peak2[h]), a = exp(old_peak[h] - top), b = exp(peak2[h] - top);
            double relative = (8.0 + 2.0 * fabs((double)old_peak[h] - peak2[h])) * EPS;
            double sum = old_total[h] * a + total2[h] * b;
            if (!near(c, "peak", h, reference(c, peak)[h], top, 0.0) ||
                !near(c, "total", h, reference(c, total)[h], sum, relative * sum))
                return;
            for (size_t i = h * latent; i < (h + 1) * latent; i++) {
                double kept = old[i] * a, joined = acc2[i] * b;
                if (!near(c, "acc", i, reference(c, acc)[i], kept + joined,
                          relative * (fabs(kept) + fabs(joined)) + TINY))
                    return;
            }
        }
    }
}
