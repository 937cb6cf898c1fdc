/* Element-wise functions: the operations of math_ref.h on sixteen lanes. */
#include "kernels/kernels.h"
#include "kernels/math_ref.h"

INLINE v16 v16_exp(v16 x)
{
    x = v16_min(v16_set(EXP_HIGHEST), x);
    x = v16_max(v16_set(EXP_LOWEST), x);
    v16 n = v16_round(v16_mul(x, v16_set(LOG2_E)));
    v16 r = v16_fma(n, v16_set(-LN2_HIGH), x);
    r = v16_fma(n, v16_set(-LN2_LOW), r);
    v16 p = v16_fma(v16_set(EXP_C6), r, v16_set(EXP_C5));
    p = v16_fma(p, r, v16_set(EXP_C4));
    p = v16_fma(p, r, v16_set(EXP_C3));
    p = v16_fma(p, r, v16_set(EXP_C2));
    p = v16_add(v16_fma(p, v16_mul(r, r), r), v16_set(1.0f));
    return v16_scale(p, n);
}

INLINE v16 v16_sigmoid(v16 x)
{
    v16 one = v16_set(1.0f);
    return v16_div(one, v16_add(one, v16_exp(v16_negate(x))));
}

INLINE v16 v16_tanh(v16 x)
{
    v16 z = v16_mul(x, x), one = v16_set(1.0f), two = v16_set(2.0f), magnitude = v16_abs(x);
    v16 p = v16_fma(v16_set(TANH_T4), z, v16_set(TANH_T3));
    p = v16_fma(p, z, v16_set(TANH_T2));
    p = v16_fma(p, z, v16_set(TANH_T1));
    p = v16_fma(p, z, v16_set(TANH_T0));
    v16 small = v16_fma(v16_mul(p, z), x, x);
    v16 large = v16_sub(one, v16_div(two, v16_add(v16_exp(v16_mul(two, magnitude)), one)));
    return v16_where_less(magnitude, v16_set(TANH_SMALL), small, v16_copysign(large, x));
}

INLINE v16 v16_log1p(v16 y)
{
    v16 s = v16_div(y, v16_add(v16_set(2.0f), y)), z = v16_mul(s, s);
    v16 p = v16_fma(v16_set(1.0f / 15.0f), z, v16_set(1.0f / 13.0f));
    p = v16_fma(p, z, v16_set(1.0f / 11.0f));
    p = v16_fma(p, z, v16_set(1.0f / 9.0f));
    p = v16_fma(p, z, v16_set(1.0f / 7.0f));
    p = v16_fma(p, z, v16_set(1.0f / 5.0f));
    p = v16_fma(p, z, v16_set(1.0f / 3.0f));
    v16 t = v16_add(s, s);
    return v16_fma(v16_mul(p, z), t, t);
}

INLINE v16 v16_softplus(v16 x)
{
    v16 positive = v16_max(v16_zero(), x);
    return v16_add(positive, v16_log1p(v16_exp(v16_negate(v16_abs(x)))));
}

void BODY(sigmoid_f32)(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        v16_store_first(y + i, v16_sigmoid(v16_load_first(x + i, n - i)), n - i);
}

void BODY(sigmoid_mul_f32)(float *y, const float *x, const float *gate, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        v16 open = v16_sigmoid(v16_load_first(gate + i, n - i));
        v16_store_first(y + i, v16_mul(v16_load_first(x + i, n - i), open), n - i);
    }
}

void BODY(silu_mul_f32)(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        v16 g = v16_load_first(gate + i, n - i);
        v16 silu = v16_mul(g, v16_sigmoid(g));
        v16_store_first(y + i, v16_mul(silu, v16_load_first(up + i, n - i)), n - i);
    }
}

void BODY(situ_mul_f32)(float *y, const float *gate, const float *up, size_t n, float beta, float linear_beta)
{
    v16 b = v16_set(beta), linear_b = v16_set(linear_beta);
    for (size_t i = 0; i < n; i += 16) {
        v16 g = v16_load_first(gate + i, n - i), u = v16_load_first(up + i, n - i);
        if (linear_beta > 0.0f)
            u = v16_mul(linear_b, v16_tanh(v16_div(u, linear_b)));
        v16 bent = v16_mul(b, v16_tanh(v16_div(g, b)));
        v16_store_first(y + i, v16_mul(v16_mul(bent, v16_sigmoid(g)), u), n - i);
    }
}

/* y = exp(x - peak); returns sum16(y, n). y may be x. */
INLINE float exp_and_sum(float *y, const float *x, size_t n, float peak)
{
    v16 lanes = v16_zero();
    for (size_t i = 0; i < n; i += 16) {
        v16 e = v16_exp(v16_sub(v16_load_first(x + i, n - i), v16_set(peak)));
        v16_store_first(y + i, e, n - i);
        lanes = v16_blend_first(v16_add(lanes, e), lanes, n - i);
    }
    return v16_sum(lanes);
}

void BODY(softmax_f32)(float *y, const float *x, size_t n)
{
    v16 total = v16_set(exp_and_sum(y, x, n, peak_of(x, n)));
    for (size_t i = 0; i < n; i += 16)
        v16_store_first(y + i, v16_div(v16_load_first(y + i, n - i), total), n - i);
}

void BODY(decay_bounded_f32)(float *y, const float *z, const float *bias, size_t n, float rate, float bound)
{
    for (size_t i = 0; i < n; i += 16) {
        v16 shifted = v16_add(v16_load_first(z + i, n - i), v16_load_first(bias + i, n - i));
        v16 gate = v16_mul(v16_set(bound), v16_sigmoid(v16_mul(v16_set(rate), shifted)));
        v16_store_first(y + i, v16_exp(gate), n - i);
    }
}

void BODY(decay_softplus_f32)(float *y, const float *z, const float *bias, size_t n, float rate)
{
    for (size_t i = 0; i < n; i += 16) {
        v16 shifted = v16_add(v16_load_first(z + i, n - i), v16_load_first(bias + i, n - i));
        v16 gate = v16_mul(v16_set(rate), v16_softplus(shifted));
        v16_store_first(y + i, v16_exp(v16_negate(gate)), n - i);
    }
}

void BODY(conv_silu_f32)(float *y, const float *const *x, const float *w, size_t w_stride, size_t taps, size_t n)
{
    for (size_t c = 0; c < n; c += 16) {
        v16 sum = v16_mul(v16_load_first(w + c, n - c), v16_load_first(x[0] + c, n - c));
        for (size_t j = 1; j < taps; j++)
            sum = v16_fma(v16_load_first(w + j * w_stride + c, n - c), v16_load_first(x[j] + c, n - c), sum);
        v16_store_first(y + c, v16_mul(sum, v16_sigmoid(sum)), n - c);
    }
}
