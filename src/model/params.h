/* The model's parameters: the tensors of a checkpoint bound to their places, shapes checked against the
 * config.
 *
 * Matrices are views into the checkpoint's mapping, or of converted weights (weights/conversion.h). Vectors (norm
 * weights, biases, convolutions) are small and are widened to float32 into an arena of their own; so is the product of
 * each depth query with its norm weight. */
#ifndef DAY0_MODEL_PARAMS_H
#define DAY0_MODEL_PARAMS_H

#include "base/arena.h"
#include "model/bind.h"
#include "model/config.h"
#include "ops/moe.h"
#include "tensor/matrix.h"
#include "weights/checkpoint.h"

/* Letters: D hidden, H heads, K key dim, V value dim, R latent rank, N vocabulary (docs/GLOSSARY.md). */
struct kda_params {
    struct matrix q_proj, k_proj, v_proj;  /* [H K][D] */
    const float *conv_q, *conv_k, *conv_v; /* [taps][H K], transposed from the file's [H K][1][taps] */
    struct matrix f_a_proj, f_b_proj;      /* [K][D], [H K][K] */
    struct matrix b_proj;                  /* [H][D] */
    struct matrix g_proj;                  /* [H K][D], full rank gate */
    struct matrix g_a_proj, g_b_proj;      /* [K][D], [H K][K], low rank gate */
    const float *rate;                     /* [H] exp(A_log), the first H values of a tensor of at least H */
    const float *dt_bias;                  /* [H K] */
    const float *o_norm;                   /* [K] */
    struct matrix o_proj;                  /* [D][H K] */
};

struct indexer_params {
    uint32_t n_heads, head_dim;               /* from the tensors' rows; 0 heads: this layer is dense */
    struct matrix wq_b;                       /* [heads head_dim][q_lora_rank] */
    struct matrix wk;                         /* [head_dim][D] */
    struct matrix weights_proj;               /* [heads][D] */
    const float *k_norm_weight, *k_norm_bias; /* [head_dim] */
};

struct mla_params {
    struct matrix q_a_proj, q_b_proj; /* [q_lora][D], [H (nope + rope)][q_lora] */
    const float *q_a_norm;            /* [q_lora] */
    struct matrix q_proj;             /* [H (nope + rope)][D], without q_lora_rank */
    struct matrix kv_a_proj;          /* [R + rope][D] */
    const float *kv_a_norm;           /* [R] */
    struct matrix kv_b_proj;          /* [H (nope + V)][R]; rows of a head: nope key rows, then V value rows */
    struct matrix g_proj;             /* [H V][D], with an output gate */
    struct matrix o_proj;             /* [D][H V] */
    struct indexer_params indexer;
};

struct ffn_params {
    struct matrix gate_proj, up_proj, down_proj; /* [I][D], [I][D], [D][I] */
};

struct moe_params {
    struct matrix gate;           /* [experts][D] */
    const float *bias;            /* [experts] e_score_correction_bias */
    struct matrix latent_down;    /* [width][D]; rows 0 without a latent */
    struct matrix latent_up;      /* [D][width] */
    const float *latent_norm;     /* [width], or NULL */
    struct ffn_params shared;     /* inner size moe_intermediate_size * shared experts; rows 0 without shared experts */
    const struct expert *experts; /* [n_experts] */
};

struct layer_params {
    const float *input_norm, *post_attention_norm; /* [D] */
    struct kda_params kda;                         /* if config.is_kda[layer] */
    struct mla_params mla;                         /* else */
    struct ffn_params ffn;                         /* dense layers */
    struct moe_params moe;                         /* config_is_moe */
};

struct params {
    struct matrix embed_tokens; /* [N][D] */
    struct matrix lm_head;      /* [N][D]; the embedding where tied */
    const float *final_norm;    /* [D] */
    /* Depth queries folded with their norm weights, float32 [2 L + 1][D]: attention slot of layer 0, FFN slot
     * of layer 0, attention slot of layer 1, ..., and last the output mix. rows 0 without Attention
     * Residuals. */
    struct matrix depth_queries;
    struct layer_params *layers;  /* [n_layers] */
    struct conversion conversion; /* the matrices that are converted or packed, which have no data before they are */
    uint64_t parameters_total;    /* elements bound, MXFP4 codes counted one each */
    struct arena arena;
};

/* Binds every tensor. Borrows `checkpoint` until params_fini; owns its arena. Fails on the first tensor that
 * is missing, of the wrong shape or type, or holds an E8M0 byte of 255 in its scales: file, tensor, expected,
 * found. `params` stays where it is: the conversion points into it. */
NEEDS_CHECK enum status params_init(struct params *params, const struct config *config,
                                    const struct checkpoint *checkpoint, struct weight_types types,
                                    enum packing packing, struct error *err);
void params_fini(struct params *params);

/* Tells `see` every tensor that a model of this config has, in the order of binding, without any checkpoint.
 * `indexers` [n_layers] has the sizes of each layer's indexer, zero where there is none. `params` gets the
 * shapes of the matrices and vectors that nothing was written to; released with params_fini. */
NEEDS_CHECK enum status params_walk(struct params *params, const struct config *config,
                                    const struct indexer_params *indexers, wanted_fn *see, void *see_context,
                                    struct error *err);

/* The sizes of full-attention layer `index`'s indexer as its tensors give them, n_heads 0 if it has none;
 * fails where tensors and config disagree. */
NEEDS_CHECK enum status params_indexer_sizes(struct indexer_params *indexer, const struct config *config,
                                             uint32_t index, const struct checkpoint *checkpoint, struct error *err);

#endif
