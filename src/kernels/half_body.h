/* BF16 weights and activations as halves, by FP16 arithmetic of 32 lanes. Tiles as in dots_body.h: few tokens read
 * the rows from memory, many share a panel of rows turned into halves once. Every 512 columns the halves' sums go
 * into lanes of float32. Where a row turns out to hold a weight beyond the range of halves its sums are thrown away
 * and taken in float32. */
#include "kernels/kernels.h"
#include "tensor/narrow.h"

enum {
    HALF_BLOCK = 512,    /* columns between widenings: 16 steps of 32 lanes */
    HALF_TOKENS = 4,     /* tile: 24 registers accumulate */
    HALF_OUTPUTS = 6,
    HALF_STREAMS = 8,    /* outputs at once for a single token */
    HALF_PANEL = 12,     /* rows of a panel: 12 KiB of a block */
    HALF_FEW = 8,        /* tokens that read rows from memory */
    HALF_GROUP = 64,     /* tokens that share a panel */
    HALF_WIDE = 0x4100,  /* the BF16 pattern of 8 */
};

void BODY(narrow_f16)(void *out, const float *x, size_t n)
{
    uint16_t *halves = out;
    v16 most = v16_zero(), nothing = v16_zero();
    for (size_t i = 0; i < n; i += 16) {
        v16 value = v16_load_first(x + i, n - i);
        most = v16_max(v16_abs(value), most);
        nothing = v16_add(nothing, v16_sub(value, value)); /* NaN where not finite */
    }
    float scale = f32_from_bits(0x7fc00000);
    bool finite = v16_sum(nothing) == 0.0f;
    v16 factor = v16_zero();
    if (finite) {
        uint32_t field = f32_bits(v16_peak(most)) >> 23;
        field = field < 8 ? 8 : field > 246 ? 246 : field;
        factor = v16_set(f32_from_bits((248 - field) << 23));
        scale = f32_from_bits((field - 6) << 23);
    }
    for (size_t i = 0; i < narrow_padded(n); i += 16) {
        size_t left = i < n ? n - i : 0;
        v16 value = finite ? v16_mul(v16_load_first(x + i, left), factor) : v16_zero();
        _mm256_storeu_si256((__m256i_u *)(halves + i), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
    memcpy(halves + narrow_padded(n), &scale, sizeof scale);
}

/* w * 2^12 of 32 BF16 weights as halves; *most keeps the largest magnitude. Fields of eight bits of exponent and
 * seven of mantissa become five and ten; patterns that do not fit come out wrong, and are known by *most. */
INLINE __m512h half_weights(__m512i bits, __m512i *most)
{
    __m512i low = _mm512_set1_epi16(0x7fff), magnitude = _mm512_and_si512(bits, low);
    *most = _mm512_max_epu16(*most, magnitude);
    __mmask32 counts = _mm512_cmpge_epu16_mask(magnitude, _mm512_set1_epi16(101 << 7)); /* 2^-26 */
    __m512i half = _mm512_maskz_sub_epi16(counts, magnitude, _mm512_set1_epi16(100 << 7));
    half = _mm512_slli_epi16(half, 3);
    return _mm512_castsi512_ph(_mm512_ternarylogic_epi32(low, half, bits, 0xca)); /* low ? half : bits */
}

INLINE __m512i half_load(const uint16_t *p, size_t n)
{
    return n >= 32 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), p);
}

/* Adds columns [at, at + n) of a block to the lanes of a tile, lanes[t * pitch + o]. `w` are halves of a panel, whose
 * columns start at `at` and are padded to 32, or else rows of BF16 weights. */
