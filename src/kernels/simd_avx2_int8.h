/* The vocabulary of AVX2 for products in INT8: codes of 16 rows as vectors, and their sums with 32 activations. */
#ifndef DAY0_KERNELS_SIMD_AVX2_INT8_H
#define DAY0_KERNELS_SIMD_AVX2_INT8_H

#include "kernels/simd_avx2.h"

INLINE __m256i two_rows(const uint8_t *const *rows, size_t at, const int as_nibbles)
{
    __m256i x = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i_u *)(rows[0] + at))),
                                        _mm_loadu_si128((const __m128i_u *)(rows[4] + at)), 1);
    __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    return as_nibbles ? _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(order)) : x;
}

/* Lane k: the k-th four bytes of eight rows; `as_nibbles`: each eight in the order 0 2 4 6 1 3 5 7. */
INLINE void turn_eight(__m256i *codes, const uint8_t *const *rows, size_t at, const int as_nibbles)
{
    __m256i a = two_rows(rows, at, as_nibbles), b = two_rows(rows + 1, at, as_nibbles);
    __m256i c = two_rows(rows + 2, at, as_nibbles), d = two_rows(rows + 3, at, as_nibbles);
    __m256i ab = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
    __m256i cd = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
    codes[0] = _mm256_unpacklo_epi64(ab, cd);
    codes[1] = _mm256_unpackhi_epi64(ab, cd);
    codes[2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    codes[3] = _mm256_unpackhi_epi64(ab_high, cd_high);
}

/* 2 * value + 12 of the low four bits of each byte. */
INLINE __m256i mxfp4_unsigned(__m256i codes)
{
    __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes);
}

/* Of eight codes a lane the even columns to w[0], the odd ones to w[1]. */
INLINE void mxfp4_word(v16i *w, v16i codes)
{
    w[0] = (v16i){mxfp4_unsigned(codes.low), mxfp4_unsigned(codes.high)};
    w[1] = (v16i){mxfp4_unsigned(_mm256_srli_epi16(codes.low, 4)), mxfp4_unsigned(_mm256_srli_epi16(codes.high, 4))};
}

INLINE void mxfp4_turn(v16i *w, const uint8_t *const *rows, size_t at)
{
    __m256i low[4], high[4];
    turn_eight(low, rows, at, 0);
    turn_eight(high, rows + 8, at, 0);
    UNROLL for (int k = 0; k < 4; k++) mxfp4_word(w + 2 * k, (v16i){low[k], high[k]});
}

/* One block of a panel, as mxfp4_turn and int8_turn give it. */
INLINE void mxfp4_panel(v16i *w, const uint8_t *block)
{
    UNROLL for (int k = 0; k < 4; k++) mxfp4_word(w + 2 * k, v16i_load((const int32_t *)(const void *)block + 16 * k));
}

INLINE void int8_panel(v16i *w, const uint8_t *block)
{
    UNROLL for (int k = 0; k < 8; k++) w[k] = v16i_load((const int32_t *)(const void *)block + 16 * k);
}

/* products + those of unsigned bytes of w with signed ones of `input`, two in 16 bits; from 0 if `first`. */
INLINE void add_byte_products(v16i *products, v16i w, __m256i input, const int first)
{
    __m256i low = _mm256_maddubs_epi16(w.low, input), high = _mm256_maddubs_epi16(w.high, input);
    if (first) {
        *products = (v16i){low, high};
    } else {
        ADD_TO(products->low, low, "w");
        ADD_TO(products->high, high, "w");
    }
}

/* sum + both 16-bit integers of each lane. */
INLINE void add_both(v16i *sum, v16i products)
{
    __m256i one = _mm256_set1_epi16(1);
    __m256i low = _mm256_madd_epi16(products.low, one), high = _mm256_madd_epi16(products.high, one);
    ADD_TO(sum->low, low, "d");
    ADD_TO(sum->high, high, "d");
}

