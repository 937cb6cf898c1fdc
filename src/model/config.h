/* config.json of the family: Kimi Linear, Kimi K3, Kimi K3.1. Every difference between the architectures is a field.
 *
 * What is not in the family is refused by name: rotary MLA, another activation or router function, moe_layer_freq other
 * than 1, top-k methods other than noaux_tc, layer lists that overlap, leave a gap or leave the range. */
#ifndef DAY0_MODEL_CONFIG_H
#define DAY0_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Limits of what is read from a config; far above the family's largest. */
enum {
    CONFIG_LAYERS_MAX = 512,
    CONFIG_EXPERTS_MAX = 4096,
    CONFIG_WIDTH_MAX = 1 << 20,
    CONFIG_HEAD_DIM_MAX = 256, /* KDA and indexer heads */
    CONFIG_CONV_TAPS_MAX = 8,
    CONFIG_KEYS_MAX = 64, /* unknown keys that are kept for reports */
    CONFIG_KEY_BYTES = 64,
    CONFIG_STOP_TOKENS_MAX = 8,
    CONFIG_FOREIGN_MAX = 16,
};

enum activation { ACTIVATION_SILU, ACTIVATION_SITU };
enum router_function { ROUTER_SIGMOID, ROUTER_SOFTMAX };

struct config {
    uint32_t vocab_size, hidden_size, n_layers, n_heads, intermediate_size;
    float rms_norm_eps;
    float latent_norm_eps; /* q_a_layernorm and kv_a_layernorm: 1e-6, their class default, unless overridden */
    bool tie_word_embeddings;
    enum activation activation;
    float situ_beta, situ_linear_beta; /* linear beta 0: the up branch is linear */

    bool is_kda[CONFIG_LAYERS_MAX]; /* layer index from 0 */
    uint32_t kda_heads, kda_head_dim, conv_taps;
    bool full_rank_gate; /* g_proj, else g_b(g_a x) */
    bool bounded_decay;  /* bound * sigmoid(rate z), else -rate softplus(z) */
    float decay_bound;   /* gate_lower_bound, negative; read only if bounded_decay */

    uint32_t q_lora_rank; /* 0: q_proj */
    uint32_t kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    bool mla_output_gate;

    uint32_t index_topk; /* 0: no indexer, dense attention. Heads and head size come from the tensors. */
    /* What dsa_config says, 0 where it says nothing; must agree with the tensors. */
    uint32_t index_heads_said, index_head_dim_said;
    bool index_layers_said;
    bool is_index_layer[CONFIG_LAYERS_MAX];

    uint32_t attn_res_block_size; /* 0: plain residual connections */

    uint32_t n_experts; /* 0: every layer has a dense FFN */
    uint32_t n_experts_per_token, n_shared_experts, moe_intermediate_size;
    uint32_t latent_size; /* routed_expert_hidden_size; 0: experts work at hidden_size */
    bool latent_norm;
    enum router_function router;
    bool renormalize;
    float routed_scaling_factor;
    uint32_t first_dense_layers; /* first_k_dense_replace */
    uint32_t n_expert_groups, n_groups_used;

    int32_t bos_token, stop_tokens[CONFIG_STOP_TOKENS_MAX]; /* bos -1 where absent */
    uint32_t n_stop_tokens;
    char architecture[CONFIG_KEY_BYTES];

    /* Keys that day0 does not know, as "text_config.some_key"; running is refused if one may change the meaning,
     * that is any unknown key inside dsa_config or linear_attn_config, unless accepted. */
    uint32_t n_unknown_keys, n_doubtful_keys; /* doubtful ones, which may change the meaning, come first */
    char unknown_keys[CONFIG_KEYS_MAX][CONFIG_KEY_BYTES];

    /* What is asked for and not in the family, by the name of the operator, "mla.rotary"; only in a survey. */
    bool surveyed;
    uint32_t n_foreign;
    char foreign[CONFIG_FOREIGN_MAX][CONFIG_KEY_BYTES];
};

struct config_options {
    bool accept_unknown;   /* --accept-unknown */
    bool survey;           /* list what is foreign and doubtful instead of refusing it; not for running */
    float latent_norm_eps; /* 0: the default, 1e-6 */
};

/* Parses the text of a config.json. */
NEEDS_CHECK enum status config_parse(struct config *config, const char *text, size_t bytes,
                                     const struct config_options *options, struct error *err);

/* Reads directory/config.json. */
NEEDS_CHECK enum status config_load(struct config *config, const char *directory, const struct config_options *options,
                                    struct error *err);

static inline bool config_is_moe(const struct config *config, uint32_t layer)
{
    return config->n_experts > 0 && layer >= config->first_dense_layers;
}

#endif
