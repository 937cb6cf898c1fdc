#include "check.h"

#include "tensor/index_query.h"

struct shape {
    size_t H, D, n_blocks, gap; /* gap: bytes between blocks */
};

static const struct shape shapes[] = {
    {1, 32, 1, 0}, {64, 128, 5, 0}, {7, 64, 4, 64}, {13, 96, 9, 16}, {3, 256, 2, 0}, {2, 32, 0, 0}, {6, 160, 11, 32},
};
static const struct shape shapes_any_dimension[] = {{1, 1, 1, 0}, {5, 17, 3, 4}, {8, 100, 6, 0}, {12, 255, 4, 8}};
static const struct shape shapes_bench[] = {{64, 128, 64, 0}, {32, 128, 64, 0}};

static size_t block_size(enum dtype dtype, size_t D)
{
    return dtype == DTYPE_F32 ? 64 * D : dtype == DTYPE_BF16 ? 32 * D : 16 * D + 16 * (D / MX_BLOCK);
}

static void fill_block(struct check *c, void *block, enum dtype dtype, size_t D)
{
    if (dtype == DTYPE_F32) {
        fill_normal(c, block, 16 * D, 1.0f);
    } else if (dtype == DTYPE_BF16) {
        fill_half(c, block, 16 * D, dtype, 1.0f);
    } else {
        uint8_t *codes = block, *scales = codes + 16 * D;
        fill_bytes(c, codes, 16 * D);
        for (size_t i = 0; i < 16 * D; i++)
            if ((codes[i] & 0x7f) == 0x7f) /* NaN is out of range */
                codes[i] ^= 1;
        for (size_t i = 0; i < 16 * (D / MX_BLOCK); i++)
            scales[i] = (uint8_t)(c->specials ? rng_next(&c->rng) : 114 + rng_below(&c->rng, 8));
    }
}

static double element(const void *block, size_t d, size_t j, size_t D, enum dtype dtype)
{
    size_t at = d * 16 + j;
    if (dtype == DTYPE_F32)
        return ((const float *)block)[at];
    if (dtype == DTYPE_BF16)
        return f32_from_bf16(((const uint16_t *)block)[at]);
    const uint8_t *codes = block, *scales = codes + D * 16;
    return mx_e4m3_value(codes[at]) * ldexp(1.0, scales[d / MX_BLOCK * 16 + j] - 127);
}

static bool compare_key(struct check *c, const float *scores, const float *q, const float *w, const char *block,
                        size_t at, const struct shape *shape, enum dtype dtype)
{
    double sum = 0.0, error = TINY;
    for (size_t h = 0; h < shape->H; h++) {
        double dot = 0.0, magnitude = 0.0;
        for (size_t d = 0; d < shape->D; d++) {
            double term = q[h * shape->D + d] * element(block, d, at % 16, shape->D, dtype);
            dot += term, magnitude += fabs(term);
        }
        sum += w[h] * fmax(dot, 0.0);
        error += fabs(w[h]) * (double)(shape->D + shape->H) * EPS * magnitude;
    }
    return near(c, "score", at, reference(c, scores)[at], sum, error);
}

static void check_scores(struct check *c, enum dtype dtype, const struct shape *list, size_t n_shapes)
{
    for (size_t s = 0; s < n_shapes; s++) {
        struct shape shape = list[s];
        size_t size = block_size(dtype, shape.D), step = size + shape.gap;
        size_t n_bytes = shape.n_blocks ? (shape.n_blocks - 1) * step + size : 0;
        begin(c, "H=%zu D=%zu blocks=%zu", shape.H, shape.D, shape.n_blocks);
        float *scores = floats(c, OUTPUT, 16 * shape.n_blocks);
        float *q = floats(c, INPUT, shape.H * shape.D), *w = floats(c, INPUT, shape.H);
        char *keys = dtype == DTYPE_F32    ? (char *)floats(c, INPUT, n_bytes / 4)
                     : dtype == DTYPE_BF16 ? (char *)shorts(c, INPUT, n_bytes / 2)
                                           : (char *)bytes(c, INPUT, n_bytes);
        fill_normal(c, q, shape.H * shape.D, 1.0f);
        fill_normal(c, w, shape.H, 0.3f);
        for (size_t b = 0; b < shape.n_blocks; b++)
            fill_block(c, keys + b * step, dtype, shape.D);
        work(c, (double)n_bytes, 2.0 * 16.0 * (double)(shape.n_blocks * shape.H * shape.D));
        while (next_body(c))
            CALL(c, index_scores_f32)(scores, q, w, keys, step, shape.n_blocks, shape.H, shape.D);
        for (size_t i = 0; exact(c) && i < 16 * shape.n_blocks; i++)
            if (!compare_key(c, scores, q, w, keys + i / 16 * step, i, &shape, dtype))
                return;
    }
}

