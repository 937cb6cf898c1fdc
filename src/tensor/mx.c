#include "tensor/mx.h"

#include <math.h>

#include "tensor/dtype.h"

const float mx_e2m1_values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/* An element format: `mantissa` stored bits, smallest normal exponent, exponent of the largest value, largest value. */
struct grid {
    int mantissa_bits, exponent_min, exponent_max;
    float largest;
};
static const struct grid e2m1 = {1, 0, 2, 6.0f};
static const struct grid e4m3 = {3, -6, 8, 448.0f};

float mx_e8m0_value(uint8_t byte)
{
    return byte == E8M0_NAN ? NAN : ldexpf(1.0f, byte - 127);
}

float mx_e4m3_value(uint8_t byte)
{
    int exponent = (byte >> 3) & 15, mantissa = byte & 7;
    if (exponent == 15 && mantissa == 7)
        return NAN;
    float magnitude = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return byte & 0x80 ? -magnitude : magnitude;
}

static int shared_exponent(const float *x, const struct grid *grid, enum mx_rule rule)
{
    float peak = 0.0f;
    for (int i = 0; i < MX_BLOCK; i++)
        peak = fmaxf(peak, fabsf(x[i]));
    if (peak == 0.0f)
        return -127;
    int exponent;
    (void)frexpf(peak, &exponent);
    int shared = exponent - 1 - grid->exponent_max;
    if (rule == MX_CEIL && ldexpf(peak, -shared) > grid->largest)
        shared++;
    return shared < -127 ? -127 : shared > 127 ? 127 : shared;
}

/* The code of x on the grid, without its sign bit: round to nearest even, saturate. */
static uint8_t element_code(float x, const struct grid *grid)
{
    float magnitude = fabsf(x);
    if (magnitude == 0.0f)
        return 0;
    int exponent;
    (void)frexpf(magnitude, &exponent);
    exponent = exponent - 1 < grid->exponent_min ? grid->exponent_min : exponent - 1;
    float steps = rintf(ldexpf(magnitude, grid->mantissa_bits - exponent));
    if (ldexpf(steps, exponent - grid->mantissa_bits) > grid->largest) {
        exponent = grid->exponent_max;
        steps = ldexpf(grid->largest, grid->mantissa_bits - exponent);
    }
    /* steps counts units of the last place: adding it to the exponent field carries a round up into the next binade. */
    return (uint8_t)(((exponent - grid->exponent_min) << grid->mantissa_bits) + (int)steps);
}

static uint8_t quantize(uint8_t *codes, const float *x, const struct grid *grid, enum mx_rule rule, int sign_shift)
{
    int shared = shared_exponent(x, grid, rule);
    for (int i = 0; i < MX_BLOCK; i++) {
        float scaled = ldexpf(x[i], -shared);
        codes[i] = (uint8_t)(element_code(scaled, grid) | (signbit(scaled) ? 1 << sign_shift : 0));
    }
    return (uint8_t)(shared + 127);
}

uint8_t mx_quantize_fp8(uint8_t *codes, const float *x, enum mx_rule rule)
{
    return quantize(codes, x, &e4m3, rule, 7);
}

uint8_t mx_quantize_fp4(uint8_t *codes, const float *x, enum mx_rule rule)
{
    uint8_t wide[MX_BLOCK];
    uint8_t scale = quantize(wide, x, &e2m1, rule, 3);
    for (int i = 0; i < MX_BLOCK / 2; i++)
        codes[i] = (uint8_t)(wide[2 * i] | wide[2 * i + 1] << 4);
    return scale;
}

uint16_t mx_quantize_int8(int8_t *codes, const float *x)
{
    float peak = 0.0f;
    for (int i = 0; i < MX_BLOCK; i++)
        peak = fmaxf(peak, fabsf(x[i]));
    uint16_t scale = peak < 0x1p-100f ? 0 : bf16_from_f32(peak / 127.0f);
    for (int i = 0; i < MX_BLOCK; i++)
        codes[i] = (int8_t)(scale ? rintf(x[i] / f32_from_bf16(scale)) : 0.0f);
    return scale;
}

void mx_dequantize_fp8(float *out, const uint8_t *codes, uint8_t scale)
{
    float factor = mx_e8m0_value(scale);
    for (int i = 0; i < MX_BLOCK; i++)
        out[i] = mx_e4m3_value(codes[i]) * factor;
}

void mx_dequantize_fp4(float *out, const uint8_t *codes, uint8_t scale)
{
    float factor = mx_e8m0_value(scale);
    for (int i = 0; i < MX_BLOCK; i++)
        out[i] = mx_e2m1_values[i & 1 ? codes[i / 2] >> 4 : codes[i / 2] & 15] * factor;
}

void mx_dequantize_int8(float *out, const int8_t *codes, uint16_t scale)
{
    for (int i = 0; i < MX_BLOCK; i++)
        out[i] = (float)codes[i] * f32_from_bf16(scale);
}
