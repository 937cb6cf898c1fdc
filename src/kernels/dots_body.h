/* y[t][r] = dot16(x[t], row r), for linear layers and the scores of attention.
 *
 * Few tokens read the rows as they stream from memory, and tiles of tokens x rows keep the lanes of their sums in
 * registers; many tokens share a panel. What differs is the tile alone, never the order of a sum. */
#include "kernels/kernels.h"

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
    FEW_TOKENS = 16,    /* that read rows straight from memory */
    FEW_MXFP4 = 8,      /* the same where widening costs more */
    FEW_ROWS = 8,       /* of every stream, that meet one token after the other */
    FEW_COLUMNS = 1024, /* that stay in the L1 cache between the parts of a sum */
};

_Static_assert(DOT_OUTPUTS <= DOT_STREAMS, "a tile of few tokens has room for DOT_STREAMS rows");

/* The lanes of row r of every part, summed and stored. Rows that stand in twice are stored twice. */
INLINE void few_store(float *const *y, v16 sum[DOT_TOKENS][DOT_STREAMS], size_t r, size_t part, size_t n_rows,
                      const int tokens, const int streams)
{
    UNROLL for (int t = 0; t < tokens; t++) {
        float sums[DOT_STREAMS];
        sum_each(sums, sum[t], streams);
        UNROLL for (int o = 0; o < streams; o++)
            y[t][part_row((size_t)o, r, part, n_rows)] = sums[o];
    }
}

/* Row r of every stream meets `tokens` tokens. */
INLINE void few_tile(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                     size_t r, const int tokens, const int streams, const enum dtype dtype)
{
    size_t part = part_rows(n_rows, (size_t)streams);
    const char *row[DOT_STREAMS];
    v16 sum[DOT_TOKENS][DOT_STREAMS];
    UNROLL for (int o = 0; o < streams; o++) {
        row[o] = row_at(rows, part_row((size_t)o, r, part, n_rows));
        UNROLL for (int t = 0; t < tokens; t++)
            sum[t][o] = v16_zero();
    }
    size_t i = 0;
    for (; i + 16 <= columns; i += 16) {
        v16 input[DOT_TOKENS];
        UNROLL for (int t = 0; t < tokens; t++)
            input[t] = v16_load(x[t] + i);
        UNROLL for (int o = 0; o < streams; o++) {
            v16 weight = widen(row[o], i, dtype);
            UNROLL for (int t = 0; t < tokens; t++)
                sum[t][o] = v16_fma(input[t], weight, sum[t][o]);
        }
    }
    size_t n = columns - i;
    if (n) {
        UNROLL for (int o = 0; o < streams; o++) {
            v16 weight = widen_first(row[o], i, n, dtype);
            UNROLL for (int t = 0; t < tokens; t++)
                sum[t][o] = fma_first(v16_load_first(x[t] + i, n), weight, sum[t][o], n);
        }
    }
    few_store(y, sum, r, part, n_rows, tokens, streams);
}

/* Adds columns [from, to), whole vectors, to part p of the lanes. */
INLINE void few_columns(v16 sum[DOT_TOKENS][DOT_STREAMS], const float *const *x, const char *const *row, size_t from,
                        size_t to, const int p, const enum dtype dtype)
{
    vpart part[DOT_TOKENS][DOT_OUTPUTS];
    in_memory(sum); /* else the compiler holds on to the other parts too, and spills */
    UNROLL for (int t = 0; t < DOT_TOKENS; t++)
        UNROLL for (int o = 0; o < DOT_OUTPUTS; o++)
            part[t][o] = v16_part(sum[t][o], p);
    for (size_t i = from; i < to; i += 16) {
        vpart weight[DOT_OUTPUTS];
        UNROLL for (int o = 0; o < DOT_OUTPUTS; o++)
            weight[o] = v16_part(widen(row[o], i, dtype), p);
        UNROLL for (int t = 0; t < DOT_TOKENS; t++) {
            vpart input = v16_part(v16_load(x[t] + i), p);
            UNROLL for (int o = 0; o < DOT_OUTPUTS; o++)
                part[t][o] = vpart_fma(input, weight[o], part[t][o]);
        }
    }
    UNROLL for (int t = 0; t < DOT_TOKENS; t++)
        UNROLL for (int o = 0; o < DOT_OUTPUTS; o++)
            v16_put_part(&sum[t][o], p, part[t][o]);
    in_memory(sum);
}

/* The same for DOT_TOKENS tokens. Their sums fill the registers part by part, over columns few enough to be still in
 * the L1 cache for the next part. */
INLINE void few_parts(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                      size_t r, const enum dtype dtype)
{
    size_t stream = part_rows(n_rows, DOT_OUTPUTS), whole = columns / 16 * 16, n = columns - whole;
    const char *row[DOT_OUTPUTS];
    v16 sum[DOT_TOKENS][DOT_STREAMS];
    UNROLL for (int o = 0; o < DOT_OUTPUTS; o++) {
        row[o] = row_at(rows, part_row((size_t)o, r, stream, n_rows));
        UNROLL for (int t = 0; t < DOT_TOKENS; t++)
            sum[t][o] = v16_zero();
    }
    for (size_t from = 0; from < whole; from += FEW_COLUMNS) {
        size_t to = whole - from < FEW_COLUMNS ? whole : from + FEW_COLUMNS;
        UNROLL for (int p = 0; p < PARTS; p++)
            few_columns(sum, x, row, from, to, p, dtype);
    }
    UNROLL for (int o = 0; n && o < DOT_OUTPUTS; o++) {
        v16 weight = widen_first(row[o], whole, n, dtype);
        UNROLL for (int t = 0; t < DOT_TOKENS; t++)
            sum[t][o] = fma_first(v16_load_first(x[t] + whole, n), weight, sum[t][o], n);
    }
    few_store(y, sum, r, stream, n_rows, DOT_TOKENS, DOT_OUTPUTS);
}

