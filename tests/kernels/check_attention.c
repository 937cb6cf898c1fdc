#include "check.h"

#include <string.h>

#include "tensor/int16_row.h"

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
    float *acc, *peak, *total, *scores;
    const void *q; /* floats, or rows of 16-bit integers */
    const float *mask;
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
            double term = ((const float *)a->q)[h * shape->width + d] * element(a->rows[i], d, dtype);
            score += term, magnitude += fabs(term);
        }
        score += a->mask ? a->mask[i] : 0.0;
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

/* Names a case and takes what all of attention needs. Every other case has a mask, which leaves some row. */
static struct arrays attend_case(struct check *c, size_t s, const struct shape *shape)
{
    CHECK(shape->n_rows <= ROWS_MAX);
    begin(c, "heads=%zu rows=%zu width=%zu latent=%zu", shape->n_heads, shape->n_rows, shape->width, shape->latent);
    struct arrays a = {.acc = floats(c, OUTPUT, shape->n_heads * shape->latent),
                       .peak = floats(c, OUTPUT, shape->n_heads),
                       .total = floats(c, OUTPUT, shape->n_heads),
                       .scores = floats(c, SCRATCH, shape->n_heads * shape->n_rows)};
    if (c->bench || s % 2 == 0)
        return a;
    float *mask = floats(c, INPUT, shape->n_rows);
    for (size_t i = 0; i < shape->n_rows; i++)
        mask[i] = i == shape->n_rows / 2 || rng_below(&c->rng, 3) ? 0.0f : ATTEND_MASKED;
    a.mask = mask;
    return a;
}

