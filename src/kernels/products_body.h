/* The two matrix products under linear, attention and indexer, over rows of any element type.
 *
 *     dots   y[t][r] = dot16(x[t], row r)                  along the vector axis
 *     mix    y[t][c] = fma over r of x[t][r] * row r [c]    across it
 *
 * Both are tiles whose sums stay in registers while rows stream past; what differs between one token and many is the tile
 * alone, never the order of a sum. */
#include "kernels/kernels.h"

/* Rows of weights or of a cache: by stride, or by pointer if `each` is set. */
struct rows {
    const char *first;
    size_t stride; /* bytes */
    const void *const *each;
    const uint8_t *scales; /* MXFP4: those of row 0; one a block, rows side by side */
    enum dtype dtype;
};

INLINE struct rows rows_of(const struct matrix *w)
{
    return (struct rows){w->data, matrix_row_bytes(w), NULL, w->scales, w->dtype};
}

INLINE const char *row_at(const struct rows *rows, size_t r)
{
    return rows->each ? (const char *)rows->each[r] : rows->first + r * rows->stride;
}

/* Elements i to i + 15 of a row of a plain type. `dtype` is constant where these are used. */
INLINE v16 widen(const char *row, size_t i, const enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return v16_load((const float *)(const void *)row + i);
    if (dtype == DTYPE_BF16)
        return v16_load_bf16((const uint16_t *)(const void *)row + i);
    return v16_load_f16((const uint16_t *)(const void *)row + i);
}

INLINE v16 widen_first(const char *row, size_t i, size_t n, const enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return v16_load_first((const float *)(const void *)row + i, n);
    if (dtype == DTYPE_BF16)
        return v16_load_bf16_first((const uint16_t *)(const void *)row + i, n);
    return v16_load_f16_first((const uint16_t *)(const void *)row + i, n);
}

/* 2^(byte - 127) of n scale bytes, NaN for 255. Both exceptions, the subnormal 2^-127 and NaN, differ from byte << 23 in
 * the topmost mantissa bit, and byte + 1 mod 256 is below 2 for them alone. */
INLINE v16 e8m0_lanes(const uint8_t *p, size_t n)
{
    v16i byte = v16i_load_u8_first(p, n), one = v16i_set(1);
    v16i next = v16i_and(v16i_add(byte, one), v16i_set(255));
    v16i exception = v16i_sub(one, v16i_min(v16i_shift_right(next, 1), one));
    return v16_from_bits(v16i_or(v16i_shift_left(byte, 23), v16i_shift_left(exception, 22)));
}

/* Of so many blocks the scales are turned into floats at a time. */
enum { SCALES = 16 };

/* sums[o] = v16_sum(v[o]) for o < n. */
INLINE void sum_each(float *sums, const v16 *v, const int n)
{
    UNROLL for (int o = 0; o < n; o += 4) {
        int at = o + 4 <= n || n < 4 ? o : n - 4; /* the last four may overlap those before */
        if (n >= 4)
            v16_sum4(sums + at, v[at], v[at + 1], v[at + 2], v[at + 3]);
        else
            UNROLL for (int j = 0; j < n; j++)
                sums[j] = v16_sum(v[j]);
    }
}

enum {
    GROUP_TOKENS = 64,   /* that share a widened panel of weights */
    PANEL_COLUMNS = SCALES * MX_BLOCK, /* of DOT_OUTPUTS rows: 12 KiB at most, a quarter of the L1 cache */
};

