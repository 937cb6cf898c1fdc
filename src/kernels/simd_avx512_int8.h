/* The vocabulary of AVX-512 for products in INT8: codes of 16 rows as vectors, and their sums with 32 activations. With
 * VNNI, which the tier avx512fp16 has, an instruction sums four products. */
#ifndef DAY0_KERNELS_SIMD_AVX512_INT8_H
#define DAY0_KERNELS_SIMD_AVX512_INT8_H

#include "kernels/simd_avx512.h"

INLINE __m512i four_rows(const uint8_t *const *rows, size_t at)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i_u *)(rows[0] + at)));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i_u *)(rows[4] + at)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i_u *)(rows[8] + at)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i_u *)(rows[12] + at)), 3);
}

/* Lanes are rows: codes[k] holds the k-th four of sixteen bytes. */
INLINE void turn_rows(__m512i *codes, __m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    __m512i cd = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    codes[0] = _mm512_unpacklo_epi64(ab, cd);
    codes[1] = _mm512_unpackhi_epi64(ab, cd);
    codes[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    codes[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

/* Of eight codes a lane, as 2 * value + 12, the even columns to w[0], the odd ones to w[1]. */
INLINE void mxfp4_word(v16i *w, v16i codes)
{
    __m512i values = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    __m512i nibble = _mm512_set1_epi8(15);
    w[0] = _mm512_shuffle_epi8(values, _mm512_and_si512(codes, nibble));
    w[1] = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
}

/* One block of codes from each of 16 rows, as bytes 2 * value + 12: four a lane, lanes are rows; w[2 k] holds the low
 * nibbles of the lane's k-th four bytes, w[2 k + 1] the high ones. */
INLINE void mxfp4_turn(v16i *w, const uint8_t *const *rows, size_t at)
{
    __m512i codes[4];
    turn_rows(codes, four_rows(rows, at), four_rows(rows + 1, at), four_rows(rows + 2, at), four_rows(rows + 3, at));
    UNROLL for (int k = 0; k < 4; k++) mxfp4_word(w + 2 * k, codes[k]);
}

/* One block of a panel, as mxfp4_turn gives it. */
INLINE void mxfp4_panel(v16i *w, const uint8_t *block)
{
    UNROLL for (int k = 0; k < 4; k++) mxfp4_word(w + 2 * k, v16i_load((const int32_t *)(const void *)block + 16 * k));
}

INLINE __m512i v64_broadcast(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}

INLINE __m512i four_rows_as_nibbles(const uint8_t *const *rows, size_t at)
{
    __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    return _mm512_shuffle_epi8(four_rows(rows, at), _mm512_broadcast_i32x4(order));
}

/* One block of INT8 codes from each of 16 rows: four a lane, lanes are rows, columns in the order of narrowed rows. The
 * bytes are as int8_dot32 wants them: with VNNI the code + 128, without sign. */
INLINE void int8_turn(v16i *w, const uint8_t *const *rows, size_t at)
{
    UNROLL for (int k = 0; k < 8; k += 4)
    {
        size_t i = at + 4 * (size_t)k;
        turn_rows(w + k, four_rows_as_nibbles(rows, i), four_rows_as_nibbles(rows + 1, i),
                  four_rows_as_nibbles(rows + 2, i), four_rows_as_nibbles(rows + 3, i));
    }
#if defined(__AVX512VNNI__)
    UNROLL for (int k = 0; k < 8; k++) w[k] = _mm512_xor_si512(w[k], _mm512_set1_epi8((char)0x80));
#endif
}

/* One block of a panel, as int8_turn gives it. */
INLINE void int8_panel(v16i *w, const uint8_t *block)
{
    UNROLL for (int k = 0; k < 8; k++) w[k] = v16i_load((const int32_t *)(const void *)block + 16 * k);
#if defined(__AVX512VNNI__)
    UNROLL for (int k = 0; k < 8; k++) w[k] = _mm512_xor_si512(w[k], _mm512_set1_epi8((char)0x80));
#endif
}

/* sum[j] + the products of 32 bytes of x with lane j of w. */
#if defined(__AVX512VNNI__)
INLINE v16i v16i_dot32(v16i sum, const v16i *w, const int8_t *x)
{
    UNROLL for (int k = 0; k < 8; k++) sum = _mm512_dpbusd_epi32(sum, w[k], v64_broadcast(x + 4 * k));
    return sum;
}

/* The products of 32 bytes of x with lane j of what int8_turn made; `offset` is -12 * the sum of x. What 128 adds to
 * each weight is taken off at the start. */
INLINE v16i int8_dot32(const v16i *w, const int8_t *x, int32_t offset)
{
    return v16i_dot32(_mm512_set1_epi32(offset / 12 * 128), w, x);
}
#else
/* Bytes of w are 24 at most and those of x 127, so that eight products fit in 16 bits. */
INLINE v16i v16i_dot32(v16i sum, const v16i *w, const int8_t *x)
{
    __m512i one = _mm512_set1_epi16(1);
    UNROLL for (int k = 0; k < 8; k += 4)
    {
        __m512i pairs = _mm512_maddubs_epi16(w[k], v64_broadcast(x + 4 * k));
        UNROLL for (int i = k + 1; i < k + 4; i++) pairs =
            _mm512_add_epi16(pairs, _mm512_maddubs_epi16(w[i], v64_broadcast(x + 4 * i)));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, one));
    }
    return sum;
}

/* The signs of x go over to w, since one factor must be without: 2 * 127 * 127 fits in 16 bits. */
INLINE v16i int8_dot32(const v16i *w, const int8_t *x, int32_t offset)
{
    __m512i sum = _mm512_setzero_si512(), one = _mm512_set1_epi16(1);
    (void)offset;
    UNROLL for (int k = 0; k < 8; k++)
    {
        __m512i input = v64_broadcast(x + 4 * k);
        __m512i weights = _mm512_mask_sub_epi8(w[k], _mm512_movepi8_mask(input), _mm512_setzero_si512(), w[k]);
        __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(input), weights);
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, one));
    }
    return sum;
}
#endif

/* The same for n rows of activations. */
INLINE void int8_dots32(v16i *sum, const v16i *w, const int8_t *const *x, const int32_t *offset, const int n)
{
    UNROLL for (int t = 0; t < n; t++) sum[t] = int8_dot32(w, x[t], offset[t]);
}

INLINE void v16i_dots32(v16i *sum, const v16i *w, const int8_t *const *x, const int n)
{
    UNROLL for (int t = 0; t < n; t++) sum[t] = v16i_dot32(sum[t], w, x[t]);
}

/* sum[s] + the products of 32 activations with a block of each of n panels. */
INLINE void mxfp4_panels_dot(v16i *sum, const uint8_t *const *block, const int8_t *x, const int n)
{
    UNROLL for (int s = 0; s < n; s++)
    {
        v16i w[8];
        mxfp4_panel(w, block[s]);
        sum[s] = v16i_dot32(sum[s], w, x);
    }
}

/* For a single token: lane r, the products of 32 narrowed values with the block at `at` of row r. */
INLINE v16i mxfp4_products(const uint8_t *const *rows, size_t at, const int8_t *x, int32_t offset)
{
    v16i w[8];
    mxfp4_turn(w, rows, at);
    return v16i_dot32(v16i_set(offset), w, x);
}

INLINE v16i int8_products(const uint8_t *const *rows, size_t at, const int8_t *x, int32_t offset)
{
    v16i w[8];
    int8_turn(w, rows, at);
    return int8_dot32(w, x, offset);
}

#endif
