/* The vector vocabulary on Advanced SIMD of AArch64: sixteen floats in four registers. See simd_avx512.h for the
 * meaning. */
#ifndef DAY0_KERNELS_SIMD_NEON_H
#define DAY0_KERNELS_SIMD_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BODY(name) name##_neon
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* Of 32 registers 24 accumulate. */
enum {
    DOT_TOKENS = 2,
    DOT_OUTPUTS = 3,
    DOT_STREAMS = 4,
    PARTS = 1, /* four registers, but all sums of a tile fit */
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
    float32x4_t a, b, c, d;
} v16;
typedef struct {
    uint32x4_t a, b, c, d;
} v16i;

#define V16_UNARY(type, name, result, operation)                                                                       \
    INLINE result name(type x)                                                                                         \
    {                                                                                                                  \
        return (result){operation(x.a), operation(x.b), operation(x.c), operation(x.d)};                               \
    }
#define V16_BINARY(type, name, operation)                                                                              \
    INLINE type name(type x, type y)                                                                                   \
    {                                                                                                                  \
        return (type){operation(x.a, y.a), operation(x.b, y.b), operation(x.c, y.c), operation(x.d, y.d)};             \
    }

/* Not vminq and vmaxq, which give NaN for NaN. */
#define LESSER(x, y) vbslq_f32(vcltq_f32(x, y), x, y)
#define GREATER(x, y) vbslq_f32(vcgtq_f32(x, y), x, y)
#define COPYSIGN(magnitude, sign) vbslq_f32(vdupq_n_u32(0x80000000), sign, magnitude)
V16_BINARY(v16, v16_add, vaddq_f32)
V16_BINARY(v16, v16_sub, vsubq_f32)
V16_BINARY(v16, v16_mul, vmulq_f32)
V16_BINARY(v16, v16_div, vdivq_f32)
V16_BINARY(v16, v16_min, LESSER)
V16_BINARY(v16, v16_max, GREATER)
V16_BINARY(v16, v16_copysign, COPYSIGN)
V16_UNARY(v16, v16_abs, v16, vabsq_f32)
V16_UNARY(v16, v16_negate, v16, vnegq_f32)
V16_UNARY(v16, v16_round, v16, vrndnq_f32)
#undef LESSER
#undef GREATER
#undef COPYSIGN

#define SIGNED_MIN(x, y) vreinterpretq_u32_s32(vminq_s32(vreinterpretq_s32_u32(x), vreinterpretq_s32_u32(y)))
V16_UNARY(v16, v16_bits, v16i, vreinterpretq_u32_f32)
V16_UNARY(v16i, v16_from_bits, v16, vreinterpretq_f32_u32)
V16_BINARY(v16i, v16i_add, vaddq_u32)
V16_BINARY(v16i, v16i_sub, vsubq_u32)
V16_BINARY(v16i, v16i_and, vandq_u32)
V16_BINARY(v16i, v16i_or, vorrq_u32)
V16_BINARY(v16i, v16i_min, SIGNED_MIN)
#undef SIGNED_MIN

INLINE v16 v16_set(float x)
{
    float32x4_t all = vdupq_n_f32(x);
    return (v16){all, all, all, all};
}

INLINE v16 v16_zero(void)
{
    return v16_set(0.0f);
}

INLINE v16i v16i_set(int32_t x)
{
    uint32x4_t all = vdupq_n_u32((uint32_t)x);
    return (v16i){all, all, all, all};
}

INLINE v16i v16i_shift_right(v16i x, const int n)
{
    int32x4_t left = vdupq_n_s32(-n);
    return (v16i){vshlq_u32(x.a, left), vshlq_u32(x.b, left), vshlq_u32(x.c, left), vshlq_u32(x.d, left)};
}

INLINE v16i v16i_shift_left(v16i x, const int n)
{
    return v16i_shift_right(x, -n);
}

INLINE v16i v16i_load(const int32_t *p)
{
    const uint32_t *lanes = (const uint32_t *)p;
    return (v16i){vld1q_u32(lanes), vld1q_u32(lanes + 4), vld1q_u32(lanes + 8), vld1q_u32(lanes + 12)};
}

