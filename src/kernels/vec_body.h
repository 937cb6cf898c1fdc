/* Vectors: norms, dot product, sums. One text for every tier; the vocabulary is that of simd_<tier>.h.
 *
 * Loops run over whole vectors and one partial one: `first` loads and stores with n - i lanes serve both. */
#include "kernels/kernels.h"

/* lane + a * b in the lanes below n, lane in the others. */
INLINE v16 fma_first(v16 a, v16 b, v16 lane, size_t n)
{
    return v16_blend_first(v16_fma(a, b, lane), lane, n);
}

INLINE float dot16(const float *x, const float *w, size_t n)
{
    v16 lanes = v16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        lanes = v16_fma(v16_load(x + i), v16_load(w + i), lanes);
    if (i < n)
        lanes = fma_first(v16_load_first(x + i, n - i), v16_load_first(w + i, n - i), lanes, n - i);
    return v16_sum(lanes);
}

INLINE float sum16(const float *x, size_t n)
{
    v16 lanes = v16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        lanes = v16_add(lanes, v16_load(x + i));
    if (i < n)
        lanes = v16_blend_first(v16_add(lanes, v16_load_first(x + i, n - i)), lanes, n - i);
    return v16_sum(lanes);
}

/* x[0], then the greater of each further element and what it has: the first of the largest, NaN only if x[0] is. */
INLINE float peak_of(const float *x, size_t n)
{
    v16 lanes = v16_set(x[0]);
    for (size_t i = 0; i < n; i += 16) {
        v16 larger = v16_max(v16_load_first(x + i, n - i), lanes);
        lanes = v16_blend_first(larger, lanes, n - i);
    }
    float peak = v16_peak(lanes);
    /* Lanes do not tell which zero came first. */
    for (size_t i = 0; peak == 0.0f && i < n; i++)
        if (x[i] == 0.0f)
            return x[i];
    return peak;
}

void BODY(rms_norm_f32)(float *y, const float *x, const float *w, size_t n, float eps)
{
    v16 r = v16_set(1.0f / __builtin_sqrtf(dot16(x, x, n) / (float)n + eps));
    for (size_t i = 0; i < n; i += 16) {
        v16 scaled = v16_mul(v16_load_first(x + i, n - i), r);
        v16_store_first(y + i, v16_mul(scaled, v16_load_first(w + i, n - i)), n - i);
    }
}

void BODY(layer_norm_f32)(float *y, const float *x, const float *w, const float *b, size_t n, float eps)
{
    v16 mean = v16_set(sum16(x, n) / (float)n), lanes = v16_zero();
    for (size_t i = 0; i < n; i += 16) {
        v16 d = v16_sub(v16_load_first(x + i, n - i), mean);
        v16_store_first(y + i, d, n - i);
        lanes = fma_first(d, d, lanes, n - i);
    }
    v16 r = v16_set(1.0f / __builtin_sqrtf(v16_sum(lanes) / (float)n + eps));
    for (size_t i = 0; i < n; i += 16) {
        v16 scaled = v16_mul(v16_load_first(y + i, n - i), r);
        v16 shifted = v16_fma(scaled, v16_load_first(w + i, n - i), v16_load_first(b + i, n - i));
        v16_store_first(y + i, shifted, n - i);
    }
}

void BODY(l2_norm_f32)(float *y, const float *x, size_t n, float eps, float scale)
{
    v16 r = v16_set(1.0f / __builtin_sqrtf(dot16(x, x, n) + eps)), factor = v16_set(scale);
    for (size_t i = 0; i < n; i += 16)
        v16_store_first(y + i, v16_mul(v16_mul(v16_load_first(x + i, n - i), r), factor), n - i);
}

float BODY(dot_f32)(const float *x, const float *y, size_t n)
{
    return dot16(x, y, n);
}

void BODY(add_f32)(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        v16_store_first(y + i, v16_add(v16_load_first(y + i, n - i), v16_load_first(x + i, n - i)), n - i);
}

/* Four vectors at a time: the sums over rows are chains, and one chain alone would wait for its fma. */
void BODY(weighted_sum_f32)(float *y, const float *const *rows, const float *weights, size_t n_rows, size_t n)
{
    enum { WIDTH = 4 };
    size_t i = 0;
    for (; i + 16 * WIDTH <= n; i += 16 * WIDTH) {
        v16 sum[WIDTH];
        UNROLL for (int c = 0; c < WIDTH; c++)
            sum[c] = v16_mul(v16_set(weights[0]), v16_load(rows[0] + i + 16 * c));
        for (size_t r = 1; r < n_rows; r++)
            UNROLL for (int c = 0; c < WIDTH; c++)
                sum[c] = v16_fma(v16_set(weights[r]), v16_load(rows[r] + i + 16 * c), sum[c]);
        UNROLL for (int c = 0; c < WIDTH; c++)
            v16_store(y + i + 16 * c, sum[c]);
    }
    for (; i < n; i += 16) {
        v16 sum = v16_mul(v16_set(weights[0]), v16_load_first(rows[0] + i, n - i));
        for (size_t r = 1; r < n_rows; r++)
            sum = v16_fma(v16_set(weights[r]), v16_load_first(rows[r] + i, n - i), sum);
        v16_store_first(y + i, sum, n - i);
    }
}
