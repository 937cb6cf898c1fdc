#include "check.h"

#include <string.h>

enum { BENCH_LENGTH = 7168 };

void check_round_bf16_f32(struct check *c)
{
    for (size_t n = 0; next_length(c, &n);) {
        for (int any = 0; any < (c->bench ? 1 : 2); any++) {
            begin(c, "n=%zu%s", n, any ? ", any bits" : "");
            float *y = floats(c, UPDATED, n), *x = floats(c, INPUT, n);
            fill_normal(c, y, n, 1.0f);
            for (size_t i = 0; any && i < n; i++) {
                uint32_t bits = (uint32_t)rng_next(&c->rng);
                if (i % 4 == 0) /* halfway cases */
                    bits = (bits & 0xffff0000) | 0x7fff | (uint32_t)(i / 4 % 3);
                memcpy(&y[i], &bits, sizeof bits);
            }
            memcpy(x, y, n * sizeof *x);
            work(c, 8.0 * (double)n, (double)n);
            while (next_body(c)) {
                CALL(c, round_bf16_f32)(y, y, n);
                /* NaN too must be a BF16 value: nothing below the upper half. */
                for (size_t i = 0; !c->bench && i < n; i++)
                    if (f32_bits(y[i]) & 0xffff)
                        fail(c, "y[%zu] has bits %08x", i, f32_bits(y[i]));
            }
            for (size_t i = 0; exact(c) && i < n; i++) {
                float got = reference(c, y)[i];
                if (isfinite(got) && fabsf(x[i]) > 0x1p-126f && !near(c, "y", i, got, x[i], 0x1p-8 * fabs(x[i])))
                    return;
            }
        }
    }
}

/* Blocks of every kind: plain, of subnormals, huge, with one outlier, on the edges of both rules. */
static void fill_blocks(struct check *c, float *x, size_t n)
{
    for (size_t i = 0; i < n; i += MX_BLOCK) {
        float scale = ldexpf(1.0f, (int)rng_below(&c->rng, 40) - 20);
        unsigned kind = (unsigned)rng_below(&c->rng, 8);
        if (kind == 0)
            scale = ldexpf(1.0f, (int)rng_below(&c->rng, 276) - 149);
        for (size_t j = i; j < i + MX_BLOCK; j++) {
            x[j] = normal(c) * 0.4f * scale;
            if (kind == 1) /* halfway between codes, saturating ones among them */
                x[j] = ldexpf((float)(16 + rng_below(&c->rng, 17)), (int)rng_below(&c->rng, 18) - 9) *
                       (rng_below(&c->rng, 2) ? scale : -scale);
            else if (kind == 2 && rng_below(&c->rng, 4))
                x[j] = rng_below(&c->rng, 2) ? 0.0f : -0.0f;
            else if (kind == 3)
                x[j] = ldexpf(x[j], -(int)rng_below(&c->rng, 60));
        }
        if (kind == 4) { /* the ceil rule turns just above 1.75 */
            float edge = rng_below(&c->rng, 2) ? 1.75f : nextafterf(1.75f, 2.0f);
            x[i + rng_below(&c->rng, MX_BLOCK)] = scale * ldexpf(edge, (int)rng_below(&c->rng, 20));
        }
        if (c->specials)
            fill_finite(c, x + i, MX_BLOCK, scale);
    }
}

/* The reference by the definition of mx.h: the scale from the block's peak, every code the nearest of all, ties to
 * even. `is_fp4`: of the two formats, MXFP4. */
static bool nearest_codes(struct check *c, const uint8_t *codes, uint8_t scale, const float *x, int rule, bool is_fp4)
{
    const double largest = is_fp4 ? 6.0 : 448.0;
    const unsigned sign = is_fp4 ? 8 : 0x80, n_codes = is_fp4 ? 8 : 0x7f;
    double peak = 0.0;
    for (size_t i = 0; i < MX_BLOCK; i++)
        peak = fmax(peak, fabs(x[i]));
    int exponent = peak > 0.0 ? ilogb(peak) - (is_fp4 ? 2 : 8) : -127;
    if (rule == MX_CEIL && peak > 0.0 && ldexp(peak, -exponent) > largest)
        exponent++;
    exponent = exponent < -127 ? -127 : exponent;
    if (!near(c, "scale", 0, scale, exponent + 127, 0.0))
        return false;
    for (size_t i = 0; i < MX_BLOCK; i++) {
        double scaled = fabs(ldexp(x[i], -exponent)), best = INFINITY;
        unsigned code = 0;
        for (unsigned k = 0; k < n_codes; k++) {
            double distance = fabs(scaled - (is_fp4 ? mx_e2m1_values[k] : mx_e4m3_value((uint8_t)k)));
            if (distance < best || (distance == best && k % 2 == 0))
                best = distance, code = k;
        }
        unsigned got = is_fp4 ? codes[i / 2] >> (i % 2 * 4) & 15 : codes[i];
        if (!near(c, "code", i, got, signbit(x[i]) ? code | sign : code, 0.0))
            return false;
    }
    return true;
}

/* The rule that loses less of a block, in float64; the blocks of the test are never that close. */
static int closer_rule(const float *x)
{
    double losses[2] = {0};
    for (int rule = MX_FLOOR; rule <= MX_CEIL; rule++) {
        uint8_t codes[MX_BLOCK / 2];
        float back[MX_BLOCK];
        mx_dequantize_fp4(back, codes, mx_quantize_fp4(codes, x, (enum mx_rule)rule));
        for (int i = 0; i < MX_BLOCK; i++)
            losses[rule] += ((double)x[i] - back[i]) * ((double)x[i] - back[i]);
    }
    return losses[MX_CEIL] < losses[MX_FLOOR] ? MX_CEIL : MX_FLOOR;
}

