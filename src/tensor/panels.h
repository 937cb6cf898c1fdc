/* Bringing rows of MXFP4, INT8 and BF16 into panels, the order of which is told in tensor/matrix.h. */
#ifndef DAY0_TENSOR_PANELS_H
#define DAY0_TENSOR_PANELS_H

#include "tensor/matrix.h"

/* Puts `n` blocks of row `row`, from block `first` on, into the memory of a matrix in panels of MXFP4 or INT8. `codes`
 * and `scales` are those of the blocks, in the order of a row as it is stored. */
void panels_put(const struct matrix *to, uint32_t row, size_t first, size_t n, const void *codes, const void *scales);

/* The same for all of a row of BF16, columns a multiple of MX_BLOCK. */
void panels_put_bf16(const struct matrix *to, uint32_t row, const uint16_t *weights);

#endif
