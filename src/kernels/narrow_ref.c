#include <stdbool.h>

#include "kernels/kernels.h"
#include "kernels/sums_ref.h"
#include "tensor/narrow.h"

#define NAN_BITS 0x7fc00000u

/* The largest magnitude of n values; false if one is not finite. */
static bool peak_of(const float *x, size_t n, float *peak)
{
    *peak = 0.0f;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
        *peak = fmaxf(*peak, fabsf(x[i]));
    }
    return true;
}

void narrow_int8_ref(void *out, const float *x, size_t n)
{
    static const uint8_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    struct narrow_group *groups = out;
    for (size_t g = 0; g < n / NARROW_GROUP; g++) {
        const float *group = x + g * NARROW_GROUP;
        float peak;
        bool finite = peak_of(group, NARROW_GROUP, &peak), plain = finite && peak >= 0x1p-100f;
        int sum = 0;
        for (size_t i = 0; i < NARROW_GROUP; i++) {
            int code = plain ? (int)rintf(group[i / 8 * 8 + order[i % 8]] * (127.0f / peak)) : 0;
            groups[g].codes[i] = (int8_t)code;
            sum += code;
        }
        groups[g].scale = plain ? peak / 254.0f : finite ? 0.0f : f32_from_bits(NAN_BITS);
        groups[g].offset = -12 * sum;
    }
}

/* The order of narrowed activations: of column i the place, within every eight. */
static const uint8_t place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* Where of row `row` byte `at` of the codes is; a block has `per_block` of them. */
static size_t code_at(const struct matrix *w, size_t row, size_t at, size_t per_block)
{
    if (!w->panels)
        return row * matrix_row_bytes(w) + at;
    size_t panel = row / MATRIX_PANEL_ROWS, word = at % per_block / 4;
    return MATRIX_PANEL_ROWS * (panel * matrix_row_bytes(w) + at / per_block * per_block + 4 * word) +
           4 * (row % MATRIX_PANEL_ROWS) + at % 4;
}

/* Which of all scales is that of group g of row `row`. */
static size_t scale_at(const struct matrix *w, size_t row, size_t g)
{
    size_t n_groups = w->columns / MX_BLOCK, first = row / MATRIX_PANEL_ROWS * MATRIX_PANEL_ROWS;
    return w->panels ? first * n_groups + g * MATRIX_PANEL_ROWS + row % MATRIX_PANEL_ROWS : row * n_groups + g;
}

void linear_mxfp4_int8_ref(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    enum { BLOCK_BYTES = MX_BLOCK / 2 };
    const uint8_t *bytes = w->data;
    size_t n_groups = w->columns / MX_BLOCK;
    for (size_t row = 0; row < w->rows; row++)
        for (size_t t = 0; t < n_tokens; t++) {
            const struct narrow_group *groups = x[t];
            float sum = 0.0f;
            for (size_t g = 0; g < n_groups; g++) {
                int dot = 0;
                for (size_t i = 0; i < MX_BLOCK; i++) {
                    uint8_t pair = bytes[code_at(w, row, g * BLOCK_BYTES + i / 2, BLOCK_BYTES)];
                    dot += (int)(2.0f * mx_e2m1_values[pair >> (i & 1 ? 4 : 0) & 15]) *
                           groups[g].codes[i / 8 * 8 + place[i % 8]];
                }
                float scale = mx_e8m0_value(w->scales[scale_at(w, row, g)]) * groups[g].scale;
                sum = fmaf((float)dot, scale, sum);
            }
            y[t][row] = sum;
        }
}