static void check_attend(struct check *c, enum dtype dtype)
{
    const struct shape *list = c->bench ? shapes_bench : shapes;
    for (size_t s = 0; s < (c->bench ? COUNT(shapes_bench) : COUNT(shapes)); s++) {
        struct shape shape = list[s];
        struct arrays a = attend_case(c, s, &shape);
        float *q = floats(c, INPUT, shape.n_heads * shape.width);
        a.q = q;
        fill_normal(c, q, shape.n_heads * shape.width, 3.0f / sqrtf((float)shape.width));
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
        (a.acc, a.peak, a.total, a.scores, a.q, a.rows, a.mask, shape.n_heads, shape.n_rows, shape.width, shape.latent);
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
            CALL(c, attend_f32)(acc, peak, total, scores, q, rows, NULL, 1, ROWS, WIDTH, WIDTH);
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

static double int16_value(const void *row, size_t i, size_t width)
{
    return (double)((const int16_t *)row)[i] * int16_row_unit(row, width);
}

/* One head against float64 over the values that the rows stand for. Scores lose three roundings of float32, and a
 * weight half a unit of its group. */
static bool compare_int16_head(struct check *c, const struct arrays *a, const struct shape *shape, size_t h)
{
    double weight[ROWS_MAX], weight_error[ROWS_MAX], total = 0.0, total_error = 0.0, half[ROWS_MAX / INT16_GROUP + 1];
    double peak = reference(c, a->peak)[h], best = -INFINITY;
    const void *q = (const char *)a->q + h * int16_row_bytes(shape->width);
    for (size_t i = 0; i < shape->n_rows; i++) {
        double score = 0.0;
        for (size_t d = 0; d < shape->width; d++)
            score += int16_value(q, d, shape->width) * int16_value(a->rows[i], d, shape->width);
        score += a->mask ? a->mask[i] : 0.0;
        best = fmax(best, score);
        weight[i] = exp(score - peak);
        weight_error[i] = weight[i] * (6.0 * EPS * (fabs(score) + 1.0) + 2.0 * EPS * fabs(peak)) + 0x1p-126;
        total += weight[i];
        total_error += weight_error[i] + (double)shape->n_rows * EPS * weight[i];
    }
    for (size_t first = 0; first < shape->n_rows; first += INT16_GROUP) {
        double sum = 0.0, most = 0.0;
        for (size_t i = first; i < first + INT16_GROUP && i < shape->n_rows; i++) {
            double t = weight[i] * int16_row_unit(a->rows[i], shape->width);
            sum += t, most = fmax(most, t);
        }
        half[first / INT16_GROUP] = 0.51 * fmax(sum / 65000.0, most / 32700.0) + 0x1p-100;
    }
    if (!near(c, "peak", h, peak, best, 4.0 * EPS * fabs(best) + TINY) ||
        !near(c, "total", h, reference(c, a->total)[h], total, total_error))
        return false;
    for (size_t d = 0; d < shape->latent; d++) {
        double sum = 0.0, error = TINY;
        for (size_t i = 0; i < shape->n_rows; i++) {
            double value = int16_value(a->rows[i], d, shape->width);
            sum += weight[i] * value;
            error += fabs(value) * (weight_error[i] + 8.0 * EPS * weight[i]);
            error += half[i / INT16_GROUP] * fabs((double)((const int16_t *)a->rows[i])[d]);
        }
        size_t at = h * shape->latent + d;
        if (!near(c, "acc", at, reference(c, a->acc)[at], sum, error))
            return false;
    }
    return true;
}

/* Rows of values, as the kernel for them makes them. */
static char *int16_rows(struct check *c, size_t n, size_t width, float scale)
{
    static float x[INT16_ROW_MAX];
    size_t row_bytes = int16_row_bytes(width);
    char *rows = (char *)shorts(c, INPUT, n * row_bytes / 2);
    for (size_t i = 0; i < n; i++) {
        fill_normal(c, x, width, c->bench || i % 5 ? scale : scale * 0x1p-9f);
        quantize_int16_row_ref(rows + i * row_bytes, x, width);
    }
    return rows;
}

/* All weights and codes as large as they get, of one sign: nothing overflows. */
static void check_int16_extremes(struct check *c)
{
    enum { WIDTH = 16, ROWS = 64 };
    for (int equal = 0; equal < 2; equal++) {
        begin(c, equal ? "equal rows" : "one row above all");
        size_t row_bytes = int16_row_bytes(WIDTH);
        float *acc = floats(c, OUTPUT, WIDTH), *peak = floats(c, OUTPUT, 1), *total = floats(c, OUTPUT, 1);
        float *scores = floats(c, SCRATCH, ROWS), x[WIDTH] = {1.0f};
        char *q = (char *)shorts(c, INPUT, row_bytes / 2), *cache = (char *)shorts(c, INPUT, ROWS * row_bytes / 2);
        const void *rows[ROWS];
        quantize_int16_row_ref(q, x, WIDTH);
        for (size_t i = 0; i < ROWS; i++) {
            x[0] = equal || i == 17 ? 100.0f : -100.0f;
            quantize_int16_row_ref(cache + i * row_bytes, x, WIDTH);
            rows[i] = cache + i * row_bytes;
        }
        while (next_body(c))
            CALL(c, attend_int16)(acc, peak, total, scores, q, rows, NULL, 1, ROWS, WIDTH, WIDTH);
        double want = 100.0 * (equal ? ROWS : 1);
        near(c, "peak", 0, *reference(c, peak), 100.0, 1e-4);
        near(c, "acc", 0, *reference(c, acc), want, 1e-3 * want);
    }
}

void check_attend_int16(struct check *c)
{
    static const struct shape wide[] = {{3, 19, INT16_ROW_MAX, 100}, {4, 256, 64, 64}, {65, 129, 34, 33}};
    size_t n_shapes = c->bench ? COUNT(shapes_bench) : COUNT(shapes) + COUNT(wide);
    for (size_t s = 0; s < n_shapes; s++) {
        struct shape shape = c->bench ? shapes_bench[s] : s < COUNT(shapes) ? shapes[s] : wide[s - COUNT(shapes)];
        struct arrays a = attend_case(c, s, &shape);
        a.q = int16_rows(c, shape.n_heads, shape.width, 3.0f / sqrtf((float)shape.width));
        char *cache = int16_rows(c, shape.n_rows, shape.width, 1.0f);
        for (size_t i = 0; i < shape.n_rows; i++) /* in another order than they lie */
            a.rows[i] = cache + (shape.n_rows - 1 - i) * int16_row_bytes(shape.width);
        double pairs = (double)(shape.n_heads * shape.n_rows);
        work(c, (double)(shape.n_rows * int16_row_bytes(shape.width)),
             pairs * (2.0 * (double)(shape.width + shape.latent)));
        work_in(c, UNIT_INT16);
        while (next_body(c))
            CALL(c, attend_int16)
        (a.acc, a.peak, a.total, a.scores, a.q, a.rows, a.mask, shape.n_heads, shape.n_rows, shape.width, shape.latent);
        for (size_t h = 0; exact(c) && h < shape.n_heads; h++)
            if (!compare_int16_head(c, &a, &shape, h))
                return;
    }
    if (!c->bench)
        check_int16_extremes(c);
}

void check_quantize_int16_row(struct check *c)
{
    for (size_t n = 1; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *x = floats(c, INPUT, n);
        char *row = (char *)shorts(c, OUTPUT, int16_row_bytes(n) / 2);
        fill_normal(c, x, n, 1.0f);
        work(c, 6.0 * (double)n, 4.0 * (double)n);
        while (next_body(c))
            CALL(c, quantize_int16_row)(row, x, n);
        double squares = 0.0, unit = int16_row_unit(row, n), length = 0.0;
        for (size_t i = 0; i < n; i++)
            squares += (double)x[i] * x[i];
        if (exact(c) && !near(c, "unit", 0, unit, sqrt(squares) / INT16_ROW_LENGTH, 1e-5 * unit))
            return;
        for (size_t i = 0; exact(c) && i < int16_row_columns(n); i++) {
            double code = ((int16_t *)(void *)row)[i];
            length += code * code;
            if (!near(c, "value", i, code * unit, i < n ? x[i] : 0.0, 0.5001 * unit))
                return;
        }
        if (exact(c) && sqrt(length) > INT16_ROW_LENGTH + 0.5 * sqrt((double)n) + 1.0)
            fail(c, "the codes are longer than they may be");
    }
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
