/* BF16 weights and activations as 16-bit integers, in blocks of 128 columns. Many tokens meet a panel: 16 outputs are
 * the lanes, with two columns each. It lies in memory like that, or the weights of a block of rows are turned, then
 * made codes. A single token meets rows as they are. */
#include <math.h>
#include <stdbool.h>

#include "kernels/kernels.h"
#include "tensor/narrow.h"

enum {
    CODED_PAIRS = NARROW_BLOCK / 2,
    CODED_OUTPUTS = 16 * PAIR_BLOCKS,
    CODED_TOKENS = 128, /* whose sums are kept beside each other */
    CODED_COLUMNS = 32, /* of a vector of pairs */
    CODED_STREAMS = 4,  /* panels that a single token reads side by side */
};

void BODY(narrow_int16)(void *out, const float *x, size_t n)
{
    int16_t *codes = out;
    float *units = (float *)(void *)(codes + narrow_padded(n));
    for (size_t at = 0; at < n; at += NARROW_BLOCK) {
        size_t end = n - at < NARROW_BLOCK ? n : at + NARROW_BLOCK;
        v16 sums = v16_zero(), peak = v16_zero();
        for (size_t i = at; i < end; i += 16) {
            v16 magnitude = v16_abs(v16_load_first(x + i, end - i));
            sums = v16_add(sums, magnitude);
            peak = v16_max(magnitude, peak);
        }
        float sum = v16_sum(sums), of_sum = sum * (1.0f / 261000), of_peak = v16_peak(peak) * (1.0f / 32000);
        float unit = of_sum > of_peak ? of_sum : of_peak;
        bool finite = sum < INFINITY, plain = finite && unit >= 0x1p-100f;
        units[at / NARROW_BLOCK] = plain ? unit : finite ? 0.0f : f32_from_bits(0x7fc00000);
        v16 inverse = v16_set(1.0f / unit);
        for (size_t i = at; i < at + narrow_padded(end - at); i += 16) {
            v16 code = i < end && plain ? v16_mul(v16_load_first(x + i, end - i), inverse) : v16_zero();
            v16i_store_s16_first(codes + i, v16_bits(v16_add(code, integer_anchor())), 16);
        }
    }
}

/* Pairs of weights as pairs of codes. */
INLINE v16i coded_pairs(v16i pairs, v16 factor)
{
    v16 even = v16_from_bits(v16i_shift_left(pairs, 16));
    v16 odd = v16_from_bits(v16i_and(pairs, v16i_set((int32_t)0xffff0000)));
    return integer_pair(v16_fma(even, factor, integer_anchor()), v16_fma(odd, factor, integer_anchor()));
}

/* n <= 32 weights, zeros beyond. */
INLINE v16i coded_rest(const uint16_t *weights, size_t n)
{
    uint16_t rest[CODED_COLUMNS] = {0};
    memcpy(rest, weights, n * sizeof *rest);
    return v16i_load((const int32_t *)(const void *)rest);
}

/* A block of n columns of 16 rows: turned, panel[pair][16]. The same of rows `next` elements on is fetched. */
INLINE void coded_turn(int32_t *panel, const uint16_t *const *row, size_t n, size_t next)
{
    size_t at = 0;
    const void *from[16];
    for (; at + CODED_COLUMNS <= n; at += CODED_COLUMNS) {
        for (size_t o = 0; o < 16; o++) {
            from[o] = row[o] + at;
            __builtin_prefetch(row[o] + at + next, 0, 2);
        }
        turn16((float *)(void *)(panel + at / 2 * 16), 16, from);
    }
    if (at < n) {
        _Alignas(64) int32_t rest[16][16];
        for (size_t o = 0; o < 16; o++) {
            v16i_store(rest[o], coded_rest(row[o] + at, n - at));
            from[o] = rest[o];
        }
        turn16((float *)(void *)(panel + at / 2 * 16), 16, from);
    }
}

/* A block of weights, and which of the activations' blocks it meets. */
struct coded_block {
    v16 units[PAIR_BLOCKS];
    const int32_t *panel[PAIR_BLOCKS]; /* [n_pairs][16] */
    size_t b, n_pairs, columns;
};

/* dot[t * PAIR_BLOCKS + v] = the products of a block of weights with those of `tokens` tokens. The first fetch the
 * block after it, one line an iteration: a panel has a page a block, at whose end the hardware's prefetch stops. */
