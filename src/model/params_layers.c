#include "model/params_layers.h"

static enum status bind_kda(struct kda_params *kda, const struct config *config, struct binder *binder,
                            struct error *err)
{
    uint32_t hidden = config->hidden_size, dim = config->kda_head_dim, inner = config->kda_heads * dim;
    TRY(bind_weights(binder, WEIGHTS_DENSE, "q_proj", inner, hidden, &kda->q_proj, err));
    TRY(bind_weights(binder, WEIGHTS_DENSE, "k_proj", inner, hidden, &kda->k_proj, err));
    TRY(bind_weights(binder, WEIGHTS_DENSE, "v_proj", inner, hidden, &kda->v_proj, err));
    TRY(bind_convolution(binder, "q_conv1d.weight", inner, config->conv_taps, &kda->conv_q, err));
    TRY(bind_convolution(binder, "k_conv1d.weight", inner, config->conv_taps, &kda->conv_k, err));
    TRY(bind_convolution(binder, "v_conv1d.weight", inner, config->conv_taps, &kda->conv_v, err));
    TRY(bind_weights(binder, WEIGHTS_KEPT, "f_a_proj", dim, hidden, &kda->f_a_proj, err));
    TRY(bind_weights(binder, WEIGHTS_KEPT, "f_b_proj", inner, dim, &kda->f_b_proj, err));
    TRY(bind_weights(binder, WEIGHTS_KEPT, "b_proj", config->kda_heads, hidden, &kda->b_proj, err));
    if (config->full_rank_gate) {
        TRY(bind_weights(binder, WEIGHTS_DENSE, "g_proj", inner, hidden, &kda->g_proj, err));
    } else {
        TRY(bind_weights(binder, WEIGHTS_DENSE, "g_a_proj", dim, hidden, &kda->g_a_proj, err));
        TRY(bind_weights(binder, WEIGHTS_DENSE, "g_b_proj", inner, dim, &kda->g_b_proj, err));
    }
    TRY(bind_rates(binder, "A_log", config->kda_heads, &kda->rate, err));
    TRY(bind_vector(binder, "dt_bias", inner, &kda->dt_bias, err));
    TRY(bind_vector(binder, "o_norm.weight", dim, &kda->o_norm, err));
    return bind_weights(binder, WEIGHTS_DENSE, "o_proj", hidden, inner, &kda->o_proj, err);
}

/* A size of the indexer is the number of rows of one of its tensors; `said` is the config's word on it, 0 if
 * it has none. */
static enum status read_rows(const struct tensor *tensor, uint32_t said, uint32_t max, uint32_t *out, struct error *err)
{
    uint64_t rows = tensor->rank == 2 ? tensor->shape[0] : 0;
    if (rows < 1 || rows > max)
        return error_set(err, STATUS_FORMAT, "%s: tensor %s: expected a matrix of 1 to %u rows, found %llu",
                         tensor->file, tensor->name, max, (unsigned long long)rows);
    if (said && rows != said)
        return error_set(err, STATUS_FORMAT, "%s: tensor %s: expected %u rows, as config.json says, found %llu",
                         tensor->file, tensor->name, said, (unsigned long long)rows);
    *out = (uint32_t)rows;
    return STATUS_OK;
}

/* What the config says of indexers must agree with what the layer has. */
static enum status check_indexer(const struct config *config, uint32_t index, const struct tensor *tensor,
                                 struct error *err)
{
    if (config->index_layers_said && !config->is_index_layer[index])
        return error_set(err, STATUS_FORMAT,
                         "%s: tensor %s: expected no indexer, as dsa_config leaves out layer %u, found one",
                         tensor->file, tensor->name, index + 1);
    if (!config->index_topk)
        return error_set(err, STATUS_FORMAT,
                         "%s: tensor %s: expected index_topk in config.json (in dsa_config or text_config) "
                         "beside an indexer, found none",
                         tensor->file, tensor->name);
    if (!config->q_lora_rank)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: tensor %s: expected q_lora_rank in config.json beside an indexer, which "
                         "reads the query's low-rank form, found none",
                         tensor->file, tensor->name);
    return STATUS_OK;
}

