#include "check.h"

struct shape {
    uint32_t rows, columns;
    size_t n_tokens;
};

/* Around tile, panel and group sizes of every tier: tokens 2, 4, 8, 64; rows 3, 6, 8; columns 16, 512. */
static const struct shape shapes[] = {
    {1, 1, 1},    {3, 15, 2},   {8, 16, 1},  {9, 17, 1},   {6, 64, 4},    {7, 33, 3},    {5, 0, 2},     {0, 32, 2},
    {4, 8, 0},    {13, 511, 5}, {6, 512, 6}, {7, 513, 7},  {16, 1040, 1}, {5, 2079, 2},  {12, 128, 63}, {7, 96, 64},
    {9, 160, 65}, {2, 48, 131}, {1, 100, 9}, {23, 300, 1}, {13, 48, 8},   {8, 1040, 10}, {3, 513, 4},
};
static const struct shape shapes_mx[] = {
    {1, 32, 1},   {9, 64, 1},   {7, 96, 3}, {6, 512, 4},  {5, 544, 6},  {17, 1056, 1},
    {8, 2080, 2}, {5, 128, 67}, {3, 0, 2},  {13, 544, 8}, {8, 1056, 9}, {7, 64, 5},
};
/* A weight that streams from memory, and one that stays near for many tokens. */
static const struct shape shapes_bench[] = {{32768, 8192, 1}, {32768, 8192, 4}, {2048, 2048, 1}, {2048, 2048, 2},
                                            {2048, 2048, 4},  {2048, 2048, 8},  {2048, 2048, 64}};
static const struct shape shapes_t_bench[] = {{128, 512, 1}, {128, 512, 8}, {128, 512, 64}};

static void fill_weights(struct check *c, struct matrix *w, const struct shape *shape, enum dtype dtype)
{
    size_t n = (size_t)shape->rows * shape->columns;
    *w = (struct matrix){.rows = shape->rows, .columns = shape->columns, .dtype = dtype};
    float scale = 1.0f / sqrtf((float)shape->columns + 1.0f);
    if (dtype == DTYPE_F32) {
        float *data = floats(c, INPUT, n);
        fill_normal(c, data, n, scale);
        w->data = data;
    } else if (dtype == DTYPE_MXFP4) {
        uint8_t *data = bytes(c, INPUT, n / 2), *scales = bytes(c, INPUT, n / MX_BLOCK);
        fill_bytes(c, data, n / 2);
        for (size_t i = 0; i < n / MX_BLOCK; i++)
            scales[i] = (uint8_t)(c->specials ? rng_next(&c->rng) : 118 + rng_below(&c->rng, 8));
        w->data = data;
        w->scales = scales;
    } else if (dtype == DTYPE_MXFP8) {
        uint8_t *data = bytes(c, INPUT, n), *scales = bytes(c, INPUT, n / MX_BLOCK);
        fill_bytes(c, data, n);
        for (size_t i = 0; i < n; i++)
            data[i] = (uint8_t)((data[i] & 0x7f) == 0x7f ? data[i] - 1 : data[i]);
        for (size_t i = 0; i < n / MX_BLOCK; i++)
            scales[i] = (uint8_t)(c->specials ? rng_below(&c->rng, 247) : 112 + rng_below(&c->rng, 8));
        w->data = data;
        w->scales = scales;
    } else if (dtype == DTYPE_INT8) {
        uint8_t *data = bytes(c, INPUT, n);
        uint16_t *scales = shorts(c, INPUT, n / MX_BLOCK);
        fill_bytes(c, data, n);
        fill_half(c, scales, n / MX_BLOCK, DTYPE_BF16, scale / 64.0f);
        w->data = data;
        w->scales = (const uint8_t *)scales;
    } else {
        uint16_t *data = shorts(c, INPUT, n);
        fill_half(c, data, n, dtype, scale);
        w->data = data;
    }
}

