/* MXFP4 or INT8 weights and activations as INT8. Sixteen outputs are the lanes, with four columns each: a panel
 * of weights lies in memory like that, 16 rows of codes are turned. MXFP4 weights are unsigned in the
 * products, code + 12; what that adds, 12 * the sum of the activations, is taken off by the offset that a group's sum
 * starts from. */
#include "kernels/kernels.h"
#include "tensor/narrow.h"

void BODY(narrow_int8)(void *out, const float *x, size_t n)
{
    struct narrow_group *groups = out;
    v16 anchor = v16_set(12582912.0f); /* 1.5 * 2^23: an addition rounds to an integer in the lowest bits */
    for (size_t g = 0; g < n / NARROW_GROUP; g++) {
        v16 low = v16_load(x + g * NARROW_GROUP), high = v16_load(x + g * NARROW_GROUP + 16);
        v16 nothing = v16_add(v16_sub(low, low), v16_sub(high, high)); /* NaN where not finite */
        float peak = v16_peak(v16_max(v16_abs(low), v16_abs(high)));
        float scale = 0.0f, inverse = 0.0f;
        if (v16_sum(nothing) != 0.0f) {
            scale = f32_from_bits(0x7fc00000);
            low = high = v16_zero();
        } else if (peak >= 0x1p-100f) {
            scale = peak / 254.0f;
            inverse = 127.0f / peak;
        }
        low = v16_add(v16_mul(low, v16_set(inverse)), anchor);
        high = v16_add(v16_mul(high, v16_set(inverse)), anchor);
        v16i_store_s8_nibbles(groups[g].codes, v16_bits(low));
        v16i_store_s8_nibbles(groups[g].codes + 16, v16_bits(high));
        groups[g].scale = scale;
        groups[g].offset = -12 * (int32_t)v16_sum(v16_add(v16_sub(low, anchor), v16_sub(high, anchor)));
    }
}

enum {
    INT8_OUTPUTS = 16,
    INT8_STREAMS = 4, /* panels that a single token reads side by side, of MXFP4 two */
    INT8_PAIR = 2,    /* tokens that meet a block together */
    INT8_TOKENS = 64, /* whose sums are kept beside each other */
};

/* Outputs [r, r + 16) of w: in rows, or the panel of them. Beyond the last row: computed, not stored. */
struct int8_outputs {
    const struct matrix *w;
    size_t r, left; /* how many are there */
    const uint8_t *codes[INT8_OUTPUTS], *scales[INT8_OUTPUTS]; /* of rows */
    const uint8_t *panel;
};

INLINE struct int8_outputs int8_outputs_of(const struct matrix *w, size_t r, const bool panels)
{
    struct int8_outputs of = {.w = w, .r = r, .left = w->rows - r < INT8_OUTPUTS ? w->rows - r : INT8_OUTPUTS};
    for (size_t o = 0; o < INT8_OUTPUTS && !panels; o++) {
        size_t row = r + (o < of.left ? o : of.left - 1);
        of.codes[o] = (const uint8_t *)w->data + row * matrix_row_bytes(w);
        of.scales[o] = w->scales + row * matrix_scale_bytes(w);
    }
    if (panels)
        of.panel = (const uint8_t *)w->data + r * matrix_row_bytes(w);
    return of;
}

/* Rows lie one after the other, so the codes of the next 16 are one run of memory, which the reads of these, 16 short
 * strides side by side, do not make the hardware fetch. Block g asks for its share. */
INLINE void int8_prefetch(const struct int8_outputs *of, size_t g, const enum dtype dtype)
{
    const size_t share = INT8_OUTPUTS * MX_BLOCK / (dtype == DTYPE_MXFP4 ? 2 : 1);
    const struct matrix *w = of->w;
    if (of->r + 2 * INT8_OUTPUTS <= w->rows) {
        const char *next = (const char *)w->data + (of->r + INT8_OUTPUTS) * matrix_row_bytes(w) + g * share;
        UNROLL for (size_t at = 0; at < share; at += 64)
            __builtin_prefetch(next + at);
        if (g % (1024 / share) == 0) /* a 16th of the codes' bytes: a line of them */
            __builtin_prefetch(w->scales + (of->r + INT8_OUTPUTS) * matrix_scale_bytes(w) + g * share / 16);
    }
}

