/* Choosing the next token from logits. */
#ifndef DAY0_DECODE_SAMPLER_H
#define DAY0_DECODE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"

/* Applied in this order: temperature, top-k, top-p, min-p; each on what the one before left, renormalized. */
struct sampling {
    float temperature; /* 0: the best token, ties to the lowest id; else probabilities ~ exp(logit / temperature) */
    uint32_t top_k;    /* the k most probable; 0: all */
    float top_p;       /* the smallest set of the most probable that reaches this share; 1: all */
    float min_p;       /* those at least this share as probable as the best; 0: all */
    uint64_t seed;
};

struct sampler {
    struct sampling sampling;
    struct rng rng;
    uint32_t vocabulary;
    struct candidate *candidates; /* [vocabulary] */
};

/* Makes room for a vocabulary; settings take the best token until sampler_set. Owns its memory until sampler_fini. */
NEEDS_CHECK enum status sampler_init(struct sampler *sampler, uint32_t vocabulary, struct error *err);
void sampler_fini(struct sampler *sampler);

/* Checks the settings' ranges, takes them and starts from their seed. Allocates nothing; a failure changes nothing. */
NEEDS_CHECK enum status sampler_set(struct sampler *sampler, const struct sampling *sampling, struct error *err);

/* The next token for logits [vocabulary]. Allocates nothing. Logits that are not numbers are never chosen, unless
 * none is a number: then token 0. */
int32_t sampler_pick(struct sampler *sampler, const float *logits);

/* log of the sum of exp(logits): a logit less this is the token's log-probability. */
double sampler_log_total(const float *logits, uint32_t n);

/* The n_top best tokens, best first, ties to the lower id; n_top <= n. */
void sampler_top(const float *logits, uint32_t n, int32_t *top, uint32_t n_top);

/* What a checkpoint's generation_config.json asks for (temperature, top_p, top_k); temperature 1 and no cuts where it
 * or the file is silent. */
NEEDS_CHECK enum status sampling_load(struct sampling *sampling, const char *directory, struct error *err);

#endif
