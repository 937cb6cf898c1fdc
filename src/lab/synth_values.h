/* Random tensor values, fast enough to be bound by the disk: a normal value is a draw from a table of 4096
 * quantiles, twelve random bits each, so the distribution is normal to about 3.7 standard deviations and the
 * tables stay in the first-level cache. MXFP4 codes are drawn the same way from quantiles rounded to E2M1.
 *
 * A tensor's values depend on the seed and its name alone: not on the shard it lies in, nor on the tensors
 * around it. */
#ifndef DAY0_LAB_SYNTH_VALUES_H
#define DAY0_LAB_SYNTH_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

enum {
    VALUES_QUANTILES = 4096,
    VALUES_CODES = 256,
    VALUES_SCALES = 4,
    VALUES_STEP_BYTES = 160,
};

enum values_format { VALUES_F32, VALUES_BF16, VALUES_MXFP4_CODES, VALUES_MXFP4_SCALES };

struct values_recipe {
    enum values_format format;
    float mean, deviation; /* of the values that the tensor stands for; codes and scales: of the same matrix */
    uint64_t valid;        /* further elements are 0; UINT64_MAX: all are valid */
};

struct values {
    struct rng rng;
    struct values_recipe recipe;
    uint64_t made;
    float quantiles[VALUES_QUANTILES]; /* of the standard normal distribution, ascending */
    float f32[VALUES_QUANTILES];
    uint16_t bf16[VALUES_QUANTILES];
    uint8_t codes[VALUES_CODES]; /* E2M1 */
    uint8_t scales[VALUES_SCALES];
};

/* Makes the quantiles; once. */
void synth_values_init(struct values *values);

/* Starts a tensor. */
void synth_values_begin(struct values *values, const struct values_recipe *recipe, uint64_t seed, const char *name);

/* The tensor's next `bytes`. One random number makes several elements, so `bytes` must be a multiple of
 * VALUES_STEP_BYTES except in the last call of a tensor. */
void synth_values_take(struct values *values, void *out, size_t bytes);

#endif