/* Adds columns [0, n) of x[t] + at and w[o] to the lanes of `tokens` tokens. */
INLINE void dot_tile(v16 *lanes, const float *const *x, size_t at, const float *const *w, size_t n, const int tokens)
{
    v16 sum[DOT_TOKENS][DOT_OUTPUTS];
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int o = 0; o < DOT_OUTPUTS; o++)
            sum[t][o] = lanes[t * DOT_OUTPUTS + o];
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 weight[DOT_OUTPUTS];
        UNROLL for (int o = 0; o < DOT_OUTPUTS; o++)
            weight[o] = v16_load(w[o] + i);
        UNROLL for (int t = 0; t < tokens; t++) {
            v16 input = v16_load(x[t] + at + i);
            UNROLL for (int o = 0; o < DOT_OUTPUTS; o++)
                sum[t][o] = v16_fma(input, weight[o], sum[t][o]);
        }
    }
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int o = 0; o < DOT_OUTPUTS; o++) {
            v16 *lane = &lanes[t * DOT_OUTPUTS + o];
            *lane = sum[t][o];
            if (i < n)
                *lane = fma_first(v16_load_first(x[t] + at + i, n - i), v16_load_first(w[o] + i, n - i), *lane, n - i);
        }
}

/* Not inlined: one copy serves every element type. */
static __attribute__((noinline)) void dot_tiles(v16 *lanes, const float *const *x, size_t at, const float *const *w,
                                                size_t n, size_t n_tokens)
{
    size_t t = 0;
    for (; t + DOT_TOKENS <= n_tokens; t += DOT_TOKENS)
        dot_tile(lanes + t * DOT_OUTPUTS, x + t, at, w, n, DOT_TOKENS);
    for (; t + DOT_TOKENS / 2 <= n_tokens; t += DOT_TOKENS / 2)
        dot_tile(lanes + t * DOT_OUTPUTS, x + t, at, w, n, DOT_TOKENS / 2);
    for (; t < n_tokens; t++)
        dot_tile(lanes + t * DOT_OUTPUTS, x + t, at, w, n, 1);
}

/* Columns [at, at + n) of row r as float32, at a multiple of the block size. */
INLINE void widen_row(float *out, const struct rows *rows, size_t r, size_t at, size_t n, size_t columns,
                      const enum dtype dtype)
{
    const char *row = row_at(rows, r);
    if (dtype == DTYPE_MXFP4) {
        const uint8_t *codes = (const uint8_t *)row + at / 2;
        float scales[SCALES];
        v16_store(scales, e8m0_lanes(rows->scales + (r * columns + at) / MX_BLOCK, n / MX_BLOCK));
        for (size_t i = 0; i < n; i += MX_BLOCK) {
            mxfp4_table table = mxfp4_scaled(scales[i / MX_BLOCK]);
            v16_store(out + i, v16_from_mxfp4_order(v16_load_mxfp4(codes + i / 2, table)));
            v16_store(out + i + 16, v16_from_mxfp4_order(v16_load_mxfp4(codes + i / 2 + 8, table)));
        }
        return;
    }
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(out + i, widen(row, at + i, dtype));
    if (i < n)
        v16_store(out + i, widen_first(row, at + i, n - i, dtype));
}

/* dots for 2 to GROUP_TOKENS tokens: a panel of rows is widened once, then meets all of them. */
INLINE void dots_group(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                       size_t n_tokens, const enum dtype dtype)
{
    v16 lanes[GROUP_TOKENS * DOT_OUTPUTS];
    _Alignas(64) float panel[DOT_OUTPUTS][PANEL_COLUMNS];
    for (size_t r = 0; r < n_rows; r += DOT_OUTPUTS) {
        size_t left = n_rows - r < DOT_OUTPUTS ? n_rows - r : DOT_OUTPUTS;
        for (size_t i = 0; i < n_tokens * DOT_OUTPUTS; i++)
            lanes[i] = v16_zero();
        for (size_t at = 0; at < columns; at += PANEL_COLUMNS) {
            size_t n = columns - at < PANEL_COLUMNS ? columns - at : PANEL_COLUMNS;
            const float *w[DOT_OUTPUTS];
            for (size_t o = 0; o < DOT_OUTPUTS; o++) {
                w[o] = o < left ? panel[o] : w[left - 1]; /* beyond the last row: computed, not stored */
                if (o < left && dtype == DTYPE_F32)
                    w[o] = (const float *)(const void *)row_at(rows, r + o) + at;
                else if (o < left)
                    widen_row(panel[o], rows, r + o, at, n, columns, dtype);
            }
            dot_tiles(lanes, x, at, w, n, n_tokens);
        }
        for (size_t t = 0; t < n_tokens; t++) {
            float sums[DOT_OUTPUTS];
            sum_each(sums, lanes + t * DOT_OUTPUTS, DOT_OUTPUTS);
            memcpy(y[t] + r, sums, left * sizeof *sums);
        }
    }
}

