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

/* The codes of block g, four a lane: what v16i_dot32 (MXFP4) and int8_dot32 take. */
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

INLINE v16i int8_dot(const v16i *weights, const struct narrow_group *group, const enum dtype dtype)
{
    return dtype == DTYPE_MXFP4 ? v16i_dot32(v16i_set(group->offset), weights, group->codes)
                                : int8_dot32(weights, group->codes, group->offset);
}

/* Block g with a single token: rows that are used once are not turned. */
INLINE v16i int8_dot_once(const struct int8_outputs *of, size_t g, const struct narrow_group *group,
                          const enum dtype dtype, const bool panels)
{
    v16i weights[8];
    if (!panels)
        return dtype == DTYPE_MXFP4 ? mxfp4_products(of->codes, g * (MX_BLOCK / 2), group->codes, group->offset)
                                    : int8_products(of->codes, g * MX_BLOCK, group->codes, group->offset);
    int8_weights(weights, of, g, dtype, panels);
    return int8_dot(weights, group, dtype);
}

/* What a group's sum is multiplied with beside the block's scale: codes of MXFP4 are doubled. */
INLINE v16 int8_unit(const struct narrow_group *group, const enum dtype dtype)
{
    return v16_set(dtype == DTYPE_MXFP4 ? group->scale : 2.0f * group->scale);
}

/* For one token. */
INLINE void int8_single(float *y, const void *x, const struct int8_outputs *of, const enum dtype dtype,
                        const bool panels)
{
    size_t n_groups = of->w->columns / MX_BLOCK;
    v16 sum = v16_zero();
    for (size_t first = 0; first < n_groups; first += SCALES) {
        _Alignas(64) float scales[SCALES][INT8_OUTPUTS];
        size_t n = n_groups - first < SCALES ? n_groups - first : SCALES;
        int8_scales(scales, of, first, n, dtype, panels);
        for (size_t b = 0; b < n; b++) {
            const struct narrow_group *group = (const struct narrow_group *)x + first + b;
            if (!panels)
                int8_prefetch(of, first + b, dtype);
            v16i dot = int8_dot_once(of, first + b, group, dtype, panels);
            sum = v16_fma(v16_from_integers(dot), v16_mul(v16_load(scales[b]), int8_unit(group, dtype)), sum);
        }
    }
    v16_store_first(y + of->r, sum, of->left);
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
            for (; dtype == DTYPE_MXFP4 && t + 2 <= n_tokens; t += 2) {
                const struct narrow_group *group[2];
                const int8_t *codes[2];
                v16i dots[2];
                UNROLL for (int i = 0; i < 2; i++) {
                    group[i] = (const struct narrow_group *)x[t + i] + first + b;
                    codes[i] = group[i]->codes;
                    dots[i] = v16i_set(group[i]->offset);
                }
                v16i_dot32_two(dots, weights, codes);
                UNROLL for (int i = 0; i < 2; i++)
                    sums[t + i] = v16_fma(v16_from_integers(dots[i]), v16_mul(scale, int8_unit(group[i], dtype)), sums[t + i]);
            }
            for (; t < n_tokens; t++) {
                const struct narrow_group *group = (const struct narrow_group *)x[t] + first + b;
                v16 dot = v16_from_integers(int8_dot(weights, group, dtype));
                sums[t] = v16_fma(dot, v16_mul(scale, int8_unit(group, dtype)), sums[t]);
            }
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        v16_store_first(y[t] + of->r, sums[t], of->left);
}

INLINE void int8_product(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens,
                         const enum dtype dtype, const bool panels)
{
    for (size_t t = 0; t < n_tokens; t += INT8_TOKENS)
        for (size_t r = 0; r < w->rows; r += INT8_OUTPUTS) {
            struct int8_outputs of = int8_outputs_of(w, r, panels);
            size_t n = n_tokens - t < INT8_TOKENS ? n_tokens - t : INT8_TOKENS;
            if (n_tokens == 1)
                int8_single(y[0], x[0], &of, dtype, panels);
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
