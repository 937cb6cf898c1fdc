#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/narrow.h"
#include "tensor/panels.h"

enum { TOKENS_MAX = 131, GAP = 3 };

struct shape {
    uint32_t rows, columns;
    size_t n_tokens;
};

/* Around tiles, panels and blocks: tokens 4, 8, 64; rows 6, 8, 12, 16; columns 32, 512. */
static const struct shape shapes_f16[] = {
    {1, 1, 1},     {9, 31, 2},    {8, 32, 1},    {17, 33, 1},  {6, 512, 4},  {7, 513, 3},
    {5, 0, 2},     {0, 32, 2},    {4, 8, 0},     {13, 511, 5}, {6, 1024, 6}, {8, 2079, 1},
    {12, 128, 63}, {25, 544, 64}, {14, 600, 67}, {2, 48, 131}, {11, 576, 9}, {24, 96, 12},
};
static const struct shape shapes_int8[] = {
    {1, 32, 1},   {17, 64, 1}, {7, 96, 3}, {16, 512, 4}, {15, 544, 6}, {33, 1056, 1},
    {5, 128, 67}, {3, 0, 2},   {0, 32, 2}, {4, 32, 0},   {32, 64, 64}, {18, 576, 131},
};
/* Around blocks of 128, tiles of 4 and 8 tokens, panels of 16 and 32 outputs. */
static const struct shape shapes_int16[] = {
    {1, 1, 1},     {9, 31, 2},   {8, 32, 1},    {17, 33, 1},   {6, 128, 4},  {7, 129, 3},   {5, 0, 2},
    {0, 32, 2},    {4, 8, 0},    {13, 127, 5},  {40, 256, 6},  {8, 2079, 1}, {12, 130, 63}, {66, 544, 64},
    {14, 600, 67}, {2, 48, 131}, {130, 576, 9}, {24, 384, 12}, {5, 1000, 1}, {33, 160, 2},
};
/* In panels: columns in blocks of 32. */
static const struct shape shapes_int16_panels[] = {
    {1, 128, 1},  {17, 288, 1},  {5, 0, 2},     {0, 128, 2},   {4, 128, 0},   {16, 384, 4},  {33, 128, 5},
    {80, 192, 1}, {130, 640, 1}, {66, 512, 64}, {14, 800, 67}, {2, 160, 131}, {130, 256, 9}, {63, 1024, 3},
};
static const struct shape shapes_bench[] = {{32768, 8192, 1}, {32768, 8192, 4}, {2048, 2048, 1},
                                            {2048, 2048, 8},  {2048, 2048, 64}, {2048, 2048, 128}};

static bool bits_like(const void *a, const void *b)
{
    return memcmp(a, b, 4) == 0;
}

/* Rows of every magnitude, zeros, and with specials such as hold NaN and infinities. */
static void fill_row(struct check *c, float *x, size_t n)
{
    float scale = ldexpf(1.0f, (int)rng_below(&c->rng, 24) - 12);
    if (rng_below(&c->rng, 8) == 0)
        scale = ldexpf(1.0f, (int)rng_below(&c->rng, 250) - 126);
    if (c->bench)
        scale = 1.0f;
    fill_normal(c, x, n, 1.0f);
    for (size_t i = 0; i < n; i++)
        x[i] = rng_below(&c->rng, 64) ? x[i] * scale : -0.0f;
}

/* Codes of FORM_INT16 are within half a unit of the values, and small enough for sums of 32 bits. */
static void compare_int16(struct check *c, const void *row, const float *x, size_t n)
{
    const int16_t *codes = row;
    for (size_t at = 0; at < n; at += NARROW_BLOCK) {
        double unit = narrow_scales(row, n)[at / NARROW_BLOCK], sum = 0.0;
        for (size_t i = at; i < n && i < at + NARROW_BLOCK; i++) {
            sum += abs(codes[i]);
            if (fabs(codes[i] * unit - x[i]) > 0.501 * unit && !(unit == 0.0 && fabsf(x[i]) < 0x1p-80f))
                fail(c, "x[%zu] = %a is the code %d of unit %a", i, (double)x[i], codes[i], unit);
        }
        if (sum >= 0x1p18)
            fail(c, "the codes from %zu on add up to %a", at, sum);
    }
}