/* For few tokens the rows are split into DOT_STREAMS parts that are read side by side, each from its first row to its last:
 * every stream then runs straight through memory, which the hardware's prefetch follows across the ends of rows. */
INLINE size_t stream_rows(size_t n_rows)
{
    return (n_rows + DOT_STREAMS - 1) / DOT_STREAMS;
}

/* Row r of part o; where parts hold too many rows, the last row again. */
INLINE size_t stream_row(size_t o, size_t r, size_t part, size_t n_rows)
{
    size_t row = o * part + r;
    return row < n_rows ? row : n_rows - 1;
}

/* dots for one token: no panel, straight from memory. */
INLINE void dots_one(float *y, const float *x, const struct rows *rows, size_t n_rows, size_t columns,
                     const enum dtype dtype)
{
    size_t part = stream_rows(n_rows);
    for (size_t r = 0; r < part; r++) {
        const char *row[DOT_STREAMS];
        v16 sum[DOT_STREAMS];
        UNROLL for (size_t o = 0; o < DOT_STREAMS; o++) {
            row[o] = row_at(rows, stream_row(o, r, part, n_rows));
            sum[o] = v16_zero();
        }
        size_t i = 0;
        for (; i + 16 <= columns; i += 16) {
            v16 input = v16_load(x + i);
            UNROLL for (int o = 0; o < DOT_STREAMS; o++)
                sum[o] = v16_fma(input, widen(row[o], i, dtype), sum[o]);
        }
        if (i < columns) {
            v16 input = v16_load_first(x + i, columns - i);
            UNROLL for (int o = 0; o < DOT_STREAMS; o++)
                sum[o] = fma_first(input, widen_first(row[o], i, columns - i, dtype), sum[o], columns - i);
        }
        float sums[DOT_STREAMS];
        sum_each(sums, sum, DOT_STREAMS);
        for (size_t o = 0; o < DOT_STREAMS; o++)
            y[stream_row(o, r, part, n_rows)] = sums[o];
    }
}

