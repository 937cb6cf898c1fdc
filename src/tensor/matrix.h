/* A weight matrix as it is stored: a non-owning view of [rows][columns], row-major, y = W x with x of `columns`. */
#ifndef DAY0_TENSOR_MATRIX_H
#define DAY0_TENSOR_MATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"
#include "tensor/mx.h"

struct matrix {
    const void *data;      /* [rows][columns] elements; MXFP4: [rows][columns / 2] bytes */
    const uint8_t *scales; /* MXFP4: [rows][columns / 32] E8M0 bytes; else NULL */
    uint32_t rows, columns;
    enum dtype dtype; /* F32, BF16, F16 or MXFP4 */
};

/* Bytes between two rows of `data`. */
static inline size_t matrix_row_bytes(const struct matrix *m)
{
    return m->dtype == DTYPE_MXFP4 ? m->columns / 2 : dtype_bytes(m->dtype, m->columns);
}

/* Rows [first, first + count) of m. */
static inline struct matrix matrix_rows(const struct matrix *m, uint32_t first, uint32_t count)
{
    struct matrix part = *m;
    part.data = (const char *)m->data + first * matrix_row_bytes(m);
    part.scales = m->scales ? m->scales + (size_t)first * (m->columns / MX_BLOCK) : NULL;
    part.rows = count;
    return part;
}

#endif
