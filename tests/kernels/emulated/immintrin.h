/* The intrinsics of AVX-512 in portable code, in place of the compiler's <immintrin.h>: make check-emulated compiles
 * the bodies of the tiers avx512 and avx512fp16 against this header, for a plain x86-64, so that the kernel test can
 * compare their bits on a machine that has none of the instructions.
 *
 * Most come from SIMDe (libsimde-dev). Below stand those that its version 0.7.4 lacks or gives other bits for than the
 * instruction. Each is written lane by lane from Intel's description of it: an error here and an error in a body show
 * as a failing test, save where the two agree. */
#ifndef DAY0_TESTS_KERNELS_EMULATED_IMMINTRIN_H
#define DAY0_TESTS_KERNELS_EMULATED_IMMINTRIN_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(EMULATE_AVX512FP16) /* after SIMDe, which would take these for the compiler's */
#define __AVX512VNNI__ 1
#endif

/* SIMDe has these under its own names alone. */
#define _MM_FROUND_NO_EXC SIMDE_MM_FROUND_NO_EXC
typedef simde__mmask16 __mmask16;
typedef simde__mmask32 __mmask32;
typedef __m256i __m256i_u __attribute__((aligned(1)));

#define EMULATED static inline __attribute__((unused, always_inline))
#define LANES(vector, of) (sizeof(vector) / sizeof(of))

/* Immediates are checked where they are used: other rounding than to nearest, ties to even, is not written. */
#define NEAREST_ONLY(rounding)                                                                                         \
    _Static_assert(((rounding) & ~_MM_FROUND_NO_EXC) == _MM_FROUND_TO_NEAREST_INT, "emulated to nearest only")

/* Vectors as arrays of another element. */
#define ELEMENTS(element, name, bytes) typedef element name __attribute__((vector_size(bytes), may_alias))
ELEMENTS(int8_t, i8x16, 16);
ELEMENTS(uint8_t, u8x16, 16);
ELEMENTS(uint16_t, u16x16, 32);
ELEMENTS(uint16_t, u16x32, 64);
ELEMENTS(int32_t, i32x16, 64);

/* ---- Other bits than SIMDe's: it rounds fma twice (all kinds of it; here is what bodies use), keeps the sign of -0 in
 * abs, flushes subnormals in scalef, and two of its macros name what it has not ---- */

#undef _mm_fmadd_ps
#undef _mm256_fmadd_ps
#undef _mm512_fmadd_ps
#define FMADD(name, vector)                                                                                            \
    static __attribute__((unused, noinline)) vector name(vector a, vector b, vector c)                                 \
    {                                                                                                                  \
        for (size_t i = 0; i < LANES(a, float); i++)                                                                   \
            c[i] = fmaf(a[i], b[i], c[i]);                                                                             \
        return c;                                                                                                      \
    }
FMADD(_mm_fmadd_ps, __m128)
FMADD(_mm256_fmadd_ps, __m256)
FMADD(_mm512_fmadd_ps, __m512)

#undef _mm512_abs_ps
EMULATED __m512 _mm512_abs_ps(__m512 x)
{
    for (size_t i = 0; i < LANES(x, float); i++)
        x[i] = fabsf(x[i]);
    return x;
}

EMULATED __m512 emulated_round(__m512 x)
{
    for (size_t i = 0; i < LANES(x, float); i++)
        x[i] = rintf(x[i]);
    return x;
}

#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(x, how)                                                                                   \
    __extension__({                                                                                                    \
        NEAREST_ONLY(how);                                                                                             \
        emulated_round(x);                                                                                             \
    })

/* a * 2^floor(b), rounded once: exact in double, whose range the clamp does not leave. */
#undef _mm512_scalef_ps
EMULATED __m512 _mm512_scalef_ps(__m512 a, __m512 b)
{
    for (size_t i = 0; i < LANES(a, float); i++) {
        if (isnan(b[i]) || (isinf(b[i]) && (b[i] > 0.0f ? a[i] == 0.0f : isinf(a[i]))))
            a[i] = NAN;
        else
            a[i] = (float)ldexp((double)a[i], (int)fmaxf(fminf(floorf(b[i]), 400.0f), -400.0f));
    }
    return a;
}

#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#define _mm512_shuffle_f32x4(a, b, pick) simde_mm512_shuffle_f32x4(a, b, pick)

/* ---- What SIMDe 0.7.4 lacks of F, BW, VL, DQ ---- */