static double element(const struct matrix *w, size_t row, size_t i)
{
    const char *start = (const char *)w->data + row * matrix_row_bytes(w);
    switch (w->dtype) {
    case DTYPE_F32:
        return ((const float *)(const void *)start)[i];
    case DTYPE_BF16:
        return f32_from_bf16(((const uint16_t *)(const void *)start)[i]);
    case DTYPE_F16:
        return f32_from_f16(((const uint16_t *)(const void *)start)[i]);
    case DTYPE_MXFP8:
        return mx_e4m3_value(((const uint8_t *)start)[i]) *
               ldexp(1.0, w->scales[(row * w->columns + i) / MX_BLOCK] - 127);
    case DTYPE_INT8:
        return ((const int8_t *)start)[i] *
               (double)f32_from_bf16(((const uint16_t *)(const void *)w->scales)[(row * w->columns + i) / MX_BLOCK]);
    default:
        return mx_e2m1_values[((const uint8_t *)start)[i / 2] >> (i & 1 ? 4 : 0) & 15] *
               ldexp(1.0, w->scales[(row * w->columns + i) / MX_BLOCK] - 127);
    }
}

enum { TOKENS_MAX = 131 };

/* Rows of one buffer, a gap apart, so that what lies between them is watched too. */
struct batch {
    const float *x[TOKENS_MAX];
    float *y[TOKENS_MAX];
    float *first_y;
};

static void make_batch(struct check *c, struct batch *batch, size_t n_tokens, size_t n_in, size_t n_out)
{
    size_t gap = c->bench ? 16 : 3; /* rows of the workspace are aligned, any must do */
    size_t in_count = n_tokens ? n_tokens * (n_in + gap) - gap : 0,
           out_count = n_tokens ? n_tokens * (n_out + gap) - gap : 0;
    float *x = floats(c, INPUT, in_count);
    batch->first_y = floats(c, OUTPUT, out_count);
    fill_normal(c, x, in_count, 1.0f);
    for (size_t t = 0; t < n_tokens; t++) {
        /* Tokens gathered backwards: rows need not be in order. */
        batch->x[t] = x + (n_tokens - 1 - t) * (n_in + gap);
        batch->y[t] = batch->first_y + t * (n_out + gap);
    }
}

/* linear_* and linear_t_* have one type each. */
static void check_products(struct check *c, enum dtype dtype, bool transposed, const struct shape *list,
                           size_t n_shapes)
{
    for (size_t s = 0; s < n_shapes; s++) {
        struct shape shape = list[s];
        begin(c, "%ux%u tokens=%zu", shape.rows, shape.columns, shape.n_tokens);
        struct matrix w;
        struct batch batch;
        fill_weights(c, &w, &shape, dtype);
        size_t n_in = transposed ? shape.rows : shape.columns, n_out = transposed ? shape.columns : shape.rows;
        make_batch(c, &batch, shape.n_tokens, n_in, n_out);
        double products = (double)shape.rows * shape.columns * (double)shape.n_tokens;
        work(c, (double)matrix_bytes(&w), 2.0 * products);
        while (next_body(c))
            CALL(c, linear_f32)(batch.y, batch.x, &w, shape.n_tokens);
        for (size_t t = 0; exact(c) && t < shape.n_tokens; t++)
            for (size_t o = 0; o < n_out; o++) {
                double want = 0.0, magnitude = 0.0;
                for (size_t i = 0; i < n_in; i++) {
                    double term = batch.x[t][i] * (transposed ? element(&w, i, o) : element(&w, o, i));
                    want += term, magnitude += fabs(term);
                }
                size_t at = (size_t)(batch.y[t] + o - batch.first_y);
                double roundings = transposed ? (double)n_in : (double)n_in / 16 + 8;
                if (!near(c, "y", at, reference(c, batch.first_y)[at], want, roundings * EPS * magnitude + TINY))
                    return;
            }
    }
}

static bool same(float x, float y)
{
    return f32_bits(x) == f32_bits(y) || (isnan(x) && isnan(y));
}

