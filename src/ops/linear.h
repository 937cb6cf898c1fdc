/* Linear layers as plan nodes: y = W x for every row. Several matrices that share an input make one node. */
#ifndef DAY0_OPS_LINEAR_H
#define DAY0_OPS_LINEAR_H

#include <stdbool.h>

#include "ops/narrow.h"

enum {
    LINEAR_PARTS_MAX = 8,
};

/* One matrix of a node: its outputs go to y, starting at `y_column`. */
struct linear_part {
    struct matrix w;
    struct buffer y;
    uint32_t y_column;
    bool exact;          /* in float32 whatever the policy */
    uint32_t first_tile; /* filled by op_linear, as is the form */
    enum form form;
};

/* Adds `y_i = W_i x` for all parts. `n_threads` only shapes the tiles. */
void op_linear(struct plan *plan, const char *label, const char *stream, struct inputs *x,
               const struct linear_part *parts, uint32_t n_parts, unsigned n_threads);

/* Adds the output head: step->logits = W x for the first n_logit_rows rows of x. */
void op_logits(struct plan *plan, struct buffer x, const struct matrix *w, unsigned n_threads);

/* Which gated activation. With buffers of the rows and width of what it gives it is a node of its own, which finds
 * gates and ups there; without (stride 0) the tile that made them applies it. */
struct activation_kind {
    bool situ;
    float beta, linear_beta;
    struct buffer gates, ups;
};

/* Adds hidden = act(W_gate x) * (W_up x), the inner half of a gated FFN. */
void op_ffn_inner(struct plan *plan, const char *label, const char *stream, struct inputs *x, struct buffer hidden,
                  const struct matrix *gate, const struct matrix *up, struct activation_kind activation,
                  unsigned n_threads);

/* The gated activation of n values. */
void activate(const struct kernels *kernels, struct activation_kind kind, float *y, const float *gate, const float *up,
              size_t n);

/* Adds the activation of `per_row` rows of `columns` values for each row of the step, from its buffers to `out`. */
void op_activate(struct plan *plan, const char *label, const char *stream, struct activation_kind kind,
                 struct buffer out, uint32_t columns, uint32_t per_row);

/* How many outputs of `total` a tile takes, so that every thread gets several tiles. */
uint32_t linear_tile_outputs(uint32_t total, unsigned n_threads);

#endif
