/* The vector vocabulary on AVX-512 (F, BW, VL, DQ): sixteen floats, one register.
 *
 * Every simd_<tier>.h gives the same names with the same meaning, so that one family text (*_body.h) makes the
 * bodies of all tiers. Operations are those of IEEE arithmetic lane by lane; `first` loads, stores and blends touch
 * the lanes below n and no memory beyond them, n may be 16 and more. */
#ifndef DAY0_KERNELS_SIMD_AVX512_H
#define DAY0_KERNELS_SIMD_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef BODY /* a stronger tier brings its own */
#define BODY(name) name##_avx512
#endif
#define INLINE static inline __attribute__((always_inline))
/* Loops over tile indices must vanish, else the accumulators live in memory: gcc -O2 needs to be told. */
#define UNROLL _Pragma("GCC unroll 16")

/* Tile sizes: of 32 registers 24 accumulate, the rest hold weights and one input. */
enum {
    DOT_TOKENS = 4, /* dot products: tokens x outputs */
    DOT_OUTPUTS = 6,
    DOT_STREAMS = 8, /* outputs at once for a single token, each its own stream of memory */
    PARTS = 1,       /* registers of a vector */
    MIX_TOKENS = 6,  /* sums of rows: tokens x vectors of columns */
    MIX_VECTORS = 4,
    MIX_WIDE = 8,      /* vectors of columns at once for a single token */
    PANEL_TOKENS = 12, /* products for many tokens: tokens x vectors of outputs */
    PANEL_VECTORS = 2,
    KDA_SLICES = 4,
    PAIR_HEADS = 8, /* sums of pairs of integers: heads x blocks of keys */
    PAIR_BLOCKS = 2,
};

typedef __m512 v16;
typedef __m512i v16i;

INLINE __mmask16 v16_mask(size_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

INLINE v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE v16 v16_set(float x)
{
    return _mm512_set1_ps(x);
}

INLINE v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

/* Lanes from n on are +0. */
INLINE v16 v16_load_first(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(v16_mask(n), p);
}

INLINE void v16_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x);
}

INLINE void v16_store_first(float *p, v16 x, size_t n)
{
    _mm512_mask_storeu_ps(p, v16_mask(n), x);
}

/* Lanes below n of a, the rest of b. */
INLINE v16 v16_blend_first(v16 a, v16 b, size_t n)
{
    return _mm512_mask_blend_ps(v16_mask(n), b, a);
}

INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once. */
INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* A v16 in the parts that its registers are. */
typedef v16 vpart;

INLINE vpart v16_part(v16 x, const int part)
{
    (void)part;
    return x;
}

INLINE void v16_put_part(v16 *x, const int part, vpart value)
{
    (void)part;
    *x = value;
}

INLINE vpart vpart_fma(vpart a, vpart b, vpart c)
{
    return v16_fma(a, b, c);
}

/* a < b ? a : b, so b if one is NaN. */
INLINE v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

/* a > b ? a : b, so b if one is NaN. */
INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

INLINE v16 v16_abs(v16 x)
{
    return _mm512_abs_ps(x);
}

INLINE v16 v16_negate(v16 x)
{
    return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
}

INLINE v16 v16_copysign(v16 magnitude, v16 sign)
{
    v16 bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
}

/* a < b ? x : y */
INLINE v16 v16_where_less(v16 a, v16 b, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

/* a is NaN ? x : y */
INLINE v16 v16_where_nan(v16 a, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), y, x);
}

/* Bit j: a[j] >= b[j]. */
INLINE unsigned v16_at_least(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

/* To the nearest integer, ties to even. */
INLINE v16 v16_round(v16 x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* p * 2^n as math_exp does it: n integral in [-151, 129], |p| near 1. Rounds once, as the product of two factors
 * does. */
INLINE v16 v16_scale(v16 p, v16 n)
{
    return _mm512_scalef_ps(p, n);
}

/* Sum of the lanes in the canonical order. */
INLINE float v16_sum(v16 x)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* The same for four vectors, halving them together. */
INLINE void v16_sum4(float *sums, v16 a, v16 b, v16 c, v16 d)
{
    v16 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    v16 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    v16 four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    v16 two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4e));
    v16 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xb1));
    __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, one)));
}

