/* Products for many tokens. Outputs lie across the vector, so that no sum is ever added up within a register.
 *
 * A tile keeps the sums of PANEL_TOKENS tokens and 16 * PANEL_VECTORS outputs in registers while a panel of weights
 * streams from the L1 cache. A dot product has 16 such sums, one a lane (sums_ref.h), and the lanes are done one
 * after the other: weights are turned and inputs are put in order of lanes first, once for all that meet them. A mix
 * of rows is the same with a single lane, where nothing needs turning. */
#include "kernels/kernels.h"

enum {
    PANEL_STEPS = 64,                 /* terms of one lane in a panel */
    PANEL_COLUMNS = 16 * PANEL_STEPS, /* of all lanes: 64 KiB of weights for 16 outputs */
    PANEL_OUTPUTS = 16 * PANEL_VECTORS,
    PANEL_GROUP = 128,                    /* tokens that share a panel */
    PANEL_INPUTS = (1 << 18) + (1 << 12), /* floats of their inputs: 1 MiB */
    /* Lanes lie a cache line more than a power of two apart, else the same column of all lanes falls into one set of
     * the L1 cache. */
    PANEL_GAP = 16,
    PANEL_LANE = PANEL_STEPS * PANEL_OUTPUTS + PANEL_GAP, /* floats of one lane of weights */
};

/* sums[t][o] += sum over i < n of x[t][i] * w[i][o], x[t] PANEL_STEPS apart; from +0 if `first`. */
INLINE void panel_tile(float *sums, const float *x, const float *w, size_t n, bool first, const int tokens)
{
    v16 sum[PANEL_TOKENS][PANEL_VECTORS];
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
            sum[t][v] = first ? v16_zero() : v16_load(sums + t * PANEL_OUTPUTS + 16 * v);
    for (size_t i = 0; i < n; i++) {
        v16 weight[PANEL_VECTORS];
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
            weight[v] = v16_load(w + i * PANEL_OUTPUTS + 16 * v);
        UNROLL for (int t = 0; t < tokens; t++) {
            v16 input = v16_set(x[t * PANEL_STEPS + i]);
            UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
                sum[t][v] = v16_fma(input, weight[v], sum[t][v]);
        }
    }
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
            v16_store(sums + t * PANEL_OUTPUTS + 16 * v, sum[t][v]);
}

/* Not inlined: one copy serves every element type. */
static __attribute__((noinline)) void panel_tiles(float *sums, const float *x, const float *w, size_t n, bool first,
                                                  size_t n_tokens)
{
    enum { THIRD = PANEL_TOKENS / 3 };
    size_t t = 0;
    for (; t + PANEL_TOKENS <= n_tokens; t += PANEL_TOKENS)
        panel_tile(sums + t * PANEL_OUTPUTS, x + t * PANEL_STEPS, w, n, first, PANEL_TOKENS);
    for (; t + 2 * THIRD <= n_tokens; t += 2 * THIRD)
        panel_tile(sums + t * PANEL_OUTPUTS, x + t * PANEL_STEPS, w, n, first, 2 * THIRD);
    for (; t + THIRD <= n_tokens; t += THIRD)
        panel_tile(sums + t * PANEL_OUTPUTS, x + t * PANEL_STEPS, w, n, first, THIRD);
    for (; t < n_tokens; t++)
        panel_tile(sums + t * PANEL_OUTPUTS, x + t * PANEL_STEPS, w, n, first, 1);
}

/* Floats of one lane of a block's inputs. */
INLINE size_t panel_input_lane(size_t n_tokens)
{
    return n_tokens * PANEL_STEPS + PANEL_GAP;
}

/* Tokens of a group whose inputs have so many columns; below PANEL_TOKENS: too wide for a panel. */
INLINE size_t panel_group(size_t columns)
{
    size_t blocks = (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS, lane = PANEL_INPUTS / 16 / blocks;
    size_t tokens = lane < PANEL_GAP ? 0 : (lane - PANEL_GAP) / PANEL_STEPS;
    return tokens < PANEL_GROUP ? tokens / PANEL_TOKENS * PANEL_TOKENS : PANEL_GROUP;
}

/* Inputs in the order of lanes: [columns / PANEL_COLUMNS][16 lanes][n_tokens][PANEL_STEPS]. */
static __attribute__((noinline)) void panel_inputs(float *out, const float *const *x, size_t columns, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t at = 0; at < columns; at += 256) {
            float rest[256] = {0};
            const float *from = x[t] + at;
            const void *step[16];
            if (columns - at < 256)
                from = memcpy(rest, from, (columns - at) * sizeof *rest);
            for (size_t s = 0; s < 16; s++)
                step[s] = from + 16 * s;
            float *block = out + at / PANEL_COLUMNS * 16 * panel_input_lane(n_tokens);
            turn16(block + t * PANEL_STEPS + at % PANEL_COLUMNS / 16, panel_input_lane(n_tokens), step);
        }
}

