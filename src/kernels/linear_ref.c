#include "kernels/kernels.h"
#include "kernels/sums_ref.h"

/* Element `i` of row `row`, widened exactly. */
static float element(const struct matrix *w, size_t row, size_t i)
{
    const char *start = (const char *)w->data + row * matrix_row_bytes(w);
    switch (w->dtype) {
    case DTYPE_F32:
        return ((const float *)(const void *)start)[i];
    case DTYPE_BF16:
        return f32_from_bf16(((const uint16_t *)(const void *)start)[i]);
    case DTYPE_F16:
        return f32_from_f16(((const uint16_t *)(const void *)start)[i]);
    case DTYPE_MXFP8:
        return mx_e4m3_value(((const uint8_t *)start)[i]) *
               mx_e8m0_value(w->scales[row * (w->columns / MX_BLOCK) + i / MX_BLOCK]);
    case DTYPE_INT8: {
        const uint16_t *scales = (const uint16_t *)(const void *)w->scales;
        return (float)((const int8_t *)start)[i] * f32_from_bf16(scales[row * (w->columns / MX_BLOCK) + i / MX_BLOCK]);
    }
    default: {
        uint8_t codes = ((const uint8_t *)start)[i / 2];
        float scale = mx_e8m0_value(w->scales[row * (w->columns / MX_BLOCK) + i / MX_BLOCK]);
        return mx_e2m1_values[i & 1 ? codes >> 4 : codes & 15] * scale;
    }
    }
}

enum { TOKENS_TOGETHER = 16 }; /* that share an element once it is widened */

static void linear(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    for (size_t first = 0; first < n_tokens; first += TOKENS_TOGETHER)
        for (size_t row = 0; row < w->rows; row++) {
            size_t n = n_tokens - first < TOKENS_TOGETHER ? n_tokens - first : TOKENS_TOGETHER;
            float lanes[TOKENS_TOGETHER][LANES] = {{0}};
            for (size_t i = 0; i < w->columns; i++) {
                float value = element(w, row, i);
                for (size_t t = 0; t < n; t++)
                    lanes[t][i % LANES] = fmaf(x[first + t][i], value, lanes[t][i % LANES]);
            }
            for (size_t t = 0; t < n; t++)
                y[first + t][row] = sum_lanes(lanes[t]);
        }
}

static void linear_t(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t c = 0; c < w->columns; c++) {
            float sum = 0.0f;
            for (size_t row = 0; row < w->rows; row++)
                sum = fmaf(x[t][row], element(w, row, c), sum);
            y[t][c] = sum;
        }
}

void linear_f32_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear(y, x, w, n_tokens);
}

void linear_bf16_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear(y, x, w, n_tokens);
}

void linear_f16_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear(y, x, w, n_tokens);
}

void linear_mxfp4_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear(y, x, w, n_tokens);
}

void linear_mxfp8_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear(y, x, w, n_tokens);
}

void linear_int8_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear(y, x, w, n_tokens);
}

void linear_t_f32_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear_t(y, x, w, n_tokens);
}

void linear_t_bf16_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear_t(y, x, w, n_tokens);
}

void linear_t_f16_ref(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    linear_t(y, x, w, n_tokens);
}
