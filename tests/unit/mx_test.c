/* The MX codecs against the specification's answers (tests/golden/mx): every code, every scale, blocks made for the
 * edges, and a million random blocks by checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "tensor/dtype.h"
#include "tensor/mx.h"

#define ROOT "tests/golden/mx/"
enum { GOLDEN_BLOCKS = 4096, RANDOM_BLOCKS = 1000000 };

struct format {
    const char *name;
    size_t code_bytes; /* of a block */
    uint8_t (*quantize)(uint8_t *codes, const float *x, enum mx_rule rule);
    void (*dequantize)(float *out, const uint8_t *codes, uint8_t scale);
};
static const struct format formats[] = {{"mxfp8", MX_BLOCK, mx_quantize_fp8, mx_dequantize_fp8},
                                        {"mxfp4", MX_BLOCK / 2, mx_quantize_fp4, mx_dequantize_fp4}};
static const char *const rules[] = {[MX_FLOOR] = "floor", [MX_CEIL] = "ceil"};

static void *load(const char *name, size_t bytes)
{
    char path[256], *data;
    size_t found;
    struct error err;
    snprintf(path, sizeof path, ROOT "%s", name);
    if (file_read(path, 1 << 24, &data, &found, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (bytes)
        assert_int_equal(found, bytes);
    return data;
}

static void assert_value(float got, float want, const char *what, int code)
{
    if (isnan(want) ? !isnan(got) : f32_bits(got) != f32_bits(want))
        fail_msg("%s %d is %.9g, wanted %.9g", what, code, (double)got, (double)want);
}

static void all_codes_and_scales(void **state)
{
    (void)state;
    float *e4m3 = load("tables.f32", 528 * sizeof(float)), *e2m1 = e4m3 + 256, *e8m0 = e2m1 + 16;
    for (int i = 0; i < 256; i++) {
        assert_value(mx_e4m3_value((uint8_t)i), e4m3[i], "E4M3", i);
        assert_value(mx_e8m0_value((uint8_t)i), e8m0[i], "E8M0", i);
    }
    for (int i = 0; i < 16; i++)
        assert_value(mx_e2m1_values[i], e2m1[i], "E2M1", i);
    free(e4m3);
}

static void blocks_equal_specification(void **state)
{
    (void)state;
    float *x = load("blocks.f32", GOLDEN_BLOCKS * MX_BLOCK * sizeof(float));
    for (size_t f = 0; f < 2; f++)
        for (int rule = MX_FLOOR; rule <= MX_CEIL; rule++) {
            const struct format *format = &formats[f];
            char name[64];
            snprintf(name, sizeof name, "%s-%s.codes.u8", format->name, rules[rule]);
            uint8_t *codes = load(name, GOLDEN_BLOCKS * format->code_bytes), got[MX_BLOCK];
            snprintf(name, sizeof name, "%s-%s.scales.u8", format->name, rules[rule]);
            uint8_t *scales = load(name, GOLDEN_BLOCKS);
            for (size_t b = 0; b < GOLDEN_BLOCKS; b++) {
                const float *block = x + b * MX_BLOCK;
                const uint8_t *want = codes + b * format->code_bytes;
                uint8_t scale = format->quantize(got, block, (enum mx_rule)rule);
                if (scale != scales[b] || memcmp(got, want, format->code_bytes) != 0)
                    fail_msg("%s %s: block %zu has scale %u, wanted %u, or other codes", format->name, rules[rule], b,
                             scale, scales[b]);
                /* What reads back stays as it is. The ceil rule may round the largest floats up to infinity. */
                float back[MX_BLOCK], again[MX_BLOCK], peak = 0;
                format->dequantize(back, got, scale);
                for (int i = 0; i < MX_BLOCK; i++)
                    peak = fmaxf(peak, fabsf(back[i]));
                if (!isfinite(peak))
                    continue;
                scale = format->quantize(got, back, MX_CEIL);
                format->dequantize(again, got, scale);
                for (int i = 0; i < MX_BLOCK; i++)
                    assert_value(again[i], back[i], "value read back", i);
            }
            free(codes);
            free(scales);
        }
    free(x);
}

static void random_block(struct rng *rng, float *x)
{
    for (int i = 0; i < MX_BLOCK; i++) {
        uint64_t z = rng_next(rng);
        x[i] = f32_from_bits((uint32_t)((z >> 63) << 31 | (127 - 40 + (z >> 52 & 63)) << 23 | (z & 0x7fffff)));
    }
}

static uint64_t checksum(const struct format *format, enum mx_rule rule)
{
    struct rng rng = {1};
    uint64_t sum = 0, at = 0, scale_at = RANDOM_BLOCKS * (uint64_t)format->code_bytes;
    for (int b = 0; b < RANDOM_BLOCKS; b++) {
        float x[MX_BLOCK];
        uint8_t codes[MX_BLOCK];
        random_block(&rng, x);
        sum += format->quantize(codes, x, rule) * (2 * scale_at++ + 1);
        for (size_t i = 0; i < format->code_bytes; i++)
            sum += codes[i] * (2 * at++ + 1);
    }
    return sum;
}

static void million_random_blocks(void **state)
{
    (void)state;
    char *text = load("checksums.txt", 0);
    int checked = 0;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[16], rule[16];
        uint64_t want;
        assert_int_equal(sscanf(line, "%15s %15s %" SCNx64, name, rule, &want), 3);
        const struct format *format = &formats[strcmp(name, "mxfp4") == 0];
        assert_string_equal(format->name, name);
        assert_true(checksum(format, strcmp(rule, "ceil") == 0 ? MX_CEIL : MX_FLOOR) == want);
        checked++;
    }
    assert_int_equal(checked, 4);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_codes_and_scales),
        cmocka_unit_test(blocks_equal_specification),
        cmocka_unit_test(million_random_blocks),
    };
    return cmocka_run_group_tests_name("mx", tests, NULL, NULL);
}