/* The tensors say whether a layer has an indexer, and how large it is. Leaves n_heads at 0 where there is
 * none. */
static enum status read_indexer_sizes(struct indexer_params *indexer, const struct config *config, uint32_t index,
                                      const struct binder *binder, struct error *err)
{
    const struct tensor *heads = bind_find(binder, "indexer.weights_proj.weight");
    const struct tensor *key = bind_find(binder, "indexer.wk.weight");
    if (!key)
        key = bind_find(binder, "indexer.wk.weight_packed");
    bool said = config->index_layers_said && config->is_index_layer[index];
    if (!heads && !key && !said)
        return STATUS_OK;
    if (!heads || !key)
        return error_set(err, STATUS_NOT_FOUND,
                         "tensor %sindexer.%s.weight: expected %s, found no tensor of that name in the "
                         "checkpoint",
                         binder->prefix, heads ? "wk" : "weights_proj",
                         said ? "an indexer, as dsa_config names the layer"
                              : "beside the layer's other indexer tensors");
    TRY(check_indexer(config, index, heads, err));
    TRY(read_rows(heads, config->index_heads_said, CONFIG_WIDTH_MAX / CONFIG_HEAD_DIM_MAX, &indexer->n_heads, err));
    return read_rows(key, config->index_head_dim_said, CONFIG_HEAD_DIM_MAX, &indexer->head_dim, err);
}

static enum status bind_indexer(struct indexer_params *indexer, const struct config *config, uint32_t index,
                                struct binder *binder, struct error *err)
{
    if (binder->indexers)
        *indexer = binder->indexers[index];
    else
        TRY(read_indexer_sizes(indexer, config, index, binder, err));
    if (!indexer->n_heads)
        return STATUS_OK;
    uint32_t heads = indexer->n_heads, dim = indexer->head_dim;
    TRY(bind_matrix(binder, "indexer.wq_b", heads * dim, config->q_lora_rank, &indexer->wq_b, err));
    TRY(bind_matrix(binder, "indexer.wk", dim, config->hidden_size, &indexer->wk, err));
    TRY(bind_plain_matrix(binder, "indexer.weights_proj", heads, config->hidden_size, &indexer->weights_proj, err));
    TRY(bind_vector(binder, "indexer.k_norm.weight", dim, &indexer->k_norm_weight, err));
    return bind_vector(binder, "indexer.k_norm.bias", dim, &indexer->k_norm_bias, err);
}

static enum status bind_mla(struct mla_params *mla, const struct config *config, uint32_t index, struct binder *binder,
                            struct error *err)
{
    uint32_t hidden = config->hidden_size, heads = config->n_heads, rank = config->kv_lora_rank;
    uint32_t query = heads * (config->qk_nope_head_dim + config->qk_rope_head_dim), value = heads * config->v_head_dim;
    if (config->q_lora_rank) {
        TRY(bind_weights(binder, WEIGHTS_DENSE, "q_a_proj", config->q_lora_rank, hidden, &mla->q_a_proj, err));
        TRY(bind_vector(binder, "q_a_layernorm.weight", config->q_lora_rank, &mla->q_a_norm, err));
        TRY(bind_weights(binder, WEIGHTS_DENSE, "q_b_proj", query, config->q_lora_rank, &mla->q_b_proj, err));
    } else {
        TRY(bind_weights(binder, WEIGHTS_DENSE, "q_proj", query, hidden, &mla->q_proj, err));
    }
    TRY(bind_weights(binder, WEIGHTS_DENSE, "kv_a_proj_with_mqa", rank + config->qk_rope_head_dim, hidden,
                     &mla->kv_a_proj, err));
    TRY(bind_vector(binder, "kv_a_layernorm.weight", rank, &mla->kv_a_norm, err));
    TRY(bind_matrix(binder, "kv_b_proj", heads * (config->qk_nope_head_dim + config->v_head_dim), rank, &mla->kv_b_proj,
                    err));
    if (config->mla_output_gate)
        TRY(bind_weights(binder, WEIGHTS_DENSE, "g_proj", value, hidden, &mla->g_proj, err));
    TRY(bind_weights(binder, WEIGHTS_DENSE, "o_proj", hidden, value, &mla->o_proj, err));
    return bind_indexer(&mla->indexer, config, index, binder, err);
}

