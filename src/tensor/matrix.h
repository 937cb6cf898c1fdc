/* A weight matrix as it is stored: a non-owning view of [rows][columns], row-major, y = W x with x of `columns`. */
#ifndef DAY0_TENSOR_MATRIX_H
#define DAY0_TENSOR_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"
#include "tensor/mx.h"

struct matrix {
    const void *data;      /* [rows][columns] elements; MXFP4: [rows][columns / 2] bytes */
    const uint8_t *scales; /* [rows][columns / 32] E8M0 bytes (MXFP4, MXFP8) or BF16 values (INT8); else NULL */
    uint32_t rows, columns;
    enum dtype dtype;
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
    return dtype_has_scales(m->dtype) ? m->columns / MX_BLOCK * (m->dtype == DTYPE_INT8 ? 2 : 1) : 0;
}

/* Bytes of the whole matrix, scales included. */
static inline size_t matrix_bytes(const struct matrix *m)
{
    return m->rows * (matrix_row_bytes(m) + matrix_scale_bytes(m));
}

/* Rows [first, first + count) of m. */
static inline struct matrix matrix_rows(const struct matrix *m, uint32_t first, uint32_t count)
{
    struct matrix part = *m;
    part.data = (const char *)m->data + first * matrix_row_bytes(m);
    part.scales = m->scales ? m->scales + first * matrix_scale_bytes(m) : NULL;
    part.rows = count;
    return part;
}

#endif
