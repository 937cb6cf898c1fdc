/* What a step must at least move and compute, from the model's shapes: a yardstick, not a measurement.
 *
 * Bytes     each weight matrix once a step (MXFP4 with its scales), of the experts those that the rows touch if
 *           routing is even, one row of the embedding a token; the latents that are attended to and the index
 *           keys that are scanned, once a step and sequence, and the new ones written; KDA state and convolution
 *           tails read and written once. Activations are left out: they stay in caches.
 * Flops     two for each weight and row it meets; attention over the attended positions in the absorbed form;
 *           index scores of all positions where there are more than top-k; the KDA recurrence and its
 *           convolutions. Norms, activation functions, the router's choice and the mixing of residuals are left
 *           out: a few percent.
 * A step feeds at most MODEL_ROWS_MAX rows; what is longer is the sum of its steps. */
#ifndef DAY0_LAB_BENCH_COST_H
#define DAY0_LAB_BENCH_COST_H

#include "model/model.h"

struct bench_cost {
    double bytes, flops;
};

/* A step of `rows` new tokens at position `first` of each of n_sequences sequences, `logit_rows` of which
 * give logits. */
struct bench_cost bench_cost_step(const struct model *model, uint32_t n_sequences, uint32_t rows, uint32_t first,
                                  uint32_t logit_rows);

/* A prompt of n tokens in steps of MODEL_ROWS_MAX, logits of the last. */
struct bench_cost bench_cost_prompt(const struct model *model, uint32_t n);

#endif
