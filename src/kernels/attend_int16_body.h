/* Attention over rows of 16-bit integers. Rows are turned into panels: for scores 16 rows side by side, for values two
 * rows beside each other in 32 columns. All heads share a panel while it is in the L1 cache. */
#include <stdbool.h>

#include "kernels/kernels.h"
#include "tensor/int16_row.h"

enum {
    INT16_HEADS = 64,   /* that share the panels of values */
    INT16_COLUMNS = 32, /* of a panel of values: of every row a cache line */
};

/* One code and the next of 16 * PAIR_BLOCKS rows from `first` on, in n_pairs vectors each; the last row stands in for
 * those that are not there. */
INLINE void int16_turn(int32_t *panel, const void *const *rows, size_t first, size_t n_rows, size_t n_pairs)
{
    enum { ROWS = 16 * PAIR_BLOCKS };
    for (size_t b = 0; b < ROWS; b += 16) {
        const char *from[16];
        for (size_t j = 0; j < 16; j++) {
            size_t row = first + b + j;
            from[j] = rows[row < n_rows ? row : n_rows - 1];
        }
        for (size_t p = 0; p < n_pairs; p += 16) {
            const void *at[16];
            for (size_t j = 0; j < 16; j++)
                at[j] = from[j] + p * sizeof(int32_t);
            turn16((float *)(void *)(panel + p * ROWS + b), ROWS, at);
        }
    }
    in_memory(panel);
}

/* Some rows in a panel, which every head meets. */
struct int16_block {
    const int32_t *panel;
    const float *units;
    size_t width, n_rows, left; /* all rows of the chunk; those from this block on */
};

INLINE void int16_score_any(float *scores, const void *q, const struct int16_block *rows, struct pairs_ahead ahead,
                            const int heads)
{
    const int16_t *codes = q;
    size_t stride = int16_row_bytes(rows->width) / sizeof *codes;
    v16i dot[PAIR_HEADS * PAIR_BLOCKS];
    pair_dots_ahead(dot, codes, stride, rows->panel, 16 * PAIR_BLOCKS, int16_row_columns(rows->width) / 2, ahead, heads,
                    PAIR_BLOCKS);
    UNROLL for (size_t h = 0; h < (size_t)heads; h++) {
        v16 unit = v16_set(int16_row_unit(codes + h * stride, rows->width));
        UNROLL for (size_t b = 0; b < PAIR_BLOCKS; b++) {
            v16 score = v16_mul(v16_from_integers(dot[h * PAIR_BLOCKS + b]), v16_load(rows->units + 16 * b));
            if (16 * b < rows->left)
                v16_store_first(scores + h * rows->n_rows + 16 * b, v16_mul(score, unit), rows->left - 16 * b);
        }
    }
}

/* Out of line, where the loop keeps its pointers in registers. */
static __attribute__((noinline)) void int16_score_tile(float *scores, const void *q, const struct int16_block *rows,
                                                       struct pairs_ahead ahead)
{
    int16_score_any(scores, q, rows, ahead, PAIR_HEADS);
}

INLINE void int16_scores(float *scores, const char *q, const void *const *rows, size_t n_heads, size_t n_rows,
                         size_t width)
{
    enum { ROWS = 16 * PAIR_BLOCKS };
    _Alignas(64) int32_t panel[INT16_ROW_MAX / 2 * ROWS];
    size_t bytes = int16_row_bytes(width), share = (ROWS * PAIR_HEADS + n_heads - 1) / n_heads;
    for (size_t first = 0; first < n_rows; first += ROWS) {
        float units[ROWS];
        for (size_t i = 0; i < ROWS; i++)
            units[i] = first + i < n_rows ? int16_row_unit(rows[first + i], width) : 0.0f;
        int16_turn(panel, rows, first, n_rows, int16_row_columns(width) / 2);
        struct int16_block block = {panel, units, width, n_rows, n_rows - first};
        size_t h = 0, next = first + ROWS < n_rows ? first + ROWS : n_rows;
        size_t end = next + ROWS < n_rows ? next + ROWS : n_rows;
        for (; h + PAIR_HEADS <= n_heads; h += PAIR_HEADS) {
            struct pairs_ahead ahead = {rows + next, end - next < share ? end - next : share, bytes};
            int16_score_tile(scores + h * n_rows + first, q + h * bytes, &block, ahead);
            next += ahead.n;
        }
        for (; h < n_heads; h++)
            int16_score_any(scores + h * n_rows + first, q + h * bytes, &block, (struct pairs_ahead){0}, 1);
    }
}