INLINE void coded_dots(v16i *dot, const void *const *x, const struct coded_block *block, const bool first,
                       const int tokens)
{
    const int16_t *codes[PAIR_HEADS];
    UNROLL for (int t = 0; t < tokens; t++)
        codes[t] = (const int16_t *)x[t] + block->b * NARROW_BLOCK;
    UNROLL for (int i = 0; i < tokens * PAIR_BLOCKS; i++)
        dot[i] = v16i_set(0);
    for (size_t p = 0; p < block->n_pairs; p++) {
        v16i lanes[PAIR_BLOCKS];
        UNROLL for (int v = 0; v < PAIR_BLOCKS && first; v++)
            __builtin_prefetch(block->panel[v] + CODED_PAIRS * 16 + 16 * p, 0, 3);
        UNROLL for (int v = 0; v < PAIR_BLOCKS; v++)
            lanes[v] = v16i_load(block->panel[v] + 16 * p);
        UNROLL for (int t = 0; t < tokens; t++) {
            int32_t two;
            memcpy(&two, codes[t] + 2 * p, sizeof two);
            v16i both = v16i_set(two);
            UNROLL for (int v = 0; v < PAIR_BLOCKS; v++)
                dot[t * PAIR_BLOCKS + v] = v16i_add_pairs(dot[t * PAIR_BLOCKS + v], lanes[v], both);
        }
    }
}

/* Adds a block to the sums of `tokens` tokens. */
INLINE void coded_tile(float *sums, const void *const *x, const struct coded_block *block, const bool first,
                       const int tokens)
{
    v16i dot[PAIR_HEADS * PAIR_BLOCKS];
    coded_dots(dot, x, block, first, tokens);
    UNROLL for (int t = 0; t < tokens; t++) {
        v16 unit = v16_set(narrow_scales(x[t], block->columns)[block->b]);
        UNROLL for (int v = 0; v < PAIR_BLOCKS; v++) {
            float *sum = sums + t * CODED_OUTPUTS + 16 * v;
            v16 before = block->b ? v16_load(sum) : v16_zero();
            v16 product = v16_from_integers(dot[t * PAIR_BLOCKS + v]);
            v16_store(sum, v16_fma(product, v16_mul(block->units[v], unit), before));
        }
    }
}

/* Of exponents, 255 where there is a number that is not finite. */
INLINE v16 coded_units(v16i exponent)
{
    v16 unit = v16_from_bits(v16i_shift_left(v16i_sub(exponent, v16i_set(12)), 23)), infinite = v16_set(INFINITY);
    return v16_where_less(v16_from_bits(v16i_shift_left(exponent, 23)), infinite, unit, v16_sub(infinite, infinite));
}

/* Block b of outputs [r, r + 16) in panels. */
INLINE v16 coded_stored(const int32_t **panel, const struct matrix *w, size_t r, size_t b)
{
    *panel = (const int32_t *)w->data + r * w->columns / 2 + b * CODED_PAIRS * 16;
    return coded_units(v16i_load_u8_first(w->scales + r * matrix_scale_bytes(w) + b * 16, 16));
}

/* Turns weights of 16 rows to codes in place. Returns their units. */
INLINE v16 coded_panel(int32_t *panel, size_t n_pairs)
{
    v16i peak = v16i_set(0);
    for (size_t p = 0; p < n_pairs; p++)
        peak = v16i_max_s16(peak, v16i_and(v16i_load(panel + 16 * p), v16i_set(0x7fff7fff)));
    peak = v16i_max_s16(v16i_and(peak, v16i_set(0xffff)), v16i_shift_right(peak, 16));
    v16i exponent = v16i_max_s16(v16i_shift_right(peak, 7), v16i_set(20));
    v16 factor = v16_from_bits(v16i_shift_left(v16i_sub(v16i_set(266), exponent), 23));
    for (size_t p = 0; p < n_pairs; p++)
        v16i_store(panel + 16 * p, coded_pairs(v16i_load(panel + 16 * p), factor));
    return coded_units(exponent);
}

/* Block b of outputs [r, r + 16), n columns of rows, is made a panel. Beyond the last row: the last again. */
INLINE v16 coded_made(int32_t *panel, const struct matrix *w, size_t r, size_t b, size_t n)
{
    const uint16_t *row[16];
    size_t next = r + 2 * CODED_OUTPUTS <= w->rows ? (size_t)CODED_OUTPUTS * w->columns : 0;
    for (size_t o = 0; o < 16; o++)
        row[o] = (const uint16_t *)w->data + (r + o < w->rows ? r + o : w->rows - 1) * w->columns + b * NARROW_BLOCK;
    coded_turn(panel, row, n, next);
    return coded_panel(panel, narrow_padded(n) / 2);
}

