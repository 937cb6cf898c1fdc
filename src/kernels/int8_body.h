/* MXFP4 or INT8 weights and activations as INT8. Sixteen outputs are the lanes: 16 rows of codes are turned into a
 * panel of four columns a lane, which stays in registers while all tokens meet it. MXFP4 weights are unsigned in the
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

/* Rows lie one after the other, so the codes of the next 16 are one run of memory, which the reads of this panel, 16
 * short strides side by side, do not make the hardware fetch. Block g asks for its share. */
INLINE void int8_prefetch(const struct matrix *w, size_t r, size_t g, const enum dtype dtype)
{
    const size_t share = INT8_OUTPUTS * MX_BLOCK / (dtype == DTYPE_MXFP4 ? 2 : 1);
    if (r + 2 * INT8_OUTPUTS <= w->rows) {
        const char *next = (const char *)w->data + (r + INT8_OUTPUTS) * matrix_row_bytes(w) + g * share;
        UNROLL for (size_t at = 0; at < share; at += 64)
            __builtin_prefetch(next + at);
        if (g % (1024 / share) == 0) /* a 16th of the codes' bytes: a line of them */
            __builtin_prefetch(w->scales + (r + INT8_OUTPUTS) * matrix_scale_bytes(w) + g * share / 16);
    }
}

/* Outputs [r, r + 16), of which `left` are there. Beyond the last row: computed, not stored. */
struct int8_rows {
    const uint8_t *codes[INT8_OUTPUTS], *scales[INT8_OUTPUTS];
};

INLINE struct int8_rows int8_rows_of(const struct matrix *w, size_t r, size_t left)
{
    struct int8_rows rows;
    for (size_t o = 0; o < INT8_OUTPUTS; o++) {
        size_t row = r + (o < left ? o : left - 1);
        rows.codes[o] = (const uint8_t *)w->data + row * matrix_row_bytes(w);
        rows.scales[o] = w->scales + row * matrix_scale_bytes(w);
    }
    return rows;
}

/* turned[b][o]: the scale of block first + b of output o, for up to SCALES blocks. */
INLINE void int8_scales(float (*turned)[INT8_OUTPUTS], const struct int8_rows *rows, size_t first, size_t n,
                        const enum dtype dtype)
{
    _Alignas(64) float of_rows[INT8_OUTPUTS][SCALES];
    const void *from[INT8_OUTPUTS];
    for (size_t o = 0; o < INT8_OUTPUTS; o++) {
        block_scales(of_rows[o], rows->scales[o], first, n, dtype);
        from[o] = of_rows[o];
    }
    turn16(turned[0], INT8_OUTPUTS, from);
}

/* What a group's sum is multiplied with beside the block's scale: codes of MXFP4 are doubled. */
INLINE v16 int8_unit(const struct narrow_group *group, const enum dtype dtype)
{
    return v16_set(dtype == DTYPE_MXFP4 ? group->scale : 2.0f * group->scale);
}

/* For one token. */
INLINE void int8_single(float *y, const void *x, const struct matrix *w, size_t r, size_t left, const enum dtype dtype)
{
    size_t n_groups = w->columns / MX_BLOCK;
    struct int8_rows rows = int8_rows_of(w, r, left);
    v16 sum = v16_zero();
    for (size_t first = 0; first < n_groups; first += SCALES) {
        _Alignas(64) float scales[SCALES][INT8_OUTPUTS];
        size_t n = n_groups - first < SCALES ? n_groups - first : SCALES;
        int8_scales(scales, &rows, first, n, dtype);
        for (size_t b = 0; b < n; b++) {
            size_t g = first + b;
            const struct narrow_group *group = (const struct narrow_group *)x + g;
            int8_prefetch(w, r, g, dtype);
            v16i dot = dtype == DTYPE_MXFP4
                           ? mxfp4_products(rows.codes, g * (MX_BLOCK / 2), group->codes, group->offset)
                           : int8_products(rows.codes, g * MX_BLOCK, group->codes, group->offset);
            sum = v16_fma(v16_from_integers(dot), v16_mul(v16_load(scales[b]), int8_unit(group, dtype)), sum);
        }
    }
    v16_store_first(y + r, sum, left);
}

/* For up to INT8_TOKENS tokens. */
INLINE void int8_panel(float *const *y, const void *const *x, const struct matrix *w, size_t r, size_t left,
                       size_t n_tokens, const enum dtype dtype)
{
    size_t n_groups = w->columns / MX_BLOCK;
    struct int8_rows rows = int8_rows_of(w, r, left);
    v16 sums[INT8_TOKENS];
    for (size_t t = 0; t < n_tokens; t++)
        sums[t] = v16_zero();
    for (size_t first = 0; first < n_groups; first += SCALES) {
        _Alignas(64) float scales[SCALES][INT8_OUTPUTS];
        size_t n = n_groups - first < SCALES ? n_groups - first : SCALES;
        int8_scales(scales, &rows, first, n, dtype);
        for (size_t b = 0; b < n; b++) {
            size_t g = first + b;
            v16i weights[8];
            v16 scale = v16_load(scales[b]);
            int8_prefetch(w, r, g, dtype);
            if (dtype == DTYPE_MXFP4)
                mxfp4_turn(weights, rows.codes, g * (MX_BLOCK / 2));
            else
                int8_turn(weights, rows.codes, g * MX_BLOCK);
            for (size_t t = 0; t < n_tokens; t++) {
                const struct narrow_group *group = (const struct narrow_group *)x[t] + g;
                v16i dot = dtype == DTYPE_MXFP4 ? v16i_dot32(v16i_set(group->offset), weights, group->codes)
                                                : int8_dot32(weights, group->codes, group->offset);
                sums[t] = v16_fma(v16_from_integers(dot), v16_mul(scale, int8_unit(group, dtype)), sums[t]);
            }
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        v16_store_first(y[t] + r, sums[t], left);
}

INLINE void int8_panels(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens,
                        const enum dtype dtype)
{
    for (size_t t = 0; t < n_tokens; t += INT8_TOKENS)
        for (size_t r = 0; r < w->rows; r += INT8_OUTPUTS) {
            size_t left = w->rows - r < INT8_OUTPUTS ? w->rows - r : INT8_OUTPUTS;
            if (n_tokens == 1)
                int8_single(y[0], x[0], w, r, left, dtype);
            else
                int8_panel(y + t, x + t, w, r, left, n_tokens - t < INT8_TOKENS ? n_tokens - t : INT8_TOKENS, dtype);
        }
}

void BODY(linear_mxfp4_int8)(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    int8_panels(y, x, w, n_tokens, DTYPE_MXFP4);
}

void BODY(linear_int8_int8)(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    int8_panels(y, x, w, n_tokens, DTYPE_INT8);
}
