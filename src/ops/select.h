/* The k best of a stream of ranks (kernels/index.def: larger is better, no two are equal), exactly. */
#ifndef DAY0_OPS_SELECT_H
#define DAY0_OPS_SELECT_H

#include <stddef.h>
#include <stdint.h>

/* Moves the k largest of ranks [n] to its front, in any order; k < n. Returns the smallest of them. */
uint64_t select_largest(uint64_t *ranks, size_t n, size_t k);

/* Positions of ranks [n], ascending, into out [n]. scratch [n]. */
void select_positions(uint32_t *out, uint32_t *scratch, const uint64_t *ranks, size_t n);

#endif
