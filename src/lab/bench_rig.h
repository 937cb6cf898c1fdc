/* A model opened for measuring: sequences with a synthetic past, random tokens to feed, and timed work on them. */
#ifndef DAY0_LAB_BENCH_RIG_H
#define DAY0_LAB_BENCH_RIG_H

#include "base/rng.h"
#include "model/model.h"

enum {
    BENCH_BATCH_MAX = MODEL_ROWS_MAX,
    BENCH_STEPS_MAX = 64, /* generated tokens of a sequence in one timing */
};

struct bench_rig {
    struct model *model;
    struct sequence *sequences; /* [n_sequences] */
    uint32_t n_sequences;
    int32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    float *logits; /* [n_sequences][vocabulary] */
    struct rng rng;
};

/* The longest context, prompt and the largest batch that will be asked of a rig. */
struct bench_needs {
    uint32_t context, prompt, batch;
};

/* Opens the model with room for a batch of such contexts or, if the memory is too small, for half as many, and so on; a
 * single one must fit. Owns everything until bench_rig_close, which may be called twice and on a zeroed rig. */
NEEDS_CHECK enum status bench_rig_open(struct bench_rig *rig, const char *directory,
                                       const struct model_options *options, struct bench_needs needs,
                                       struct error *err);
void bench_rig_close(struct bench_rig *rig);

/* How many of `batch` sequences the rig has room for when each generates after `depth` tokens. */
uint32_t bench_rig_fits(const struct bench_rig *rig, uint32_t depth, uint32_t batch);

/* Gives the first `batch` sequences random pasts of `depth` tokens, and the first of them room for `n_tokens` more that
 * has been touched, so that no timing pays for fresh memory. */
NEEDS_CHECK enum status bench_rig_fill(struct bench_rig *rig, uint32_t depth, uint32_t batch, uint32_t n_tokens,
                                       struct error *err);

/* Feeds a prompt of n tokens after `depth` others, with logits of the last. */
NEEDS_CHECK enum status bench_rig_prompt(struct bench_rig *rig, uint32_t depth, uint32_t n, double *seconds,
                                         struct error *err);

/* Steps of one token for each of `batch` sequences, from `depth` on: *steps of them, or fewer once seconds_max have
 * passed. */
NEEDS_CHECK enum status bench_rig_generate(struct bench_rig *rig, uint32_t depth, uint32_t batch, uint32_t *steps,
                                           double seconds_max, double *seconds, struct error *err);

#endif
