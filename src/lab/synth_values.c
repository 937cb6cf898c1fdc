#include "lab/synth_values.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "tensor/dtype.h"
#include "tensor/mx.h"

enum { QUANTILE_BITS = 12, DRAWS = 5 }; /* draws of 12 bits from one random number */

/* The point below which a normal value lies with probability p. Acklam's idea is not needed here: bisection
 * of erfc is exact, and 4096 of them take a millisecond. */
static double quantile(double p)
{
    double low = -6, high = 6;
    for (int i = 0; i < 40; i++) {
        double middle = (low + high) / 2;
        *(0.5 * erfc(-middle / sqrt(2)) < p ? &low : &high) = middle;
    }
    return low;
}

void synth_values_init(struct values *values)
{
    memset(values, 0, sizeof *values);
    for (int i = 0; i < VALUES_QUANTILES / 2; i++) {
        values->quantiles[i] = (float)quantile((i + 0.5) / VALUES_QUANTILES);
        values->quantiles[VALUES_QUANTILES - 1 - i] = -values->quantiles[i];
    }
}

/* The E2M1 code nearest to x; ties do not matter here. */
static uint8_t nearest_code(float x)
{
    uint8_t best = 0;
    for (uint8_t code = 1; code < 16; code++)
        if (fabsf(mx_e2m1_values[code] - x) < fabsf(mx_e2m1_values[best] - x))
            best = code;
    return best;
}

/* Blocks have one of three scales, 1/2, 1 and 2 times 2^base, in the proportion 1 : 2 : 1. Their mean square
 * is 25/16 of 4^base, so codes with a deviation of `deviation` / (2^base * 5/4) give the matrix that
 * deviation. base makes that of the codes 1.5 to 3: few zeros, few values cut off at 6. */
static void make_codes(struct values *values, float deviation)
{
    int base = (int)floorf(log2f(deviation / (1.25f * 1.5f)));
    base = base < -125 ? -125 : base > 125 ? 125 : base;
    float codes_deviation = deviation / (1.25f * ldexpf(1, base));
    for (int i = 0; i < VALUES_CODES; i++) {
        int middle = (2 * i + 1) * VALUES_QUANTILES / (2 * VALUES_CODES);
        values->codes[i] = nearest_code(codes_deviation * values->quantiles[middle]);
    }
    const int steps[VALUES_SCALES] = {-1, 0, 0, 1};
    for (int i = 0; i < VALUES_SCALES; i++)
        values->scales[i] = (uint8_t)(base + steps[i] + 127);
}

void synth_values_begin(struct values *values, const struct values_recipe *recipe, uint64_t seed, const char *name)
{
    const struct values_recipe *old = &values->recipe;
    bool same = values->made > 0 && old->format == recipe->format && old->mean == recipe->mean &&
                old->deviation == recipe->deviation;
    values->recipe = *recipe;
    values->rng.state = XXH3_64bits_withSeed(name, strlen(name), seed);
    values->made = 0;
    if (same) /* most tensors follow one like them: the tables stay */
        return;
    if (recipe->format == VALUES_MXFP4_CODES || recipe->format == VALUES_MXFP4_SCALES)
        make_codes(values, recipe->deviation);
    for (int i = 0; i < VALUES_QUANTILES; i++) {
        values->f32[i] = recipe->mean + recipe->deviation * values->quantiles[i];
        values->bf16[i] = bf16_from_f32(values->f32[i]);
    }
}

static void take_bf16(struct values *values, uint16_t *out, size_t n)
{
    struct rng rng = values->rng;
    for (size_t i = 0; i < n; i += DRAWS) {
        uint64_t random = rng_next(&rng);
        size_t last = n - i < DRAWS ? n - i : DRAWS;
        for (size_t k = 0; k < last; k++, random >>= QUANTILE_BITS)
            out[i + k] = values->bf16[random % VALUES_QUANTILES];
    }
    values->rng = rng;
}

static void take_f32(struct values *values, float *out, size_t n)
{
    for (size_t i = 0; i < n; i += DRAWS) {
        uint64_t random = rng_next(&values->rng);
        size_t last = n - i < DRAWS ? n - i : DRAWS;
        for (size_t k = 0; k < last; k++, random >>= QUANTILE_BITS)
            out[i + k] = values->made + i + k < values->recipe.valid ? values->f32[random % VALUES_QUANTILES] : 0;
    }
}

static void take_codes(struct values *values, uint8_t *out, size_t n)
{
    struct rng rng = values->rng;
    for (size_t i = 0; i < n; i += 4) {
        uint64_t random = rng_next(&rng);
        size_t last = n - i < 4 ? n - i : 4;
        for (size_t k = 0; k < last; k++, random >>= 16)
            out[i + k] = (uint8_t)(values->codes[random & 255] | values->codes[random >> 8 & 255] << 4);
    }
    values->rng = rng;
}

static void take_scales(struct values *values, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i += 32) {
        uint64_t random = rng_next(&values->rng);
        size_t last = n - i < 32 ? n - i : 32;
        for (size_t k = 0; k < last; k++, random >>= 2)
            out[i + k] = values->scales[random & 3];
    }
}

void synth_values_take(struct values *values, void *out, size_t bytes)
{
    switch (values->recipe.format) {
    case VALUES_F32:
        take_f32(values, out, bytes / sizeof(float));
        values->made += bytes / sizeof(float);
        return;
    case VALUES_BF16:
        take_bf16(values, out, bytes / sizeof(uint16_t));
        break;
    case VALUES_MXFP4_CODES:
        take_codes(values, out, bytes);
        break;
    case VALUES_MXFP4_SCALES:
        take_scales(values, out, bytes);
        break;
    }
    values->made += bytes;
}