void linear_int8_int8_ref(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    const int8_t *codes = w->data;
    const uint16_t *scales = (const void *)w->scales;
    size_t n_groups = w->columns / MX_BLOCK;
    for (size_t row = 0; row < w->rows; row++)
        for (size_t t = 0; t < n_tokens; t++) {
            const struct narrow_group *groups = x[t];
            float sum = 0.0f;
            for (size_t g = 0; g < n_groups; g++) {
                int dot = 0;
                for (size_t i = 0; i < MX_BLOCK; i++) {
                    size_t narrowed = i / 8 * 8 + place[i % 8];
                    dot += codes[code_at(w, row, g * MX_BLOCK + (w->panels ? narrowed : i), MX_BLOCK)] *
                           groups[g].codes[narrowed];
                }
                sum = fmaf((float)dot, f32_from_bf16(scales[scale_at(w, row, g)]) * (2.0f * groups[g].scale), sum);
            }
            y[t][row] = sum;
        }
}

/* To the nearest half, ties to even. Every half is a multiple of the unit of its exponent, 2^-24 at least. */
static uint16_t half_from(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double magnitude = fabs(x);
    int exponent;
    if (isnan(x))
        return 0x7e00;
    if (magnitude == 0.0)
        return sign;
    if (magnitude >= 65520.0)
        return (uint16_t)(sign | 0x7c00);
    (void)frexp(magnitude, &exponent); /* magnitude < 2^exponent */
    int unit = exponent - 11 < -24 ? -24 : exponent - 11;
    /* At most 2^11; as bits, exponent field and mantissa in one, a carry goes where it must. */
    unsigned steps = (unsigned)rint(ldexp(magnitude, -unit));
    return (uint16_t)(sign | (((unsigned)(unit + 24) << 10) + steps));
}

void narrow_f16_ref(void *out, const float *x, size_t n)
{
    uint16_t *halves = out;
    float peak, scale = f32_from_bits(NAN_BITS), factor = 0.0f;
    bool finite = peak_of(x, n, &peak);
    if (finite) {
        uint32_t field = f32_bits(peak) >> 23;
        field = field < 8 ? 8 : field > 246 ? 246 : field;
        factor = f32_from_bits((248 - field) << 23);
        scale = f32_from_bits((field - 6) << 23);
    }
    for (size_t i = 0; i < narrow_padded(n); i++)
        halves[i] = i < n && finite ? half_from((double)(x[i] * factor)) : 0;
    memcpy(halves + narrow_padded(n), &scale, sizeof scale);
}

/* a * b + c of halves, rounded once: the product is exact in a double, and so is the sum but where one summand is below
 * 2^-31 of the other, far too little to reach the middle between two halves. */
static uint16_t fma_half(uint16_t a, uint16_t b, uint16_t c)
{
    return half_from((double)f32_from_f16(a) * (double)f32_from_f16(b) + (double)f32_from_f16(c));
}

/* w * 2^12; 0 below the smallest normal half. */
static uint16_t weight_half(uint16_t bf16)
{
    float magnitude = f32_from_bf16(bf16 & 0x7fff);
    uint16_t half = magnitude < 0x1p-26f ? 0 : half_from((double)magnitude * (1 << NARROW_F16_EXPONENT));
    return half | (bf16 & 0x8000);
}

static float dot_half(const uint16_t *x, const uint16_t *w, size_t n)
{
    enum { BLOCK = 512, HALF_LANES = 32 };
    float lanes[LANES] = {0};
    for (size_t at = 0; at < n; at += BLOCK) {
        uint16_t h[HALF_LANES] = {0};
        for (size_t i = at; i < n && i < at + BLOCK; i++)
            h[i % HALF_LANES] = fma_half(x[i], weight_half(w[i]), h[i % HALF_LANES]);
        for (size_t j = 0; j < LANES; j++)
            lanes[j] += f32_from_f16(fma_half(h[j], 0x3c00, h[j + LANES]));
    }
    return sum_lanes(lanes);
}

static float dot_wide(const uint16_t *x, const uint16_t *w, size_t n)
{
    float lanes[LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % LANES] = fmaf(f32_from_f16(x[i]), f32_from_bf16(w[i]), lanes[i % LANES]);
    return sum_lanes(lanes);
}