/* Weights lie as [16 lanes][PANEL_STEPS][PANEL_OUTPUTS], lanes PANEL_LANE apart: where a column of 16 outputs is. */
INLINE float *panel_at(float *w, size_t column)
{
    return w + column % 16 * PANEL_LANE + column / 16 * PANEL_OUTPUTS;
}

/* Pairs of 16-bit elements are turned as one: half the shuffles. n is a multiple of 32. */
INLINE void panel_bf16(float *w, const void *const *row, size_t n)
{
    _Alignas(64) float turned[16 * 16];
    for (size_t at = 0; at < n; at += 32) {
        const void *pairs[16];
        for (size_t o = 0; o < 16; o++)
            pairs[o] = (const uint16_t *)row[o] + at;
        turn16(turned, 16, pairs);
        UNROLL for (size_t p = 0; p < 16; p++) {
            v16i both = v16_bits(v16_load(turned + 16 * p));
            v16i high = v16i_and(both, v16i_set((int32_t)0xffff0000));
            v16_store(panel_at(w, at + 2 * p), v16_from_bits(v16i_shift_left(both, 16)));
            v16_store(panel_at(w, at + 2 * p + 1), v16_from_bits(high));
        }
    }
}

/* `n_blocks` up to 4 blocks of 16 outputs. Words of eight codes are turned; codes become numbers afterwards. */
INLINE void panel_blocks(float *w, const void *const *row, size_t n_blocks, const uint8_t *const *scales)
{
    _Alignas(64) float turned[16 * 16];
    turn16(turned, 16, row);
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t bytes[16];
        for (size_t o = 0; o < 16; o++)
            bytes[o] = scales[o][b];
        v16 scale = e8m0_lanes(bytes, 16);
        for (size_t q = 4 * b; q < 4 * b + 4; q++) {
            v16i codes = v16_bits(v16_load(turned + 16 * q));
            UNROLL for (unsigned j = 0; j < 8; j++)
                v16_store(panel_at(w, 8 * q + j), v16_mul(v16_e2m1(v16i_shift_right(codes, 4 * j)), scale));
        }
    }
}

INLINE void panel_mxfp4(float *w, const void *const *row, size_t n, const uint8_t *const *scales)
{
    for (size_t at = 0; at < n; at += 4 * MX_BLOCK) {
        size_t n_blocks = n - at < 4 * MX_BLOCK ? (n - at) / MX_BLOCK : 4;
        uint8_t rest[16][2 * MX_BLOCK];
        const void *codes[16];
        const uint8_t *block_scales[16];
        for (size_t o = 0; o < 16; o++) {
            codes[o] = (const uint8_t *)row[o] + at / 2;
            block_scales[o] = scales[o] + at / MX_BLOCK;
            if (n_blocks < 4)
                codes[o] = memcpy(rest[o], codes[o], n_blocks * MX_BLOCK / 2);
        }
        panel_blocks(panel_at(w, at), codes, n_blocks, block_scales);
    }
}

/* Columns [at, at + n) of any type, beginning with column `done` of them. */
INLINE void panel_widened(float *w, const struct rows *rows, const size_t *r, size_t at, size_t done, size_t n,
                          const enum dtype dtype)
{
    enum { CHUNK = 2 * MX_BLOCK };
    _Alignas(64) float wide[16][CHUNK];
    for (size_t c = done; c < n; c += CHUNK) {
        size_t left = n - c < CHUNK ? n - c : CHUNK;
        for (size_t o = 0; o < 16; o++)
            widen_row(wide[o], rows, r[o], at + c, left, dtype);
        for (size_t i = 0; i < left; i += 16) {
            const void *from[16];
            for (size_t o = 0; o < 16; o++)
                from[o] = wide[o] + i;
            turn16(panel_at(w, c + i), PANEL_LANE, from);
        }
    }
}

/* Columns [at, at + n) of outputs r to r + PANEL_OUTPUTS - 1. Beyond the last row: computed, not stored. */
INLINE void panel_weights(float *w, const struct rows *rows, size_t r, size_t n_rows, size_t at, size_t n,
                          size_t columns, const enum dtype dtype)
{
    for (size_t v = 0; v < PANEL_OUTPUTS; v += 16) {
        const void *row[16];
        const uint8_t *scales[16];
        size_t index[16], done = 0;
        for (size_t o = 0; o < 16; o++) {
            index[o] = r + v + o < n_rows ? r + v + o : n_rows - 1;
            row[o] = row_at(rows, index[o]);
        }
        if (dtype == DTYPE_MXFP4) {
            for (size_t o = 0; o < 16; o++) {
                row[o] = (const uint8_t *)row[o] + at / 2;
                scales[o] = rows->scales + (index[o] * columns + at) / MX_BLOCK;
            }
            panel_mxfp4(w + v, row, n, scales);
            done = n;
        } else if (dtype == DTYPE_BF16) {
            for (size_t o = 0; o < 16; o++)
                row[o] = (const uint16_t *)row[o] + at;
            done = n / 32 * 32;
            panel_bf16(w + v, row, done);
        }
        panel_widened(w + v, rows, index, at, done, n, dtype);
    }
}