static void check_narrow(struct check *c, enum form form)
{
    for (size_t n = 0; next_length(c, &n);)
        for (int again = 0; again < (c->bench ? 1 : 5); again++) {
            size_t count = form == FORM_INT8 ? n / NARROW_GROUP * NARROW_GROUP : n;
            begin(c, "n=%zu", count);
            float *x = floats(c, INPUT, count);
            uint64_t *out = longs(c, OUTPUT, (narrow_bytes(form, count) + 7) / 8);
            fill_row(c, x, count);
            for (size_t i = 0; again == 3 && i < count; i++) /* halfway between codes */
                x[i] = i % 32 ? (float)((int)rng_below(&c->rng, 254) - 127) + 0.5f : 127.0f;
            for (size_t i = 0; again == 4 && i < count; i++) /* one large value a block, and all alike */
                x[i] = i % NARROW_BLOCK == 5 ? 3e4f : count % 2 ? 1.0f : 3e4f;
            work(c, 4.0 * (double)count, 2.0 * (double)count);
            while (next_body(c))
                CALL(c, narrow_int8)(out, x, count);
            if (form == FORM_INT16 && exact(c))
                compare_int16(c, reference(c, (float *)(void *)out), x, count);
        }
}

void check_narrow_int8(struct check *c)
{
    check_narrow(c, FORM_INT8);
}

void check_narrow_int16(struct check *c)
{
    check_narrow(c, FORM_INT16);
}

void check_narrow_f16(struct check *c)
{
    check_narrow(c, FORM_F16);
}

static narrow_int8_fn *const narrow_refs[FORM_COUNT] = {
    [FORM_INT8] = narrow_int8_ref, [FORM_INT16] = narrow_int16_ref, [FORM_F16] = narrow_f16_ref};

struct batch {
    const void *x[TOKENS_MAX];
    float *y[TOKENS_MAX];
    float *first_y;
};

/* Narrowed rows, in backward order, and outputs with gaps. */
static void make_batch(struct check *c, struct batch *batch, enum form form, const struct shape *shape)
{
    size_t stride = narrow_stride(form, shape->columns), n = shape->n_tokens;
    uint64_t *x = longs(c, INPUT, n * stride / 8);
    size_t count = n ? n * (shape->rows + GAP) - GAP : 0;
    batch->first_y = floats(c, OUTPUT, count);
    float *row = malloc((shape->columns + 1) * sizeof *row);
    for (size_t t = 0; t < n; t++) {
        char *out = (char *)x + (n - 1 - t) * stride;
        fill_row(c, row, shape->columns);
        for (size_t i = 0; !c->bench && t % 4 == 3 && i < shape->columns; i++) /* the largest sums */
            row[i] = 1.0f;
        narrow_refs[form](out, row, shape->columns);
        batch->x[t] = out;
        batch->y[t] = batch->first_y + t * (shape->rows + GAP);
    }
    free(row);
}

static void fill_weights(struct check *c, struct matrix *w, enum dtype dtype, const struct shape *shape)
{
    size_t n = (size_t)shape->rows * shape->columns;
    *w = (struct matrix){.rows = shape->rows, .columns = shape->columns, .dtype = dtype};
    if (dtype == DTYPE_INT8) {
        uint8_t *data = bytes(c, INPUT, n);
        uint16_t *scales = shorts(c, INPUT, n / MX_BLOCK);
        fill_bytes(c, data, n);
        for (size_t i = 0; i < n; i++) /* there is no -128; the largest products of each sign are met often */
            data[i] = data[i] == 0x80 || rng_below(&c->rng, 8) == 0 ? 0x81 : data[i] % 8 == 0 ? 0x7f : data[i];
        fill_half(c, scales, n / MX_BLOCK, DTYPE_BF16, 0.01f);
        w->data = data;
        w->scales = (const uint8_t *)scales;
        return;
    }
    if (dtype == DTYPE_MXFP4) {
        uint8_t *data = bytes(c, INPUT, n / 2), *scales = bytes(c, INPUT, n / MX_BLOCK);
        fill_bytes(c, data, n / 2);
        for (size_t i = 0; i < n / MX_BLOCK; i++)
            scales[i] = (uint8_t)(c->specials ? rng_next(&c->rng) : 118 + rng_below(&c->rng, 8));
        w->data = data;
        w->scales = scales;
        return;
    }
    uint16_t *data = shorts(c, INPUT, n);
    fill_half(c, data, n, DTYPE_BF16, 1.0f / sqrtf((float)shape->columns + 1.0f));
    for (uint32_t row = 0; row < shape->rows && !c->bench; row++) {
        size_t at = (size_t)row * shape->columns, kind = rng_below(&c->rng, 7);
        for (size_t i = 0; i < shape->columns && kind < 2; i++) /* small weights, around the least half */
            data[at + i] =
                bf16_from_f32(ldexpf(f32_from_bf16(data[at + i]), -(int)(kind ? 10 : rng_below(&c->rng, 30))));
        static const uint16_t edges[] = {0x40ff, 0x4100, 0xc0ff, 0xc180, 0x3280, 0x327f, 0x3281, 0x0001};
        for (size_t i = 0; i < shape->columns && kind == 6; i++) /* the largest codes of 13 bits */
            data[at + i] = 0x3fff;
        if (shape->columns && kind / 2 == 2) /* one at the edges: just below 8 and 8, 2^-26 and around it */
            data[at + rng_below(&c->rng, shape->columns)] = edges[rng_below(&c->rng, COUNT(edges))];
    }
    w->data = data;
}