INLINE void v16i_store(int32_t *p, v16i x)
{
    uint32_t *lanes = (uint32_t *)p;
    vst1q_u32(lanes, x.a);
    vst1q_u32(lanes + 4, x.b);
    vst1q_u32(lanes + 8, x.c);
    vst1q_u32(lanes + 12, x.d);
}

INLINE void v16i_store_s16_first(int16_t *p, v16i x, size_t n)
{
    uint16_t copy[16];
    vst1q_u16(copy, vcombine_u16(vmovn_u32(x.a), vmovn_u32(x.b)));
    vst1q_u16(copy + 8, vcombine_u16(vmovn_u32(x.c), vmovn_u32(x.d)));
    memcpy(p, copy, (n < 16 ? n : 16) * sizeof *copy);
}

INLINE v16i v16i_zip_s16(const int16_t *a, const int16_t *b)
{
    int16x8_t x = vld1q_s16(a), y = vld1q_s16(b), z = vld1q_s16(a + 8), w = vld1q_s16(b + 8);
    return (v16i){vreinterpretq_u32_s16(vzip1q_s16(x, y)), vreinterpretq_u32_s16(vzip2q_s16(x, y)),
                  vreinterpretq_u32_s16(vzip1q_s16(z, w)), vreinterpretq_u32_s16(vzip2q_s16(z, w))};
}

INLINE uint32x4_t v4_add_pairs(uint32x4_t sum, uint32x4_t a, uint32x4_t b)
{
    int16x8_t x = vreinterpretq_s16_u32(a), y = vreinterpretq_s16_u32(b);
    int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vaddq_u32(sum, vreinterpretq_u32_s32(vpaddq_s32(low, high)));
}

INLINE v16i v16i_add_pairs(v16i sum, v16i a, v16i b)
{
    return (v16i){v4_add_pairs(sum.a, a.a, b.a), v4_add_pairs(sum.b, a.b, b.b), v4_add_pairs(sum.c, a.c, b.c),
                  v4_add_pairs(sum.d, a.d, b.d)};
}

INLINE v16 v16_from_integers(v16i x)
{
    return (v16){vcvtq_f32_s32(vreinterpretq_s32_u32(x.a)), vcvtq_f32_s32(vreinterpretq_s32_u32(x.b)),
                 vcvtq_f32_s32(vreinterpretq_s32_u32(x.c)), vcvtq_f32_s32(vreinterpretq_s32_u32(x.d))};
}

INLINE v16i v16i_load_u8_first(const uint8_t *p, size_t n)
{
    uint8_t copy[16] = {0};
    if (n < 16)
        p = memcpy(copy, p, n);
    uint16x8_t low = vmovl_u8(vld1_u8(p)), high = vmovl_u8(vld1_u8(p + 8));
    return (v16i){vmovl_u16(vget_low_u16(low)), vmovl_u16(vget_high_u16(low)), vmovl_u16(vget_low_u16(high)),
                  vmovl_u16(vget_high_u16(high))};
}

INLINE v16 v16_load(const float *p)
{
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

INLINE void v16_store(float *p, v16 x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}

/* There are no masked loads and stores: tails go through a copy. */
INLINE v16 v16_load_first(const float *p, size_t n)
{
    if (n >= 16)
        return v16_load(p);
    float copy[16] = {0};
    memcpy(copy, p, n * sizeof *p);
    return v16_load(copy);
}

INLINE void v16_store_first(float *p, v16 x, size_t n)
{
    if (n >= 16) {
        v16_store(p, x);
        return;
    }
    float copy[16];
    v16_store(copy, x);
    memcpy(p, copy, n * sizeof *p);
}

INLINE v16 v16_blend_first(v16 x, v16 y, size_t n)
{
    static const uint32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint32x4_t count = vdupq_n_u32(n >= 16 ? 16 : (uint32_t)n);
    return (v16){vbslq_f32(vcltq_u32(vld1q_u32(lane), count), x.a, y.a),
                 vbslq_f32(vcltq_u32(vld1q_u32(lane + 4), count), x.b, y.b),
                 vbslq_f32(vcltq_u32(vld1q_u32(lane + 8), count), x.c, y.c),
                 vbslq_f32(vcltq_u32(vld1q_u32(lane + 12), count), x.d, y.d)};
}

INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                 vfmaq_f32(z.d, x.d, y.d)};
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