void linear_bf16_f16_ref(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    for (size_t row = 0; row < w->rows; row++) {
        const uint16_t *weights = (const uint16_t *)w->data + row * w->columns;
        bool wide = false;
        for (size_t i = 0; i < w->columns; i++)
            wide = wide || (weights[i] & 0x7fff) >= 0x4100; /* 8, infinity or NaN */
        for (size_t t = 0; t < n_tokens; t++) {
            float scale = *narrow_scales(x[t], w->columns);
            y[t][row] = wide ? dot_wide(x[t], weights, w->columns) * (scale * (1 << NARROW_F16_EXPONENT))
                             : dot_half(x[t], weights, w->columns) * scale;
        }
    }
}

/* The unit of a block of values, NaN where they have none. */
static float block_unit(const float *x, size_t n)
{
    float magnitudes[NARROW_BLOCK], peak;
    bool finite = peak_of(x, n, &peak);
    for (size_t i = 0; i < n; i++)
        magnitudes[i] = fabsf(x[i]);
    float sum = sum16(magnitudes, n);
    return finite && isfinite(sum) ? fmaxf(sum * (1.0f / 261000), peak * (1.0f / 32000)) : f32_from_bits(NAN_BITS);
}

void narrow_int16_ref(void *out, const float *x, size_t n)
{
    int16_t *codes = out;
    float *units = (float *)(void *)(codes + narrow_padded(n));
    for (size_t i = n; i < narrow_padded(n); i++)
        codes[i] = 0;
    for (size_t at = 0; at < n; at += NARROW_BLOCK) {
        size_t end = n - at < NARROW_BLOCK ? n : at + NARROW_BLOCK;
        float unit = block_unit(x + at, end - at);
        bool plain = unit >= 0x1p-100f;
        for (size_t i = at; i < end; i++)
            codes[i] = plain ? (int16_t)rintf(x[i] * (1.0f / unit)) : 0;
        units[at / NARROW_BLOCK] = unit < 0x1p-100f ? 0.0f : unit;
    }
}

/* Of row `row` the exponent of block `at / NARROW_BLOCK`, and the codes of its n columns. */
static uint32_t block_codes(int16_t *codes, const struct matrix *w, size_t row, size_t at, size_t n)
{
    if (!w->panels) {
        const uint16_t *weights = (const uint16_t *)w->data + row * w->columns + at;
        uint32_t exponent = narrow_weight_exponent(weights, n);
        for (size_t i = 0; i < n; i++)
            codes[i] = narrow_weight_code(weights[i], exponent);
        return exponent;
    }
    size_t panel = row / MATRIX_PANEL_ROWS * MATRIX_PANEL_ROWS, lane = row % MATRIX_PANEL_ROWS;
    const int16_t *words = (const int16_t *)w->data + panel * w->columns + at * MATRIX_PANEL_ROWS;
    for (size_t i = 0; i < n; i++)
        codes[i] = words[i / 2 * 2 * MATRIX_PANEL_ROWS + 2 * lane + i % 2];
    return w->scales[panel * matrix_scale_bytes(w) + at / NARROW_BLOCK * MATRIX_PANEL_ROWS + lane];
}

static float dot_int16(const int16_t *x, const float *units, const struct matrix *w, size_t row)
{
    float sum = 0.0f;
    for (size_t at = 0; at < w->columns; at += NARROW_BLOCK) {
        int16_t codes[NARROW_BLOCK];
        size_t n = w->columns - at < NARROW_BLOCK ? w->columns - at : NARROW_BLOCK;
        uint32_t exponent = block_codes(codes, w, row, at, n);
        int32_t dot = 0;
        for (size_t i = 0; i < n; i++)
            dot += codes[i] * x[at + i];
        sum = fmaf((float)dot, narrow_weight_unit(exponent) * units[at / NARROW_BLOCK], sum);
    }
    return sum;
}

void linear_bf16_int16_ref(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    for (size_t row = 0; row < w->rows; row++)
        for (size_t t = 0; t < n_tokens; t++)
            y[t][row] = dot_int16(x[t], narrow_scales(x[t], w->columns), w, row);
}