static enum status bind_ffn(struct ffn_params *ffn, uint32_t hidden, uint32_t inner, struct binder *binder,
                            struct error *err)
{
    TRY(bind_weights(binder, WEIGHTS_DENSE, "gate_proj", inner, hidden, &ffn->gate_proj, err));
    TRY(bind_weights(binder, WEIGHTS_DENSE, "up_proj", inner, hidden, &ffn->up_proj, err));
    return bind_weights(binder, WEIGHTS_DENSE, "down_proj", hidden, inner, &ffn->down_proj, err);
}

static enum status bind_moe(struct moe_params *moe, struct expert *experts, const struct config *config, uint32_t index,
                            struct binder *binder, struct error *err)
{
    uint32_t hidden = config->hidden_size, inner = config->moe_intermediate_size;
    uint32_t width = config->latent_size ? config->latent_size : hidden;
    TRY(bind_plain_matrix(binder, "gate", config->n_experts, hidden, &moe->gate, err));
    TRY(bind_vector(binder, "gate.e_score_correction_bias", config->n_experts, &moe->bias, err));
    if (config->latent_size) {
        TRY(bind_weights(binder, WEIGHTS_DENSE, "routed_expert_down_proj", width, hidden, &moe->latent_down, err));
        TRY(bind_weights(binder, WEIGHTS_DENSE, "routed_expert_up_proj", hidden, width, &moe->latent_up, err));
    }
    if (config->latent_norm)
        TRY(bind_vector(binder, "routed_expert_norm.weight", width, &moe->latent_norm, err));
    moe->experts = experts;
    for (uint32_t e = 0; e < config->n_experts; e++) {
        bind_prefix(binder, "model.layers.%u.block_sparse_moe.experts.%u.", index, e);
        TRY(bind_weights(binder, WEIGHTS_EXPERTS, "w1", inner, width, &experts[e].gate, err));
        TRY(bind_weights(binder, WEIGHTS_EXPERTS, "w3", inner, width, &experts[e].up, err));
        TRY(bind_weights(binder, WEIGHTS_EXPERTS, "w2", width, inner, &experts[e].down, err));
    }
    bind_prefix(binder, "model.layers.%u.block_sparse_moe.shared_experts.", index);
    return config->n_shared_experts ? bind_ffn(&moe->shared, hidden, inner * config->n_shared_experts, binder, err)
                                    : STATUS_OK;
}

enum status params_bind_layer(struct layer_params *layer, struct expert *experts, const struct config *config,
                              uint32_t index, struct binder *binder, struct error *err)
{
    bind_prefix(binder, "model.layers.%u.", index);
    TRY(bind_vector(binder, "input_layernorm.weight", config->hidden_size, &layer->input_norm, err));
    TRY(bind_vector(binder, "post_attention_layernorm.weight", config->hidden_size, &layer->post_attention_norm, err));
    bind_prefix(binder, "model.layers.%u.self_attn.", index);
    TRY(config->is_kda[index] ? bind_kda(&layer->kda, config, binder, err)
                              : bind_mla(&layer->mla, config, index, binder, err));
    if (config_is_moe(config, index)) {
        bind_prefix(binder, "model.layers.%u.block_sparse_moe.", index);
        return bind_moe(&layer->moe, experts, config, index, binder, err);
    }
    bind_prefix(binder, "model.layers.%u.mlp.", index);
    return bind_ffn(&layer->ffn, config->hidden_size, config->intermediate_size, binder, err);
}

enum status params_indexer_sizes(struct indexer_params *indexer, const struct config *config, uint32_t index,
                                 const struct checkpoint *checkpoint, struct error *err)
{
    struct binder binder = {.checkpoint = checkpoint};
    bind_prefix(&binder, "model.layers.%u.self_attn.", index);
    *indexer = (struct indexer_params){0};
    return read_indexer_sizes(indexer, config, index, &binder, err);
}
