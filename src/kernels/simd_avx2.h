/* The vector vocabulary on AVX2 with FMA and F16C: sixteen floats in two registers. See simd_avx512.h for the
 * meaning. */
#ifndef DAY0_KERNELS_SIMD_AVX2_H
#define DAY0_KERNELS_SIMD_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BODY(name) name##_avx2
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* Of 16 registers 12 accumulate. */
enum {
    DOT_TOKENS = 4,
    DOT_OUTPUTS = 3,
    DOT_STREAMS = 4,
    PARTS = 2,
    MIX_TOKENS = 3,
    MIX_VECTORS = 2,
    MIX_WIDE = 4,
    PANEL_TOKENS = 6,
    PANEL_VECTORS = 1,
    KDA_SLICES = 2,
    PAIR_HEADS = 4,
    PAIR_BLOCKS = 1,
};

typedef struct {
    __m256 low, high;
} v16;
typedef struct {
    __m256i low, high;
} v16i;

typedef __m256 vpart;

INLINE vpart v16_part(v16 x, const int part)
{
    return part ? x.high : x.low;
}

INLINE void v16_put_part(v16 *x, const int part, vpart value)
{
    *(part ? &x->high : &x->low) = value;
}

INLINE vpart vpart_fma(vpart a, vpart b, vpart c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#define V16_UNARY(name, operation)                                                                                     \
    INLINE v16 name(v16 x)                                                                                             \
    {                                                                                                                  \
        return (v16){operation(x.low), operation(x.high)};                                                             \
    }
#define V16_BINARY(type, name, operation)                                                                              \
    INLINE type name(type a, type b)                                                                                   \
    {                                                                                                                  \
        return (type){operation(a.low, b.low), operation(a.high, b.high)};                                             \
    }

V16_BINARY(v16, v16_add, _mm256_add_ps)
V16_BINARY(v16, v16_sub, _mm256_sub_ps)
V16_BINARY(v16, v16_mul, _mm256_mul_ps)
V16_BINARY(v16, v16_div, _mm256_div_ps)
V16_BINARY(v16, v16_min, _mm256_min_ps)
V16_BINARY(v16, v16_max, _mm256_max_ps)
V16_BINARY(v16i, v16i_add, _mm256_add_epi32)
V16_BINARY(v16i, v16i_sub, _mm256_sub_epi32)
V16_BINARY(v16i, v16i_and, _mm256_and_si256)
V16_BINARY(v16i, v16i_or, _mm256_or_si256)
V16_BINARY(v16i, v16i_min, _mm256_min_epi32)
V16_BINARY(v16i, v16i_max_s16, _mm256_max_epi16)

INLINE v16 v16_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

INLINE v16 v16_set(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

INLINE v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

INLINE void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}

/* All bits of the lanes below n. */
INLINE v16i v16_mask(size_t n)
{
    __m256i count = _mm256_set1_epi32(n >= 16 ? 16 : (int)n);
    return (v16i){_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                  _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

/* The upper half is reached only where it holds something: its address may lie outside the object. */
INLINE v16 v16_load_first(const float *p, size_t n)
{
    if (n >= 16)
        return v16_load(p);
    v16i mask = v16_mask(n);
    return (v16){_mm256_maskload_ps(p, mask.low), n > 8 ? _mm256_maskload_ps(p + 8, mask.high) : _mm256_setzero_ps()};
}

INLINE void v16_store_first(float *p, v16 x, size_t n)
{
    if (n >= 16) {
        v16_store(p, x);
        return;
    }
    v16i mask = v16_mask(n);
    _mm256_maskstore_ps(p, mask.low, x.low);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, mask.high, x.high);
}

INLINE v16 v16_blend_first(v16 a, v16 b, size_t n)
{
    v16i mask = v16_mask(n);
    return (v16){_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(mask.low)),
                 _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(mask.high))};
}

INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

#define ABS(x) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define NEGATE(x) _mm256_xor_ps(_mm256_set1_ps(-0.0f), x)
#define ROUND(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
V16_UNARY(v16_abs, ABS)
V16_UNARY(v16_negate, NEGATE)
V16_UNARY(v16_round, ROUND)
#undef ABS
#undef NEGATE
#undef ROUND

#define COPYSIGN(magnitude, sign)                                                                                      \
    _mm256_or_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), magnitude), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign))
V16_BINARY(v16, v16_copysign, COPYSIGN)
#undef COPYSIGN

INLINE v16 v16_where_less(v16 a, v16 b, v16 x, v16 y)
{
    return (v16){_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
                 _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}

INLINE v16 v16_where_nan(v16 a, v16 x, v16 y)
{
    return (v16){_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q)),
                 _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q))};
}

INLINE unsigned v16_at_least(v16 a, v16 b)
{
    unsigned low = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ));
    unsigned high = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ));
    return low | high << 8;
}

