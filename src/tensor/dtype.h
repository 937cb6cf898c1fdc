/* Element types of checkpoints, weights and caches, and the exact conversions between them.
 *
 * All conversions to float are exact. Conversions from float round to nearest, ties to even. */
#ifndef DAY0_TENSOR_DTYPE_H
#define DAY0_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_MXFP4, /* blocks of 32 E2M1 codes with one E8M0 scale, see mx.h */
    DTYPE_MXFP8, /* blocks of 32 E4M3 codes with one E8M0 scale */
    DTYPE_INT8,  /* blocks of 32 codes -127..127 with one BF16 scale, see mx.h */
    DTYPE_INT16, /* rows of codes with one float unit, see int16_row.h: of caches alone */
    DTYPE_COUNT,
    DTYPE_AS_STORED = DTYPE_COUNT, /* where a type may be chosen: none is */
};

/* "f32", "bf16", ...; never NULL for a valid dtype. */
const char *dtype_name(enum dtype dtype);

/* Bytes of `n` elements of a plain type (F32, BF16, F16). */
static inline size_t dtype_bytes(enum dtype dtype, size_t n)
{
    return dtype == DTYPE_F32 ? 4 * n : 2 * n;
}

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_from_bf16(uint16_t bits)
{
    return f32_from_bits((uint32_t)bits << 16);
}

/* NaN becomes the quiet NaN 0x7fc0 (sign kept). */
static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(((bits >> 16) & 0x8000) | 0x7fc0);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* IEEE binary16, subnormals, infinities and NaN included. */
static inline float f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, mantissa = half & 0x3ff;
    if (exponent == 31)
        return f32_from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) {
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

#endif