/* Memory behind a lane that the mask leaves out is not touched. */
#define MASKED_LOAD(name, vector, elements, element, mask)                                                             \
    EMULATED vector name(mask k, const void *p)                                                                        \
    {                                                                                                                  \
        elements x = {0};                                                                                              \
        for (size_t i = 0; i < LANES(x, element); i++)                                                                 \
            if (k >> i & 1)                                                                                            \
                memcpy((char *)&x + i * sizeof(element), (const char *)p + i * sizeof(element), sizeof(element));      \
        return (vector)x;                                                                                              \
    }
MASKED_LOAD(_mm_maskz_loadu_epi8, __m128i, u8x16, uint8_t, __mmask16)
MASKED_LOAD(_mm256_maskz_loadu_epi16, __m256i, u16x16, uint16_t, __mmask16)
MASKED_LOAD(_mm512_maskz_loadu_epi16, __m512i, u16x32, uint16_t, __mmask32)
MASKED_LOAD(_mm512_maskz_loadu_ps, __m512, __m512, float, __mmask16)

#define MASKED_STORE(name, vector, element, mask)                                                                      \
    EMULATED void name(void *p, mask k, vector x)                                                                      \
    {                                                                                                                  \
        for (size_t i = 0; i < LANES(x, element); i++)                                                                 \
            if (k >> i & 1)                                                                                            \
                memcpy((char *)p + i * sizeof(element), (char *)&x + i * sizeof(element), sizeof(element));            \
    }
MASKED_STORE(_mm256_mask_storeu_epi16, __m256i, uint16_t, __mmask16)
MASKED_STORE(_mm512_mask_storeu_ps, __m512, float, __mmask16)

EMULATED __mmask16 _mm256_cmpeq_epi16_mask(__m256i a, __m256i b)
{
    unsigned mask = 0;
    for (size_t i = 0; i < LANES(a, uint16_t); i++)
        mask |= (unsigned)(((u16x16)a)[i] == ((u16x16)b)[i]) << i;
    return (__mmask16)mask;
}

EMULATED __m512i _mm512_maskz_sub_epi16(__mmask32 k, __m512i a, __m512i b)
{
    u16x32 difference = (u16x32)a - (u16x32)b;
    for (size_t i = 0; i < LANES(a, uint16_t); i++)
        difference[i] = k >> i & 1 ? difference[i] : 0;
    return (__m512i)difference;
}

/* Lane by lane from one type of integer to another. */
#define CONVERT(name, to, to_lanes, from, from_lanes)                                                                  \
    EMULATED to name(from x)                                                                                           \
    {                                                                                                                  \
        to_lanes out;                                                                                                  \
        for (size_t i = 0; i < 16; i++)                                                                                \
            out[i] = ((from_lanes)x)[i];                                                                               \
        return (to)out;                                                                                                \
    }
CONVERT(_mm512_cvtepi8_epi32, __m512i, i32x16, __m128i, i8x16)
CONVERT(_mm512_cvtepu8_epi32, __m512i, i32x16, __m128i, u8x16)
CONVERT(_mm512_cvtepu16_epi32, __m512i, i32x16, __m256i, u16x16)
CONVERT(_mm512_cvtepi32_epi8, __m128i, i8x16, __m512i, i32x16)
CONVERT(_mm512_cvtepi32_epi16, __m256i, u16x16, __m512i, i32x16)

EMULATED __m512 _mm512_cvtepi32_ps(__m512i x)
{
    __m512 values;
    for (size_t i = 0; i < LANES(x, int32_t); i++)
        values[i] = (float)((i32x16)x)[i];
    return values;
}

EMULATED __m256 emulated_eight(__m512 x, size_t half)
{
    __m256 eight;
    memcpy(&eight, (char *)&x + half * sizeof eight, sizeof eight);
    return eight;
}
#define _mm512_extractf32x8_ps(x, half) emulated_eight(x, half)

EMULATED __m512 emulated_permute(__m512 x, unsigned pick)
{
    __m512 out;
    for (size_t i = 0; i < LANES(x, float); i++)
        out[i] = x[(i & 12) + (pick >> 2 * (i & 3) & 3)];
    return out;
}
#define _mm512_permute_ps(x, pick) emulated_permute(x, pick)

/* ---- Halves ---- */

/* Exact: a half's fields are moved into those of a float, whose bias is 112 larger; subnormals become normal by the
 * product. */