INLINE v16 v16_where_less(v16 a, v16 b, v16 x, v16 y)
{
    return (v16){vbslq_f32(vcltq_f32(a.a, b.a), x.a, y.a), vbslq_f32(vcltq_f32(a.b, b.b), x.b, y.b),
                 vbslq_f32(vcltq_f32(a.c, b.c), x.c, y.c), vbslq_f32(vcltq_f32(a.d, b.d), x.d, y.d)};
}

INLINE v16 v16_where_nan(v16 a, v16 x, v16 y)
{
    return (v16){vbslq_f32(vceqq_f32(a.a, a.a), y.a, x.a), vbslq_f32(vceqq_f32(a.b, a.b), y.b, x.b),
                 vbslq_f32(vceqq_f32(a.c, a.c), y.c, x.c), vbslq_f32(vceqq_f32(a.d, a.d), y.d, x.d)};
}

INLINE unsigned v16_at_least(v16 a, v16 b)
{
    static const uint32_t bit[4] = {1, 2, 4, 8};
    uint32x4_t bits = vld1q_u32(bit);
    unsigned first = vaddvq_u32(vandq_u32(vcgeq_f32(a.a, b.a), bits));
    unsigned second = vaddvq_u32(vandq_u32(vcgeq_f32(a.b, b.b), bits));
    unsigned third = vaddvq_u32(vandq_u32(vcgeq_f32(a.c, b.c), bits));
    unsigned fourth = vaddvq_u32(vandq_u32(vcgeq_f32(a.d, b.d), bits));
    return first | second << 4 | third << 8 | fourth << 12;
}

INLINE float32x4_t v4_scale(float32x4_t p, float32x4_t n)
{
    int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}
V16_BINARY(v16, v16_scale, v4_scale)

/* Sixteen lanes to four, in the canonical order. */
INLINE float32x4_t v4_halve(v16 x)
{
    return vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
}

INLINE float v16_sum(v16 x)
{
    float32x4_t four = v4_halve(x);
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

INLINE void v16_sum4(float *sums, v16 x, v16 y, v16 z, v16 w)
{
    float32x4_t fx = v4_halve(x), fy = v4_halve(y), fz = v4_halve(z), fw = v4_halve(w);
    float32x4_t xy =
        vaddq_f32(vcombine_f32(vget_low_f32(fx), vget_low_f32(fy)), vcombine_f32(vget_high_f32(fx), vget_high_f32(fy)));
    float32x4_t zw =
        vaddq_f32(vcombine_f32(vget_low_f32(fz), vget_low_f32(fw)), vcombine_f32(vget_high_f32(fz), vget_high_f32(fw)));
    vst1q_f32(sums, vaddq_f32(vuzp1q_f32(xy, zw), vuzp2q_f32(xy, zw)));
}

INLINE float v16_peak(v16 x)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.b), vmaxq_f32(x.c, x.d)));
}

INLINE v16 v16_load_bf16(const uint16_t *p)
{
    uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return v16_from_bits((v16i){vshll_n_u16(vget_low_u16(low), 16), vshll_n_u16(vget_high_u16(low), 16),
                                vshll_n_u16(vget_low_u16(high), 16), vshll_n_u16(vget_high_u16(high), 16)});
}

INLINE v16 v16_f16(uint16x8_t low, uint16x8_t high)
{
    return (v16){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(low))),
                 vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(low))),
                 vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(high))),
                 vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(high)))};
}

INLINE v16 v16_load_f16(const uint16_t *p)
{
    return v16_f16(vld1q_u16(p), vld1q_u16(p + 8));
}

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

/* Eight E4M3 codes as halves with an exponent bias 8 too small; the one NaN pattern is made the half's. */
INLINE uint16x8_t v8_e4m3(uint8x8_t codes)
{
    uint16x8_t wide = vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(codes)));
    uint16x8_t half = vandq_u16(vshlq_n_u16(wide, 7), vdupq_n_u16(0xbfff));
    uint16x8_t nan = vceqq_u16(vandq_u16(half, vdupq_n_u16(0x3fff)), vdupq_n_u16(0x3f80));
    return vorrq_u16(half, vandq_u16(nan, vdupq_n_u16(0x7e00)));
}

