#include "kernels/kernels.h"
#include "kernels/math_ref.h"
#include "kernels/sums_ref.h"

void sigmoid_f32_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = math_sigmoid(x[i]);
}

void sigmoid_mul_f32_ref(float *y, const float *x, const float *gate, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * math_sigmoid(gate[i]);
}

void silu_mul_f32_ref(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (gate[i] * math_sigmoid(gate[i])) * up[i];
}

void situ_mul_f32_ref(float *y, const float *gate, const float *up, size_t n, float beta, float linear_beta)
{
    for (size_t i = 0; i < n; i++) {
        float u = linear_beta > 0.0f ? linear_beta * math_tanh(up[i] / linear_beta) : up[i];
        y[i] = ((beta * math_tanh(gate[i] / beta)) * math_sigmoid(gate[i])) * u;
    }
}

void softmax_f32_ref(float *y, const float *x, size_t n)
{
    float peak = x[0];
    for (size_t i = 1; i < n; i++)
        peak = x[i] > peak ? x[i] : peak;
    for (size_t i = 0; i < n; i++)
        y[i] = math_exp(x[i] - peak);
    float total = sum16(y, n);
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] / total;
}

void decay_bounded_f32_ref(float *y, const float *z, const float *bias, size_t n, float rate, float bound)
{
    for (size_t i = 0; i < n; i++)
        y[i] = math_exp(bound * math_sigmoid(rate * (z[i] + bias[i])));
}

void decay_softplus_f32_ref(float *y, const float *z, const float *bias, size_t n, float rate)
{
    for (size_t i = 0; i < n; i++)
        y[i] = math_exp(-(rate * math_softplus(z[i] + bias[i])));
}

void conv_silu_f32_ref(float *y, const float *const *x, const float *w, size_t w_stride, size_t taps, size_t n)
{
    for (size_t c = 0; c < n; c++) {
        float sum = w[c] * x[0][c];
        for (size_t j = 1; j < taps; j++)
            sum = fmaf(w[j * w_stride + c], x[j][c], sum);
        y[c] = sum * math_sigmoid(sum);
    }
}
