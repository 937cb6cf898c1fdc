#include "kernels/kernels.h"
#include "kernels/sums_ref.h"

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
