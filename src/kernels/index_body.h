/* The Lightning Indexer: scores of 16-key blocks as a mix of their dimensions, and the threshold filter. */
#include "kernels/kernels.h"
#include "tensor/index_query.h"

/* Dimension d of a block's keys. */
INLINE v16 key_lanes(const void *block, size_t d, size_t D, const enum dtype dtype)
{
    if (dtype != DTYPE_MXFP8)
        return widen(block, d * 16, dtype);
    const uint8_t *codes = block, *scales = codes + D * 16 + d / MX_BLOCK * 16;
    return v16_mul(v16_load_e4m3(codes + d * 16), e8m0_lanes(scales, 16));
}

/* Joins heads h to h + heads - 1 to the scores of `blocks` blocks, keys [D][blocks][16]. */
INLINE void score_tile(v16 *score, const float *q, const float *w, const float *keys, size_t D, const int heads,
                       const int blocks)
{
    struct rows rows = {(const char *)keys, (size_t)blocks * 16 * sizeof *keys, NULL, NULL, DTYPE_F32};
    const float *query[MIX_TOKENS];
    v16 dot[MIX_TOKENS * MIX_VECTORS];
    UNROLL for (int h = 0; h < heads; h++)
        query[h] = q + (size_t)h * D;
    mix_tile(dot, query, &rows, D, 0, 16, heads, blocks, DTYPE_F32);
    UNROLL for (int h = 0; h < heads; h++)
        UNROLL for (int b = 0; b < blocks; b++)
            score[b] = v16_fma(v16_set(w[h]), v16_max(dot[h * blocks + b], v16_zero()), score[b]);
}

/* `blocks` neighbouring blocks: widened once into scratch, then all heads. */
INLINE void score_blocks(float *scores, const float *q, const float *w, const char *keys, size_t block_bytes, size_t H,
                         size_t D, const int blocks, const enum dtype dtype)
{
    _Alignas(64) float wide[INDEX_DIMENSIONS_MAX * MIX_VECTORS * 16];
    for (size_t d = 0; d < D; d++)
        UNROLL for (int b = 0; b < blocks; b++)
            v16_store(wide + (d * blocks + b) * 16, key_lanes(keys + b * block_bytes, d, D, dtype));
    v16 score[MIX_VECTORS];
    UNROLL for (int b = 0; b < blocks; b++)
        score[b] = v16_zero();
    size_t h = 0;
    for (; h + MIX_TOKENS <= H; h += MIX_TOKENS)
        score_tile(score, q + h * D, w + h, wide, D, MIX_TOKENS, blocks);
    for (; h < H; h++)
        score_tile(score, q + h * D, w + h, wide, D, 1, blocks);
    UNROLL for (int b = 0; b < blocks; b++)
        v16_store(scores + 16 * b, v16_add(score[b], v16_zero()));
}

INLINE void index_scores(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                         size_t n_blocks, size_t H, size_t D, const enum dtype dtype)
{
    const char *block = keys;
    size_t b = 0;
    for (; b + MIX_VECTORS <= n_blocks; b += MIX_VECTORS)
        score_blocks(scores + b * 16, q, w, block + b * block_bytes, block_bytes, H, D, MIX_VECTORS, dtype);
    for (; b < n_blocks; b++)
        score_blocks(scores + b * 16, q, w, block + b * block_bytes, block_bytes, H, D, 1, dtype);
}

void BODY(index_scores_f32)(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                            size_t n_blocks, size_t H, size_t D)
{
    index_scores(scores, q, w, keys, block_bytes, n_blocks, H, D, DTYPE_F32);
}

void BODY(index_scores_bf16)(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                             size_t n_blocks, size_t H, size_t D)
{
    index_scores(scores, q, w, keys, block_bytes, n_blocks, H, D, DTYPE_BF16);
}

void BODY(index_scores_mxfp8)(float *scores, const float *q, const float *w, const void *keys, size_t block_bytes,
                              size_t n_blocks, size_t H, size_t D)
{
    index_scores(scores, q, w, keys, block_bytes, n_blocks, H, D, DTYPE_MXFP8);
}

/* Few scores pass a threshold that has been raised by those before, so a compare of floats sorts most out and the
 * rank is made for the rest. The rank of -inf and of NaN is the lowest; below it everything passes. */
size_t BODY(index_filter)(uint64_t *out, const float *scores, size_t n, uint32_t first, uint64_t threshold)
{
    const uint32_t lowest = 0x007fffff; /* ordered(-inf) */
    uint32_t floor = (uint32_t)(threshold >> 32);
    v16 least = v16_set(f32_from_bits(floor & 0x80000000 ? floor ^ 0x80000000 : ~floor));
    size_t count = 0;
    for (size_t i = 0; i < n; i += 16) {
        unsigned passing = n - i >= 16 ? 0xffff : (1u << (n - i)) - 1;
        if (floor > lowest)
            passing &= v16_at_least(v16_load_first(scores + i, n - i), least);
        for (; passing; passing &= passing - 1) {
            size_t at = i + (size_t)__builtin_ctz(passing);
            uint32_t bits = scores[at] == scores[at] ? f32_bits(scores[at]) : 0xff800000;
            uint32_t ordered = bits & 0x80000000 ? ~bits : bits | 0x80000000;
            uint64_t rank = (uint64_t)ordered << 32 | (0xffffffffu - (first + (uint32_t)at));
            if (rank > threshold)
                out[count++] = rank;
        }
    }
    return count;
}
