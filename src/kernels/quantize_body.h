/* Rounding to narrower formats, by integer arithmetic on the bits of floats. */
#include <stdbool.h>

#include "kernels/kernels.h"
#include "tensor/int16_row.h"

void BODY(round_bf16_f32)(float *y, const float *x, size_t n)
{
    v16i high = v16i_set((int32_t)0xffff0000), one = v16i_set(1), below_half = v16i_set(0x7fff);
    for (size_t i = 0; i < n; i += 16) {
        v16 value = v16_load_first(x + i, n - i);
        v16i bits = v16_bits(value);
        v16i odd = v16i_and(v16i_shift_right(bits, 16), one);
        v16 rounded = v16_from_bits(v16i_and(v16i_add(bits, v16i_add(below_half, odd)), high));
        v16 nan = v16_copysign(v16_from_bits(v16i_set(0x7fc00000)), value);
        v16_store_first(y + i, v16_where_nan(value, nan, rounded), n - i);
    }
}

/* A block's scale byte, from its largest magnitude: its exponent less that of the format's largest value, clamped.
 * `largest` is the mantissa of that value. */
INLINE uint8_t scale_byte(float peak, int rule, const int exponent, const uint32_t largest)
{
    uint32_t bits = f32_bits(peak);
    int byte = (int)(bits >> 23) - exponent;
    if (rule == MX_CEIL && (bits & 0x7fffff) > largest)
        byte++;
    return (uint8_t)(byte < 0 ? 0 : byte);
}

/* 448 = 1.75 * 2^8 and 6 = 1.5 * 2^2. */
enum { E4M3_EXPONENT = 8, E4M3_MANTISSA = 0x600000, E2M1_EXPONENT = 2, E2M1_MANTISSA = 0x400000 };

/* E4M3 codes of scaled values, rounded to nearest even and saturated. */
INLINE v16i e4m3_codes(v16 x)
{
    v16 magnitude = v16_abs(x);
    v16i bits = v16_bits(magnitude);
    /* Normal codes: round off 20 mantissa bits, a carry goes into the exponent; then move the exponent bias 127 to
     * 7. */
    v16i odd = v16i_and(v16i_shift_right(bits, 20), v16i_set(1));
    v16i rounded = v16i_shift_right(v16i_add(bits, v16i_add(v16i_set(0x7ffff), odd)), 20);
    v16i normal = v16i_min(v16i_sub(rounded, v16i_set(120 << 3)), v16i_set(0x7e));
    /* Below 2^-6 codes are multiples of 2^-9: the unit of the last place of 2^14, so that an addition rounds. */
    v16 anchor = v16_set(0x1p14f);
    v16i subnormal = v16i_sub(v16_bits(v16_add(magnitude, anchor)), v16_bits(anchor));
    v16 code = v16_where_less(magnitude, v16_set(0x1p-6f), v16_from_bits(subnormal), v16_from_bits(normal));
    v16i sign = v16i_and(v16i_shift_right(v16_bits(x), 24), v16i_set(0x80));
    return v16i_or(v16_bits(code), sign);
}

void BODY(quantize_mxfp8)(uint8_t *codes, uint8_t *scales, const float *x, size_t n, int rule)
{
    for (size_t i = 0; i < n; i += MX_BLOCK) {
        v16 low = v16_load(x + i), high = v16_load(x + i + 16);
        uint8_t byte = scale_byte(v16_peak(v16_max(v16_abs(low), v16_abs(high))), rule, E4M3_EXPONENT, E4M3_MANTISSA);
        /* 2^(127 - byte) is a normal float: byte is 247 at most. */
        v16 inverse = v16_set(f32_from_bits((uint32_t)(254 - byte) << 23));
        v16i_store_u8(codes + i, e4m3_codes(v16_mul(low, inverse)));
        v16i_store_u8(codes + i + 16, e4m3_codes(v16_mul(high, inverse)));
        scales[i / MX_BLOCK] = byte;
    }
}

/* The same for E2M1, of 1 + 1 bits, exponent bias 1 and multiples of a half below 1. */
INLINE v16i e2m1_codes(v16 x)
{
    v16 magnitude = v16_abs(x);
    v16i bits = v16_bits(magnitude);
    v16i odd = v16i_and(v16i_shift_right(bits, 22), v16i_set(1));
    v16i rounded = v16i_shift_right(v16i_add(bits, v16i_add(v16i_set(0x1fffff), odd)), 22);
    v16i normal = v16i_min(v16i_sub(rounded, v16i_set(126 << 1)), v16i_set(7));
    v16 anchor = v16_set(0x1p22f);
    v16i subnormal = v16i_sub(v16_bits(v16_add(magnitude, anchor)), v16_bits(anchor));
    v16 code = v16_where_less(magnitude, v16_set(1.0f), v16_from_bits(subnormal), v16_from_bits(normal));
    v16i sign = v16i_and(v16i_shift_right(v16_bits(x), 28), v16i_set(8));
    return v16i_or(v16_bits(code), sign);
}