/* Four activations for all lanes. */
INLINE __m256i four_inputs(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Eight products fit in 16 bits, see simd_avx512_int8.h. For several rows of activations: a vector of weights is loaded
 * once for all. */
INLINE void v16i_dots32(v16i *sum, const v16i *w, const int8_t *const *x, const int n)
{
    UNROLL for (int k = 0; k < 8; k += 4)
    {
        v16i products[2];
        UNROLL for (int i = k; i < k + 4; i++) UNROLL for (int t = 0; t < n; t++)
            add_byte_products(&products[t], w[i], four_inputs(x[t] + 4 * i), i == k);
        UNROLL for (int t = 0; t < n; t++) add_both(&sum[t], products[t]);
    }
}

/* sum[s] + the products of 32 activations with a block of each of n panels, which become numbers on the way. */
INLINE void mxfp4_panels_dot(v16i *sum, const uint8_t *const *block, const int8_t *x, const int n)
{
    UNROLL for (int k = 0; k < 4; k += 2)
    {
        v16i products[2];
        UNROLL for (int q = k; q < k + 2; q++) UNROLL for (int s = 0; s < n; s++)
        {
            v16i w[2];
            mxfp4_word(w, v16i_load((const int32_t *)(const void *)block[s] + 16 * q));
            add_byte_products(&products[s], w[0], four_inputs(x + 8 * q), q == k);
            add_byte_products(&products[s], w[1], four_inputs(x + 8 * q + 4), 0);
        }
        UNROLL for (int s = 0; s < n; s++) add_both(&sum[s], products[s]);
    }
}

/* The same for INT8. The signs of x go over to w, since one factor must be without: 2 * 127 * 127 fits in 16 bits. */
INLINE void int8_dots32(v16i *sum, const v16i *w, const int8_t *const *x, const int32_t *offset, const int n)
{
    (void)offset;
    UNROLL for (int t = 0; t < n; t++) sum[t] = v16i_set(0);
    UNROLL for (int k = 0; k < 8; k++) UNROLL for (int t = 0; t < n; t++)
    {
        __m256i input = four_inputs(x[t] + 4 * k), magnitude = _mm256_abs_epi8(input);
        __m256i low = _mm256_sign_epi8(w[k].low, input), high = _mm256_sign_epi8(w[k].high, input);
        add_both(&sum[t], (v16i){_mm256_maddubs_epi16(magnitude, low), _mm256_maddubs_epi16(magnitude, high)});
    }
}

INLINE void int8_turn(v16i *w, const uint8_t *const *rows, size_t at)
{
    UNROLL for (int k = 0; k < 8; k += 4)
    {
        __m256i low[4], high[4];
        turn_eight(low, rows, at + 4 * (size_t)k, 1);
        turn_eight(high, rows + 8, at + 4 * (size_t)k, 1);
        UNROLL for (int i = 0; i < 4; i++) w[k + i] = (v16i){low[i], high[i]};
    }
}

/* For a single token rows are not turned: sums within a row are added across the vector, which costs less than to turn
 * what is used once. */

/* The order of narrowed values in two halves: even columns, odd columns; and in the order of columns. */
INLINE __m256i narrow_halves(const int8_t *x)
{
    __m256i input = _mm256_loadu_si256((const __m256i_u *)x);
    return _mm256_permutevar8x32_epi32(input, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

INLINE __m256i narrow_columns(const int8_t *x)
{
    __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i_u *)x), _mm256_broadcastsi128_si256(order));
}

/* Two vectors of eight to one of four sums each. */
INLINE __m256i v8i_halve(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

/* Lane r: the sum of all of p[r]. */
INLINE __m256i v8i_sums(const __m256i *p)
{
    __m256i ab = v8i_halve(p[0], p[1]), cd = v8i_halve(p[2], p[3]);
    __m256i ef = v8i_halve(p[4], p[5]), gh = v8i_halve(p[6], p[7]);
    __m256i first = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    __m256i last = _mm256_add_epi32(_mm256_unpacklo_epi64(ef, gh), _mm256_unpackhi_epi64(ef, gh));
    return _mm256_add_epi32(_mm256_permute2x128_si256(first, last, 0x20), _mm256_permute2x128_si256(first, last, 0x31));
}

INLINE __m256i mxfp4_eight_rows(const uint8_t *const *rows, size_t at, __m256i input)
{
    __m256i shift = _mm256_setr_epi64x(0, 0, 4, 4), one = _mm256_set1_epi16(1), p[8];
    UNROLL for (int r = 0; r < 8; r++)
    {
        __m256i codes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i_u *)(rows[r] + at)));
        __m256i weights = mxfp4_unsigned(_mm256_srlv_epi64(codes, shift));
        p[r] = _mm256_madd_epi16(_mm256_maddubs_epi16(weights, input), one);
    }
    return v8i_sums(p);
}

INLINE v16i mxfp4_products(const uint8_t *const *rows, size_t at, const int8_t *x, int32_t offset)
{
    __m256i input = narrow_halves(x), start = _mm256_set1_epi32(offset);
    return (v16i){_mm256_add_epi32(start, mxfp4_eight_rows(rows, at, input)),
                  _mm256_add_epi32(start, mxfp4_eight_rows(rows + 8, at, input))};
}

INLINE __m256i int8_eight_rows(const uint8_t *const *rows, size_t at, __m256i input)
{
    __m256i magnitude = _mm256_abs_epi8(input), one = _mm256_set1_epi16(1), p[8];
    UNROLL for (int r = 0; r < 8; r++)
    {
        __m256i codes = _mm256_loadu_si256((const __m256i_u *)(rows[r] + at));
        p[r] = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(codes, input)), one);
    }
    return v8i_sums(p);
}

INLINE v16i int8_products(const uint8_t *const *rows, size_t at, const int8_t *x, int32_t offset)
{
    __m256i input = narrow_columns(x);
    (void)offset;
    return (v16i){int8_eight_rows(rows, at, input), int8_eight_rows(rows + 8, at, input)};
}

#endif