/* The same weights in panels. */
static struct matrix in_panels(struct check *c, const struct matrix *w)
{
    struct matrix panels = *w;
    panels.panels = true;
    size_t n = matrix_stored_rows(&panels), scales = n * matrix_scale_bytes(&panels);
    size_t size = n * matrix_row_bytes(w);
    uint8_t *data = w->dtype == DTYPE_BF16 ? (uint8_t *)shorts(c, INPUT, size / 2) : bytes(c, INPUT, size);
    memset(data, 0, size);
    panels.data = data;
    panels.scales = w->dtype == DTYPE_INT8 ? (uint8_t *)shorts(c, INPUT, scales / 2) : bytes(c, INPUT, scales);
    memset((uint8_t *)panels.scales, 0, scales);
    for (uint32_t row = 0; row < w->rows; row++)
        if (w->dtype == DTYPE_BF16)
            panels_put_bf16(&panels, row, (const uint16_t *)w->data + (size_t)row * w->columns);
        else
            panels_put(&panels, row, 0, w->columns / MX_BLOCK, (const uint8_t *)w->data + row * matrix_row_bytes(w),
                       w->scales + row * matrix_scale_bytes(w));
    return panels;
}

static double weight_at(const struct matrix *w, size_t row, size_t i)
{
    if (w->dtype == DTYPE_BF16)
        return f32_from_bf16(((const uint16_t *)w->data)[row * w->columns + i]);
    if (w->dtype == DTYPE_INT8)
        return ((const int8_t *)w->data)[row * w->columns + i] *
               (double)f32_from_bf16(((const uint16_t *)(const void *)w->scales)[(row * w->columns + i) / MX_BLOCK]);
    return mx_e2m1_values[((const uint8_t *)w->data)[(row * w->columns + i) / 2] >> (i & 1 ? 4 : 0) & 15] *
           ldexp(1.0, w->scales[(row * w->columns + i) / MX_BLOCK] - 127);
}

static double input_at(const void *x, size_t columns, enum form form, size_t i)
{
    static const uint8_t place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    if (form == FORM_INT8)
        return 2.0 * ((const struct narrow_group *)x)[i / MX_BLOCK].codes[i % MX_BLOCK / 8 * 8 + place[i % 8]] *
               ((const struct narrow_group *)x)[i / MX_BLOCK].scale;
    if (form == FORM_INT16)
        return ((const int16_t *)x)[i] * (double)narrow_scales(x, columns)[i / NARROW_BLOCK];
    return ldexp((double)f32_from_f16(((const uint16_t *)x)[i]) * *narrow_scales(x, columns), NARROW_F16_EXPONENT);
}

/* An output in float64, and what bounds its error. */
struct expected {
    double y, magnitude, inputs; /* sums of the products, of their magnitudes, of the inputs' magnitudes */
    double halves;               /* FORM_INT16: sum of the inputs' magnitudes times half a unit of the weights */
};

static struct expected expect(const struct matrix *w, size_t o, const void *x, enum form form)
{
    struct expected e = {0};
    for (size_t at = 0; at < w->columns; at += NARROW_BLOCK) {
        double peak = 0x1p-106, inputs = 0.0;
        for (size_t i = at; i < w->columns && i < at + NARROW_BLOCK; i++) {
            double input = input_at(x, w->columns, form, i), term = input * weight_at(w, o, i);
            e.y += term, e.magnitude += fabs(term), inputs += fabs(input);
            peak = fmax(peak, fabs(weight_at(w, o, i)));
        }
        e.inputs += inputs;
        e.halves += inputs * peak * 0x1p-13;
    }
    return e;
}

static double tolerance_of(const struct matrix *w, const void *x, enum form form, struct expected e)
{
    if (form == FORM_INT8)
        return ((double)w->columns / 32 + 3) * EPS * e.magnitude;
    if (form == FORM_INT16) /* a product of units may be subnormal: 2^-150 of it times a sum below 2^31 */
        return e.halves + ((double)w->columns / NARROW_BLOCK + 4) * (EPS * (e.magnitude + e.halves) + 0x1p-118);
    /* 17 roundings, or 2^-25 in units of 2^-12 of the scale; weights below 2^-26. */
    return 17 * 0x1p-11 * e.magnitude + 0x1p-26 * e.inputs +
           17 * 0x1p-25 * w->columns * (double)*narrow_scales(x, w->columns);
}