/* The same for MXFP4 and `tokens` tokens. The inputs are brought into the order of the codes, a shuffle for all rows. */
INLINE void dots_few_mxfp4(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                           const int tokens)
{
    size_t n_blocks = columns / MX_BLOCK;
    size_t part = stream_rows(n_rows);
    for (size_t r = 0; r < part; r++) {
        const uint8_t *codes[DOT_STREAMS];
        v16 sum[MXFP4_TOKENS][DOT_STREAMS];
        float scales[DOT_STREAMS][SCALES], sums[DOT_STREAMS];
        UNROLL for (size_t o = 0; o < DOT_STREAMS; o++)
            codes[o] = (const uint8_t *)row_at(rows, stream_row(o, r, part, n_rows));
        UNROLL for (int t = 0; t < tokens; t++)
            UNROLL for (int o = 0; o < DOT_STREAMS; o++)
                sum[t][o] = v16_zero();
        for (size_t first = 0; first < n_blocks; first += SCALES) {
            size_t n = n_blocks - first < SCALES ? n_blocks - first : SCALES;
            for (size_t o = 0; o < DOT_STREAMS; o++) {
                size_t row = stream_row(o, r, part, n_rows);
                v16_store(scales[o], e8m0_lanes(rows->scales + row * n_blocks + first, n));
            }
            for (size_t b = 0; b < n; b++) {
                size_t at = (first + b) * MX_BLOCK;
                v16 low[MXFP4_TOKENS], high[MXFP4_TOKENS];
                UNROLL for (int t = 0; t < tokens; t++) {
                    low[t] = v16_to_mxfp4_order(v16_load(x[t] + at));
                    high[t] = v16_to_mxfp4_order(v16_load(x[t] + at + 16));
                }
                UNROLL for (int o = 0; o < DOT_STREAMS; o++) {
                    mxfp4_table table = mxfp4_scaled(scales[o][b]);
                    v16 weight = v16_load_mxfp4(codes[o] + at / 2, table);
                    v16 weight2 = v16_load_mxfp4(codes[o] + at / 2 + 8, table);
                    UNROLL for (int t = 0; t < tokens; t++)
                        sum[t][o] = v16_fma(high[t], weight2, v16_fma(low[t], weight, sum[t][o]));
                }
            }
        }
        UNROLL for (int t = 0; t < tokens; t++) {
            UNROLL for (int o = 0; o < DOT_STREAMS; o++)
                sum[t][o] = v16_from_mxfp4_order(sum[t][o]);
            sum_each(sums, sum[t], DOT_STREAMS);
            for (size_t o = 0; o < DOT_STREAMS; o++)
                y[t][stream_row(o, r, part, n_rows)] = sums[o];
        }
    }
}

INLINE void dots(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                 size_t n_tokens, const enum dtype dtype)
{
    if (n_tokens == 1) {
        if (dtype == DTYPE_MXFP4)
            dots_few_mxfp4(y, x, rows, n_rows, columns, 1);
        else
            dots_one(y[0], x[0], rows, n_rows, columns, dtype);
        return;
    }
    if (dtype == DTYPE_MXFP4 && n_tokens <= MXFP4_TOKENS) {
        dots_few_mxfp4(y, x, rows, n_rows, columns, MXFP4_TOKENS);
        return;
    }
    for (size_t t = 0; t < n_tokens; t += GROUP_TOKENS) {
        size_t left = n_tokens - t < GROUP_TOKENS ? n_tokens - t : GROUP_TOKENS;
        dots_group(y + t, x + t, rows, n_rows, columns, left, dtype);
    }
}

/* sum[t * vectors + c] = the mix of columns at + 16 c ... for `tokens` tokens. `each` of rows is constant. With fewer than
 * 16 columns left, n < 16 and vectors is 1. */
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

INLINE void mix_store(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t at, size_t n,
                      const int tokens, const int vectors, const enum dtype dtype)
{
    v16 sum[MIX_TOKENS * MIX_VECTORS > MIX_WIDE ? MIX_TOKENS * MIX_VECTORS : MIX_WIDE];
    mix_tile(sum, x, rows, n_rows, at, n, tokens, vectors, dtype);
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int c = 0; c < vectors; c++)
            v16_store_first(y[t] + at + 16 * c, sum[t * vectors + c], n);
}

/* One block of columns for all tokens, whose part of the rows stays in the L1 cache. */
INLINE void mix_block(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t at, size_t n,
                      size_t n_tokens, const int vectors, const enum dtype dtype)
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

INLINE void mix(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                size_t n_tokens, const enum dtype dtype)
{
    enum { TILE = 16 * MIX_VECTORS, WIDE = 16 * MIX_WIDE };
    size_t at = 0;
    for (; n_tokens == 1 && at + WIDE <= columns; at += WIDE)
        mix_store(y, x, rows, n_rows, at, 16, 1, MIX_WIDE, dtype);
    for (; at + TILE <= columns; at += TILE)
        mix_block(y, x, rows, n_rows, at, 16, n_tokens, MIX_VECTORS, dtype);
    for (; at < columns; at += 16)
        mix_block(y, x, rows, n_rows, at, columns - at, n_tokens, 1, dtype);
}