INLINE __m256 v8_scale(__m256 p, __m256 n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
V16_BINARY(v16, v16_scale, v8_scale)

INLINE float v16_sum(v16 x)
{
    __m256 eight = _mm256_add_ps(x.low, x.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Two sums of eight lanes to four each. */
INLINE __m256 v8_halve(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

INLINE void v16_sum4(float *sums, v16 a, v16 b, v16 c, v16 d)
{
    __m256 ab = v8_halve(_mm256_add_ps(a.low, a.high), _mm256_add_ps(b.low, b.high));
    __m256 cd = v8_halve(_mm256_add_ps(c.low, c.high), _mm256_add_ps(d.low, d.high));
    __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    __m256 one = _mm256_add_ps(two, _mm256_permute_ps(two, 0xb1));
    __m256 picked = _mm256_permutevar8x32_ps(one, _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0));
    _mm_storeu_ps(sums, _mm256_castps256_ps128(picked));
}

INLINE float v16_peak(v16 x)
{
    __m256 eight = _mm256_max_ps(x.low, x.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

INLINE __m256 v8_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

INLINE __m256 v8_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p));
}

INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return (v16){v8_bf16(p), v8_bf16(p + 8)};
}

INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){v8_f16(p), v8_f16(p + 8)};
}

/* Tails of 16-bit elements are rare enough to go through a copy. */
INLINE v16 v16_load_bf16_first(const uint16_t *p, size_t n)
{
    uint16_t copy[16] = {0};
    memcpy(copy, p, (n < 16 ? n : 16) * sizeof *p);
    return v16_load_bf16(copy);
}

INLINE v16 v16_load_f16_first(const uint16_t *p, size_t n)
{
    uint16_t copy[16] = {0};
    memcpy(copy, p, (n < 16 ? n : 16) * sizeof *p);
    return v16_load_f16(copy);
}

INLINE v16 v16_load_e4m3(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)p));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff));
    __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x3fff));
    __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
    half = _mm256_or_si256(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00)));
    __m256 bias = _mm256_set1_ps(256.0f);
    return (v16){_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), bias),
                 _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), bias)};
}

INLINE v16 v16_load_e4m3_small(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)p));
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbfff));
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}

INLINE v16 v16_load_s8(const int8_t *p)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)p))),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)(p + 8))))};
}

/* One block. The upper two bytes of a float say all of an E2M1 value; they are looked up for even and odd codes side
 * by side, and joined in the order 0 2 4 6 1 3 5 7 of each eight. */
INLINE void v16_load_mxfp4(v16 w[2], const uint8_t *p, float scale)
{
    __m256i third = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64));
    __m256i fourth = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 63, 63, 63, 64, 64, 64, 64, -128, -65, -65, -65, -64, -64, -64, -64));
    __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i_u *)p)), zero = _mm256_setzero_si256();
    __m256i codes = _mm256_and_si256(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
    __m256i a = _mm256_shuffle_epi8(third, codes), b = _mm256_shuffle_epi8(fourth, codes);
    __m256i first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b);
    __m256 factor = _mm256_set1_ps(scale);
    w[0].low = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, first)), factor);
    w[0].high = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, first)), factor);
    w[1].low = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, second)), factor);
    w[1].high = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, second)), factor);
}

INLINE v16 v16_to_mxfp4_order(v16 x)
{
    __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    return (v16){_mm256_permutevar8x32_ps(x.low, order), _mm256_permutevar8x32_ps(x.high, order)};
}

INLINE v16 v16_from_mxfp4_order(v16 x)
{
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return (v16){_mm256_permutevar8x32_ps(x.low, order), _mm256_permutevar8x32_ps(x.high, order)};
}

/* The values of the codes in the low four bits of each lane. */
INLINE v16 v16_e2m1(v16i codes)
{
    __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f), sign = _mm256_set1_ps(-0.0f);
    __m256 low = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(codes.low, 28)), sign);
    __m256 high = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(codes.high, 28)), sign);
    return (v16){_mm256_xor_ps(_mm256_permutevar8x32_ps(table, codes.low), low),
                 _mm256_xor_ps(_mm256_permutevar8x32_ps(table, codes.high), high)};
}

INLINE __m256 v8_two_halves(const void *low, const void *high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

/* Columns 4 c to 4 c + 3 of eight rows, as rows of eight. */
INLINE void turn_four(float *out, size_t stride, const char *const *in, size_t at)
{
    __m256 a = v8_two_halves(in[0] + at, in[4] + at), b = v8_two_halves(in[1] + at, in[5] + at);
    __m256 c = v8_two_halves(in[2] + at, in[6] + at), d = v8_two_halves(in[3] + at, in[7] + at);
    __m256 ab = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b);
    __m256 cd = _mm256_unpacklo_ps(c, d), cd_high = _mm256_unpackhi_ps(c, d);
    _mm256_storeu_ps(out, _mm256_shuffle_ps(ab, cd, 0x44));
    _mm256_storeu_ps(out + stride, _mm256_shuffle_ps(ab, cd, 0xee));
    _mm256_storeu_ps(out + 2 * stride, _mm256_shuffle_ps(ab_high, cd_high, 0x44));
    _mm256_storeu_ps(out + 3 * stride, _mm256_shuffle_ps(ab_high, cd_high, 0xee));
}