/* Outputs [r, r + CODED_OUTPUTS) of n_tokens <= CODED_TOKENS. Beyond the last row: computed, not stored. */
INLINE void coded_outputs(float *const *y, const void *const *x, const struct matrix *w, size_t r, size_t n_tokens,
                          const bool panels)
{
    _Alignas(64) int32_t made[PAIR_BLOCKS][CODED_PAIRS * 16];
    _Alignas(64) float sums[CODED_TOKENS * CODED_OUTPUTS];
    size_t left = w->rows - r < CODED_OUTPUTS ? w->rows - r : CODED_OUTPUTS;
    for (size_t at = 0; at < w->columns; at += NARROW_BLOCK) {
        size_t n = w->columns - at < NARROW_BLOCK ? w->columns - at : NARROW_BLOCK;
        struct coded_block block = {.b = at / NARROW_BLOCK, .n_pairs = narrow_padded(n) / 2, .columns = w->columns};
        UNROLL for (size_t v = 0; v < PAIR_BLOCKS; v++) {
            size_t from = 16 * v < left ? r + 16 * v : r;
            block.panel[v] = made[v];
            block.units[v] = panels ? coded_stored(&block.panel[v], w, from, block.b)
                                    : coded_made(made[v], w, from, block.b, n);
        }
        size_t t = 0;
        if (n_tokens >= PAIR_HEADS && panels) {
            coded_tile(sums, x, &block, true, PAIR_HEADS);
            t = PAIR_HEADS;
        }
        for (; t + PAIR_HEADS <= n_tokens; t += PAIR_HEADS)
            coded_tile(sums + t * CODED_OUTPUTS, x + t, &block, false, PAIR_HEADS);
        for (; t + 2 <= n_tokens; t += 2)
            coded_tile(sums + t * CODED_OUTPUTS, x + t, &block, panels && t == 0, 2);
        for (; t < n_tokens; t++)
            coded_tile(sums + t * CODED_OUTPUTS, x + t, &block, false, 1);
    }
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t v = 0; v < left; v += 16)
            v16_store_first(y[t] + r + v, w->columns ? v16_load(sums + t * CODED_OUTPUTS + v) : v16_zero(), left - v);
}

/* The i-th vector of pairs of n weights. */
INLINE v16i coded_load(const uint16_t *weights, size_t n, size_t i)
{
    return CODED_COLUMNS * (i + 1) <= n ? v16i_load((const int32_t *)(const void *)(weights + CODED_COLUMNS * i))
                                        : coded_rest(weights + CODED_COLUMNS * i, n - CODED_COLUMNS * i);
}

/* The larger of two neighbouring magnitudes in every lane, over a block of n weights. */
INLINE v16i coded_peaks(const uint16_t *weights, size_t n)
{
    v16i peaks = v16i_set(0);
    UNROLL for (size_t i = 0; i < narrow_padded(n) / CODED_COLUMNS; i++)
        peaks = v16i_max_s16(peaks, v16i_and(coded_load(weights, n, i), v16i_set(0x7fff7fff)));
    return peaks;
}

/* Products of a block of n weights with codes, each lane a part of the sum. */
INLINE v16i coded_products(const uint16_t *weights, size_t n, const int16_t *codes, v16 factor)
{
    v16i dot = v16i_set(0);
    UNROLL for (size_t i = 0; i < narrow_padded(n) / CODED_COLUMNS; i++)
        dot = v16i_add_pairs(dot, coded_pairs(coded_load(weights, n, i), factor),
                             v16i_load((const int32_t *)(const void *)(codes + CODED_COLUMNS * i)));
    return dot;
}

/* Blocks of four rows: what makes their weights codes, and their units. */
struct coded_four {
    float factor[4], unit[4];
};

INLINE struct coded_four coded_factors(const uint16_t *const *row, size_t at, size_t n)
{
    struct coded_four of;
    UNROLL for (size_t o = 0; o < 4; o++) {
        uint32_t peak = v16i_peak_s16(coded_peaks(row[o] + at, n)), exponent = peak >> 7 > 20 ? peak >> 7 : 20;
        of.factor[o] = f32_from_bits((266 - exponent) << 23);
        of.unit[o] = peak < 0x7f80 ? f32_from_bits((exponent - 12) << 23) : NAN;
    }
    return of;
}

/* Adds a block of n columns of four rows to their sums. */
INLINE void coded_four_add(float *sum, const struct coded_four *of, const uint16_t *const *row, size_t at, size_t n,
                           const int16_t *codes, float unit)
{
    v16i dot[4];
    UNROLL for (size_t o = 0; o < 4; o++)
        dot[o] = coded_products(row[o] + at, n, codes + at, v16_set(of->factor[o]));
    UNROLL for (size_t o = 0; o < 4; o++)
        sum[o] = fmaf((float)v16i_sum(dot[o]), of->unit[o] * unit, sum[o]);
}