/* The largest lane; all lanes are numbers or all are NaN, which then comes out. */
INLINE float v16_peak(v16 x)
{
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* Sixteen elements of a narrower type, widened exactly. */
INLINE v16 v16_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return v16_bf16(_mm256_loadu_si256((const __m256i_u *)p));
}

INLINE v16 v16_load_bf16_first(const uint16_t *p, size_t n)
{
    return v16_bf16(_mm256_maskz_loadu_epi16(v16_mask(n), p));
}

INLINE v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p));
}

INLINE v16 v16_load_f16_first(const uint16_t *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v16_mask(n), p));
}

/* E4M3: moved into the fields of a half, whose exponent bias is 8 larger; the one NaN pattern is made the half's. */
INLINE v16 v16_load_e4m3(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)p));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff));
    __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x3fff));
    __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));
    half = _mm256_mask_blend_epi16(nan, half, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
}

/* The values times 2^-8; codes are not NaN. */
INLINE v16 v16_load_e4m3_small(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)p));
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff)));
}

/* Signed bytes. */
INLINE v16 v16_load_s8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)p)));
}

/* MXFP4. A table is the sixteen E2M1 values times a block's scale. Eight code bytes give sixteen lanes in an order
 * of the tier's own, here 0 8 1 9 2 10 ...: one broadcast and one shift then put every code where the lookup reads
 * it. */
INLINE v16 mxfp4_values(void)
{
    return _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f,
                          -4.0f, -6.0f);
}

INLINE v16 mxfp4_half(const uint8_t *p, v16 table)
{
    uint64_t codes;
    memcpy(&codes, p, sizeof codes);
    __m512i shifts = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
    return _mm512_permutexvar_ps(_mm512_srlv_epi64(_mm512_set1_epi64((long long)codes), shifts), table);
}

INLINE void v16_load_mxfp4(v16 w[2], const uint8_t *p, float scale)
{
    v16 table = _mm512_mul_ps(mxfp4_values(), _mm512_set1_ps(scale));
    w[0] = mxfp4_half(p, table);
    w[1] = mxfp4_half(p + 8, table);
}

INLINE v16 v16_to_mxfp4_order(v16 x)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), x);
}

INLINE v16 v16_from_mxfp4_order(v16 x)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), x);
}

/* The values of the codes in the low four bits of each lane. */
INLINE v16 v16_e2m1(v16i codes)
{
    return _mm512_permutexvar_ps(codes, mxfp4_values());
}

INLINE v16 v16_four_rows(const char *const *in, size_t at)
{
    v16 x = _mm512_castps128_ps512(_mm_loadu_ps((const void *)(in[0] + at)));
    x = _mm512_insertf32x4(x, _mm_loadu_ps((const void *)(in[4] + at)), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps((const void *)(in[8] + at)), 2);
    return _mm512_insertf32x4(x, _mm_loadu_ps((const void *)(in[12] + at)), 3);
}

/* out[c * stride + r] = in[r][c] for 16 rows and columns of 32 bits, whatever they mean. */
INLINE void turn16(float *out, size_t stride, const void *const *in)
{
    const char *rows[16];
    memcpy(rows, in, sizeof rows);
    UNROLL for (size_t c = 0; c < 16; c += 4)
    {
        size_t at = c * sizeof(float);
        v16 a = v16_four_rows(rows, at), b = v16_four_rows(rows + 1, at);
        v16 d = v16_four_rows(rows + 2, at), e = v16_four_rows(rows + 3, at);
        v16 ab = _mm512_unpacklo_ps(a, b), ab_high = _mm512_unpackhi_ps(a, b);
        v16 de = _mm512_unpacklo_ps(d, e), de_high = _mm512_unpackhi_ps(d, e);
        v16_store(out + c * stride, _mm512_shuffle_ps(ab, de, 0x44));
        v16_store(out + (c + 1) * stride, _mm512_shuffle_ps(ab, de, 0xee));
        v16_store(out + (c + 2) * stride, _mm512_shuffle_ps(ab_high, de_high, 0x44));
        v16_store(out + (c + 3) * stride, _mm512_shuffle_ps(ab_high, de_high, 0xee));
    }
}

