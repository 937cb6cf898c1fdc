#include "tensor/panels.h"

#include <string.h>

/* The eight INT8 codes from `codes` on, as two words in the order of narrowed activations. */
static void narrowed_order(uint8_t out[8], const uint8_t *codes)
{
    static const uint8_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int i = 0; i < 8; i++)
        out[i] = codes[order[i]];
}

/* One block's codes; `lane` is the row's place in its panel. */
static void put_codes(uint8_t *block, const uint8_t *codes, size_t bytes, uint32_t lane, enum dtype dtype)
{
    enum { WORD = 4, STRIDE = WORD * MATRIX_PANEL_ROWS };
    uint8_t turned[MX_BLOCK];
    if (dtype == DTYPE_INT8) {
        for (size_t i = 0; i < MX_BLOCK; i += 8)
            narrowed_order(turned + i, codes + i);
        codes = turned;
    }
    for (size_t at = 0; at < bytes; at += WORD)
        memcpy(block + at / WORD * STRIDE + WORD * lane, codes + at, WORD);
}

void panels_put(const struct matrix *to, uint32_t row, size_t first, size_t n, const void *codes, const void *scales)
{
    uint32_t panel = row / MATRIX_PANEL_ROWS * MATRIX_PANEL_ROWS, lane = row % MATRIX_PANEL_ROWS;
    size_t n_blocks = to->columns / MX_BLOCK;
    size_t block_bytes = to->dtype == DTYPE_MXFP4 ? MX_BLOCK / 2 : MX_BLOCK,
           scale_bytes = to->dtype == DTYPE_INT8 ? 2 : 1;
    CHECK(to->panels && (to->dtype == DTYPE_MXFP4 || to->dtype == DTYPE_INT8) && first + n <= n_blocks);
    uint8_t *to_codes = (uint8_t *)to->data + panel * matrix_row_bytes(to);
    uint8_t *to_scales = (uint8_t *)to->scales + panel * matrix_scale_bytes(to);
    for (size_t b = 0; b < n; b++) {
        put_codes(to_codes + (first + b) * block_bytes * MATRIX_PANEL_ROWS, (const uint8_t *)codes + b * block_bytes,
                  block_bytes, lane, to->dtype);
        memcpy(to_scales + ((first + b) * MATRIX_PANEL_ROWS + lane) * scale_bytes,
               (const uint8_t *)scales + b * scale_bytes, scale_bytes);
    }
}

void panels_put_bf16(const struct matrix *to, uint32_t row, const uint16_t *weights)
{
    uint32_t panel = row / MATRIX_PANEL_ROWS * MATRIX_PANEL_ROWS, lane = row % MATRIX_PANEL_ROWS;
    CHECK(to->panels && to->dtype == DTYPE_BF16 && to->columns % MX_BLOCK == 0);
    uint8_t *words = (uint8_t *)to->data + panel * matrix_row_bytes(to) + 4 * lane;
    uint8_t *exponents = (uint8_t *)to->scales + panel * matrix_scale_bytes(to) + lane;
    for (size_t at = 0; at < to->columns; at += NARROW_BLOCK, exponents += MATRIX_PANEL_ROWS) {
        int16_t codes[NARROW_BLOCK];
        size_t n = to->columns - at < NARROW_BLOCK ? to->columns - at : NARROW_BLOCK;
        uint32_t exponent = narrow_weight_exponent(weights + at, n);
        for (size_t i = 0; i < n; i++)
            codes[i] = narrow_weight_code(weights[at + i], exponent);
        for (size_t i = 0; i < n; i += 2, words += 4 * MATRIX_PANEL_ROWS)
            memcpy(words, codes + i, 4);
        *exponents = (uint8_t)exponent;
    }
}