/* A negative weight times a tiny dot product underflows to -0.0, which must come out as 0.0. */
static void check_negative_zero(struct check *c)
{
    enum { D = 8, BLOCKS = 5 };
    begin(c, "scores of -0.0");
    float *scores = floats(c, OUTPUT, 16 * BLOCKS), *q = floats(c, INPUT, D), *w = floats(c, INPUT, 1);
    float *keys = floats(c, INPUT, 16 * D * BLOCKS);
    *w = -0x1p-100f;
    fill_uniform(c, q, D, 0x1p-40f, 0x1p-39f);
    fill_uniform(c, keys, 16 * D * BLOCKS, 0x1p-40f, 0x1p-39f);
    while (next_body(c))
        CALL(c, index_scores_f32)(scores, q, w, keys, 64 * D, BLOCKS, 1, D);
    if (f32_bits(*reference(c, scores)))
        fail(c, "the score is not 0.0");
}

static void check_index_scores(struct check *c, enum dtype dtype)
{
    if (c->bench) {
        check_scores(c, dtype, shapes_bench, COUNT(shapes_bench));
        return;
    }
    if (dtype == DTYPE_F32)
        check_negative_zero(c);
    check_scores(c, dtype, shapes, COUNT(shapes));
    if (dtype != DTYPE_MXFP8)
        check_scores(c, dtype, shapes_any_dimension, COUNT(shapes_any_dimension));
}

void check_index_scores_f32(struct check *c)
{
    check_index_scores(c, DTYPE_F32);
}

void check_index_scores_bf16(struct check *c)
{
    check_index_scores(c, DTYPE_BF16);
}

void check_index_scores_mxfp8(struct check *c)
{
    check_index_scores(c, DTYPE_MXFP8);
}

/* Scores with many ties, infinities and NaN, but no -0.0. */
static void fill_scores(struct check *c, float *scores, size_t n)
{
    fill_normal(c, scores, n, 1.0f);
    for (size_t i = 0; i < n; i++) {
        if (rng_below(&c->rng, 4) == 0)
            scores[i] = rintf(scores[i]);
        scores[i] += 0.0f;
    }
}

/* The rank by its definition: a count of how many floats and positions are lower would be absurd, so by comparison. */
static bool rank_is_higher(float a, size_t position_a, float b, size_t position_b)
{
    a = isnan(a) ? -INFINITY : a;
    b = isnan(b) ? -INFINITY : b;
    return a > b || (a == b && position_a < position_b);
}

/* Ranks must order positions as scores do, and every position not listed must not beat the threshold's. */
static void compare_ranks(struct check *c, const uint64_t *out, size_t count, const float *scores, size_t n,
                          uint32_t first, size_t threshold_at)
{
    size_t next = 0;
    for (size_t i = 0; i < n; i++) {
        bool higher = rank_is_higher(scores[i], i, scores[threshold_at], threshold_at);
        bool listed = next < count && 0xffffffffu - (uint32_t)out[next] == first + (uint32_t)i;
        next += listed;
        if (higher != listed) {
            fail(c, "position %zu is %s", i, listed ? "listed, but is not higher" : "higher, but not listed");
            return;
        }
    }
    if (next != count)
        fail(c, "lists %zu positions too many", count - next);
}

