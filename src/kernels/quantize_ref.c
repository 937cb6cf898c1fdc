#include "kernels/kernels.h"

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

void quantize_mxfp4_ref(uint8_t *codes, uint8_t *scales, const float *x, size_t n, int rule)
{
    for (size_t i = 0; i < n; i += MX_BLOCK)
        scales[i / MX_BLOCK] = mx_quantize_fp4(codes + i / 2, x + i, (enum mx_rule)rule);
}

void quantize_int8_ref(int8_t *codes, uint16_t *scales, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += MX_BLOCK)
        scales[i / MX_BLOCK] = mx_quantize_int8(codes + i, x + i);
}
