/* Mixture of experts: router, grouping of (row, slot) pairs by expert, the experts' two halves, and the weighted sum.
 *
 * Tokens are grouped by expert, so an expert's weights are read once a step however many rows chose it; rows are
 * reached by pointer, nothing is padded. How many tiles the experts make is known only after the router ran. A row's
 * result is summed in the order of its own choice, so it does not depend on its neighbours. */
#ifndef DAY0_OPS_MOE_H
#define DAY0_OPS_MOE_H

#include <stdbool.h>

#include "ops/linear.h"

enum { CHOICE_GROUPS_MAX = 256 }; /* expert groups of a router */

/* w1, w3, w2 of one expert. */
struct expert {
    struct matrix gate, up, down;
};

struct moe_op {
    uint32_t rows; /* the plan's rows */
    uint32_t n_experts, n_chosen, n_groups, n_groups_used, inner, width;
    bool softmax, renormalize;
    float scaling, eps;
    const float *bias;            /* [E] */
    const struct expert *experts; /* [E]; must outlive the plan */
    const float *latent_norm;     /* [width], or NULL */
    struct activation_kind activation;
    bool one_by_one;               /* rows of one expert do not meet its weights together */
    struct buffer logits;          /* [rows][E] of the router, turned into scores in place */
    struct buffer chosen, weights; /* [rows][A] experts (u32) and their weights, best first */
    struct buffer groups;          /* bytes, see moe.c */
    struct inputs *x;              /* [rows][width] input of the experts; used while the plan is built */
    struct inputs *hidden;         /* [rows A][inner] */
    struct buffer expert_out;      /* [rows A][width] */
    struct buffer out;             /* [rows][width] weighted sum, normed if latent_norm */
};

/* Bytes of the `groups` buffer. */
size_t moe_groups_bytes(uint32_t rows, uint32_t n_experts, uint32_t n_chosen);

void op_moe_route(struct plan *plan, const struct moe_op *op);
void op_moe_experts(struct plan *plan, const struct moe_op *op, unsigned n_threads);
void op_moe_combine(struct plan *plan, const struct moe_op *op);

/* The router's choice for one row: scores [E] in (sigmoid or softmax done), chosen [A] and weights [A] out, best first,
 * ties to the lower expert. `choice` [E] is scratch. Source: spec/k31.py Router. */
void moe_choose(const struct moe_op *op, const float *scores, float *choice, uint32_t *chosen, float *weights);

#endif