INLINE void half_tile(v16 *lanes, const size_t pitch, const uint16_t *const *x, const uint16_t *const *w, size_t at,
                      size_t n, __m512i *most, const int tokens, const int outputs, const bool is_panel)
{
    __m512h sum[HALF_TOKENS][HALF_STREAMS];
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int o = 0; o < outputs; o++)
            sum[t][o] = _mm512_setzero_ph();
    for (size_t i = 0; i < n; i += 32) {
        __m512h weight[HALF_STREAMS];
        UNROLL for (int o = 0; o < outputs; o++)
            weight[o] = is_panel ? _mm512_loadu_ph(w[o] + i) : half_weights(half_load(w[o] + at + i, n - i), &most[o]);
        UNROLL for (int t = 0; t < tokens; t++) {
            __m512h input = _mm512_loadu_ph(x[t] + at + i);
            UNROLL for (int o = 0; o < outputs; o++)
                sum[t][o] = _mm512_fmadd_ph(input, weight[o], sum[t][o]);
        }
    }
    UNROLL for (int t = 0; t < tokens; t++)
        UNROLL for (int o = 0; o < outputs; o++) {
            __m256h high = _mm256_castpd_ph(_mm512_extractf64x4_pd(_mm512_castph_pd(sum[t][o]), 1));
            __m256h both = _mm256_add_ph(_mm512_castph512_ph256(sum[t][o]), high);
            v16 *lane = &lanes[(size_t)t * pitch + (size_t)o];
            *lane = v16_add(*lane, _mm512_cvtxph_ps(both));
        }
}

static bool half_is_wide(__m512i most)
{
    return _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(HALF_WIDE)) != 0;
}

/* The sum in float32, for rows with large weights. */
static __attribute__((noinline)) float half_dot_wide(const uint16_t *x, const uint16_t *w, size_t n)
{
    v16 lanes = v16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        lanes = v16_fma(v16_load_f16(x + i), v16_load_bf16(w + i), lanes);
    if (i < n)
        lanes = v16_blend_first(v16_fma(v16_load_f16_first(x + i, n - i), v16_load_bf16_first(w + i, n - i), lanes),
                                lanes, n - i);
    return v16_sum(lanes);
}

INLINE float half_result(v16 lanes, bool wide, const uint16_t *x, const uint16_t *w, size_t columns)
{
    float scale = *narrow_scales(x, columns);
    if (wide)
        return half_dot_wide(x, w, columns) * (scale * (1 << NARROW_F16_EXPONENT));
    return v16_sum(lanes) * scale;
}

/* Row r of every one of `outputs` parts of the matrix meets `tokens` tokens, see rows_body.h. */
INLINE void half_few_tile(float *const *y, const uint16_t *const *x, const struct matrix *w, size_t r, const int tokens,
                          const int outputs)
{
    size_t part = part_rows(w->rows, (size_t)outputs), columns = w->columns;
    const uint16_t *rows[HALF_STREAMS];
    v16 lanes[HALF_TOKENS * HALF_STREAMS];
    __m512i most[HALF_STREAMS];
    UNROLL for (int o = 0; o < outputs; o++) {
        rows[o] = (const uint16_t *)w->data + part_row((size_t)o, r, part, w->rows) * columns;
        most[o] = _mm512_setzero_si512();
        UNROLL for (int t = 0; t < tokens; t++)
            lanes[t * HALF_STREAMS + o] = v16_zero();
    }
    for (size_t at = 0; at < columns; at += HALF_BLOCK)
        half_tile(lanes, HALF_STREAMS, x, rows, at, columns - at < HALF_BLOCK ? columns - at : HALF_BLOCK, most, tokens,
                  outputs, false);
    for (int o = 0; o < outputs; o++) {
        bool wide = half_is_wide(most[o]);
        for (int t = 0; t < tokens; t++)
            y[t][part_row((size_t)o, r, part, w->rows)] =
                half_result(lanes[t * HALF_STREAMS + o], wide, x[t], rows[o], columns);
    }
}

