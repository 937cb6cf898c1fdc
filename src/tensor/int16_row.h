/* Rows of 16-bit integers: what `--kv int16` keeps of a latent, and the queries that meet it. Value i is
 * code[i] * unit. The unit is such that the codes, as a vector, are hardly longer than INT16_ROW_LENGTH: then the dot
 * of two rows fits in 32 bits. At a width of 576 a code of usual size is 1360, so a row is closer to its values than in
 * BF16, whose numbers of that size are 1/256 apart.
 *
 * A row is flat memory, a multiple of 16 bytes: codes [columns], zero from the n-th on, then the unit, a float. */
#ifndef DAY0_TENSOR_INT16_ROW_H
#define DAY0_TENSOR_INT16_ROW_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    INT16_ROW_MAX = 4096,     /* values of a row */
    INT16_ROW_LENGTH = 32700, /* roundings add at most 0.5 sqrt(INT16_ROW_MAX), and no code may pass 32767 */
    INT16_GROUP = 64,         /* rows that are mixed by codes of one unit */
};

/* Codes that a row of n values has room for. */
static inline size_t int16_row_columns(size_t n)
{
    return (n + 31) / 32 * 32;
}

static inline size_t int16_row_bytes(size_t n)
{
    return (int16_row_columns(n) * sizeof(int16_t) + sizeof(float) + 15) / 16 * 16;
}

static inline float int16_row_unit(const void *row, size_t n)
{
    float unit;
    memcpy(&unit, (const char *)row + int16_row_columns(n) * sizeof(int16_t), sizeof unit);
    return unit;
}

static inline void int16_row_set_unit(void *row, size_t n, float unit)
{
    memcpy((char *)row + int16_row_columns(n) * sizeof(int16_t), &unit, sizeof unit);
}

/* The unit of values whose squares sum to `squares`: NaN if that is not finite, so that what cannot be said in codes is
 * seen in every result. Below the least unit squares underflow. */
static inline float int16_unit_of(float squares)
{
    if (!(squares < INFINITY))
        return NAN;
    float unit = sqrtf(squares) / (float)INT16_ROW_LENGTH;
    return unit > 0x1p-64f ? unit : 0x1p-64f;
}

/* The unit of at most INT16_GROUP weights >= 0 with the given sum and largest one: their codes sum to less than 65100,
 * so that a mix of as many rows fits in 32 bits. NaN if the sum is. */
static inline float int16_weight_unit(float sum, float peak)
{
    float of_sum = sum * (1.0f / 65000), of_peak = peak * (1.0f / 32700);
    float unit = of_sum < of_peak ? of_peak : of_sum;
    return unit <= 0x1p-100f ? 0x1p-100f : unit;
}

#endif
