/* Activations in narrower forms, for products in narrower arithmetic: a row of n values as flat memory.
 *
 *     FORM_INT8   n a multiple of 32: a struct narrow_group for every 32 values
 *     FORM_INT16  [n up to a multiple of 32] 16-bit integers, zeros beyond n, then a float, the unit, for every 128
 *     FORM_F16    [n up to a multiple of 32] halves, zeros beyond n, then the float that scales sums back
 *
 * What the numbers are is written at the kernels narrow_* (kernels/narrow.def). */
#ifndef DAY0_TENSOR_NARROW_H
#define DAY0_TENSOR_NARROW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

enum form {
    FORM_F32, /* as they are */
    FORM_INT8,
    FORM_INT16,
    FORM_F16,
    FORM_COUNT,
};

enum {
    NARROW_GROUP = 32,
    NARROW_BLOCK = 128,       /* of FORM_INT16 */
    NARROW_F16_EXPONENT = 12, /* BF16 weights meet halves as w * 2^12 */
};

/* Thirty-two values, value = code * 2 * scale. Within every eight the order is 0 2 4 6 1 3 5 7, that in which nibbles
 * come out of bytes. */
struct narrow_group {
    int8_t codes[NARROW_GROUP];
    float scale;
    int32_t offset; /* -12 * sum of the codes */
};

static inline size_t narrow_padded(size_t n)
{
    return (n + NARROW_GROUP - 1) / NARROW_GROUP * NARROW_GROUP;
}

/* Bytes of a row of n values. */
static inline size_t narrow_bytes(enum form form, size_t n)
{
    switch (form) {
    case FORM_INT8:
        return n / NARROW_GROUP * sizeof(struct narrow_group);
    case FORM_INT16:
        return 2 * narrow_padded(n) + (n + NARROW_BLOCK - 1) / NARROW_BLOCK * sizeof(float);
    case FORM_F16:
        return 2 * narrow_padded(n) + sizeof(float);
    default:
        return 4 * n;
    }
}

/* The distance at which rows should lie: whole cache lines, an odd number of them, so that a column of many rows is
 * spread over all sets of a cache. */
static inline size_t narrow_stride(enum form form, size_t n)
{
    return ((narrow_bytes(form, n) + 63) / 64 | 1) * 64;
}

/* What BF16 weights are where they meet FORM_INT16: in each block of NARROW_BLOCK columns of a row a code of 13 bits
 * and a sign, times 2^(exponent - 139). The exponent is the largest of the block, 255 if one is not finite. */
static inline uint32_t narrow_weight_exponent(const uint16_t *weights, size_t n)
{
    uint32_t peak = 20 << 7;
    for (size_t i = 0; i < n; i++)
        peak = (weights[i] & 0x7fffu) > peak ? weights[i] & 0x7fffu : peak;
    return peak >> 7;
}

/* To the nearest, ties to even; 0 where the exponent is 255. */
static inline int16_t narrow_weight_code(uint16_t weight, uint32_t exponent)
{
    const float anchor = 0x1.8p23f; /* an addition rounds to an integer */
    float scaled = f32_from_bf16(weight) * f32_from_bits((266 - exponent) << 23);
    return exponent == 255 ? 0 : (int16_t)(scaled + anchor - anchor);
}

static inline float narrow_weight_unit(uint32_t exponent)
{
    return f32_from_bits(exponent == 255 ? 0x7fc00000 : (exponent - 12) << 23);
}

/* FORM_F16: what sums are multiplied by. FORM_INT16: the units of the blocks. */
static inline const float *narrow_scales(const void *row, size_t n)
{
    return (const float *)(const void *)((const char *)row + 2 * narrow_padded(n));
}

#endif
