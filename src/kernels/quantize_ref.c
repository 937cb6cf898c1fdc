#include "kernels/kernels.h"
#include "kernels/sums_ref.h"
#include "tensor/int16_row.h"

#include <string.h>

void round_bf16_f32_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f32_from_bf16(bf16_from_f32(x[i]));
}

void quantize_mxfp8_ref(uint8_t *codes, uint8_t *scales, const float *x, size_t n, int rule)
{
    for (size_t i = 0; i < n; i += MX_BLOCK)
        scales[i / MX_BLOCK] = mx_quantize_fp8(codes + i, x + i, (enum mx_rule)rule);
}

void dequantize_mxfp8_ref(float *y, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    for (size_t i = 0; i < n; i += MX_BLOCK)
        mx_dequantize_fp8(y + i, codes + i, scales[i / MX_BLOCK]);
}

/* dot16 of what is lost of a block, in units of its scale. */
static float loss(const float *x, const uint8_t *codes, uint8_t scale)
{
    float d[MX_BLOCK];
    for (size_t i = 0; i < MX_BLOCK; i++)
        d[i] = ldexpf(x[i], 127 - scale) - mx_e2m1_values[codes[i / 2] >> (i & 1 ? 4 : 0) & 15];
    return dot16(d, d, MX_BLOCK);
}

void quantize_mxfp4_ref(uint8_t *codes, uint8_t *scales, const float *x, size_t n, int rule)
{
    for (size_t i = 0; i < n; i += MX_BLOCK, codes += MX_BLOCK / 2, scales++) {
        uint8_t other[MX_BLOCK / 2], other_scale = mx_quantize_fp4(other, x + i, MX_CEIL);
        *scales = mx_quantize_fp4(codes, x + i, rule == MX_CEIL ? MX_CEIL : MX_FLOOR);
        if (rule != MX_CLOSER || other_scale == *scales ||
            !(4.0f * loss(x + i, other, other_scale) < loss(x + i, codes, *scales)))
            continue;
        memcpy(codes, other, sizeof other);
        *scales = other_scale;
    }
}

void quantize_int8_ref(int8_t *codes, uint16_t *scales, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += MX_BLOCK)
        scales[i / MX_BLOCK] = mx_quantize_int8(codes + i, x + i);
}

void quantize_int16_row_ref(void *row, const float *x, size_t n)
{
    float unit = int16_unit_of(dot16(x, x, n)), inverse = 1.0f / unit;
    memset(row, 0, int16_row_bytes(n));
    int16_t *codes = row;
    for (size_t i = 0; unit == unit && i < n; i++)
        codes[i] = (int16_t)rintf(x[i] * inverse);
    int16_row_set_unit(row, n, unit);
}
