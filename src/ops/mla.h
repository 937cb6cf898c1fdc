/* Multi-head latent attention without positions, in its absorbed form: queries are carried into the latent space,
 * attention reads the cached latents directly, and its result is carried back per head. The same form serves prompts
 * and single tokens, so a prompt may be cut anywhere.
 *
 * The nodes, in order: latents (norms, and the cache row of each new token), absorb, attend (mla_attend.c), output
 * (values and gate). The projections between them are linear nodes of the model. */
#ifndef DAY0_OPS_MLA_H
#define DAY0_OPS_MLA_H

#include <stdbool.h>

#include "ops/step.h"

enum {
    ATTEND_CHUNK = 256,    /* keys of a chunk: fixed places, so that sums do not depend on how a step is split */
    ATTEND_SEGMENTS = 16,  /* that the chunks of a row make at most */
    ATTEND_SPLIT_ROWS = 4, /* with more rows than these there are tiles enough without splitting the keys of a row */
};

/* Floats that one segment of a row leaves behind. */
static inline uint32_t attend_partial(uint32_t n_heads, uint32_t latent)
{
    return n_heads * (latent + 2);
}

struct mla_op {
    uint32_t layer; /* among the full-attention layers: which rows of a page */
    uint32_t n_heads, q_lora_rank, latent, nope, rope, v_dim;
    float latent_eps;
    const float *q_a_norm, *kv_a_norm;
    struct matrix kv_b_proj; /* [H (nope + V)][latent] */
    struct buffer q_a;       /* [rows][q_lora], normed in place; unused without q_lora_rank */
    struct buffer kv_a;      /* [rows][latent + rope] */
    struct buffer q;         /* [rows][H (nope + rope)] */
    struct buffer absorbed;  /* [rows][H (latent + rope)] */
    struct buffer partials;  /* [rows ATTEND_SEGMENTS][attend_partial]; none (stride 0): rows are not split */
    struct buffer context;   /* [rows][H latent] */
    struct buffer g;         /* [rows][H V] output gate before the sigmoid */
    struct buffer out;       /* [rows][H V] */
    bool output_gate;
    uint32_t cache; /* resource of latents and index keys */
    bool sparse;    /* attend to the selected positions only */
    bool masked;    /* and that by masking all others, instead of gathering the selected rows */
    bool alone;     /* no two queries share a cache row that is read */
    uint32_t topk;
    struct buffer selected;   /* [rows][topk] positions, ascending */
    struct buffer n_selected; /* [rows][1] */
};

/* Values of a cached row, and of an absorbed query. */
static inline uint32_t mla_width(const struct mla_op *op)
{
    return op->latent + op->rope;
}

void op_mla_latents(struct plan *plan, const struct mla_op *op);
void op_mla_absorb(struct plan *plan, const struct mla_op *op);
void op_mla_attend(struct plan *plan, const struct mla_op *op);
void op_mla_output(struct plan *plan, const struct mla_op *op);

#endif