static void half_few(float *const *y, const uint16_t *const *x, const struct matrix *w, size_t n_tokens)
{
    if (n_tokens == 1) {
        for (size_t r = 0; r < part_rows(w->rows, HALF_STREAMS); r++)
            half_few_tile(y, x, w, r, 1, HALF_STREAMS);
        return;
    }
    for (size_t r = 0; r < part_rows(w->rows, HALF_OUTPUTS); r++) {
        size_t t = 0;
        for (; t + HALF_TOKENS <= n_tokens; t += HALF_TOKENS)
            half_few_tile(y + t, x + t, w, r, HALF_TOKENS, HALF_OUTPUTS);
        for (; t + 2 <= n_tokens; t += 2)
            half_few_tile(y + t, x + t, w, r, 2, HALF_OUTPUTS);
        for (; t < n_tokens; t++)
            half_few_tile(y + t, x + t, w, r, 1, HALF_OUTPUTS);
    }
}

/* All tokens of a group meet a panel's block of columns. */
static void half_tiles(v16 *lanes, const uint16_t *const *x, uint16_t (*panel)[HALF_BLOCK], size_t at, size_t n,
                       size_t n_tokens)
{
    const uint16_t *w[HALF_PANEL];
    for (size_t o = 0; o < HALF_PANEL; o++)
        w[o] = panel[o];
    size_t t = 0;
    for (; t + HALF_TOKENS <= n_tokens; t += HALF_TOKENS)
        for (size_t o = 0; o < HALF_PANEL; o += HALF_OUTPUTS)
            half_tile(lanes + t * HALF_PANEL + o, HALF_PANEL, x + t, w + o, at, n, NULL, HALF_TOKENS, HALF_OUTPUTS,
                      true);
    for (; t < n_tokens; t++)
        for (size_t o = 0; o < HALF_PANEL; o += HALF_OUTPUTS)
            half_tile(lanes + t * HALF_PANEL + o, HALF_PANEL, x + t, w + o, at, n, NULL, 1, HALF_OUTPUTS, true);
}

/* Rows [r, r + HALF_PANEL), of which `left` are there, meet a group of tokens. */
static void half_panel(float *const *y, const uint16_t *const *x, const struct matrix *w, size_t r, size_t left,
                       size_t n_tokens)
{
    size_t columns = w->columns;
    const uint16_t *rows = (const uint16_t *)w->data + r * columns;
    _Alignas(64) uint16_t panel[HALF_PANEL][HALF_BLOCK];
    v16 lanes[HALF_GROUP * HALF_PANEL];
    __m512i most[HALF_PANEL];
    for (size_t i = 0; i < n_tokens * HALF_PANEL; i++)
        lanes[i] = v16_zero();
    for (size_t o = 0; o < HALF_PANEL; o++)
        most[o] = _mm512_setzero_si512();
    for (size_t at = 0; at < columns; at += HALF_BLOCK) {
        size_t n = columns - at < HALF_BLOCK ? columns - at : HALF_BLOCK;
        for (size_t o = 0; o < HALF_PANEL; o++) /* beyond the last row: computed, not stored */
            for (size_t i = 0; i < n; i += 32) {
                __m512i bits = half_load(rows + (o < left ? o : left - 1) * columns + at + i, n - i);
                _mm512_store_ph(panel[o] + i, half_weights(bits, &most[o]));
            }
        half_tiles(lanes, x, panel, at, n, n_tokens);
    }
    for (size_t o = 0; o < left; o++) {
        bool wide = half_is_wide(most[o]);
        for (size_t t = 0; t < n_tokens; t++)
            y[t][r + o] = half_result(lanes[t * HALF_PANEL + o], wide, x[t], rows + o * columns, columns);
    }
}

void BODY(linear_bf16_f16)(float *const *y, const void *const *x, const struct matrix *w, size_t n_tokens)
{
    const uint16_t *const *halves = (const uint16_t *const *)x;
    if (n_tokens <= HALF_FEW) {
        half_few(y, halves, w, n_tokens);
        return;
    }
    for (size_t t = 0; t < n_tokens; t += HALF_GROUP)
        for (size_t r = 0; r < w->rows; r += HALF_PANEL)
            half_panel(y + t, halves + t, w, r, w->rows - r < HALF_PANEL ? w->rows - r : HALF_PANEL,
                       n_tokens - t < HALF_GROUP ? n_tokens - t : HALF_GROUP);
}
