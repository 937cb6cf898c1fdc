#include "kernels/kernels.h"
#include "kernels/sums_ref.h"
#include "tensor/index_query.h"

#include <string.h>

/* Dimension `d` of key `j` in one block of 16 keys. */
static float element(const void *block, size_t d, size_t j, size_t D, enum dtype dtype)
{
    size_t at = d * LANES + j;
    if (dtype == DTYPE_F32)
        return ((const float *)block)[at];
    if (dtype == DTYPE_BF16)
        return f32_from_bf16(((const uint16_t *)block)[at]);
    const uint8_t *codes = block, *scales = codes + D * LANES;
    return mx_e4m3_value(codes[at]) * mx_e8m0_value(scales[d / MX_BLOCK * LANES + j]);
}

static float score(const float *q, const float *w, const void *block, size_t j, size_t H, size_t D, enum dtype dtype)
{
    float sum = 0.0f;
    for (size_t h = 0; h < H; h++) {
        float dot = 0.0f;
        for (size_t d = 0; d < D; d++)
            dot = fmaf(q[h * D + d], element(block, d, j, D, dtype), dot);
        sum = fmaf(w[h], dot > 0.0f ? dot : 0.0f, sum);
    }
    return sum + 0.0f;
}

static void scores_of(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                      size_t n_blocks, size_t H, size_t D, enum dtype dtype)
{
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t j = 0; j < LANES; j++)
            scores[b * LANES + j] = score(q, w, (const char *)keys + b * block_bytes, j, H, D, dtype);
}

void index_scores_f32_ref(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                          size_t n_blocks, size_t H, size_t D)
{
    scores_of(scores, q, w, keys, block_bytes, n_blocks, H, D, DTYPE_F32);
}

void index_scores_bf16_ref(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                           size_t n_blocks, size_t H, size_t D)
{
    scores_of(scores, q, w, keys, block_bytes, n_blocks, H, D, DTYPE_BF16);
}

void index_scores_mxfp8_ref(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                            size_t n_blocks, size_t H, size_t D)
{
    scores_of(scores, q, w, keys, block_bytes, n_blocks, H, D, DTYPE_MXFP8);
}

static uint32_t ordered(float score)
{
    uint32_t bits = score == score ? f32_bits(score) : 0xff800000;
    return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

size_t index_filter_ref(uint64_t *out, const float *scores, size_t n, uint32_t first, uint64_t threshold)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t rank = (uint64_t)ordered(scores[i]) << 32 | (0xffffffffu - (first + (uint32_t)i));
        if (rank > threshold)
            out[count++] = rank;
    }
    return count;
}

/* ---- bounds ---- */

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* The smallest power of two that is not below x, a positive normal number. */
static float power_above(float x)
{
    return f32_from_bits((f32_bits(x) + 0x7fffff) & 0xff800000);
}

/* Codes of one head. Returns the ratio that its unit comes from. */
static float head_codes(int16_t *codes, float *rest, float *magnitude, float *unit, const float *q, size_t D)
{
    float absolute[INDEX_DIMENSIONS_MAX], peak = 0.0f;
    for (size_t i = 0; i < D; i++) {
        absolute[i] = fabsf(q[i]);
        peak = larger(absolute[i], peak);
    }
    float sum = sum16(absolute, D);
    float ratio = larger(peak * (1.0f / 32000), larger(sum * (1.0f / 261000), 0x1p-100f));
    bool usable = sum < INFINITY && ratio <= 0x1p20f;
    *unit = usable ? power_above(ratio) : 1.0f;
    *magnitude = fmaf(0.5f * (float)D, *unit, sum);
    for (size_t i = 0; i < D; i++) {
        float code = usable ? rintf(q[i] * (1.0f / *unit)) : 0.0f;
        codes[i] = (int16_t)code;
        rest[i] = fmaf(-*unit, code, q[i]);
    }
    return usable ? ratio : INFINITY;
}