/* Law 1: an output is the same bits whatever else is computed beside it, be it tokens or rows. */
static void check_law_1(struct check *c, enum dtype dtype, bool transposed)
{
    struct shape shape = {19, 608, 11};
    if (c->bench)
        return;
    begin(c, "law 1");
    struct matrix w;
    struct batch batch;
    fill_weights(c, &w, &shape, dtype);
    size_t n_in = transposed ? shape.rows : shape.columns, n_out = transposed ? shape.columns : shape.rows;
    make_batch(c, &batch, shape.n_tokens, n_in, n_out);
    float *alone = floats(c, SCRATCH, n_out);
    while (next_body(c)) {
        CALL(c, linear_f32)(batch.y, batch.x, &w, shape.n_tokens);
        for (size_t t = 0; t < shape.n_tokens; t++) {
            CALL(c, linear_f32)(&alone, &batch.x[t], &w, 1);
            for (size_t o = 0; o < n_out; o++)
                if (!same(alone[o], batch.y[t][o]))
                    fail(c, "token %zu output %zu alone is %a, among others %a", t, o, (double)alone[o],
                         (double)batch.y[t][o]);
        }
        for (uint32_t row = 0; !transposed && row < shape.rows; row++) {
            struct matrix part = matrix_rows(&w, row, row % 3 && row + 2 <= shape.rows ? 2 : 1);
            CALL(c, linear_f32)(&alone, &batch.x[3], &part, 1);
            if (!same(alone[0], batch.y[3][row]))
                fail(c, "row %u alone is %a, among others %a", row, (double)alone[0], (double)batch.y[3][row]);
        }
    }
}

/* Every scale byte and every code, for one token and two. The others would drown the extremes in a longer sum. */
static void check_mx_scales(struct check *c, enum dtype dtype)
{
    for (unsigned scale = 0; scale < (dtype == DTYPE_MXFP4 ? 256 : 247); scale++)
        for (size_t n_tokens = 1; n_tokens <= 2; n_tokens++) {
            begin(c, "scale byte %u tokens=%zu", scale, n_tokens);
            struct batch batch;
            struct matrix w = {.rows = dtype == DTYPE_MXFP4 ? 1 : 8, .columns = MX_BLOCK, .dtype = dtype};
            make_batch(c, &batch, n_tokens, MX_BLOCK, w.rows);
            uint8_t *codes = bytes(c, INPUT, w.rows * matrix_row_bytes(&w)), *byte = bytes(c, INPUT, w.rows);
            for (unsigned i = 0; i < w.rows * matrix_row_bytes(&w); i++)
                codes[i] = (uint8_t)(dtype == DTYPE_MXFP4 ? i | i << 4 : (i & 0x7f) == 0x7f ? 0 : i);
            for (unsigned i = 0; i < w.rows; i++)
                byte[i] = (uint8_t)scale;
            w.data = codes;
            w.scales = byte;
            while (next_body(c))
                CALL(c, linear_mxfp4)(batch.y, batch.x, &w, n_tokens);
        }
}

static void check_linear(struct check *c, enum dtype dtype)
{
    if (c->bench)
        check_products(c, dtype, false, shapes_bench, COUNT(shapes_bench));
    else if (dtype_has_scales(dtype))
        check_products(c, dtype, false, shapes_mx, COUNT(shapes_mx));
    else
        check_products(c, dtype, false, shapes, COUNT(shapes));
    check_law_1(c, dtype, false);
    if ((dtype == DTYPE_MXFP4 || dtype == DTYPE_MXFP8) && !c->bench)
        check_mx_scales(c, dtype);
}

static void check_linear_t(struct check *c, enum dtype dtype)
{
    if (c->bench)
        check_products(c, dtype, true, shapes_t_bench, COUNT(shapes_t_bench));
    else
        check_products(c, dtype, true, shapes, COUNT(shapes));
    check_law_1(c, dtype, true);
}

void check_linear_f32(struct check *c)
{
    check_linear(c, DTYPE_F32);
}

void check_linear_bf16(struct check *c)
{
    check_linear(c, DTYPE_BF16);
}

void check_linear_f16(struct check *c)
{
    check_linear(c, DTYPE_F16);
}

void check_linear_mxfp4(struct check *c)
{
    check_linear(c, DTYPE_MXFP4);
}

void check_linear_mxfp8(struct check *c)
{
    check_linear(c, DTYPE_MXFP8);
}

void check_linear_int8(struct check *c)
{
    check_linear(c, DTYPE_INT8);
}

void check_linear_t_f32(struct check *c)
{
    check_linear_t(c, DTYPE_F32);
}

void check_linear_t_bf16(struct check *c)
{
    check_linear_t(c, DTYPE_BF16);
}

void check_linear_t_f16(struct check *c)
{
    check_linear_t(c, DTYPE_F16);
}