static void compare(struct check *c, enum form form, const struct matrix *w, const struct batch *batch, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t o = 0; o < w->rows; o++) {
            struct expected e = expect(w, o, batch->x[t], form);
            size_t at = (size_t)(batch->y[t] + o - batch->first_y);
            double tolerance = tolerance_of(w, batch->x[t], form, e);
            float y = reference(c, batch->first_y)[at];
            bool too_large = isinf(y) && (y < 0) == (e.y < 0) && fabs(e.y) + tolerance >= 0x1p128;
            if (too_large || (isnan(e.y) && isnan(y))) /* for a float; inputs for a unit */
                continue;
            if (!near(c, "y", at, y, e.y, tolerance + TINY))
                return;
        }
}

/* A product under test. */
struct product {
    enum form form;
    enum dtype dtype;
    enum unit unit;
    const struct shape *shapes;
    size_t n_shapes;
};

/* Law 1: an output is the same bits whatever else is computed beside it, be it tokens or rows. */
static void check_law_1(struct check *c, const struct product *p, bool panels)
{
    struct shape shape = {45, 608, 75};
    begin(c, "law 1%s", panels ? ", panels" : "");
    struct matrix w;
    struct batch batch;
    fill_weights(c, &w, p->dtype, &shape);
    if (panels)
        w = in_panels(c, &w);
    make_batch(c, &batch, p->form, &shape);
    float *alone = floats(c, SCRATCH, shape.rows);
    while (next_body(c)) {
        CALL(c, linear_mxfp4_int8)(batch.y, batch.x, &w, shape.n_tokens);
        for (size_t t = 0; t < shape.n_tokens; t++) {
            CALL(c, linear_mxfp4_int8)(&alone, &batch.x[t], &w, 1);
            for (size_t o = 0; o < shape.rows; o++)
                if (!bits_like(&alone[o], &batch.y[t][o]) && !(isnan(alone[o]) && isnan(batch.y[t][o])))
                    fail(c, "token %zu output %zu alone is %a, among others %a", t, o, (double)alone[o],
                         (double)batch.y[t][o]);
        }
        for (uint32_t row = 0; row < shape.rows; row += panels ? MATRIX_PANEL_ROWS : 1) {
            struct matrix part = matrix_rows(&w, row, row % 3 && row + 2 <= shape.rows ? 2 : 1);
            CALL(c, linear_mxfp4_int8)(&alone, &batch.x[3], &part, 1);
            if (!bits_like(&alone[0], &batch.y[3][row]) && !(isnan(alone[0]) && isnan(batch.y[3][row])))
                fail(c, "row %u alone is %a, among others %a", row, (double)alone[0], (double)batch.y[3][row]);
        }
    }
}

static void check_products(struct check *c, const struct product *p, bool panels)
{
    const struct shape *list = c->bench ? shapes_bench : p->shapes;
    for (size_t s = 0; s < (c->bench ? COUNT(shapes_bench) : p->n_shapes); s++) {
        begin(c, "%ux%u tokens=%zu%s", list[s].rows, list[s].columns, list[s].n_tokens, panels ? " panels" : "");
        struct matrix rows, w;
        struct batch batch;
        fill_weights(c, &rows, p->dtype, &list[s]);
        w = panels ? in_panels(c, &rows) : rows;
        make_batch(c, &batch, p->form, &list[s]);
        work(c, (double)matrix_bytes(&w), 2.0 * w.rows * (double)w.columns * (double)list[s].n_tokens);
        work_in(c, p->unit);
        while (next_body(c))
            CALL(c, linear_mxfp4_int8)(batch.y, batch.x, &w, list[s].n_tokens);
        if (exact(c))
            compare(c, p->form, &rows, &batch, list[s].n_tokens);
    }
    if (!c->bench)
        check_law_1(c, p, panels);
}

void check_linear_mxfp4_int8(struct check *c)
{
    struct product p = {FORM_INT8, DTYPE_MXFP4, UNIT_INT8, shapes_int8, COUNT(shapes_int8)};
    check_products(c, &p, false);
    check_products(c, &p, true);
}

void check_linear_int8_int8(struct check *c)
{
    struct product p = {FORM_INT8, DTYPE_INT8, UNIT_INT8, shapes_int8, COUNT(shapes_int8)};
    check_products(c, &p, false);
    check_products(c, &p, true);
}

void check_linear_bf16_int16(struct check *c)
{
    struct product rows = {FORM_INT16, DTYPE_BF16, UNIT_INT16, shapes_int16, COUNT(shapes_int16)}, panels = rows;
    panels.shapes = shapes_int16_panels;
    panels.n_shapes = COUNT(shapes_int16_panels);
    check_products(c, &rows, false);
    check_products(c, &panels, true);
}

void check_linear_bf16_f16(struct check *c)
{
    check_products(c, &(struct product){FORM_F16, DTYPE_BF16, UNIT_F16, shapes_f16, COUNT(shapes_f16)}, false);
}