void index_query_s16_ref(void *out, const float *q, const float *w, size_t H, size_t D)
{
    struct index_query *query = out;
    float *weights = index_query_weights(query), total = 0.0f, magnitudes = 0.0f, worst = 0.0f;
    float sides[4][INDEX_DIMENSIONS_MAX] = {{0}}, loose[INDEX_DIMENSIONS_MAX], rest_loose[INDEX_DIMENSIONS_MAX];
    size_t columns = index_query_columns(D);
    memset(out, 0, index_query_bytes(H, D));
    for (size_t h = 0; h < H; h++) {
        float rest[INDEX_DIMENSIONS_MAX], magnitude, unit;
        float ratio = head_codes(index_query_codes(query, H) + h * columns, rest, &magnitude, &unit, q + h * D, D);
        worst = larger(ratio, worst);
        weights[h] = w[h] * unit;
        total += fabsf(w[h]);
        magnitudes = fmaf(fabsf(w[h]), magnitude, magnitudes);
        for (size_t i = 0; i < D; i++) {
            sides[0][i] += larger(w[h] * q[h * D + i], 0.0f);
            sides[1][i] += larger(-(w[h] * q[h * D + i]), 0.0f);
            sides[2][i] += larger(w[h] * rest[i], 0.0f);
            sides[3][i] += larger(-(w[h] * rest[i]), 0.0f);
        }
    }
    for (size_t i = 0; i < D; i++) {
        loose[i] = larger(sides[0][i], sides[1][i]);
        rest_loose[i] = larger(sides[2][i], sides[3][i]);
    }
    index_query_finish(query, sum16(loose, D), sum16(rest_loose, D), magnitudes, total, worst, H, D);
}

/* The scale byte S of a key; that of bf16 keys is chosen to mean the same unit. */
static int unit_byte(const void *block, size_t j, size_t D, enum dtype dtype)
{
    int largest = 8;
    if (dtype == DTYPE_MXFP8) {
        const uint8_t *scales = (const uint8_t *)block + D * LANES;
        for (size_t g = 0; g < D / MX_BLOCK; g++)
            largest = scales[g * LANES + j] > largest ? scales[g * LANES + j] : largest;
        return largest;
    }
    largest = 20;
    for (size_t d = 0; d < D; d++) {
        int exponent = ((const uint16_t *)block)[d * LANES + j] >> 7 & 255;
        largest = exponent > largest ? exponent : largest;
    }
    return largest - 8;
}

/* Approximate score of key j in units, and its unit; infinite if there is no bound. */
static float approximate(float *unit, const struct index_query *query, const void *block, size_t j, size_t H, size_t D,
                         enum dtype dtype)
{
    int byte = unit_byte(block, j, D, dtype);
    struct index_query *record = (struct index_query *)query;
    const float *weights = index_query_weights(record);
    const int16_t *codes = index_query_codes(record, H);
    float sum = 0.0f;
    *unit = byte < 201 ? ldexpf(1.0f, byte - 131) : INFINITY;
    for (size_t h = 0; h < H && *unit < INFINITY; h++) {
        int32_t dot = 0;
        for (size_t d = 0; d < D; d++)
            dot += codes[h * index_query_columns(D) + d] * (int32_t)rintf(element(block, d, j, D, dtype) / *unit);
        sum = fmaf(weights[h], (float)(dot > 0 ? dot : 0), sum);
    }
    return sum;
}

static void bounds_of(float *const *lower, float *const *upper, const void *const *queries, size_t n_rows,
                      const void *keys, size_t block_bytes, size_t n_blocks, size_t H, size_t D, enum dtype dtype)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n_blocks * LANES; i++) {
            const struct index_query *query = queries[r];
            float unit;
            float sum = approximate(&unit, query, (const char *)keys + i / LANES * block_bytes, i % LANES, H, D, dtype);
            float score = unit < INFINITY ? sum * unit : 0.0f, error = fmaf(unit, query->width, query->least);
            lower[r][i] = score - error;
            upper[r][i] = score + error;
        }
}

void index_bounds_bf16_ref(float *const *lower, float *const *upper, const void *const *queries, size_t n_rows,
                           const void *keys, size_t block_bytes, size_t n_blocks, size_t H, size_t D)
{
    bounds_of(lower, upper, queries, n_rows, keys, block_bytes, n_blocks, H, D, DTYPE_BF16);
}

void index_bounds_mxfp8_ref(float *const *lower, float *const *upper, const void *const *queries, size_t n_rows,
                            const void *keys, size_t block_bytes, size_t n_blocks, size_t H, size_t D)
{
    bounds_of(lower, upper, queries, n_rows, keys, block_bytes, n_blocks, H, D, DTYPE_MXFP8);
}