/* Codes of a head's weights of one group, zero from the n-th on, and their unit. */
INLINE float int16_weights(int16_t *codes, const float *weights, const float *units, size_t n)
{
    float t[INT16_GROUP];
    v16 peak = v16_zero();
    for (size_t i = 0; i < INT16_GROUP; i += 16) {
        v16 product = i < n ? v16_mul(v16_load_first(weights + i, n - i), v16_load(units + i)) : v16_zero();
        v16_store(t + i, product);
        peak = v16_max(product, peak);
    }
    float unit = int16_weight_unit(sum16(t, n), v16_peak(peak));
    v16 inverse = v16_set(1.0f / unit);
    for (size_t i = 0; i < INT16_GROUP; i += 16) {
        v16 code = v16_round(v16_mul(v16_load(t + i), inverse));
        code = v16_where_nan(code, v16_zero(), code);
        v16i_store_s16_first(codes + i, v16_bits(v16_add(code, integer_anchor())), 16);
    }
    return unit;
}

/* Adds the mix of a panel's rows to columns of `heads` heads, `left` of them at most. */
INLINE void int16_value_any(float *acc, const int16_t *codes, const int32_t *panel, const float *units, size_t n_pairs,
                            size_t latent, size_t left, const int heads)
{
    v16i dot[PAIR_HEADS * PAIR_BLOCKS];
    pair_dots(dot, codes, INT16_GROUP, panel, INT16_COLUMNS, n_pairs, heads, PAIR_BLOCKS);
    UNROLL for (size_t h = 0; h < (size_t)heads; h++)
        UNROLL for (size_t b = 0; b < PAIR_BLOCKS; b++) {
            float *to = acc + h * latent + 16 * b;
            if (16 * b >= left)
                continue;
            v16 product = v16_from_integers(dot[h * PAIR_BLOCKS + b]), unit = v16_set(units[h]);
            v16_store_first(to, v16_fma(product, unit, v16_load_first(to, left - 16 * b)), left - 16 * b);
        }
}

/* For whole vectors of columns. */
static __attribute__((noinline)) void int16_value_tile(float *acc, const int16_t *codes, const int32_t *panel,
                                                       const float *units, size_t n_pairs, size_t latent)
{
    int16_value_any(acc, codes, panel, units, n_pairs, latent, 16 * PAIR_BLOCKS, PAIR_HEADS);
}

/* Adds n_rows <= INT16_GROUP rows with the codes of at most INT16_HEADS heads. */
INLINE void int16_values(float *acc, int16_t (*codes)[INT16_GROUP], const float *units, const void *const *rows,
                         size_t n_heads, size_t n_rows, size_t latent)
{
    _Alignas(64) int32_t panel[INT16_GROUP / 2 * INT16_COLUMNS];
    size_t n_pairs = (n_rows + 1) / 2;
    for (size_t c = 0; c < latent; c += 16 * PAIR_BLOCKS) {
        size_t b = c % INT16_COLUMNS, h = 0;
        for (size_t p = 0; b == 0 && p < n_pairs; p++) {
            const int16_t *one = rows[2 * p], *two = rows[2 * p + 1 < n_rows ? 2 * p + 1 : 2 * p];
            UNROLL for (size_t i = 0; i < INT16_COLUMNS; i += 16)
                v16i_store(panel + p * INT16_COLUMNS + i, v16i_zip_s16(one + c + i, two + c + i));
        }
        for (; h + PAIR_HEADS <= n_heads && latent - c >= 16 * PAIR_BLOCKS; h += PAIR_HEADS)
            int16_value_tile(acc + h * latent + c, codes[h], panel + b, units + h, n_pairs, latent);
        for (; h < n_heads; h++)
            int16_value_any(acc + h * latent + c, codes[h], panel + b, units + h, n_pairs, latent, latent - c, 1);
    }
}

void BODY(attend_int16)(float *acc, float *peak, float *total, float *scores, const void *q, const void *const *rows,
                        const float *mask, size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    int16_scores(scores, q, rows, n_heads, n_rows, width);
    memset(acc, 0, n_heads * latent * sizeof *acc);
    for (size_t h = 0; h < n_heads; h++) {
        float *score = scores + h * n_rows;
        mask_scores(score, mask, n_rows);
        peak[h] = peak_of(score, n_rows);
        total[h] = exp_and_sum(score, score, n_rows, peak[h]);
    }
    for (size_t first = 0; first < n_rows; first += INT16_GROUP) {
        size_t n = n_rows - first < INT16_GROUP ? n_rows - first : INT16_GROUP;
        float row_units[INT16_GROUP] = {0};
        for (size_t i = 0; i < n; i++)
            row_units[i] = int16_row_unit(rows[first + i], width);
        for (size_t head = 0; head < n_heads; head += INT16_HEADS) {
            size_t n_group = n_heads - head < INT16_HEADS ? n_heads - head : INT16_HEADS;
            _Alignas(64) int16_t codes[INT16_HEADS][INT16_GROUP];
            float units[INT16_HEADS];
            for (size_t h = 0; h < n_group; h++)
                units[h] = int16_weights(codes[h], scores + (head + h) * n_rows + first, row_units, n);
            int16_values(acc + head * latent, codes, units, rows + first, n_group, n, latent);
        }
    }
}
