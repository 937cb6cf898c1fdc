#include "model/params.h"

#include "model/bind.h"
#include "model/params_layers.h"

/* How many experts all layers hold. */
static size_t experts_total(const struct config *config)
{
    size_t n = 0;
    for (uint32_t i = 0; i < config->n_layers; i++)
        n += config_is_moe(config, i) ? config->n_experts : 0;
    return n;
}

/* A bound for everything that is taken from the arena, from the config alone: address space, touched only
 * where used. */
static size_t arena_bound(const struct config *config)
{
    const size_t takes_per_layer = 16; /* each may lose up to one alignment */
    size_t inner = (size_t)config->kda_heads * config->kda_head_dim;
    size_t kda = inner * (3 * config->conv_taps + 1) + config->kda_heads + config->kda_head_dim;
    size_t mla = (size_t)config->q_lora_rank + config->kv_lora_rank + 2 * CONFIG_HEAD_DIM_MAX;
    size_t moe = (size_t)config->n_experts + config->latent_size;
    size_t norms = 2 * (size_t)config->hidden_size;
    size_t depth = config->attn_res_block_size ? norms : 0;
    size_t layer = (kda > mla ? kda : mla) + moe + norms + depth;
    return (layer * config->n_layers + 2 * (size_t)config->hidden_size) * sizeof(float) +
           (takes_per_layer * config->n_layers + 4) * (size_t)ARENA_ALIGNMENT +
           config->n_layers * sizeof(struct layer_params) + experts_total(config) * sizeof(struct expert);
}

static enum status bind_depth_queries(struct params *params, const struct config *config, struct binder *binder,
                                      struct error *err)
{
    uint32_t hidden = config->hidden_size, rows = 2 * config->n_layers + 1;
    if (!config->attn_res_block_size)
        return STATUS_OK;
    float *query = arena_take(&params->arena, (size_t)rows * hidden * sizeof *query);
    params->depth_queries = (struct matrix){.data = query, .rows = rows, .columns = hidden, .dtype = DTYPE_F32};
    for (uint32_t i = 0; i < config->n_layers; i++, query += 2 * (size_t)hidden) {
        bind_prefix(binder, "model.layers.%u.", i);
        TRY(bind_depth_query(binder, "self_attention_res", hidden, query, err));
        TRY(bind_depth_query(binder, "mlp_res", hidden, query + hidden, err));
    }
    bind_prefix(binder, "model.");
    return bind_depth_query(binder, "output_attn_res", hidden, query, err);
}

static enum status bind_all(struct params *params, const struct config *config, struct binder *binder,
                            struct error *err)
{
    struct expert *experts = arena_take(&params->arena, experts_total(config) * sizeof *experts);
    params->layers = arena_take(&params->arena, config->n_layers * sizeof *params->layers);
    bind_prefix(binder, "model.");
    TRY(bind_matrix(binder, "embed_tokens", config->vocab_size, config->hidden_size, &params->embed_tokens, err));
    TRY(bind_vector(binder, "norm.weight", config->hidden_size, &params->final_norm, err));
    bind_prefix(binder, "%s", "");
    params->lm_head = params->embed_tokens;
    if (!config->tie_word_embeddings)
        TRY(bind_matrix(binder, "lm_head", config->vocab_size, config->hidden_size, &params->lm_head, err));
    for (uint32_t i = 0; i < config->n_layers; i++) {
        TRY(params_bind_layer(&params->layers[i], experts, config, i, binder, err));
        experts += config_is_moe(config, i) ? config->n_experts : 0;
    }
    return bind_depth_queries(params, config, binder, err);
}

/* A config that asks for sparse attention without a layer that has it was written for other tensors. */
static enum status check_indexers(const struct params *params, const struct config *config, struct error *err)
{
    if (!config->index_topk)
        return STATUS_OK;
    for (uint32_t i = 0; i < config->n_layers; i++)
        if (params->layers[i].mla.indexer.n_heads)
            return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND,
                     "expected indexer tensors (model.layers.*.self_attn.indexer.*), as config.json has "
                     "index_topk %u, found none in the checkpoint",
                     config->index_topk);
}

enum status params_init(struct params *params, const struct config *config, const struct checkpoint *checkpoint,
                        struct weight_types types, enum packing packing, struct error *err)
{
    *params = (struct params){0};
    TRY(arena_init(&params->arena, arena_bound(config), "norms, biases and the list of experts", err));
    struct binder binder = {.checkpoint = checkpoint,
                            .arena = &params->arena,
                            .types = types,
                            .packing = packing,
                            .conversion = &params->conversion};
    enum status status = bind_all(params, config, &binder, err);
    if (status == STATUS_OK)
        status = check_indexers(params, config, err);
    params->parameters_total = binder.elements;
    if (status != STATUS_OK)
        params_fini(params);
    return status;
}

enum status params_walk(struct params *params, const struct config *config, const struct indexer_params *indexers,
                        wanted_fn *see, void *see_context, struct error *err)
{
    *params = (struct params){0};
    TRY(arena_init(&params->arena, arena_bound(config), "the shapes of a model", err));
    struct binder binder = {.arena = &params->arena, .see = see, .see_context = see_context, .indexers = indexers};
    enum status status = bind_all(params, config, &binder, err);
    if (status != STATUS_OK)
        params_fini(params);
    return status;
}

void params_fini(struct params *params)
{
    arena_fini(&params->arena);
    conversion_fini(&params->conversion);
    *params = (struct params){0};
}
