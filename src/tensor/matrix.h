/* A weight matrix as it is stored: a non-owning view of [rows][columns], row-major, y = W x with x of `columns`.
 *
 * MXFP4, INT8 and BF16 come in panels, too, which the products in INT8 and INT16 alone read: 16 rows side by side, in
 * the place of those rows. For each block of columns a panel has words of four bytes, word 0 of all 16 rows, then word
 * 1 of all, and 16 scales:
 *
 *     MXFP4   blocks of 32: 4 words, the block's bytes as they are, and its scales
 *     INT8    blocks of 32: 8 words, its codes in the order of narrowed activations, within every eight 0 2 4 6 1 3 5 7
 *     BF16    blocks of 128, the last may be shorter: words of two 16-bit codes v, and the exponents e of
 *             linear_bf16_int16 (kernels/narrow.def)
 *
 * What is missing to the last 16 rows is zeros. Parts of such a matrix begin at multiples of 16 rows. */
#ifndef DAY0_TENSOR_MATRIX_H
#define DAY0_TENSOR_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/mx.h"
#include "tensor/narrow.h"

enum { MATRIX_PANEL_ROWS = 16 };

struct matrix {
    const void *data;      /* [rows][columns] elements; MXFP4: [rows][columns / 2] bytes */
    const uint8_t *scales; /* [rows][columns / 32] E8M0 bytes (MXFP4, MXFP8) or BF16 values (INT8); of BF16 in panels
                              [rows][columns / 128, rounded up] exponents; else NULL */
    uint32_t rows, columns;
    enum dtype dtype;
    bool panels;
};

/* Whether the type has blocks of MX_BLOCK elements with a scale each. */
static inline bool dtype_has_scales(enum dtype dtype)
{
    return dtype == DTYPE_MXFP4 || dtype == DTYPE_MXFP8 || dtype == DTYPE_INT8;
}

/* Bytes between two rows of `data`. */
static inline size_t matrix_row_bytes(const struct matrix *m)
{
    return m->dtype == DTYPE_MXFP4      ? m->columns / 2
           : dtype_has_scales(m->dtype) ? m->columns
                                        : dtype_bytes(m->dtype, m->columns);
}

/* Bytes between two rows of `scales`; 0 for types without. */
static inline size_t matrix_scale_bytes(const struct matrix *m)
{
    if (m->dtype == DTYPE_BF16)
        return m->panels ? (m->columns + NARROW_BLOCK - 1) / NARROW_BLOCK : 0;
    return dtype_has_scales(m->dtype) ? m->columns / MX_BLOCK * (m->dtype == DTYPE_INT8 ? 2 : 1) : 0;
}

/* Rows that there is room for in memory. */
static inline uint32_t matrix_stored_rows(const struct matrix *m)
{
    return m->panels ? (m->rows + MATRIX_PANEL_ROWS - 1) / MATRIX_PANEL_ROWS * MATRIX_PANEL_ROWS : m->rows;
}

/* Bytes of the whole matrix, scales included. */
static inline size_t matrix_bytes(const struct matrix *m)
{
    return m->rows * (matrix_row_bytes(m) + matrix_scale_bytes(m));
}

/* Rows [first, first + count) of m. */
static inline struct matrix matrix_rows(const struct matrix *m, uint32_t first, uint32_t count)
{
    CHECK(!m->panels || first % MATRIX_PANEL_ROWS == 0);
    struct matrix part = *m;
    part.data = (const char *)m->data + first * matrix_row_bytes(m);
    part.scales = m->scales ? m->scales + first * matrix_scale_bytes(m) : NULL;
    part.rows = count;
    return part;
}

#endif
