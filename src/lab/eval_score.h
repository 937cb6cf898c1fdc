/* What rows of logits are worth: likelihood of the token that came, and distance to a reference's
 * distribution.
 *
 * All in float64 from float32 logits. Rows are scored one by one, on a team; sums over rows are the
 * caller's, in order of row, so no figure depends on the number of threads. */
#ifndef DAY0_LAB_EVAL_SCORE_H
#define DAY0_LAB_EVAL_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "exec/team.h"

struct score_row {
    double log_sum; /* log of the sum of exp(logit) */
    double nll;     /* -log p(target), nats */
    double kl;      /* sum of p_ref log(p_ref / p), nats; 0 without a reference */
    uint32_t best;  /* the largest logit, of equal ones the first */
};

/* Scores of logits [n_rows][vocabulary] into scores [n_rows]; targets [n_rows] are the tokens that came.
 * With `reference` logits of the same shape, reference_scores are what this function gave for them. Not
 * finite logits give not finite scores. */
void eval_score_rows(struct team *team, struct score_row *scores, const float *logits, const int32_t *targets,
                     size_t n_rows, size_t vocabulary, const float *reference,
                     const struct score_row *reference_scores);

/* How many of a [n_a] are in b [n_b]; both ascending. */
uint32_t eval_score_shared(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b);

#endif
