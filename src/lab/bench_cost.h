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
 * Flops are counted by the unit that does them, as the precision policy decides (ops/narrow.h).
 * A step feeds at most MODEL_ROWS_MAX rows; what is longer is the sum of its steps. */
#ifndef DAY0_LAB_BENCH_COST_H
#define DAY0_LAB_BENCH_COST_H

#include "exec/rates.h"
#include "model/model.h"

struct bench_cost {
    double bytes, flops[UNIT_COUNT];
    double weight_bytes; /* of the bytes, those of weights */
};

/* The parts of a model that are measured and predicted apart. */
enum bench_part { PART_KDA, PART_MLA, PART_DENSE, PART_MOE, PART_ENDS, PART_COUNT };

/* New tokens of a step: `rows` of each of n_sequences sequences, from position `first` on. */
struct bench_shape {
    uint32_t n_sequences, rows, first, logit_rows;
};

/* By part: all KDA layers, all full-attention layers, all dense FFNs, all MoE layers, embedding and output head. */
void bench_cost_parts(struct bench_cost out[PART_COUNT], const struct model *model, struct bench_shape shape);

/* The whole step. */
struct bench_cost bench_cost_step(const struct model *model, struct bench_shape shape);

/* A prompt of n tokens after `depth` others, in steps of MODEL_ROWS_MAX, logits of the last. */
struct bench_cost bench_cost_prompt(const struct model *model, uint32_t depth, uint32_t n);

void bench_cost_add(struct bench_cost *sum, const struct bench_cost *cost);

double bench_cost_flops(const struct bench_cost *cost);

/* The least time that a machine of such rates takes, in seconds: to move the bytes, to do the arithmetic; 0 where a
 * rate is not known. What is faster than the larger of the two has its data in caches. */
struct bench_floors {
    double read_s, compute_s;
};
struct bench_floors bench_cost_floors(const struct bench_cost *cost, const struct rates *rates);

#endif
