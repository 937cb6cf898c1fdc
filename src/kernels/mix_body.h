/* y[t][c] = fma over r of x[t][r] * row r [c]: rows weighted and summed, for linear_t, attention's values and the
 * indexer.
 *
 * Sums run across rows, so a vector holds neighbouring columns, and tiles of tokens x vectors stay in registers
 * while the rows stream past. The order of a sum is the same in every tile. */
#include "kernels/kernels.h"

/* sum[t * vectors + c] = the mix of columns at + 16 c ... for `tokens` tokens. With fewer than 16 columns
 * left, n < 16 and vectors is 1. */
INLINE void mix_tile(v16 *sum, const float *const *x, const struct rows *rows, size_t n_rows, size_t at, size_t n,
                     const int tokens, const int vectors, const enum dtype dtype)
{
    UNROLL for (int i = 0; i < tokens * vectors; i++)
        sum[i] = v16_zero();
    for (size_t r = 0; r < n_rows; r++) {
        const char *row = row_at(rows, r);
        v16 weight[MIX_WIDE];
        UNROLL for (int c = 0; c < vectors; c++)
            weight[c] = n >= 16 ? widen(row, at + 16 * (size_t)c, dtype) : widen_first(row, at, n, dtype);
        UNROLL for (int t = 0; t < tokens; t++) {
            v16 input = v16_set(x[t][r]);
            UNROLL for (int c = 0; c < vectors; c++)
                sum[t * vectors + c] = v16_fma(input, weight[c], sum[t * vectors + c]);
        }
    }
}

INLINE void mix_store(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t at,
                      size_t n, const int tokens, const int vectors, const enum dtype dtype)
{
    v16 sum[MIX_TOKENS * MIX_VECTORS > MIX_WIDE ? MIX_TOKENS * MIX_VECTORS : MIX_WIDE];
    mix_tile(sum, x, rows, n_rows, at, n, tokens, vectors, dtype);
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int c = 0; c < vectors; c++)
            v16_store_first(y[t] + at + 16 * c, sum[t * vectors + c], n);
}

/* One block of columns for all tokens, whose part of the rows stays in the L1 cache. */
INLINE void mix_block(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t at,
                      size_t n, size_t n_tokens, const int vectors, const enum dtype dtype)
{
    enum { HALF = MIX_TOKENS / 2 };
    size_t t = 0;
    for (; t + MIX_TOKENS <= n_tokens; t += MIX_TOKENS)
        mix_store(y + t, x + t, rows, n_rows, at, n, MIX_TOKENS, vectors, dtype);
    for (; t + HALF <= n_tokens; t += HALF)
        mix_store(y + t, x + t, rows, n_rows, at, n, HALF, vectors, dtype);
    for (; t < n_tokens; t++)
        mix_store(y + t, x + t, rows, n_rows, at, n, 1, vectors, dtype);
}

enum { MIX_FEW_TOKENS = 8 }; /* that read rows straight from where they are */

INLINE void mix(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                size_t n_tokens, const enum dtype dtype)
{
    enum { TILE = 16 * MIX_VECTORS, WIDE = 16 * MIX_WIDE };
    size_t at = 0, group = n_rows ? panel_group(n_rows) : 0;
    if (n_tokens > MIX_FEW_TOKENS && group >= PANEL_TOKENS) {
        for (size_t t = 0; t < n_tokens; t += group)
            panel_mix(y + t, x + t, rows, n_rows, columns, n_tokens - t < group ? n_tokens - t : group, dtype);
        return;
    }
    for (; n_tokens == 1 && at + WIDE <= columns; at += WIDE)
        mix_store(y, x, rows, n_rows, at, 16, 1, MIX_WIDE, dtype);
    for (; at + TILE <= columns; at += TILE)
        mix_block(y, x, rows, n_rows, at, 16, n_tokens, MIX_VECTORS, dtype);
    for (; at < columns; at += 16)
        mix_block(y, x, rows, n_rows, at, columns - at, n_tokens, 1, dtype);
}