/* For one token: a row of each of four parts. Factors are a block ahead, so that nothing waits for them. */
INLINE void coded_rows(float *y, const void *x, const struct matrix *w, size_t r)
{
    size_t part = part_rows(w->rows, 4), n = w->columns, at = 0;
    const float *units = narrow_scales(x, n);
    const uint16_t *row[4];
    float sum[4] = {0};
    UNROLL for (size_t o = 0; o < 4; o++)
        row[o] = (const uint16_t *)w->data + part_row(o, r, part, w->rows) * n;
    struct coded_four of = coded_factors(row, 0, n < NARROW_BLOCK ? n : NARROW_BLOCK);
    for (; at + NARROW_BLOCK <= n; at += NARROW_BLOCK) {
        size_t left = n - at - NARROW_BLOCK;
        struct coded_four next =
            left >= NARROW_BLOCK ? coded_factors(row, at + NARROW_BLOCK, NARROW_BLOCK) : (struct coded_four){0};
        coded_four_add(sum, &of, row, at, NARROW_BLOCK, x, units[at / NARROW_BLOCK]);
        of = next;
    }
    if (at < n) {
        of = coded_factors(row, at, n - at);
        coded_four_add(sum, &of, row, at, n - at, x, units[at / NARROW_BLOCK]);
    }
    UNROLL for (size_t o = 0; o < 4; o++)
        y[part_row(o, r, part, w->rows)] = sum[o];
}

/* For one token: `streams` panels, `part` rows apart from r on, side by side, as one stream of memory is slower. */
INLINE void coded_once(float *y, const void *x, const struct matrix *w, size_t r, size_t part, const int streams)
{
    v16 sum[CODED_STREAMS];
    UNROLL for (int s = 0; s < streams; s++)
        sum[s] = v16_zero();
    for (size_t b = 0; b < matrix_scale_bytes(w); b++) {
        const int16_t *codes = (const int16_t *)x + b * NARROW_BLOCK;
        size_t left = w->columns / 2 - b * CODED_PAIRS, n_pairs = left < CODED_PAIRS ? left : CODED_PAIRS;
        v16 unit[CODED_STREAMS], of_block = v16_set(narrow_scales(x, w->columns)[b]);
        const int32_t *panel[CODED_STREAMS];
        v16i dot[CODED_STREAMS];
        UNROLL for (int s = 0; s < streams; s++) {
            unit[s] = v16_mul(coded_stored(&panel[s], w, r + (size_t)s * part, b), of_block);
            dot[s] = v16i_set(0);
        }
        for (size_t p = 0; p < n_pairs; p++) {
            int32_t two;
            memcpy(&two, codes + 2 * p, sizeof two);
            v16i both = v16i_set(two);
            UNROLL for (int s = 0; s < streams; s++)
                dot[s] = v16i_add_pairs(dot[s], v16i_load(panel[s] + 16 * p), both);
        }
        UNROLL for (int s = 0; s < streams; s++)
            sum[s] = v16_fma(v16_from_integers(dot[s]), unit[s], sum[s]);
    }
    UNROLL for (int s = 0; s < streams; s++) {
        size_t from = r + (size_t)s * part;
        v16_store_first(y + from, sum[s], w->rows - from);
    }
}

/* For one token: panels in a few parts, each read straight through. */
INLINE void coded_single(float *y, const void *x, const struct matrix *w)
{
    size_t part = w->rows / 16 / CODED_STREAMS * 16, r = 0;
    for (; r < part; r += 16)
        coded_once(y, x, w, r, part, CODED_STREAMS);
    for (r = CODED_STREAMS * part; r < w->rows; r += 16)
        coded_once(y, x, w, r, 0, 1);
}

void BODY(linear_bf16_int16)(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    if (n_tokens == 1 && w->panels) {
        coded_single(y[0], x[0], w);
        return;
    }
    if (n_tokens == 1) {
        for (size_t r = 0; r < part_rows(w->rows, 4); r++)
            coded_rows(y[0], x[0], w, r);
        return;
    }
    for (size_t t = 0; t < n_tokens; t += CODED_TOKENS)
        for (size_t r = 0; r < w->rows; r += CODED_OUTPUTS) {
            size_t n = n_tokens - t < CODED_TOKENS ? n_tokens - t : CODED_TOKENS;
            if (w->panels)
                coded_outputs(y + t, x + t, w, r, n, true);
            else
                coded_outputs(y + t, x + t, w, r, n, false);
        }
}
