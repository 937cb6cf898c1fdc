/* Sums of products of 16-bit integers, exact: for bounds of index scores and for attention over 16-bit rows.
 *
 * A panel holds what a vector's lanes are for (16 keys, or 16 columns), a lane with two neighbouring integers of the
 * sum; codes of a head are read two at a time and meet all lanes. */
#include "kernels/kernels.h"

/* 1.5 * 2^23: an addition rounds to an integer in the lowest bits. */
INLINE v16 integer_anchor(void)
{
    return v16_set(12582912.0f);
}

/* Two integers, each + anchor: their lowest 16 bits beside each other. */
INLINE v16i integer_pair(v16 first, v16 second)
{
    v16i low = v16i_and(v16_bits(first), v16i_set(0xffff));
    return v16i_or(low, v16i_shift_left(v16_bits(second), 16));
}

/* Rows to fetch into the cache meanwhile: `bytes` of each. */
struct pairs_ahead {
    const void *const *rows;
    size_t n, bytes;
};

/* Adds pairs [from, to), see below, and fetches a row meanwhile, if row_step is not 0. */
INLINE void pair_dots_part(v16i *dot, const int16_t *codes, size_t stride, const int32_t *panel, size_t step,
                           size_t from, size_t to, const char *row, size_t row_step, const int heads, const int blocks)
{
    panel += from * step;
    for (size_t p = from; p < to; p++, panel += step) {
        if (row_step)
            __builtin_prefetch(row + (p - from) * row_step, 0, 2);
        v16i lanes[PAIR_BLOCKS];
        UNROLL for (int b = 0; b < blocks; b++)
            lanes[b] = v16i_load(panel + 16 * b);
        UNROLL for (int h = 0; h < heads; h++) {
            int32_t two;
            memcpy(&two, codes + (size_t)h * stride + 2 * p, sizeof two);
            v16i both = v16i_set(two);
            UNROLL for (int b = 0; b < blocks; b++)
                dot[h * blocks + b] = v16i_add_pairs(dot[h * blocks + b], lanes[b], both);
        }
    }
}

/* dot[h * blocks + b] = the sum over p of codes[h][2 p, 2 p + 1] with panel[p][b]; codes of heads are `stride` apart,
 * pairs of the panel `step`. The fetching of rows is spread over it: in a burst it would hold up what follows. */
INLINE void pair_dots_ahead(v16i *dot, const int16_t *codes, size_t stride, const int32_t *panel, size_t step,
                            size_t n_pairs, struct pairs_ahead ahead, const int heads, const int blocks)
{
    UNROLL for (int i = 0; i < heads * blocks; i++)
        dot[i] = v16i_set(0);
    size_t from = 0;
    for (size_t r = 0; r < ahead.n && from < n_pairs; r++) {
        size_t length = n_pairs / ahead.n + 1, to = from + length < n_pairs ? from + length : n_pairs;
        pair_dots_part(dot, codes, stride, panel, step, from, to, ahead.rows[r], ahead.bytes / length + 1, heads,
                       blocks);
        from = to;
    }
    pair_dots_part(dot, codes, stride, panel, step, from, n_pairs, NULL, 0, heads, blocks);
}

INLINE void pair_dots(v16i *dot, const int16_t *codes, size_t stride, const int32_t *panel, size_t step, size_t n_pairs,
                      const int heads, const int blocks)
{
    pair_dots_ahead(dot, codes, stride, panel, step, n_pairs, (struct pairs_ahead){0}, heads, blocks);
}
