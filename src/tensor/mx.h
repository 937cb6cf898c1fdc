/* OCP Microscaling (MX v1.0): blocks of 32 values along the last axis that share one E8M0 scale.
 *
 *     value = code * 2^(byte - 127)      byte 255 is NaN and is refused wherever a file is read
 *
 * MXFP4: E2M1 codes, two a byte, the even index in the low nibble. MXFP8: E4M3 codes (no infinities; 0x7f, 0xff are
 * NaN). Dynamic quantization of a block x with largest magnitude m, emax 2 (E2M1) or 8 (E4M3):
 *
 *     floor rule:  e = floor(log2 m) - emax, elements rounded to nearest even and saturated
 *     ceil rule:   one more where the largest element would saturate, m / 2^e > largest
 *
 * e is clamped to -127..127; a block of zeros gets byte 0. Input must be finite. Source: OCP MX v1.0; spec/mx.py. */
#ifndef DAY0_TENSOR_MX_H
#define DAY0_TENSOR_MX_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MX_BLOCK = 32,
    E8M0_NAN = 255,
};

enum mx_rule {
    MX_FLOOR,
    MX_CEIL,
    MX_CLOSER, /* of both the closer one, see kernels/quantize.def; no rule of mx_quantize_* */
};

extern const float mx_e2m1_values[16];

/* 2^(byte - 127), exact (byte 0 is a subnormal float); NaN for 255. */
float mx_e8m0_value(uint8_t byte);
/* The value of an E4M3 byte, exact; NaN for 0x7f and 0xff. */
float mx_e4m3_value(uint8_t byte);

/* Quantizes x [32]. Codes: [32] bytes (MXFP8) or [16] bytes (MXFP4). Returns the scale byte. */
uint8_t mx_quantize_fp8(uint8_t *codes, const float *x, enum mx_rule rule);
uint8_t mx_quantize_fp4(uint8_t *codes, const float *x, enum mx_rule rule);

/* Dequantizes one block into out [32]. */
void mx_dequantize_fp8(float *out, const uint8_t *codes, uint8_t scale);
void mx_dequantize_fp4(float *out, const uint8_t *codes, uint8_t scale);

/* Not of OCP, but of the same blocks: INT8, value = code * scale with codes -127..127 and a BF16 scale. With m the
 * largest magnitude of a block, scale = m / 127 in float32, rounded to BF16, and code = x / scale in float32, rounded
 * to nearest even: 127.5 is never reached, as a BF16 scale is at most 2^-8 too small. A block with m < 2^-100 has
 * scale 0 and codes 0. Eight bits of scale beside seven of code leave every value exact in float32, and codes of all
 * blocks use their whole range, which a scale that is a power of two would not: its steps are up to twice as wide.
 * Quantizes x [32] into codes [32]; returns the scale's bits. */
uint16_t mx_quantize_int8(int8_t *codes, const float *x);
void mx_dequantize_int8(float *out, const int8_t *codes, uint16_t scale);

#endif