INLINE v16 v16_load_e4m3(const uint8_t *p)
{
    return v16_mul(v16_f16(v8_e4m3(vld1_u8(p)), v8_e4m3(vld1_u8(p + 8))), v16_set(256.0f));
}

INLINE v16 v16_load_e4m3_small(const uint8_t *p)
{
    return v16_f16(v8_e4m3(vld1_u8(p)), v8_e4m3(vld1_u8(p + 8)));
}

INLINE v16 v16_load_s8(const int8_t *p)
{
    int16x8_t low = vmovl_s8(vld1_s8(p)), high = vmovl_s8(vld1_s8(p + 8));
    return (v16){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                 vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))};
}

/* The lookup gives the high bytes of halves, whose low bytes are zero for every E2M1 value. */
INLINE v16 mxfp4_half(const uint8_t *p, float scale)
{
    static const uint8_t high_bytes[16] = {0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46,
                                           0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4, 0xc6};
    uint8x8_t pairs = vld1_u8(p);
    uint8x8x2_t codes = vzip_u8(vand_u8(pairs, vdup_n_u8(15)), vshr_n_u8(pairs, 4));
    uint8x16_t table = vld1q_u8(high_bytes);
    uint16x8_t low = vshll_n_u8(vqtbl1_u8(table, codes.val[0]), 8);
    uint16x8_t high = vshll_n_u8(vqtbl1_u8(table, codes.val[1]), 8);
    return v16_mul(v16_f16(low, high), v16_set(scale));
}

INLINE void v16_load_mxfp4(v16 w[2], const uint8_t *p, float scale)
{
    w[0] = mxfp4_half(p, scale);
    w[1] = mxfp4_half(p + 8, scale);
}

INLINE v16 v16_to_mxfp4_order(v16 x)
{
    return x;
}

INLINE v16 v16_from_mxfp4_order(v16 x)
{
    return x;
}

/* The values of the codes in the low four bits of each lane: the upper two bytes of a float, looked up one by one. */
INLINE uint32x4_t v4_e2m1(uint32x4_t codes)
{
    static const uint8_t third[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                      0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
    static const uint8_t fourth[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                       0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
    uint8x16_t index = vreinterpretq_u8_u32(vandq_u32(codes, vdupq_n_u32(15)));
    uint32x4_t low = vshlq_n_u32(vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(third), index)), 16);
    return vorrq_u32(low, vshlq_n_u32(vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(fourth), index)), 24));
}

INLINE v16 v16_e2m1(v16i codes)
{
    return v16_from_bits((v16i){v4_e2m1(codes.a), v4_e2m1(codes.b), v4_e2m1(codes.c), v4_e2m1(codes.d)});
}

INLINE void turn16(float *out, size_t stride, const void *const *in)
{
    UNROLL for (size_t r = 0; r < 16; r += 4) UNROLL for (size_t c = 0; c < 16; c += 4)
    {
        float32x4_t row[4];
        UNROLL for (size_t i = 0; i < 4; i++) row[i] =
            vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)in[r + i] + c * sizeof(float)));
        float32x4x2_t ab = vzipq_f32(row[0], row[2]), cd = vzipq_f32(row[1], row[3]);
        float32x4x2_t low = vzipq_f32(ab.val[0], cd.val[0]), high = vzipq_f32(ab.val[1], cd.val[1]);
        vst1q_f32(out + c * stride + r, low.val[0]);
        vst1q_f32(out + (c + 1) * stride + r, low.val[1]);
        vst1q_f32(out + (c + 2) * stride + r, high.val[0]);
        vst1q_f32(out + (c + 3) * stride + r, high.val[1]);
    }
}

INLINE void v16i_store_u8(uint8_t *p, v16i x)
{
    uint16x8_t low = vcombine_u16(vmovn_u32(x.a), vmovn_u32(x.b));
    uint16x8_t high = vcombine_u16(vmovn_u32(x.c), vmovn_u32(x.d));
    vst1q_u8(p, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}

#endif