/* turned[b][o]: the scale of block first + b of output o, for n blocks, up to SCALES. */
INLINE void int8_scales(float (*turned)[INT8_OUTPUTS], const struct int8_outputs *of, size_t first, size_t n,
                        const enum dtype dtype, const bool panels)
{
    if (panels) {
        size_t at = of->r * (of->w->columns / MX_BLOCK) + first * INT8_OUTPUTS;
        for (size_t b = 0; b < n; b++)
            block_scales(turned[b], of->w->scales, at + b * INT8_OUTPUTS, INT8_OUTPUTS, dtype);
        return;
    }
    _Alignas(64) float of_rows[INT8_OUTPUTS][SCALES];
    const void *from[INT8_OUTPUTS];
    for (size_t o = 0; o < INT8_OUTPUTS; o++) {
        block_scales(of_rows[o], of->scales[o], first, n, dtype);
        from[o] = of_rows[o];
    }
    turn16(turned[0], INT8_OUTPUTS, from);
}

/* The codes of block g, four a lane: what v16i_dots32 (MXFP4) and int8_dots32 take. */
INLINE void int8_weights(v16i *weights, const struct int8_outputs *of, size_t g, const enum dtype dtype,
                         const bool panels)
{
    const size_t bytes = dtype == DTYPE_MXFP4 ? MX_BLOCK / 2 : MX_BLOCK;
    if (dtype == DTYPE_MXFP4 && panels)
        mxfp4_panel(weights, of->panel + g * bytes * INT8_OUTPUTS);
    else if (dtype == DTYPE_MXFP4)
        mxfp4_turn(weights, of->codes, g * bytes);
    else if (panels)
        int8_panel(weights, of->panel + g * bytes * INT8_OUTPUTS);
    else
        int8_turn(weights, of->codes, g * bytes);
}

/* Block g of each of `streams` outputs with a single token: rows that are used once are not turned. */
INLINE void int8_dots_once(v16i *dot, const struct int8_outputs *of, size_t g, const struct narrow_group *group,
                           const enum dtype dtype, const bool panels, const int streams)
{
    const uint8_t *block[INT8_STREAMS];
    UNROLL for (int s = 0; s < streams; s++) {
        v16i weights[8];
        if (!panels) {
            int8_prefetch(&of[s], g, dtype);
            dot[s] = dtype == DTYPE_MXFP4 ? mxfp4_products(of[s].codes, g * (MX_BLOCK / 2), group->codes, group->offset)
                                          : int8_products(of[s].codes, g * MX_BLOCK, group->codes, group->offset);
        } else if (dtype == DTYPE_INT8) {
            const int8_t *codes = group->codes;
            int8_panel(weights, of[s].panel + g * MX_BLOCK * INT8_OUTPUTS);
            int8_dots32(&dot[s], weights, &codes, &group->offset, 1);
        } else {
            block[s] = of[s].panel + g * (MX_BLOCK / 2) * INT8_OUTPUTS;
            dot[s] = v16i_set(group->offset);
        }
    }
    if (dtype == DTYPE_MXFP4 && panels)
        mxfp4_panels_dot(dot, block, group->codes, streams);
}

/* What a group's sum is multiplied with beside the block's scale: codes of MXFP4 are doubled. */
INLINE v16 int8_unit(const struct narrow_group *group, const enum dtype dtype)
{
    return v16_set(dtype == DTYPE_MXFP4 ? group->scale : 2.0f * group->scale);
}

/* For one token: the outputs of several panels side by side, or 16 of rows. */
INLINE void int8_single(float *y, const void *x, const struct int8_outputs *of, const enum dtype dtype,
                        const bool panels, const int streams)
{
    size_t n_groups = of->w->columns / MX_BLOCK;
    v16 sum[INT8_STREAMS];
    UNROLL for (int s = 0; s < streams; s++)
        sum[s] = v16_zero();
    for (size_t first = 0; first < n_groups; first += SCALES) {
        _Alignas(64) float scales[INT8_STREAMS][SCALES][INT8_OUTPUTS];
        size_t n = n_groups - first < SCALES ? n_groups - first : SCALES;
        UNROLL for (int s = 0; s < streams; s++)
            int8_scales(scales[s], &of[s], first, n, dtype, panels);
        for (size_t b = 0; b < n; b++) {
            const struct narrow_group *group = (const struct narrow_group *)x + first + b;
            v16i dot[INT8_STREAMS];
            int8_dots_once(dot, of, first + b, group, dtype, panels, streams);
            UNROLL for (int s = 0; s < streams; s++) {
                v16 scale = v16_mul(v16_load(scales[s][b]), int8_unit(group, dtype));
                sum[s] = v16_fma(v16_from_integers(dot[s]), scale, sum[s]);
            }
        }
    }
    UNROLL for (int s = 0; s < streams; s++)
        v16_store_first(y + of[s].r, sum[s], of[s].left);
}

