/* MXFP4 weights and activations as INT8. Sixteen outputs are the lanes: 16 rows of codes are turned into a panel of
 * four columns a lane, which stays in registers while all tokens meet it. Weights are unsigned in the products, code
 * + 12; what that adds, 12 * the sum of the activations, is taken off by the offset that a group's sum starts from. */
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
INLINE void int8_prefetch(const struct matrix *w, size_t r, size_t g)
{
    enum { SHARE = INT8_OUTPUTS * MX_BLOCK / 2 };
    if (r + 2 * INT8_OUTPUTS <= w->rows) {
        const char *next = (const char *)w->data + (r + INT8_OUTPUTS) * matrix_row_bytes(w) + g * SHARE;
        UNROLL for (size_t at = 0; at < SHARE; at += 64)
            __builtin_prefetch(next + at);
        if (g % 4 == 0)
            __builtin_prefetch(w->scales + (r + INT8_OUTPUTS) * (w->columns / MX_BLOCK) + g * INT8_OUTPUTS);
    }
}

/* Outputs [r, r + 16), of which `left` are there, for up to INT8_TOKENS tokens. */
INLINE void int8_panel(float *const *y, const void *const *x, const struct matrix *w, size_t r, size_t left,
                       size_t n_tokens)
{
    size_t n_groups = w->columns / MX_BLOCK, row_bytes = matrix_row_bytes(w);
    const uint8_t *rows[INT8_OUTPUTS], *scales[INT8_OUTPUTS];
    v16 sums[INT8_TOKENS];
    for (size_t o = 0; o < INT8_OUTPUTS; o++) { /* beyond the last row: computed, not stored */
        size_t row = r + (o < left ? o : left - 1);
        rows[o] = (const uint8_t *)w->data + row * row_bytes;
        scales[o] = w->scales + row * n_groups;
    }
    for (size_t t = 0; t < n_tokens; t++)
        sums[t] = v16_zero();
    for (size_t first = 0; first < n_groups; first += SCALES) {
        uint8_t turned[SCALES][INT8_OUTPUTS];
        size_t n = n_groups - first < SCALES ? n_groups - first : SCALES;
        for (size_t o = 0; o < INT8_OUTPUTS; o++)
            for (size_t b = 0; b < n; b++)
                turned[b][o] = scales[o][first + b];
        for (size_t b = 0; b < n; b++) {
            size_t g = first + b;
            v16i weights[8];
            v16 scale = e8m0_lanes(turned[b], INT8_OUTPUTS);
            int8_prefetch(w, r, g);
            mxfp4_turn(weights, rows, g * (MX_BLOCK / 2));
            for (size_t t = 0; t < n_tokens; t++) {
                const struct narrow_group *group = (const struct narrow_group *)x[t] + g;
                v16i dot = v16i_dot32(v16i_set(group->offset), weights, group->codes);
                sums[t] = v16_fma(v16_from_integers(dot), v16_mul(scale, v16_set(group->scale)), sums[t]);
            }
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        v16_store_first(y[t] + r, sums[t], left);
}

void BODY(linear_mxfp4_int8)(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t += INT8_TOKENS)
        for (size_t r = 0; r < w->rows; r += INT8_OUTPUTS)
            int8_panel(y + t, x + t, w, r, w->rows - r < INT8_OUTPUTS ? w->rows - r : INT8_OUTPUTS,
                       n_tokens - t < INT8_TOKENS ? n_tokens - t : INT8_TOKENS);
}
