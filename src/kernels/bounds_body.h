/* Bounds of index scores: queries and keys as 16-bit integers, whose products are summed exactly in pairs. Keys are
 * turned into a panel once for all heads and tokens; a 32-bit lane of it holds two dimensions of one key. */
#include "kernels/kernels.h"
#include "tensor/index_query.h"

enum { PANEL_BLOCKS = 4 };

void BODY(index_query_s16)(void *out, const float *q, const float *w, size_t H, size_t D)
{
    float *weights = index_query_weights(out), total = 0.0f, magnitudes = 0.0f, worst = 0.0f;
    int16_t *codes = index_query_codes(out, H);
    size_t columns = index_query_columns(D);
    for (size_t h = 0; h < H; h++) { /* units, kept where the weights come */
        v16 peak = v16_zero(), sums = v16_zero();
        for (size_t i = 0; i < D; i += 16) {
            v16 absolute = v16_abs(v16_load_first(q + h * D + i, D - i));
            peak = v16_max(absolute, peak);
            sums = v16_add(sums, absolute);
        }
        float sum = v16_sum(sums), of_peak = v16_peak(peak) * (1.0f / 32000), of_sum = sum * (1.0f / 261000);
        float ratio = of_sum > 0x1p-100f ? of_sum : 0x1p-100f;
        ratio = of_peak > ratio ? of_peak : ratio;
        int usable = sum < INFINITY && ratio <= 0x1p20f;
        weights[h] = usable ? f32_from_bits((f32_bits(ratio) + 0x7fffff) & 0xff800000) : 1.0f;
        ratio = usable ? ratio : INFINITY;
        worst = ratio > worst ? ratio : worst;
        total += fabsf(w[h]);
        magnitudes = fmaf(fabsf(w[h]), fmaf(0.5f * (float)D, weights[h], sum), magnitudes);
    }
    v16 loose = v16_zero(), rest_loose = v16_zero();
    for (size_t i = 0; worst < INFINITY && i < D; i += 16) {
        v16 up = v16_zero(), down = v16_zero(), rest_up = v16_zero(), rest_down = v16_zero();
        for (size_t h = 0; h < H; h++) {
            v16 value = v16_load_first(q + h * D + i, D - i), weight = v16_set(w[h]);
            v16 code = v16_round(v16_mul(value, v16_set(1.0f / weights[h])));
            v16i_store_s16_first(codes + h * columns + i, v16_bits(v16_add(code, integer_anchor())), columns - i);
            v16 rest = v16_mul(weight, v16_fma(v16_set(-weights[h]), code, value));
            value = v16_mul(weight, value);
            up = v16_add(up, v16_max(value, v16_zero()));
            down = v16_add(down, v16_max(v16_negate(value), v16_zero()));
            rest_up = v16_add(rest_up, v16_max(rest, v16_zero()));
            rest_down = v16_add(rest_down, v16_max(v16_negate(rest), v16_zero()));
        }
        loose = v16_add(loose, v16_max(up, down));
        rest_loose = v16_add(rest_loose, v16_max(rest_up, rest_down));
    }
    for (size_t h = 0; h < H; h++)
        weights[h] *= w[h];
    index_query_finish(out, v16_sum(loose), v16_sum(rest_loose), magnitudes, total, worst, H, D);
}

/* Units of 16 keys, infinite where there is no bound, from exponent fields. */
INLINE v16 bounds_units(v16i exponent)
{
    v16 unit = v16_from_bits(v16i_shift_left(exponent, 23));
    return v16_where_less(unit, v16_set(0x1p70f), unit, v16_set(INFINITY));
}

/* panel[p * n_blocks] and the units of one block. */
INLINE v16 bounds_mxfp8(int32_t *panel, size_t n_blocks, const void *block, size_t D)
{
    const uint8_t *codes = block, *scales = codes + D * 16;
    v16i least = v16i_set(255 - 8);
    for (size_t g = 0; g < D / MX_BLOCK; g++)
        least = v16i_min(least, v16i_sub(v16i_set(255), v16i_load_u8_first(scales + g * 16, 16)));
    for (size_t g = 0; g < D / MX_BLOCK; g++) {
        v16i scale = v16i_sub(v16i_set(255), v16i_load_u8_first(scales + g * 16, 16));
        v16i below = v16i_min(v16i_sub(scale, least), v16i_set(100)); /* farther below everything rounds to 0 */
        v16 factor = v16_from_bits(v16i_shift_left(v16i_sub(v16i_set(127 + 4 + 8), below), 23));
        const uint8_t *group = codes + g * MX_BLOCK * 16;
        for (size_t p = 0; p < MX_BLOCK / 2; p++) {
            v16 first = v16_fma(v16_load_e4m3_small(group + 32 * p), factor, integer_anchor());
            v16 second = v16_fma(v16_load_e4m3_small(group + 32 * p + 16), factor, integer_anchor());
            v16i_store(panel + (g * MX_BLOCK / 2 + p) * n_blocks * 16, integer_pair(first, second));
        }
    }
    return bounds_units(v16i_sub(v16i_set(255 - 4), least));
}

