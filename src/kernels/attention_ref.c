#include "kernels/kernels.h"
#include "kernels/math_ref.h"
#include "kernels/sums_ref.h"
#include "tensor/int16_row.h"

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

/* Scores to weights, their peak and their sum. */
static void soften(float *scores, float *peak, float *total, const float *mask, size_t n_rows)
{
    for (size_t i = 0; mask && i < n_rows; i++)
        scores[i] += mask[i];
    *peak = scores[0];
    for (size_t i = 1; i < n_rows; i++)
        *peak = scores[i] > *peak ? scores[i] : *peak;
    for (size_t i = 0; i < n_rows; i++)
        scores[i] = math_exp(scores[i] - *peak);
    *total = sum16(scores, n_rows);
}

static void attend_head(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                        const float *mask, size_t n_rows, size_t width, size_t latent, enum dtype dtype)
{
    for (size_t i = 0; i < n_rows; i++)
        scores[i] = score(q, rows[i], width, dtype);
    soften(scores, peak, total, mask, n_rows);
    for (size_t c = 0; c < latent; c++) {
        float sum = 0.0f;
        for (size_t i = 0; i < n_rows; i++)
            sum = fmaf(scores[i], element(rows[i], c, dtype), sum);
        acc[c] = sum;
    }
}

void attend_f32_ref(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                    const float *mask, size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    for (size_t h = 0; h < n_heads; h++)
        attend_head(acc + h * latent, &peak[h], &total[h], scores + h * n_rows, q + h * width, rows, mask, n_rows,
                    width, latent, DTYPE_F32);
}

void attend_bf16_ref(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                     const float *mask, size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    for (size_t h = 0; h < n_heads; h++)
        attend_head(acc + h * latent, &peak[h], &total[h], scores + h * n_rows, q + h * width, rows, mask, n_rows,
                    width, latent, DTYPE_BF16);
}

static float int16_score(const void *q, const void *row, size_t width)
{
    const int16_t *a = q, *b = row;
    int32_t sum = 0;
    for (size_t i = 0; i < width; i++)
        sum += a[i] * b[i];
    return (float)sum * int16_row_unit(row, width) * int16_row_unit(q, width);
}

/* Adds a group of rows, mixed by their weights. */
static void int16_mix(float *acc, const float *weights, const void *const *rows, size_t n_rows, size_t width,
                      size_t latent)
{
    float t[INT16_GROUP], peak = 0.0f;
    int32_t codes[INT16_GROUP];
    for (size_t i = 0; i < n_rows; i++) {
        t[i] = weights[i] * int16_row_unit(rows[i], width);
        peak = t[i] > peak ? t[i] : peak;
    }
    float unit = int16_weight_unit(sum16(t, n_rows), peak), inverse = 1.0f / unit;
    for (size_t i = 0; i < n_rows; i++)
        codes[i] = unit == unit ? (int32_t)rintf(t[i] * inverse) : 0;
    for (size_t c = 0; c < latent; c++) {
        int32_t sum = 0;
        for (size_t i = 0; i < n_rows; i++)
            sum += codes[i] * ((const int16_t *)rows[i])[c];
        acc[c] = fmaf((float)sum, unit, acc[c]);
    }
}

void attend_int16_ref(float *acc, float *peak, float *total, float *scores, const void *q, const void *const *rows,
                      const float *mask, size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    for (size_t h = 0; h < n_heads; h++, acc += latent, scores += n_rows) {
        for (size_t i = 0; i < n_rows; i++)
            scores[i] = int16_score((const char *)q + h * int16_row_bytes(width), rows[i], width);
        soften(scores, &peak[h], &total[h], mask, n_rows);
        for (size_t c = 0; c < latent; c++)
            acc[c] = 0.0f;
        for (size_t i = 0; i < n_rows; i += INT16_GROUP)
            int16_mix(acc, scores + i, rows + i, n_rows - i < INT16_GROUP ? n_rows - i : INT16_GROUP, width, latent);
    }
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
