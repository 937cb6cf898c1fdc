/* The functions that kernels evaluate, as the exact sequence of float operations that every tier repeats.
 *
 * Bodies copy these operations lane by lane: the same polynomials, the same fma, the same order of comparison (a < b
 * ? a : b gives b for NaN), so that tiers agree bit for bit. Needs round-to-nearest and no flushing of subnormals. */
#ifndef DAY0_KERNELS_MATH_REF_H
#define DAY0_KERNELS_MATH_REF_H

#include <math.h>

#include "tensor/dtype.h"

#define EXP_LOWEST -104.0f
#define EXP_HIGHEST 89.0f
#define LOG2_E 0x1.715476p+0f
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f
/* exp(r) on |r| <= ln2 / 2: 1 + r + r^2 (C2 + r (C3 + ...)). */
#define EXP_C2 0x1.fffffcp-2f
#define EXP_C3 0x1.555492p-3f
#define EXP_C4 0x1.5558f2p-5f
#define EXP_C5 0x1.123a2p-7f
#define EXP_C6 0x1.6a23cep-10f
/* tanh(x) = x + x z (T0 + z (T1 + ...)), z = x^2, for |x| < 0.625. */
#define TANH_SMALL 0.625f
#define TANH_T0 -3.33332819422e-1f
#define TANH_T1 1.33314422036e-1f
#define TANH_T2 -5.37397155531e-2f
#define TANH_T3 2.06390887954e-2f
#define TANH_T4 -5.70498872745e-3f

/* 2^n for n in [-126, 127]. */
static inline float math_power_of_two(int n)
{
    return f32_from_bits((uint32_t)(n + 127) << 23);
}

static inline float math_exp(float x)
{
    x = EXP_HIGHEST < x ? EXP_HIGHEST : x;
    x = EXP_LOWEST > x ? EXP_LOWEST : x;
    float n = rintf(x * LOG2_E);
    float r = fmaf(n, -LN2_HIGH, x);
    r = fmaf(n, -LN2_LOW, r);
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r * r, r) + 1.0f;
    /* Two factors, so that the result may be subnormal or infinite. NaN goes through p. */
    int whole = n == n ? (int)n : 0, half = whole >> 1;
    return p * math_power_of_two(half) * math_power_of_two(whole - half);
}

static inline float math_sigmoid(float x)
{
    return 1.0f / (1.0f + math_exp(-x));
}

static inline float math_tanh(float x)
{
    float z = x * x;
    float p = fmaf(TANH_T4, z, TANH_T3);
    p = fmaf(p, z, TANH_T2);
    p = fmaf(p, z, TANH_T1);
    p = fmaf(p, z, TANH_T0);
    float small = fmaf(p * z, x, x);
    float large = 1.0f - 2.0f / (math_exp(2.0f * fabsf(x)) + 1.0f);
    return fabsf(x) < TANH_SMALL ? small : copysignf(large, x);
}

/* log(1 + y) for y in [0, 1]: 2 atanh(s), s = y / (2 + y) <= 1/3. */
static inline float math_log1p(float y)
{
    float s = y / (2.0f + y), z = s * s;
    float p = fmaf(1.0f / 15.0f, z, 1.0f / 13.0f);
    p = fmaf(p, z, 1.0f / 11.0f);
    p = fmaf(p, z, 1.0f / 9.0f);
    p = fmaf(p, z, 1.0f / 7.0f);
    p = fmaf(p, z, 1.0f / 5.0f);
    p = fmaf(p, z, 1.0f / 3.0f);
    float t = s + s;
    return fmaf(p * z, t, t);
}

static inline float math_softplus(float x)
{
    float positive = 0.0f > x ? 0.0f : x;
    return positive + math_log1p(math_exp(-fabsf(x)));
}

#endif