INLINE v16 bounds_bf16(int32_t *panel, size_t n_blocks, const void *block, size_t D)
{
    const uint16_t *keys = block;
    const int32_t all = 0x7fffffff;
    v16i least = v16i_set(all - (20 << 23)); /* of what the magnitudes' bits leave */
    for (size_t d = 0; d < D; d++) {
        v16i bits = v16i_and(v16_bits(v16_load_bf16(keys + d * 16)), v16i_set(all));
        least = v16i_min(least, v16i_sub(v16i_set(all), bits));
    }
    v16i exponent = v16i_shift_right(v16i_sub(v16i_set(all), least), 23);
    v16 factor = v16_from_bits(v16i_shift_left(v16i_sub(v16i_set(127 + 139), exponent), 23));
    for (size_t d = 0; d < D; d += 2) {
        v16 first = v16_fma(v16_load_bf16(keys + d * 16), factor, integer_anchor()), second = integer_anchor();
        if (d + 1 < D)
            second = v16_fma(v16_load_bf16(keys + d * 16 + 16), factor, integer_anchor());
        v16i_store(panel + d / 2 * n_blocks * 16, integer_pair(first, second));
    }
    return bounds_units(v16i_sub(exponent, v16i_set(12)));
}

/* Joins heads h to h + heads - 1 to the sums of `blocks` blocks. */
INLINE void bounds_tile(v16 *sums, const int16_t *codes, const float *weights, const int32_t *panel, size_t n_blocks,
                        size_t columns, const int heads, const int blocks)
{
    v16i dot[PAIR_HEADS * PAIR_BLOCKS];
    pair_dots(dot, codes, columns, panel, n_blocks * 16, columns / 2, heads, blocks);
    UNROLL for (int h = 0; h < heads; h++)
        UNROLL for (int b = 0; b < blocks; b++) {
            v16 positive = v16_max(v16_from_integers(dot[h * blocks + b]), v16_zero());
            sums[b] = v16_fma(v16_set(weights[h]), positive, sums[b]);
        }
}

/* `blocks` neighbouring blocks of a panel and one token. */
INLINE void bounds_blocks(float *lower, float *upper, const void *query, const int32_t *panel, const float *units,
                          size_t n_blocks, size_t H, size_t D, const int blocks)
{
    const struct index_query *record = query;
    const float *weights = index_query_weights(query);
    const int16_t *codes = index_query_codes(query, H);
    size_t columns = index_query_columns(D), h = 0;
    v16 sums[PAIR_BLOCKS];
    UNROLL for (int b = 0; b < blocks; b++)
        sums[b] = v16_zero();
    for (; h + PAIR_HEADS <= H; h += PAIR_HEADS)
        bounds_tile(sums, codes + h * columns, weights + h, panel, n_blocks, columns, PAIR_HEADS, blocks);
    for (; h + 2 <= H; h += 2)
        bounds_tile(sums, codes + h * columns, weights + h, panel, n_blocks, columns, 2, blocks);
    if (h < H)
        bounds_tile(sums, codes + h * columns, weights + h, panel, n_blocks, columns, 1, blocks);
    UNROLL for (int b = 0; b < blocks; b++) {
        v16 unit = v16_load(units + 16 * b), infinite = v16_set(INFINITY);
        v16 score = v16_where_less(unit, infinite, v16_mul(sums[b], unit), v16_zero());
        v16 error = v16_fma(unit, v16_set(record->width), v16_set(record->least));
        v16_store(lower + 16 * b, v16_sub(score, error));
        v16_store(upper + 16 * b, v16_add(score, error));
    }
}

INLINE void index_bounds(float *const *lower, float *const *upper, const void *const *queries, size_t n_rows,
                         const void *keys, size_t block_bytes, size_t n_blocks, size_t H, size_t D,
                         const enum dtype dtype)
{
    _Alignas(64) int32_t panel[INDEX_DIMENSIONS_MAX / 2 * PANEL_BLOCKS * 16];
    float units[PANEL_BLOCKS * 16];
    for (size_t first = 0; first < n_blocks; first += PANEL_BLOCKS) {
        size_t n = n_blocks - first < PANEL_BLOCKS ? n_blocks - first : PANEL_BLOCKS;
        for (size_t b = 0; b < n; b++) {
            const char *block = (const char *)keys + (first + b) * block_bytes;
            v16 unit = dtype == DTYPE_MXFP8 ? bounds_mxfp8(panel + b * 16, n, block, D)
                                            : bounds_bf16(panel + b * 16, n, block, D);
            v16_store(units + b * 16, unit);
        }
        for (size_t r = 0; r < n_rows; r++) {
            float *low = lower[r] + first * 16, *high = upper[r] + first * 16;
            size_t b = 0;
            for (; b + PAIR_BLOCKS <= n; b += PAIR_BLOCKS)
                bounds_blocks(low + b * 16, high + b * 16, queries[r], panel + b * 16, units + b * 16, n, H, D,
                              PAIR_BLOCKS);
            for (; b < n; b++)
                bounds_blocks(low + b * 16, high + b * 16, queries[r], panel + b * 16, units + b * 16, n, H, D, 1);
        }
    }
}

void BODY(index_bounds_bf16)(float *const *lower, float *const *upper, const void *const *queries, size_t n_rows,
                             const void *keys, size_t block_bytes, size_t n_blocks, size_t H, size_t D)
{
    index_bounds(lower, upper, queries, n_rows, keys, block_bytes, n_blocks, H, D, DTYPE_BF16);
}

void BODY(index_bounds_mxfp8)(float *const *lower, float *const *upper, const void *const *queries, size_t n_rows,
                              const void *keys, size_t block_bytes, size_t n_blocks, size_t H, size_t D)
{
    index_bounds(lower, upper, queries, n_rows, keys, block_bytes, n_blocks, H, D, DTYPE_MXFP8);
}
