/* Kimi Delta Attention between its input projections and its output projection: one node, a tile a (span, head);
 * or three, to see what one is worth.
 *
 * A tile owns its head's state, convolution tails and output columns: short convolutions, SiLU, normalization, decay
 * and write strength, the recurrence, the output norm and the output gate, all without leaving the core. Tokens go
 * through in order, a few at a time, so the result does not depend on how a prompt is cut. */
#ifndef DAY0_OPS_KDA_H
#define DAY0_OPS_KDA_H

#include <stdbool.h>

#include "ops/step.h"

enum { KDA_TOKENS = 32 }; /* of a block: enough to keep a state slice in L1 over many of them */

struct kda_op {
    uint32_t layer; /* among the KDA layers: which state of the sequence */
    uint32_t n_heads, head_dim, taps;
    struct buffer q, k, v;                 /* [rows][H K] before the convolution */
    struct buffer f;                       /* [rows][H K] f_b(f_a x) */
    struct buffer b;                       /* [rows][H] before the sigmoid */
    struct buffer g;                       /* [rows][H K] output gate before the sigmoid */
    struct buffer out;                     /* [rows][H K] */
    const float *conv_q, *conv_k, *conv_v; /* [taps][H K] */
    const float *rate, *dt_bias, *o_norm;  /* [H], [H K], [K] */
    bool bounded_decay;
    float decay_bound, eps;
    uint32_t state; /* resource of the recurrent state */
    uint32_t block; /* tokens that go through a state slice while it is in the L1 cache */
    /* Where the region is three nodes: what they hand on, [rows][H K] each and write strengths [H][rows]. Without
     * (stride 0) it is one. */
    struct kda_parts {
        struct buffer q, k, v, decay, o, u, beta;
    } parts;
};

void op_kda(struct plan *plan, const struct kda_op *op);

/* Undoes the last n tokens of a sequence, n <= sequence_rewindable: all it keeps is as if they had never been fed. */
void kda_rewind(const struct kernels *kernels, struct sequence *sequence, uint32_t n);

#endif
