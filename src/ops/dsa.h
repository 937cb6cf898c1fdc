/* The Lightning Indexer: which cached positions a token attends to (DSA).
 *
 * Nodes: keys (norm, rounding, into the page), queries (rounding, head weights), scan (score, head weights and top-k
 * in one pass over the paged keys: no score leaves the core) and choose (the segments of a scan joined, positions
 * sorted). The chosen set is exact: the k best scores as float32 numbers, of equal scores the lower position. While
 * the context is not longer than k, everything is chosen and nothing is scanned; keys are written all the same. */
#ifndef DAY0_OPS_DSA_H
#define DAY0_OPS_DSA_H

#include <stdbool.h>

#include "ops/step.h"

struct dsa_op {
    uint32_t layer;   /* among the full-attention layers */
    uint32_t ordinal; /* among the layers with an indexer */
    uint32_t n_heads, head_dim, topk;
    float eps;
    enum mx_rule rule;
    const float *k_norm_weight, *k_norm_bias;
    struct buffer q;            /* [rows][H D], rounded in place */
    struct buffer k;            /* [rows][D] */
    struct buffer w;            /* [rows][H], scaled in place */
    uint32_t cache;             /* resource of latents and index keys */
    uint32_t n_segments;        /* tiles a row's scan is cut into */
    struct buffer candidates;   /* [rows n_segments][topk] 64-bit ranks */
    struct buffer n_candidates; /* [rows][n_segments] */
    struct buffer selected;     /* [rows][topk] out */
    struct buffer n_selected;   /* [rows][1] out */
};

void op_dsa_keys(struct plan *plan, const struct dsa_op *op);
void op_dsa_queries(struct plan *plan, const struct dsa_op *op);
void op_dsa_scan(struct plan *plan, const struct dsa_op *op);
void op_dsa_choose(struct plan *plan, const struct dsa_op *op);

#endif