/* Sixteen codes, one a byte, to eight bytes of two. */
INLINE void store_nibbles(uint8_t *p, v16i codes)
{
    uint8_t bytes[16];
    v16i_store_u8(bytes, codes);
    for (int i = 0; i < 16; i += 8) {
        uint64_t eight;
        memcpy(&eight, bytes + i, sizeof eight);
        eight = (eight | eight >> 4) & 0x00ff00ff00ff00ff;
        eight = (eight | eight >> 8) & 0x0000ffff0000ffff;
        uint32_t four = (uint32_t)(eight | eight >> 16);
        memcpy(p + i / 2, &four, sizeof four);
    }
}

struct mxfp4_block {
    v16i low, high; /* codes */
    float loss;     /* the squared error in units of the scale */
};

INLINE struct mxfp4_block mxfp4_block(v16 low, v16 high, uint8_t byte)
{
    v16 inverse = v16_set(f32_from_bits((uint32_t)(254 - byte) << 23)); /* normal: byte is 253 at most */
    low = v16_mul(low, inverse);
    high = v16_mul(high, inverse);
    struct mxfp4_block block = {e2m1_codes(low), e2m1_codes(high), 0.0f};
    low = v16_sub(low, v16_e2m1(block.low));
    high = v16_sub(high, v16_e2m1(block.high));
    block.loss = v16_sum(v16_fma(high, high, v16_fma(low, low, v16_zero())));
    return block;
}

void BODY(quantize_mxfp4)(uint8_t *codes, uint8_t *scales, const float *x, size_t n, int rule)
{
    for (size_t i = 0; i < n; i += MX_BLOCK) {
        v16 low = v16_load(x + i), high = v16_load(x + i + 16);
        float peak = v16_peak(v16_max(v16_abs(low), v16_abs(high)));
        uint8_t byte = scale_byte(peak, rule == MX_CEIL ? MX_CEIL : MX_FLOOR, E2M1_EXPONENT, E2M1_MANTISSA);
        uint8_t other_byte = scale_byte(peak, rule == MX_FLOOR ? MX_FLOOR : MX_CEIL, E2M1_EXPONENT, E2M1_MANTISSA);
        struct mxfp4_block block = mxfp4_block(low, high, byte);
        if (other_byte != byte) {
            struct mxfp4_block other = mxfp4_block(low, high, other_byte);
            bool closer = 4.0f * other.loss < block.loss;
            block = closer ? other : block;
            byte = closer ? other_byte : byte;
        }
        store_nibbles(codes + i / 2, block.low);
        store_nibbles(codes + i / 2 + 8, block.high);
        scales[i / MX_BLOCK] = byte;
    }
}

void BODY(quantize_int8)(int8_t *codes, uint16_t *scales, const float *x, size_t n)
{
    v16 anchor = v16_set(12582912.0f); /* 1.5 * 2^23: an addition rounds to an integer in the lowest bits */
    for (size_t i = 0; i < n; i += MX_BLOCK) {
        v16 low = v16_load(x + i), high = v16_load(x + i + 16);
        float peak = v16_peak(v16_max(v16_abs(low), v16_abs(high)));
        uint16_t scale = peak < 0x1p-100f ? 0 : bf16_from_f32(peak / 127.0f);
        v16 step = v16_set(scale ? f32_from_bf16(scale) : INFINITY); /* x / infinity is 0 */
        v16i_store_u8((uint8_t *)codes + i, v16_bits(v16_add(v16_div(low, step), anchor)));
        v16i_store_u8((uint8_t *)codes + i + 16, v16_bits(v16_add(v16_div(high, step), anchor)));
        scales[i / MX_BLOCK] = scale;
    }
}

void BODY(dequantize_mxfp8)(float *y, const uint8_t *codes, const uint8_t *scales, size_t n)
{
    size_t n_blocks = n / MX_BLOCK;
    float of_blocks[SCALES] = {0};
    for (size_t b = 0; b < n_blocks; b++) {
        if (b % SCALES == 0)
            v16_store(of_blocks, e8m0_lanes(scales + b, n_blocks - b));
        v16 scale = v16_set(of_blocks[b % SCALES]);
        v16_store(y + b * MX_BLOCK, v16_mul(v16_load_e4m3(codes + b * MX_BLOCK), scale));
        v16_store(y + b * MX_BLOCK + 16, v16_mul(v16_load_e4m3(codes + b * MX_BLOCK + 16), scale));
    }
}

void BODY(quantize_int16_row)(void *row, const float *x, size_t n)
{
    float unit = int16_unit_of(dot16(x, x, n));
    v16 inverse = v16_set(1.0f / unit);
    int16_t *codes = row;
    memset(row, 0, int16_row_bytes(n));
    for (size_t i = 0; unit == unit && i < n; i += 16) {
        v16 code = v16_round(v16_mul(v16_load_first(x + i, n - i), inverse));
        v16i_store_s16_first(codes + i, v16_bits(v16_add(code, integer_anchor())), 16);
    }
    int16_row_set_unit(row, n, unit);
}
