#include "kernels/kernels.h"
#include "kernels/math_ref.h"
#include "kernels/sums_ref.h"

static float element(const void *row, size_t i, enum dtype dtype)
{
    return dtype == DTYPE_F32 ? ((const float *)row)[i] : f32_from_bf16(((const uint16_t *)row)[i]);
}

static float score(const float *q, const void *row, size_t width, enum dtype dtype)
{
    float lanes[LANES] = {0};
    for (size_t i = 0; i < width; i++)
        lanes[i % LANES] = fmaf(q[i], element(row, i, dtype), lanes[i % LANES]);
    return sum_lanes(lanes);
}

static void attend_head(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                        size_t n_rows, size_t width, size_t latent, enum dtype dtype)
{
    for (size_t i = 0; i < n_rows; i++) {
        scores[i] = score(q, rows[i], width, dtype);
        *peak = i == 0 || scores[i] > *peak ? scores[i] : *peak;
    }
    for (size_t i = 0; i < n_rows; i++)
        scores[i] = math_exp(scores[i] - *peak);
    *total = sum16(scores, n_rows);
    for (size_t c = 0; c < latent; c++) {
        float sum = 0.0f;
        for (size_t i = 0; i < n_rows; i++)
            sum = fmaf(scores[i], element(rows[i], c, dtype), sum);
        acc[c] = sum;
    }
}

void attend_f32_ref(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                    size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    for (size_t h = 0; h < n_heads; h++)
        attend_head(acc + h * latent, &peak[h], &total[h], scores + h * n_rows, q + h * width, rows, n_rows, width,
                    latent, DTYPE_F32);
}

void attend_bf16_ref(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                     size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    for (size_t h = 0; h < n_heads; h++)
        attend_head(acc + h * latent, &peak[h], &total[h], scores + h * n_rows, q + h * width, rows, n_rows, width,
                    latent, DTYPE_BF16);
}

void attend_merge_f32_ref(float *acc, float *peak, float *total, const float *acc2, const float *peak2,
                          const float *total2, size_t n_heads, size_t latent)
{
    for (size_t h = 0; h < n_heads; h++) {
        float top = peak2[h] > peak[h] ? peak2[h] : peak[h];
        float a = math_exp(peak[h] - top), b = math_exp(peak2[h] - top);
        for (size_t c = 0; c < latent; c++)
            acc[h * latent + c] = fmaf(acc2[h * latent + c], b, acc[h * latent + c] * a);
        total[h] = fmaf(total2[h], b, total[h] * a);
        peak[h] = top;
    }
}