static void check_mx(struct check *c, bool is_fp4)
{
    /* A million blocks in the first pass, fewer in the others. */
    size_t blocks_a_case = 2000, n_cases = exact(c) ? (c->quick ? 2 : 500) : 5, code_bytes = MX_BLOCK / (is_fp4 + 1);
    for (size_t k = 0; k < (c->bench ? 1 : n_cases); k++) {
        size_t n_blocks = c->bench ? BENCH_LENGTH / MX_BLOCK : k == 0 ? 0 : k == 1 ? 1 : blocks_a_case;
        size_t n = n_blocks * MX_BLOCK;
        static const char *const names[] = {"floor", "ceil", "closer"};
        float *x = NULL;
        for (int rule = MX_FLOOR; rule <= (is_fp4 ? MX_CLOSER : MX_CEIL); rule++) {
            begin(c, "n=%zu %s", n, names[rule]);
            x = floats(c, INPUT, n);
            uint8_t *codes = bytes(c, OUTPUT, n_blocks * code_bytes), *scales = bytes(c, OUTPUT, n_blocks);
            if (rule == MX_FLOOR) /* all rules get the same data, which stays where it is */
                fill_blocks(c, x, n);
            work(c, 4.0 * (double)n + (double)(n_blocks * (code_bytes + 1)), (double)n);
            while (next_body(c))
                CALL(c, quantize_mxfp8)(codes, scales, x, n, rule);
            for (size_t b = 0; exact(c) && k == 2 && b < 300; b++) {
                int of_block = rule != MX_CLOSER ? rule : closer_rule(x + b * MX_BLOCK);
                if (!nearest_codes(c, codes + b * code_bytes, scales[b], x + b * MX_BLOCK, of_block, is_fp4))
                    return;
            }
        }
    }
}

void check_quantize_mxfp8(struct check *c)
{
    check_mx(c, false);
}

void check_quantize_mxfp4(struct check *c)
{
    check_mx(c, true);
}

/* Every element within half a step, the step within 2^-8 of a 127th of the peak. */
static bool within_half_a_step(struct check *c, const int8_t *codes, uint16_t scale, const float *x)
{
    double peak = 0.0, step = f32_from_bf16(scale);
    for (size_t i = 0; i < MX_BLOCK; i++)
        peak = fmax(peak, fabs(x[i]));
    if (peak < 0x1p-100)
        peak = 0.0;
    if (!near(c, "scale", 0, step, peak / 127.0, 0x1.01p-8 * peak / 127.0))
        return false;
    for (size_t i = 0; i < MX_BLOCK; i++)
        if (codes[i] == -128 || !near(c, "value", i, codes[i] * step, peak > 0.0 ? x[i] : 0.0, 0.50001 * step))
            return false;
    return true;
}

void check_quantize_int8(struct check *c)
{
    size_t blocks_a_case = 2000, n_cases = exact(c) ? (c->quick ? 2 : 100) : 5;
    for (size_t k = 0; k < (c->bench ? 1 : n_cases); k++) {
        size_t n_blocks = c->bench ? BENCH_LENGTH / MX_BLOCK : k == 0 ? 0 : k == 1 ? 1 : blocks_a_case;
        size_t n = n_blocks * MX_BLOCK;
        begin(c, "n=%zu", n);
        float *x = floats(c, INPUT, n);
        uint8_t *codes = bytes(c, OUTPUT, n);
        uint16_t *scales = shorts(c, OUTPUT, n_blocks);
        fill_blocks(c, x, n);
        work(c, 4.0 * (double)n + 34.0 * (double)n_blocks, (double)n);
        while (next_body(c))
            CALL(c, quantize_int8)((int8_t *)codes, scales, x, n);
        for (size_t b = 0; exact(c) && b < n_blocks; b++)
            if (!within_half_a_step(c, (int8_t *)codes + b * MX_BLOCK, scales[b], x + b * MX_BLOCK))
                return;
    }
}

void check_dequantize_mxfp8(struct check *c)
{
    for (unsigned scale = 0; scale < (c->bench ? 1 : 256); scale++) {
        size_t n = c->bench ? BENCH_LENGTH : 256;
        begin(c, "n=%zu scale byte %u", n, c->bench ? 120 : scale);
        uint8_t *codes = bytes(c, INPUT, n), *scales = bytes(c, INPUT, n / MX_BLOCK);
        float *y = floats(c, OUTPUT, n);
        for (size_t i = 0; i < n; i++)
            codes[i] = (uint8_t)i;
        memset(scales, c->bench ? 120 : (int)scale, n / MX_BLOCK);
        work(c, 5.0 * (double)n, (double)n);
        while (next_body(c))
            CALL(c, dequantize_mxfp8)(y, codes, scales, n);
        for (size_t i = 0; exact(c) && scale < E8M0_NAN && i < n; i++) {
            int exponent = (int)(i >> 3 & 15), mantissa = (int)(i & 7);
            if (exponent == 15 && mantissa == 7)
                continue;
            double want = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
            want = (float)(ldexp(want, (int)scale - 127) * (i & 0x80 ? -1.0 : 1.0));
            if (isfinite(want) && !near(c, "y", i, reference(c, y)[i], want, 0.0))
                return;
        }
    }
}