/* Panels are read in a few parts side by side, each straight through. */
INLINE void int8_single_panels(float *y, const void *x, const struct matrix *w, const enum dtype dtype)
{
    const int streams = dtype == DTYPE_MXFP4 ? 2 : INT8_STREAMS;
    size_t part = w->rows / INT8_OUTPUTS / (size_t)streams * INT8_OUTPUTS;
    struct int8_outputs of[INT8_STREAMS];
    for (size_t r = 0; r < part; r += INT8_OUTPUTS) {
        for (size_t s = 0; s < (size_t)streams; s++)
            of[s] = int8_outputs_of(w, r + s * part, true);
        int8_single(y, x, of, dtype, true, streams);
    }
    for (size_t r = (size_t)streams * part; r < w->rows; r += INT8_OUTPUTS) {
        of[0] = int8_outputs_of(w, r, true);
        int8_single(y, x, of, dtype, true, 1);
    }
}

/* Adds block g to the sums of a few tokens. */
INLINE void int8_meet(v16 *sums, const void *const *x, size_t g, const v16i *weights, v16 scale, const enum dtype dtype,
                      const int tokens)
{
    const struct narrow_group *group[INT8_PAIR];
    const int8_t *codes[INT8_PAIR];
    int32_t offset[INT8_PAIR];
    v16i dot[INT8_PAIR];
    UNROLL for (int t = 0; t < tokens; t++) {
        group[t] = (const struct narrow_group *)x[t] + g;
        codes[t] = group[t]->codes;
        offset[t] = group[t]->offset;
        dot[t] = v16i_set(offset[t]);
    }
    if (dtype == DTYPE_MXFP4)
        v16i_dots32(dot, weights, codes, tokens);
    else
        int8_dots32(dot, weights, codes, offset, tokens);
    UNROLL for (int t = 0; t < tokens; t++)
        sums[t] = v16_fma(v16_from_integers(dot[t]), v16_mul(scale, int8_unit(group[t], dtype)), sums[t]);
}

/* For up to INT8_TOKENS tokens. */
INLINE void int8_several(float *const *y, const void *const *x, const struct int8_outputs *of, size_t n_tokens,
                         const enum dtype dtype, const bool panels)
{
    size_t n_groups = of->w->columns / MX_BLOCK;
    v16 sums[INT8_TOKENS];
    for (size_t t = 0; t < n_tokens; t++)
        sums[t] = v16_zero();
    for (size_t first = 0; first < n_groups; first += SCALES) {
        _Alignas(64) float scales[SCALES][INT8_OUTPUTS];
        size_t n = n_groups - first < SCALES ? n_groups - first : SCALES;
        int8_scales(scales, of, first, n, dtype, panels);
        for (size_t b = 0; b < n; b++) {
            v16i weights[8];
            v16 scale = v16_load(scales[b]);
            if (!panels)
                int8_prefetch(of, first + b, dtype);
            int8_weights(weights, of, first + b, dtype, panels);
            size_t t = 0;
            for (; t + INT8_PAIR <= n_tokens; t += INT8_PAIR)
                int8_meet(sums + t, x + t, first + b, weights, scale, dtype, INT8_PAIR);
            for (; t < n_tokens; t++)
                int8_meet(sums + t, x + t, first + b, weights, scale, dtype, 1);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        v16_store_first(y[t] + of->r, sums[t], of->left);
}

INLINE void int8_product(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens,
                         const enum dtype dtype, const bool panels)
{
    if (n_tokens == 1 && panels) {
        int8_single_panels(y[0], x[0], w, dtype);
        return;
    }
    for (size_t t = 0; t < n_tokens; t += INT8_TOKENS)
        for (size_t r = 0; r < w->rows; r += INT8_OUTPUTS) {
            struct int8_outputs of = int8_outputs_of(w, r, panels);
            size_t n = n_tokens - t < INT8_TOKENS ? n_tokens - t : INT8_TOKENS;
            if (n_tokens == 1)
                int8_single(y[0], x[0], &of, dtype, false, 1);
            else
                int8_several(y + t, x + t, &of, n, dtype, panels);
        }
}

void BODY(linear_mxfp4_int8)(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    if (w->panels)
        int8_product(y, x, w, n_tokens, DTYPE_MXFP4, true);
    else
        int8_product(y, x, w, n_tokens, DTYPE_MXFP4, false);
}

void BODY(linear_int8_int8)(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    if (w->panels)
        int8_product(y, x, w, n_tokens, DTYPE_INT8, true);
    else
        int8_product(y, x, w, n_tokens, DTYPE_INT8, false);
}