void check_index_filter(struct check *c)
{
    const uint64_t extremes[] = {0,
                                 UINT64_MAX,
                                 0x007fffffull << 32,
                                 0x007fffffull << 32 | 0xfffffff0,
                                 0xff800000ull << 32,
                                 0x80000000ull << 32,
                                 0xffc00000ull << 32,
                                 0x7fffffffull << 32};
    for (size_t n = 0; next_length(c, &n);) {
        for (size_t trial = 0; trial < (c->bench ? 2 : COUNT(extremes) + 4); trial++) {
            uint32_t first = trial & 1 ? 0 : 123456789;
            begin(c, c->bench ? trial ? "n=%zu few pass" : "n=%zu all pass" : "n=%zu trial %zu", n, trial);
            float *scores = floats(c, INPUT, n);
            uint64_t *out = longs(c, OUTPUT, n), *count = longs(c, OUTPUT, 1);
            fill_scores(c, scores, n);
            /* The threshold of a position: its own rank, made by the reference from a list of one. */
            uint64_t threshold = trial < COUNT(extremes) ? extremes[trial] : 0;
            size_t at = n ? rng_below(&c->rng, n) : 0;
            bool of_position = n && (c->bench ? trial == 1 : trial >= COUNT(extremes));
            for (size_t i = 0; c->bench && i < n; i++)
                at = scores[i] > 1.9f ? i : at;
            if (of_position)
                index_filter_ref(&threshold, scores + at, 1, first + (uint32_t)at, 0);
            work(c, 4.0 * (double)n, (double)n);
            while (next_body(c))
                *count = CALL(c, index_filter)(out, scores, n, first, threshold);
            if (of_position && !c->bench)
                compare_ranks(c, out, *count, scores, n, first, at);
        }
    }
}

/* ---- bounds ---- */

/* Queries and weights of many magnitudes, and rounded ones as MXFP8 leaves them. */
static void fill_query(struct check *c, float *q, float *w, const struct shape *shape)
{
    size_t n = shape->H * shape->D;
    fill_normal(c, q, n, 1.0f);
    fill_normal(c, w, shape->H, 0.3f);
    if (c->bench)
        return;
    float scale = ldexpf(1.0f, (int)rng_below(&c->rng, 20) - 10);
    for (size_t i = 0; i < n; i++) {
        q[i] *= scale;
        if (rng_below(&c->rng, 50) == 0)
            q[i] *= 100.0f;
    }
    for (size_t i = 0; i + MX_BLOCK <= n && rng_below(&c->rng, 2); i += MX_BLOCK) {
        uint8_t codes[MX_BLOCK];
        for (size_t j = 0; j < MX_BLOCK; j++)
            q[i + j] = isfinite(q[i + j]) ? q[i + j] : 1.0f;
        uint8_t byte = mx_quantize_fp8(codes, q + i, MX_FLOOR);
        mx_dequantize_fp8(q + i, codes, byte);
    }
}

void check_index_query_s16(struct check *c)
{
    const struct shape *list = c->bench ? shapes_bench : shapes;
    size_t n_shapes = c->bench ? COUNT(shapes_bench) : COUNT(shapes);
    for (size_t s = 0; s < n_shapes + (c->bench ? 0 : COUNT(shapes_any_dimension)); s++) {
        struct shape shape = s < n_shapes ? list[s] : shapes_any_dimension[s - n_shapes];
        begin(c, "H=%zu D=%zu", shape.H, shape.D);
        float *q = floats(c, INPUT, shape.H * shape.D), *w = floats(c, INPUT, shape.H);
        float *out = floats(c, OUTPUT, index_query_bytes(shape.H, shape.D) / sizeof(float));
        fill_query(c, q, w, &shape);
        work(c, 4.0 * (double)(shape.H * shape.D), 2.0 * (double)(shape.H * shape.D));
        while (next_body(c))
            CALL(c, index_query_s16)(out, q, w, shape.H, shape.D);
    }
}

enum { BOUND_ROWS = 3 };

/* Every score that the exact kernel gives lies within its bounds, and bounds of plain values are narrow: less than
 * 2^-5 of the sum of magnitudes apart. */
