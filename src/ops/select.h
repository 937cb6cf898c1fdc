/* The k best of a stream of ranks (kernels/index.def: larger is better, no two are equal), exactly. */
#ifndef DAY0_OPS_SELECT_H
#define DAY0_OPS_SELECT_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* The rank of one score, as index_filter makes it. */
static inline uint64_t select_rank(float score, uint32_t position)
{
    uint32_t bits = score == score ? f32_bits(score) : 0xff800000;
    uint32_t ordered = bits & 0x80000000 ? ~bits : bits | 0x80000000;
    return (uint64_t)ordered << 32 | (0xffffffffu - position);
}

static inline uint32_t select_position(uint64_t rank)
{
    return 0xffffffffu - (uint32_t)rank;
}

/* Moves the k largest of ranks [n] to its front, in any order; k < n. Returns the smallest of them. */
uint64_t select_largest(uint64_t *ranks, size_t n, size_t k);

/* Positions of ranks [n], ascending, into out [n]. scratch [n]. */
void select_positions(uint32_t *out, uint32_t *scratch, const uint64_t *ranks, size_t n);

#endif
