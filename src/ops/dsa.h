/* The Lightning Indexer: which cached positions a token attends to (DSA).
 *
 * Nodes: keys (norm, rounding, into the page), queries (rounding, head weights), scan (score, head weights and top-k
 * in one pass over the paged keys: no score leaves the core) and choose (the segments of a scan joined, positions
 * sorted). The chosen set is exact: the k best scores as float32 numbers, of equal scores the lower position. While
 * the context is not longer than k, everything is chosen and nothing is scanned; keys are written all the same.
 *
 * A scan by bounds (SCAN_BOUNDS) knows of each key an interval that holds its score (kernels/index.def). It keeps the
 * keys whose upper bound is not below the k-th largest lower bound; of those, a key whose lower bound is above the
 * k+1st largest upper bound is chosen, and only the others are scored. The chosen set is the same. Where more keys stay
 * than there is room for (equal scores, bounds that are too wide) or a query has no bounds, the row's segment is
 * scanned by scores instead, and counted. */
#ifndef DAY0_OPS_DSA_H
#define DAY0_OPS_DSA_H

#include <stdbool.h>

#include "ops/step.h"

enum dsa_scan {
    SCAN_BOUNDS,
    SCAN_SCORES, /* of every key; float32 keys are always scanned so */
};

struct dsa_op {
    uint32_t layer;   /* among the full-attention layers */
    uint32_t ordinal; /* among the layers with an indexer */
    uint32_t n_heads, head_dim, topk;
    float eps;
    enum mx_rule rule;
    const float *k_norm_weight, *k_norm_bias;
    struct buffer q; /* [rows][H D], rounded in place */
    struct buffer k; /* [rows][D] */
    struct buffer w; /* [rows][H], scaled in place */
    uint32_t cache;  /* resource of latents and index keys */
    enum dsa_scan scan;
    uint32_t n_segments;        /* tiles a row's scan is cut into */
    struct buffer query;        /* [rows] records of index_query_s16; SCAN_BOUNDS alone */
    struct buffer candidates;   /* [rows n_segments] dsa_candidates_width values */
    struct buffer n_candidates; /* [rows][n_segments] */
    struct buffer selected;     /* [rows][topk] out */
    struct buffer n_selected;   /* [rows][1] out */
};

/* Widths of buffers, in values of 4 bytes. */
uint32_t dsa_query_width(uint32_t n_heads, uint32_t head_dim);
uint32_t dsa_candidates_width(uint32_t topk);

void op_dsa_keys(struct plan *plan, const struct dsa_op *op);
void op_dsa_queries(struct plan *plan, const struct dsa_op *op);
void op_dsa_scan(struct plan *plan, const struct dsa_op *op);
void op_dsa_choose(struct plan *plan, const struct dsa_op *op);

#endif