/* The 16 lanes of each sum, [n_tokens][PANEL_OUTPUTS] every `stride`, added up in the canonical order. */
INLINE void panel_store(float *const *y, const float *sums, size_t stride, size_t r, size_t left, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t v = 0; v < left; v += 16) {
            const float *from = sums + t * PANEL_OUTPUTS + v;
            v16 eight[8];
            UNROLL for (size_t l = 0; l < 8; l++)
                eight[l] = v16_add(v16_load(from + l * stride), v16_load(from + (l + 8) * stride));
            UNROLL for (size_t l = 0; l < 4; l++)
                eight[l] = v16_add(eight[l], eight[l + 4]);
            v16 even = v16_add(eight[0], eight[2]), odd = v16_add(eight[1], eight[3]);
            v16_store_first(y[t] + r + v, v16_add(even, odd), left - v);
        }
}

/* y[t][r] = dot16(x[t], row r) for n_tokens <= panel_group(columns); columns >= 1. */
INLINE void panel_dots(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                       size_t n_tokens, const enum dtype dtype)
{
    _Alignas(64) float inputs[PANEL_INPUTS], weights[16 * PANEL_LANE];
    _Alignas(64) float sums[16 * (PANEL_GROUP * PANEL_OUTPUTS + PANEL_GAP)];
    size_t input_lane = panel_input_lane(n_tokens), sum_lane = n_tokens * PANEL_OUTPUTS + PANEL_GAP;
    panel_inputs(inputs, x, columns, n_tokens);
    for (size_t r = 0; r < n_rows; r += PANEL_OUTPUTS) {
        const float *block = inputs;
        for (size_t at = 0; at < columns; at += PANEL_COLUMNS, block += 16 * input_lane) {
            size_t n = columns - at < PANEL_COLUMNS ? columns - at : PANEL_COLUMNS;
            panel_weights(weights, rows, r, n_rows, at, n, columns, dtype);
            for (size_t lane = 0; lane < 16; lane++)
                panel_tiles(sums + lane * sum_lane, block + lane * input_lane, weights + lane * PANEL_LANE,
                            (n + 15 - lane) / 16, at == 0, n_tokens);
        }
        panel_store(y, sums, sum_lane, r, n_rows - r < PANEL_OUTPUTS ? n_rows - r : PANEL_OUTPUTS, n_tokens);
    }
}

/* y[t][c] = the mix of rows by x[t], see mix_body.h, for n_tokens <= panel_group(n_rows); n_rows >= 1. */
INLINE void panel_mix(float *const *y, const float *const *x, const struct rows *rows, size_t n_rows, size_t columns,
                      size_t n_tokens, const enum dtype dtype)
{
    _Alignas(64) float inputs[PANEL_INPUTS], weights[PANEL_STEPS * PANEL_OUTPUTS];
    _Alignas(64) float sums[PANEL_GROUP * PANEL_OUTPUTS];
    for (size_t r = 0; r < n_rows; r += PANEL_STEPS)
        for (size_t t = 0; t < n_tokens; t++)
            memcpy(inputs + r * n_tokens + t * PANEL_STEPS, x[t] + r,
                   (n_rows - r < PANEL_STEPS ? n_rows - r : PANEL_STEPS) * sizeof *inputs);
    for (size_t c = 0; c < columns; c += PANEL_OUTPUTS) {
        size_t left = columns - c < PANEL_OUTPUTS ? columns - c : PANEL_OUTPUTS;
        for (size_t r = 0; r < n_rows; r += PANEL_STEPS) {
            size_t n = n_rows - r < PANEL_STEPS ? n_rows - r : PANEL_STEPS;
            for (size_t i = 0; i < n; i++)
                for (size_t v = 0; v < left; v += 16) {
                    const char *row = row_at(rows, r + i);
                    v16 wide = left - v < 16 ? widen_first(row, c + v, left - v, dtype) : widen(row, c + v, dtype);
                    v16_store(weights + i * PANEL_OUTPUTS + v, wide);
                }
            panel_tiles(sums, inputs + r * n_tokens, weights, n, r == 0, n_tokens);
        }
        for (size_t t = 0; t < n_tokens; t++)
            for (size_t v = 0; v < left; v += 16)
                v16_store_first(y[t] + c + v, v16_load(sums + t * PANEL_OUTPUTS + v), left - v);
    }
}
