/* Activations in narrower forms, for products in narrower arithmetic: a row of n values as flat memory.
 *
 *     FORM_INT8   n a multiple of 32: [n] codes, [n / 32] float scales, [n / 32] int32 offsets; a group of 32 shares a scale.
 *                 Within every eight values the order is 0 2 4 6 1 3 5 7, that in which nibbles come out of bytes.
 *     FORM_F16    [n up to a multiple of 32] halves, zeros beyond n, then the float that scales sums back
 *
 * What the numbers are is written at the kernels narrow_* (kernels/narrow.def). */
#ifndef DAY0_TENSOR_NARROW_H
#define DAY0_TENSOR_NARROW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum form {
    FORM_F32, /* as they are */
    FORM_INT8,
    FORM_F16,
    FORM_COUNT,
};

enum {
    NARROW_GROUP = 32,
    NARROW_F16_EXPONENT = 12, /* BF16 weights meet halves as w * 2^12 */
};

static inline size_t narrow_padded(size_t n)
{
    return (n + NARROW_GROUP - 1) / NARROW_GROUP * NARROW_GROUP;
}

/* Bytes of a row of n values. */
static inline size_t narrow_bytes(enum form form, size_t n)
{
    return form == FORM_INT8 ? n + n / NARROW_GROUP * 8 : form == FORM_F16 ? 2 * narrow_padded(n) + 4 : 4 * n;
}

/* FORM_INT8: [n / 32] scales, followed by as many offsets. */
static inline const float *narrow_scales(const void *row, size_t n)
{
    return (const float *)(const void *)((const char *)row + n);
}

static inline const int32_t *narrow_offsets(const void *row, size_t n)
{
    return (const int32_t *)(const void *)(narrow_scales(row, n) + n / NARROW_GROUP);
}

/* FORM_F16: what sums are multiplied by. */
static inline float narrow_scale(const void *row, size_t n)
{
    float scale;
    memcpy(&scale, (const char *)row + 2 * narrow_padded(n), sizeof scale);
    return scale;
}

#endif