INLINE void turn16(float *out, size_t stride, const void *const *in)
{
    const char *rows[16];
    memcpy(rows, in, sizeof rows);
    UNROLL for (size_t c = 0; c < 16; c += 4)
    {
        turn_four(out + c * stride, stride, rows, c * sizeof(float));
        turn_four(out + c * stride + 8, stride, rows + 8, c * sizeof(float));
    }
}

INLINE v16i v16_bits(v16 x)
{
    return (v16i){_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)};
}

INLINE v16 v16_from_bits(v16i x)
{
    return (v16){_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)};
}

INLINE v16i v16i_set(int32_t x)
{
    return (v16i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

INLINE v16i v16i_shift_right(v16i x, const unsigned n)
{
    return (v16i){_mm256_srli_epi32(x.low, (int)n), _mm256_srli_epi32(x.high, (int)n)};
}

INLINE v16i v16i_shift_left(v16i x, const unsigned n)
{
    return (v16i){_mm256_slli_epi32(x.low, (int)n), _mm256_slli_epi32(x.high, (int)n)};
}

INLINE v16i v16i_load(const int32_t *p)
{
    return (v16i){_mm256_loadu_si256((const __m256i_u *)p), _mm256_loadu_si256((const __m256i_u *)(p + 8))};
}

INLINE void v16i_store(int32_t *p, v16i x)
{
    _mm256_storeu_si256((__m256i_u *)p, x.low);
    _mm256_storeu_si256((__m256i_u *)(p + 8), x.high);
}

INLINE void v16i_store_s16_first(int16_t *p, v16i x, size_t n)
{
    __m256i zero = _mm256_setzero_si256();
    __m256i words = _mm256_packus_epi32(_mm256_blend_epi16(x.low, zero, 0xaa), _mm256_blend_epi16(x.high, zero, 0xaa));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    if (n >= 16)
        _mm256_storeu_si256((__m256i_u *)p, words);
    else
        memcpy(p, &words, n * sizeof *p);
}

INLINE v16i v16i_zip_s16(const int16_t *a, const int16_t *b)
{
    __m256i x = _mm256_loadu_si256((const __m256i_u *)a), y = _mm256_loadu_si256((const __m256i_u *)b);
    __m256i low = _mm256_unpacklo_epi16(x, y), high = _mm256_unpackhi_epi16(x, y);
    return (v16i){_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31)};
}

/* Additions of products are assembly because gcc 12 adds into another register, moves it back, and spills a third of a
 * tile: 88 GOP/s in place of 150. `size` of a lane: "w" or "d". */
#define ADD_TO(sum, x, size) __asm__("vpadd" size " %1, %0, %0" : "+x"(sum) : "x"(x))

INLINE v16i v16i_add_pairs(v16i sum, v16i a, v16i b)
{
    __m256i low = _mm256_madd_epi16(a.low, b.low), high = _mm256_madd_epi16(a.high, b.high);
    ADD_TO(sum.low, low, "d");
    ADD_TO(sum.high, high, "d");
    return sum;
}

INLINE int32_t v16i_sum(v16i x)
{
    __m256i eight = _mm256_add_epi32(x.low, x.high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

INLINE uint32_t v16i_peak_s16(v16i x)
{
    __m256i all = _mm256_max_epi16(x.low, x.high);
    __m128i eight = _mm_max_epi16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    __m128i least = _mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(0x7fff), eight));
    return 0x7fffu - (uint32_t)_mm_extract_epi16(least, 0);
}

INLINE v16i v16i_load_u8_first(const uint8_t *p, size_t n)
{
    uint8_t copy[16] = {0};
    if (n < 16)
        p = memcpy(copy, p, n);
    __m128i all = _mm_loadu_si128((const __m128i_u *)p);
    return (v16i){_mm256_cvtepu8_epi32(all), _mm256_cvtepu8_epi32(_mm_srli_si128(all, 8))};
}

INLINE void v16i_store_u8(uint8_t *p, v16i x)
{
    __m256i byte = _mm256_set1_epi32(255);
    __m256i words = _mm256_packus_epi32(_mm256_and_si256(x.low, byte), _mm256_and_si256(x.high, byte));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    _mm_storeu_si128((__m128i_u *)p,
                     _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

INLINE v16 v16_from_integers(v16i x)
{
    return (v16){_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}

INLINE void v16i_store_s8_nibbles(int8_t *p, v16i x)
{
    uint8_t bytes[16];
    v16i_store_u8(bytes, x);
    __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    _mm_storeu_si128((__m128i_u *)p, _mm_shuffle_epi8(_mm_loadu_si128((const __m128i_u *)bytes), order));
}

#endif