static void compare_bounds(struct check *c, const float *lower, const float *upper, const float *q, const float *w,
                           const char *keys, size_t step, const struct shape *shape, enum dtype dtype)
{
    float scores[16];
    for (size_t b = 0; b < shape->n_blocks; b++) {
        (dtype == DTYPE_BF16 ? index_scores_bf16_ref : index_scores_mxfp8_ref)(scores, q, w, keys + b * step, step, 1,
                                                                               shape->H, shape->D);
        for (size_t j = 0; j < 16; j++) {
            double low = lower[b * 16 + j], high = upper[b * 16 + j], magnitude = 0.0;
            double score = scores[j] == scores[j] ? scores[j] : -INFINITY; /* as it ranks */
            if (!(score >= low && score <= high)) {
                fail(c, "key %zu: the score %g is not within %g to %g", b * 16 + j, (double)scores[j], low, high);
                return;
            }
            for (size_t h = 0; h < shape->H; h++)
                for (size_t d = 0; d < shape->D; d++)
                    magnitude += fabs((double)w[h] * q[h * shape->D + d]);
            double peak = 0.0;
            for (size_t d = 0; d < shape->D; d++)
                peak = fmax(peak, fabs(element(keys + b * step, d, j, shape->D, dtype)));
            if (exact(c) && peak > 0x1p-90 && peak < 0x1p60 && high - low > 0x1p-5 * magnitude * peak) {
                fail(c, "key %zu: the bounds %g to %g are wide", b * 16 + j, low, high);
                return;
            }
        }
    }
}

static void check_bounds(struct check *c, enum dtype dtype, const struct shape *list, size_t n_shapes)
{
    for (size_t s = 0; s < n_shapes; s++) {
        struct shape shape = list[s];
        size_t size = block_size(dtype, shape.D), step = size + shape.gap;
        size_t n_bytes = shape.n_blocks ? (shape.n_blocks - 1) * step + size : 0, n = 16 * shape.n_blocks;
        size_t rows = c->bench ? 1 : 1 + s % BOUND_ROWS, words = (index_query_bytes(shape.H, shape.D) + 7) / 8;
        begin(c, "H=%zu D=%zu blocks=%zu rows=%zu", shape.H, shape.D, shape.n_blocks, rows);
        float *lower = floats(c, OUTPUT, rows * n), *upper = floats(c, OUTPUT, rows * n);
        float *q = floats(c, INPUT, rows * shape.H * shape.D), *w = floats(c, INPUT, rows * shape.H);
        uint64_t *records = longs(c, INPUT, rows * words);
        char *keys = dtype == DTYPE_BF16 ? (char *)shorts(c, INPUT, n_bytes / 2) : (char *)bytes(c, INPUT, n_bytes);
        float *low[BOUND_ROWS], *high[BOUND_ROWS];
        const void *queries[BOUND_ROWS];
        bool usable = true;
        for (size_t r = 0; r < rows; r++) {
            fill_query(c, q + r * shape.H * shape.D, w + r * shape.H, &shape);
            index_query_s16_ref(records + r * words, q + r * shape.H * shape.D, w + r * shape.H, shape.H, shape.D);
            low[r] = lower + r * n;
            high[r] = upper + r * n;
            queries[r] = records + r * words;
            usable &= ((const struct index_query *)queries[r])->width < INFINITY;
        }
        for (size_t b = 0; b < shape.n_blocks; b++)
            fill_block(c, keys + b * step, dtype, shape.D);
        work_in(c, UNIT_INT16);
        work(c, (double)n_bytes, 2.0 * 16.0 * (double)(rows * shape.n_blocks * shape.H * shape.D));
        while (usable && next_body(c))
            CALL(c, index_bounds_mxfp8)(low, high, queries, rows, keys, step, shape.n_blocks, shape.H, shape.D);
        for (size_t r = 0; usable && !c->bench && r < rows; r++)
            compare_bounds(c, reference(c, lower) + r * n, reference(c, upper) + r * n, q + r * shape.H * shape.D,
                           w + r * shape.H, keys, step, &shape, dtype);
    }
}

static void check_index_bounds(struct check *c, enum dtype dtype)
{
    if (c->bench) {
        check_bounds(c, dtype, shapes_bench, COUNT(shapes_bench));
        return;
    }
    check_bounds(c, dtype, shapes, COUNT(shapes));
    if (dtype == DTYPE_BF16)
        check_bounds(c, dtype, shapes_any_dimension, COUNT(shapes_any_dimension));
}

void check_index_bounds_bf16(struct check *c)
{
    check_index_bounds(c, DTYPE_BF16);
}

void check_index_bounds_mxfp8(struct check *c)
{
    check_index_bounds(c, DTYPE_MXFP8);
}
