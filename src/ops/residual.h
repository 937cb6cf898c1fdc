/* The residual stream: embedding, sums of layer outputs, and Attention Residuals in two phases.
 *
 * Every sublayer input is a "slot": 2 l for the attention of layer l, 2 l + 1 for its FFN, 2 L for the output. With
 * Attention Residuals a slot's input is a softmax mixture over depth: of the closed blocks and of the running sum.
 * Phase 1 scores a block against the queries of all later slots once, when it closes; phase 2, at the slot, scores
 * only the running sum and mixes. Without Attention Residuals the input is the sum itself. */
#ifndef DAY0_OPS_RESIDUAL_H
#define DAY0_OPS_RESIDUAL_H

#include <stdbool.h>

#include "ops/step.h"

/* The buffers that all slots share. rows = the plan's rows, B = blocks at most. */
struct residual {
    uint32_t rows, width, n_slots;
    float eps;
    struct matrix queries; /* [n_slots][width] float32; rows 0: plain residual connections */
    struct buffer sum;     /* [rows][width] the running sum */
    struct buffer blocks;  /* [B rows][width] closed blocks, block-major */
    struct buffer inverse; /* [rows][B] 1 / rms of each closed block */
    struct buffer history; /* [rows][B n_slots] phase 1: block . query, before the factor 1 / rms */
    bool one_stage;        /* no phase 1: every slot scores all blocks itself */
    bool norm_apart;       /* a slot's norm is a node of its own */
};

enum tap_kind { TAP_NONE, TAP_MIXTURE, TAP_SUM };

/* What happens at a slot, in this order. */
struct residual_slot {
    uint32_t slot;
    struct buffer deltas[2]; /* outputs of the sublayer before, added to the sum */
    uint32_t n_deltas;
    bool fresh;        /* the first delta starts a new sum */
    uint32_t n_blocks; /* closed blocks that are mixed with the sum */
    enum tap_kind tap; /* copied to step->taps[row][tap_index] if taps are wanted */
    uint32_t tap_index, n_taps;
    const float *norm; /* [width] x = RMSNorm(mixture); NULL: nothing further is computed */
    struct buffer x;   /* [rows][width] out */
    bool closes;       /* the sum then becomes block n_blocks */
    bool logit_rows;   /* only rows whose logits are wanted, packed to the front of x */
};

void op_embed(struct plan *plan, struct buffer sum, const struct matrix *embedding);
void op_slot(struct plan *plan, const struct residual *residual, const struct residual_slot *slot, unsigned n_threads);

#endif