/* The same for MXFP4. The inputs are brought into the order of the codes, one shuffle for all rows. */
INLINE void few_tile_mxfp4(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows,
                           size_t columns, size_t r, const int tokens, const int streams)
{
    size_t n_blocks = columns / MX_BLOCK, part = part_rows(n_rows, (size_t)streams);
    const uint8_t *codes[DOT_STREAMS];
    v16 sum[DOT_TOKENS][DOT_STREAMS];
    float scales[DOT_STREAMS][SCALES];
    UNROLL for (int o = 0; o < streams; o++) {
        codes[o] = (const uint8_t *)row_at(rows, part_row((size_t)o, r, part, n_rows));
        UNROLL for (int t = 0; t < tokens; t++)
            sum[t][o] = v16_zero();
    }
    for (size_t first = 0; first < n_blocks; first += SCALES) {
        size_t n = n_blocks - first < SCALES ? n_blocks - first : SCALES;
        for (int o = 0; o < streams; o++) {
            size_t row_scales = part_row((size_t)o, r, part, n_rows) * n_blocks;
            v16_store(scales[o], e8m0_lanes(rows->scales + row_scales + first, n));
        }
        for (size_t b = 0; b < n; b++) {
            size_t at = (first + b) * MX_BLOCK;
            v16 input[DOT_TOKENS][2];
            UNROLL for (int t = 0; t < tokens; t++)
                UNROLL for (int half = 0; half < 2; half++)
                    input[t][half] = v16_to_mxfp4_order(v16_load(x[t] + at + 16 * half));
            UNROLL for (int o = 0; o < streams; o++) {
                v16 weight[2];
                v16_load_mxfp4(weight, codes[o] + at / 2, scales[o][b]);
                UNROLL for (int half = 0; half < 2; half++)
                    UNROLL for (int t = 0; t < tokens; t++)
                        sum[t][o] = v16_fma(input[t][half], weight[half], sum[t][o]);
            }
        }
    }
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int o = 0; o < streams; o++)
            sum[t][o] = v16_from_mxfp4_order(sum[t][o]);
    few_store(y, sum, r, part, n_rows, tokens, streams);
}

INLINE void few_any(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                    size_t r, const int tokens, const int streams, const enum dtype dtype)
{
    if (dtype == DTYPE_MXFP4)
        few_tile_mxfp4(y, x, rows, n_rows, columns, r, tokens, streams);
    else if (tokens == DOT_TOKENS)
        few_parts(y, x, rows, n_rows, columns, r, dtype);
    else
        few_tile(y, x, rows, n_rows, columns, r, tokens, streams, dtype);
}

/* A few rows of every stream meet `tokens` tokens. */
INLINE void few_rows(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                     size_t r, size_t end, const int tokens, const enum dtype dtype)
{
    for (; r < end; r++)
        few_any(y, x, rows, n_rows, columns, r, tokens, DOT_OUTPUTS, dtype);
}

/* dots for few tokens: no panel. Rows that have come from memory for the first tokens are in a cache for the next, and
 * tokens stay in the L1 cache for a few rows. */
INLINE void dots_few(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                     size_t n_tokens, const enum dtype dtype)
{
    if (n_tokens == 1) {
        for (size_t r = 0; r < part_rows(n_rows, DOT_STREAMS); r++)
            few_any(y, x, rows, n_rows, columns, r, 1, DOT_STREAMS, dtype);
        return;
    }
    enum { HALF = DOT_TOKENS / 2 };
    size_t n = part_rows(n_rows, DOT_OUTPUTS);
    for (size_t r = 0; r < n; r += FEW_ROWS) {
        size_t end = n - r < FEW_ROWS ? n : r + FEW_ROWS, t = 0;
        for (; t + DOT_TOKENS <= n_tokens; t += DOT_TOKENS)
            few_rows(y + t, x + t, rows, n_rows, columns, r, end, DOT_TOKENS, dtype);
        for (; t + HALF <= n_tokens; t += HALF)
            few_rows(y + t, x + t, rows, n_rows, columns, r, end, HALF, dtype);
        for (; t < n_tokens; t++)
            few_rows(y + t, x + t, rows, n_rows, columns, r, end, 1, dtype);
    }
}

INLINE void dots(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                 size_t n_tokens, const enum dtype dtype)
{
    size_t group = columns ? panel_group(columns) : 0;
    if (n_tokens <= (dtype == DTYPE_MXFP4 ? FEW_MXFP4 : FEW_TOKENS) || group < PANEL_TOKENS) {
        dots_few(y, x, rows, n_rows, columns, n_tokens, dtype);
        return;
    }
    for (size_t t = 0; t < n_tokens; t += group)
        panel_dots(y + t, x + t, rows, n_rows, columns, n_tokens - t < group ? n_tokens - t : group, dtype);
}
