#include "model/operators.h"

#include <string.h>

#include "base/check.h"

/* Whether the config asks for something foreign in the place of a known operator. */
static bool is_replaced(const struct config *config, const char *foreign)
{
    for (uint32_t i = 0; foreign && i < config->n_foreign; i++)
        if (strncmp(config->foreign[i], foreign, strlen(foreign)) == 0)
            return true;
    return false;
}

uint32_t operators_list(struct operator* out, const struct config *config, struct operator_hints hints)
{
    bool kda = false, mla = false, dense = false, moe = false;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        kda = kda || config->is_kda[i];
        mla = mla || !config->is_kda[i];
        moe = moe || config_is_moe(config, i);
        dense = dense || !config_is_moe(config, i);
    }
    const struct {
        const char *name;
        bool needed;
        const char *replaced_by; /* how the foreign ones begin that stand in its place */
    } known[] = {
        {"residual.plain", !config->attn_res_block_size, NULL},
        {"attn_res", config->attn_res_block_size > 0, NULL},
        {"kda.short_conv", kda, NULL},
        {"kda.bounded_decay", kda && config->bounded_decay, NULL},
        {"kda.softplus_decay", kda && !config->bounded_decay, NULL},
        {"kda.full_rank_gate", kda && config->full_rank_gate, NULL},
        {"kda.low_rank_gate", kda && !config->full_rank_gate, NULL},
        {"mla.nope", mla, "mla.rotary"},
        {"mla.q_lora", mla && config->q_lora_rank > 0, NULL},
        {"mla.full_rank_query", mla && !config->q_lora_rank, NULL},
        {"mla.output_gate", mla && config->mla_output_gate, NULL},
        {"dsa.indexer", hints.has_indexers, NULL},
        {"ffn.dense", dense, NULL},
        {"moe.sigmoid_router", moe && config->router == ROUTER_SIGMOID, "moe.router."},
        {"moe.softmax_router", moe && config->router == ROUTER_SOFTMAX, "moe.router."},
        {"moe.groups", moe && config->n_expert_groups > 1, NULL},
        {"moe.shared_experts", moe && config->n_shared_experts > 0, NULL},
        {"moe.latent", moe && config->latent_size > 0, NULL},
        {"moe.latent_norm", moe && config->latent_norm, NULL},
        {"moe.mxfp4", hints.has_mxfp4, NULL},
        {"activation.situ", config->activation == ACTIVATION_SITU, "activation."},
        {"activation.silu", config->activation == ACTIVATION_SILU, "activation."},
        {"embedding.tied", config->tie_word_embeddings, NULL},
    };
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].needed && !is_replaced(config, known[i].replaced_by))
            out[n++] = (struct operator){known[i].name, true};
    for (uint32_t i = 0; i < config->n_foreign; i++)
        out[n++] = (struct operator){config->foreign[i], false};
    CHECK(n <= OPERATORS_MAX);
    return n;
}