/* Bits as integers. */
INLINE v16i v16_bits(v16 x)
{
    return _mm512_castps_si512(x);
}

INLINE v16 v16_from_bits(v16i x)
{
    return _mm512_castsi512_ps(x);
}

INLINE v16i v16i_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

INLINE v16i v16i_add(v16i a, v16i b)
{
    return _mm512_add_epi32(a, b);
}

INLINE v16i v16i_sub(v16i a, v16i b)
{
    return _mm512_sub_epi32(a, b);
}

INLINE v16i v16i_and(v16i a, v16i b)
{
    return _mm512_and_epi32(a, b);
}

INLINE v16i v16i_or(v16i a, v16i b)
{
    return _mm512_or_epi32(a, b);
}

/* Logical shift. */
INLINE v16i v16i_shift_right(v16i x, const unsigned n)
{
    return _mm512_srli_epi32(x, n);
}

INLINE v16i v16i_shift_left(v16i x, const unsigned n)
{
    return _mm512_slli_epi32(x, n);
}

/* Signed. */
INLINE v16i v16i_min(v16i a, v16i b)
{
    return _mm512_min_epi32(a, b);
}

INLINE v16i v16i_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE void v16i_store(int32_t *p, v16i x)
{
    _mm512_storeu_si512(p, x);
}

/* The low 16 bits of the lanes below n. */
INLINE void v16i_store_s16_first(int16_t *p, v16i x, size_t n)
{
    _mm256_mask_storeu_epi16(p, v16_mask(n), _mm512_cvtepi32_epi16(x));
}

/* Lane j: a[j] in its lower half, b[j] in its upper one. */
INLINE v16i v16i_zip_s16(const int16_t *a, const int16_t *b)
{
    __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)a));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)b));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Lanes as two 16-bit integers: sum + low a * low b + high a * high b, which fit in 32 bits. */
INLINE v16i v16i_add_pairs(v16i sum, v16i a, v16i b)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sum, a, b);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

/* Lanes as two 16-bit integers: the larger of each two. */
INLINE v16i v16i_max_s16(v16i a, v16i b)
{
    return _mm512_max_epi16(a, b);
}

/* Of all lanes. */
INLINE int32_t v16i_sum(v16i x)
{
    __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/* Lanes as two 16-bit integers, none of them negative: the largest of all. */
INLINE uint32_t v16i_peak_s16(v16i x)
{
    __m256i all = _mm256_max_epi16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i eight = _mm_max_epi16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    __m128i least = _mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(0x7fff), eight));
    return 0x7fffu - (uint32_t)_mm_extract_epi16(least, 0);
}

/* Bytes, extended with zeros; lanes from n on are 0. */
INLINE v16i v16i_load_u8_first(const uint8_t *p, size_t n)
{
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(v16_mask(n), p));
}

/* The low byte of each lane. */
INLINE void v16i_store_u8(uint8_t *p, v16i x)
{
    _mm_storeu_si128((__m128i_u *)p, _mm512_cvtepi32_epi8(x));
}

/* The lanes as floats. */
INLINE v16 v16_from_integers(v16i x)
{
    return _mm512_cvtepi32_ps(x);
}

/* The low byte of each lane, within every eight in the order 0 2 4 6 1 3 5 7. */
INLINE void v16i_store_s8_nibbles(int8_t *p, v16i x)
{
    __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    _mm_storeu_si128((__m128i_u *)p, _mm_shuffle_epi8(_mm512_cvtepi32_epi8(x), order));
}

#endif
