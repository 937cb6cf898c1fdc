/* Rows of any element type, and their exact widening to float32: what the products of dots_body.h and mix_body.h
 * read. */
#include "kernels/kernels.h"

/* The compiler shall not know what *p holds: neither keep it in registers nor guess it. */
INLINE void in_memory(void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* Rows of weights or of a cache: by stride, or by pointer if `each` is set. */
struct rows {
    const char *first;
    size_t stride; /* bytes */
    const void *const *each;
    const uint8_t *scales; /* those of row 0; one a block, rows side by side */
    enum dtype dtype;
};

INLINE struct rows rows_of(const struct matrix *w)
{
    return (struct rows){w->data, matrix_row_bytes(w), NULL, w->scales, w->dtype};
}

INLINE const char *row_at(const struct rows *rows, size_t r)
{
    return rows->each ? (const char *)rows->each[r] : rows->first + r * rows->stride;
}

/* Elements i to i + 15 of a row of a plain type. `dtype` is constant where these are used. */
INLINE v16 widen(const char *row, size_t i, const enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return v16_load((const float *)(const void *)row + i);
    if (dtype == DTYPE_BF16)
        return v16_load_bf16((const uint16_t *)(const void *)row + i);
    return v16_load_f16((const uint16_t *)(const void *)row + i);
}

INLINE v16 widen_first(const char *row, size_t i, size_t n, const enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return v16_load_first((const float *)(const void *)row + i, n);
    if (dtype == DTYPE_BF16)
        return v16_load_bf16_first((const uint16_t *)(const void *)row + i, n);
    return v16_load_f16_first((const uint16_t *)(const void *)row + i, n);
}

/* 2^(byte - 127) of n scale bytes, NaN for 255. Both exceptions, the subnormal 2^-127 and NaN, differ from byte <<
 * 23 in the topmost mantissa bit, and byte + 1 mod 256 is below 2 for them alone. */
INLINE v16 e8m0_lanes(const uint8_t *p, size_t n)
{
    v16i byte = v16i_load_u8_first(p, n), one = v16i_set(1);
    v16i next = v16i_and(v16i_add(byte, one), v16i_set(255));
    v16i exception = v16i_sub(one, v16i_min(v16i_shift_right(next, 1), one));
    return v16_from_bits(v16i_or(v16i_shift_left(byte, 23), v16i_shift_left(exception, 22)));
}

/* Of so many blocks the scales are turned into floats at a time. */
enum { SCALES = 16 };

/* What the elements of n blocks, n at most SCALES, are multiplied with: `block` is counted over all rows. */
INLINE void block_scales(float *out, const uint8_t *scales, size_t block, size_t n, const enum dtype dtype)
{
    if (dtype == DTYPE_INT8)
        v16_store(out, v16_load_bf16_first((const uint16_t *)(const void *)scales + block, n));
    else if (dtype == DTYPE_MXFP8)
        v16_store(out, v16_mul(e8m0_lanes(scales + block, n), v16_set(256.0f)));
    else
        v16_store(out, e8m0_lanes(scales + block, n));
}

/* The block at element i of a row with scales, MXFP4 in the order of its codes. The products are exact. */
INLINE void widen_block(v16 w[2], const uint8_t *row, size_t i, float scale, const enum dtype dtype)
{
    if (dtype == DTYPE_MXFP4) {
        v16_load_mxfp4(w, row + i / 2, scale);
        return;
    }
    UNROLL for (size_t half = 0; half < 2; half++) {
        size_t at = i + 16 * half;
        v16 code = dtype == DTYPE_INT8 ? v16_load_s8((const int8_t *)row + at) : v16_load_e4m3_small(row + at);
        w[half] = v16_mul(code, v16_set(scale));
    }
}

/* Columns [at, at + n) of row r as float32; of MXFP8 and INT8 up to SCALES whole blocks. */
INLINE void widen_row(float *out, const struct rows *rows, size_t r, size_t at, size_t n, const enum dtype dtype)
{
    const char *row = row_at(rows, r);
    size_t i = 0;
    if (dtype_has_scales(dtype)) {
        float scales[SCALES];
        block_scales(scales, rows->scales, (r * rows->stride + at) / MX_BLOCK, n / MX_BLOCK, dtype);
        for (; i < n; i += MX_BLOCK) {
            v16 block[2];
            widen_block(block, (const uint8_t *)row, at + i, scales[i / MX_BLOCK], dtype);
            v16_store(out + i, block[0]);
            v16_store(out + i + 16, block[1]);
        }
        return;
    }
    for (; i + 16 <= n; i += 16)
        v16_store(out + i, widen(row, at + i, dtype));
    if (i < n)
        v16_store(out + i, widen_first(row, at + i, n - i, dtype));
}

/* A few tokens read rows straight from memory: the rows are split into parts that are read side by side, each from
 * its first row to its last. Every stream then runs straight through memory, which the hardware's prefetch follows
 * across the ends of rows. */
INLINE size_t part_rows(size_t n_rows, size_t streams)
{
    return (n_rows + streams - 1) / streams;
}

/* Row r of part o; where parts hold too many rows, the last row again. */
INLINE size_t part_row(size_t o, size_t r, size_t part, size_t n_rows)
{
    size_t row = o * part + r;
    return row < n_rows ? row : n_rows - 1;
}
