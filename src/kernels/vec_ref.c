#include "kernels/kernels.h"
#include "kernels/sums_ref.h"

void rms_norm_f32_ref(float *y, const float *x, const float *w, size_t n, float eps)
{
    float r = 1.0f / sqrtf(dot16(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] * r) * w[i];
}

void layer_norm_f32_ref(float *y, const float *x, const float *w, const float *b, size_t n, float eps)
{
    float mean = sum16(x, n) / (float)n;
    float lanes[LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] - mean;
        lanes[i % LANES] = fmaf(y[i], y[i], lanes[i % LANES]);
    }
    float r = 1.0f / sqrtf(sum_lanes(lanes) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(y[i] * r, w[i], b[i]);
}

void l2_norm_f32_ref(float *y, const float *x, size_t n, float eps, float scale)
{
    float r = 1.0f / sqrtf(dot16(x, x, n) + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] * r) * scale;
}

float dot_f32_ref(const float *x, const float *y, size_t n)
{
    return dot16(x, y, n);
}

void add_f32_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

void weighted_sum_f32_ref(float *y, const float *const *rows, const float *weights, size_t n_rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = weights[0] * rows[0][i];
        for (size_t r = 1; r < n_rows; r++)
            sum = fmaf(weights[r], rows[r][i], sum);
        y[i] = sum;
    }
}