EMULATED float emulated_from_half(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
    float magnitude;
    if (bits >= 0x7c00u << 13) /* infinities and NaN */
        bits += (uint32_t)(255 - 31) << 23;
    memcpy(&magnitude, &bits, sizeof magnitude);
    if (bits < 0x7c00u << 13)
        magnitude *= 0x1p112f;
    return half & 0x8000 ? -magnitude : magnitude;
}

/* Rounded once, to nearest, ties to even. Below the least normal half every half is a multiple of 2^-24, above it the
 * fields of a double are cut; a carry out of the mantissa goes where it must. */
EMULATED uint16_t emulated_to_half(double x)
{
    double magnitude = fabs(x);
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    uint64_t bits;
    if (isnan(x))
        return sign | 0x7e00;
    if (magnitude >= 65520.0)
        return sign | 0x7c00;
    if (magnitude < 0x1p-14)
        return (uint16_t)(sign | (unsigned)rint(magnitude * 0x1p24));
    memcpy(&bits, &magnitude, sizeof bits);
    bits -= (uint64_t)(1023 - 15) << 52;
    uint64_t cut = bits & ((1ull << 42) - 1), middle = 1ull << 41;
    bits >>= 42;
    return (uint16_t)(sign | (bits + (cut > middle || (cut == middle && bits & 1))));
}

EMULATED __m512 _mm512_cvtph_ps(__m256i x)
{
    __m512 wide;
    for (size_t i = 0; i < LANES(x, uint16_t); i++)
        wide[i] = emulated_from_half(((u16x16)x)[i]);
    return wide;
}

EMULATED __m256i emulated_halves(__m512 x)
{
    u16x16 halves;
    for (size_t i = 0; i < LANES(x, float); i++)
        halves[i] = emulated_to_half((double)x[i]);
    return (__m256i)halves;
}

#define _mm512_cvtps_ph(x, how)                                                                                        \
    __extension__({                                                                                                    \
        NEAREST_ONLY(how);                                                                                             \
        emulated_halves(x);                                                                                            \
    })

/* ---- FP16: vectors of halves are their bit patterns ---- */

typedef u16x16 __m256h;
typedef u16x32 __m512h;

EMULATED __m512h _mm512_setzero_ph(void)
{
    return (__m512h){0};
}

EMULATED __m512h _mm512_loadu_ph(const void *p)
{
    __m512h x;
    memcpy(&x, p, sizeof x);
    return x;
}

EMULATED void _mm512_store_ph(void *p, __m512h x)
{
    if ((uintptr_t)p % sizeof x != 0)
        __builtin_trap(); /* as the instruction faults */
    memcpy(p, &x, sizeof x);
}

EMULATED __m512h _mm512_castsi512_ph(__m512i x)
{
    return (__m512h)x;
}

EMULATED __m512d _mm512_castph_pd(__m512h x)
{
    return (__m512d)x;
}

EMULATED __m256h _mm256_castpd_ph(__m256d x)
{
    return (__m256h)x;
}

EMULATED __m256h _mm512_castph512_ph256(__m512h x)
{
    __m256h low;
    memcpy(&low, &x, sizeof low);
    return low;
}

EMULATED __m512 _mm512_cvtxph_ps(__m256h x)
{
    return _mm512_cvtph_ps((__m256i)x);
}

/* The sum of two halves is exact in double. */
EMULATED __m256h _mm256_add_ph(__m256h a, __m256h b)
{
    for (size_t i = 0; i < LANES(a, uint16_t); i++)
        a[i] = emulated_to_half((double)emulated_from_half(a[i]) + (double)emulated_from_half(b[i]));
    return a;
}

/* Rounded once in effect. The product p is exact in double. The sum s = p + c could only go wrong where double rounds
 * it onto a tie T between two halves that it misses by 2^-53 |T| or so. But T is no half and c is one: |p| is at least
 * a quarter of T's unit, so that the last of p's 22 bits lies above 2^-34 |T|; that of c at 2^-24 or above. s - T is a
 * multiple of these, hence 0. */
EMULATED __m512h _mm512_fmadd_ph(__m512h a, __m512h b, __m512h c)
{
    for (size_t i = 0; i < LANES(a, uint16_t); i++) {
        double product = (double)emulated_from_half(a[i]) * (double)emulated_from_half(b[i]);
        c[i] = emulated_to_half(product + (double)emulated_from_half(c[i]));
    }
    return c;
}

#endif
