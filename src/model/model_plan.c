/* The plan of a step: which nodes a model of this config is, and the buffers between them. */
#include "base/check.h"
#include "model/model.h"
#include "ops/dsa.h"
#include "ops/kda.h"
#include "ops/linear.h"
#include "ops/mla.h"
#include "ops/moe.h"

enum {
    NODES_PER_LAYER_MAX = 48,
    ARGS_BYTES_PER_LAYER = 49152,
    SCAN_TILES = 8, /* an index scan of few rows is cut into about this many tiles */
};

/* All layers share the buffers: a layer's nodes wait for the readers of the layer before, which they follow anyway. */
struct buffers {
    struct residual residual;
    struct buffer x, delta, delta2, final_x;
    struct buffer q, k, v, g, a;  /* attention of either kind: projections, gate, result */
    struct buffer f_a, f, b, g_a; /* KDA gates */
    struct kda_parts kda;
    struct buffer q_a, kv_a, absorbed, partials, context;
    struct buffer index_q, index_k, index_w, index_query, candidates, n_candidates, selected, n_selected;
    struct buffer inner, inner2; /* dense or shared FFN; routed experts */
    struct buffer router, chosen, weights, groups, latent, expert_out, routed;
    uint32_t cache, state; /* resources outside of the workspace */
    /* The buffers that linear layers read, with the forms that the policy asks for. */
    struct inputs in_x, in_a, in_f_a, in_g_a, in_q_a, in_inner, in_inner2, in_latent, in_routed;
};

struct builder {
    struct plan *plan;
    const struct model *model;
    const struct config *config;
    uint32_t rows;
    unsigned n_threads;
    struct buffers buffers;
    uint32_t n_segments;
    struct activation_kind activation, expert_activation;
};

/* Between the parts of a layer only the residual stream lives, what the last part adds to it, and what is no buffer. */
static void end_part(struct builder *b)
{
    const struct buffers *s = &b->buffers;
    const struct residual *r = &s->residual;
    uint64_t kept = buffer_bit(r->sum) | buffer_bit(s->delta) | buffer_bit(s->delta2) | (uint64_t)1 << s->cache |
                    (uint64_t)1 << s->state;
    if (r->queries.rows > 0)
        kept |= buffer_bit(r->blocks) | buffer_bit(r->inverse) | buffer_bit(r->history);
    plan_forget(b->plan, ~kept);
}

/* A slot takes over what the part before it gave. */
static void add_slot(struct builder *b, const struct residual_slot *slot)
{
    op_slot(b->plan, &b->buffers.residual, slot, b->n_threads);
    plan_forget(b->plan, buffer_bit(b->buffers.delta) | buffer_bit(b->buffers.delta2));
}

static bool has(const struct builder *b, enum technique technique)
{
    return (b->model->options.without & 1u << technique) == 0;
}

/* Projections of one input. */
static void add_projections(struct builder *b, const char *label, const char *stream, struct inputs *x,
                            const struct linear_part *parts, uint32_t n)
{
    uint32_t together = has(b, TECHNIQUE_PROJECTIONS) ? n : 1;
    for (uint32_t i = 0; i < n; i += together)
        op_linear(b->plan, label, stream, x, parts + i, together, b->n_threads);
}

static uint32_t max_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void make_residual_buffers(struct builder *b)
{
    const struct config *c = b->config;
    struct residual *r = &b->buffers.residual;
    uint32_t blocks = c->attn_res_block_size ? (c->n_layers + c->attn_res_block_size - 1) / c->attn_res_block_size : 0;
    *r = (struct residual){.rows = b->rows,
                           .width = c->hidden_size,
                           .n_slots = 2 * c->n_layers + 1,
                           .eps = c->rms_norm_eps,
                           .queries = b->model->params.depth_queries,
                           .sum = plan_buffer(b->plan, b->rows, c->hidden_size),
                           .one_stage = !has(b, TECHNIQUE_ATTN_RES),
                           .norm_apart = !has(b, TECHNIQUE_NORMS)};
    if (blocks == 0)
        return;
    r->blocks = plan_buffer(b->plan, b->rows * blocks, c->hidden_size);
    r->inverse = plan_buffer(b->plan, b->rows, blocks);
    r->history = plan_buffer(b->plan, b->rows, blocks * r->n_slots);
}

/* Float32 keys serve proofs; they have no bounds. */
static enum dsa_scan index_scan_of(const struct model *model)
{
    return model->options.index_dtype == DTYPE_F32 ? SCAN_SCORES : model->options.index_scan;
}

static void make_attention_buffers(struct builder *b)
{
    const struct config *c = b->config;
    struct plan *plan = b->plan;
    struct buffers *s = &b->buffers;
    uint32_t rows = b->rows, kda = c->kda_heads * c->kda_head_dim, mla_v = c->n_heads * c->v_head_dim;
    uint32_t index_q = 0, index_k = 0, index_w = 0, query = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        const struct indexer_params *indexer = &b->model->params.layers[l].mla.indexer;
        if (c->is_kda[l])
            continue;
        index_q = max_of(index_q, indexer->n_heads * indexer->head_dim);
        index_k = max_of(index_k, indexer->head_dim);
        index_w = max_of(index_w, indexer->n_heads);
        query = max_of(query, dsa_query_width(indexer->n_heads, indexer->head_dim));
    }
    s->q = plan_buffer(plan, rows, max_of(kda, c->n_heads * (c->qk_nope_head_dim + c->qk_rope_head_dim)));
    s->k = plan_buffer(plan, rows, kda);
    s->v = plan_buffer(plan, rows, kda);
    s->g = plan_buffer(plan, rows, max_of(kda, mla_v));
    s->a = plan_buffer(plan, rows, max_of(kda, mla_v));
    s->f_a = plan_buffer(plan, rows, c->kda_head_dim);
    s->f = plan_buffer(plan, rows, kda);
    s->b = plan_buffer(plan, rows, c->kda_heads);
    s->g_a = plan_buffer(plan, rows, c->kda_head_dim);
    s->q_a = plan_buffer(plan, rows, c->q_lora_rank);
    s->kv_a = plan_buffer(plan, rows, c->kv_lora_rank + c->qk_rope_head_dim);
    s->absorbed = plan_buffer(plan, rows, c->n_heads * (c->kv_lora_rank + c->qk_rope_head_dim));
    if (rows <= ATTEND_SPLIT_ROWS && has(b, TECHNIQUE_SEGMENTS))
        s->partials = plan_buffer(plan, rows * ATTEND_SEGMENTS, attend_partial(c->n_heads, c->kv_lora_rank));
    s->context = plan_buffer(plan, rows, c->n_heads * c->kv_lora_rank);
    if (!has(b, TECHNIQUE_KDA_REGION)) {
        struct kda_parts *p = &s->kda;
        struct buffer *parts[] = {&p->q, &p->k, &p->v, &p->decay, &p->o, &p->u};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            *parts[i] = plan_buffer(plan, rows, kda);
        p->beta = plan_buffer(plan, c->kda_heads, rows);
    }
    s->cache = plan_resource(plan);
    s->state = plan_resource(plan);
    if (index_q == 0)
        return;
    b->n_segments = max_of(1, SCAN_TILES / rows);
    s->index_q = plan_buffer(plan, rows, index_q);
    s->index_k = plan_buffer(plan, rows, index_k);
    s->index_w = plan_buffer(plan, rows, index_w);
    s->index_query = plan_buffer(plan, rows, index_scan_of(b->model) == SCAN_BOUNDS ? query : 0);
    s->candidates = plan_buffer(plan, rows * b->n_segments, dsa_candidates_width(b->model->topk));
    s->n_candidates = plan_buffer(plan, rows, b->n_segments);
    s->selected = plan_buffer(plan, rows, b->model->topk);
    s->n_selected = plan_buffer(plan, rows, 1);
}

static void make_ffn_buffers(struct builder *b)
{
    const struct config *c = b->config;
    struct plan *plan = b->plan;
    struct buffers *s = &b->buffers;
    uint32_t rows = b->rows, width = c->latent_size ? c->latent_size : c->hidden_size;
    bool any_dense = c->n_experts == 0 || c->first_dense_layers > 0;
    s->inner = plan_buffer(
        plan, rows, max_of(any_dense ? c->intermediate_size : 0, c->moe_intermediate_size * c->n_shared_experts));
    b->expert_activation = b->activation;
    if (!has(b, TECHNIQUE_EPILOGUE)) {
        b->activation.gates = plan_buffer(plan, rows, s->inner.stride);
        b->activation.ups = plan_buffer(plan, rows, s->inner.stride);
        b->expert_activation.gates = plan_buffer(plan, rows * c->n_experts_per_token, c->moe_intermediate_size);
        b->expert_activation.ups = plan_buffer(plan, rows * c->n_experts_per_token, c->moe_intermediate_size);
    }
    if (c->n_experts == 0)
        return;
    s->router = plan_buffer(plan, rows, c->n_experts);
    s->chosen = plan_buffer(plan, rows, c->n_experts_per_token);
    s->weights = plan_buffer(plan, rows, c->n_experts_per_token);
    s->groups = plan_bytes(plan, moe_groups_bytes(rows, c->n_experts, c->n_experts_per_token));
    s->latent = plan_buffer(plan, rows, c->latent_size);
    s->inner2 = plan_buffer(plan, rows * c->n_experts_per_token, c->moe_intermediate_size);
    s->expert_out = plan_buffer(plan, rows * c->n_experts_per_token, width);
    s->routed = plan_buffer(plan, rows, width);
}

static void make_inputs(struct builder *b)
{
    struct buffers *s = &b->buffers;
    enum act act = b->model->options.act;
    uint32_t rows = b->rows, slots = b->config->n_experts_per_token;
    s->in_x = inputs_of(act, s->x, rows, 1);
    s->in_a = inputs_of(act, s->a, rows, 1);
    s->in_f_a = inputs_of(act, s->f_a, rows, 1);
    s->in_g_a = inputs_of(act, s->g_a, rows, 1);
    s->in_q_a = inputs_of(act, s->q_a, rows, 1);
    s->in_inner = inputs_of(act, s->inner, rows, 1);
    s->in_inner2 = inputs_of(act, s->inner2, rows * slots, slots);
    s->in_latent = inputs_of(act, s->latent, rows, 1);
    s->in_routed = inputs_of(act, s->routed, rows, 1);
}

static void add_kda(struct builder *b, const struct kda_params *p, uint32_t ordinal)
{
    const struct config *c = b->config;
    struct buffers *s = &b->buffers;
    struct linear_part in[LINEAR_PARTS_MAX] = {{.w = p->q_proj, .y = s->q},
                                               {.w = p->k_proj, .y = s->k},
                                               {.w = p->v_proj, .y = s->v},
                                               {.w = p->f_a_proj, .y = s->f_a},
                                               {.w = p->b_proj, .y = s->b}};
    in[5] = c->full_rank_gate ? (struct linear_part){.w = p->g_proj, .y = s->g}
                              : (struct linear_part){.w = p->g_a_proj, .y = s->g_a};
    add_projections(b, "kda.in", "main", &s->in_x, in, 6);
    op_linear(b->plan, "kda.f_b", "main", &s->in_f_a, &(struct linear_part){.w = p->f_b_proj, .y = s->f}, 1,
              b->n_threads);
    if (!c->full_rank_gate)
        op_linear(b->plan, "kda.g_b", "gate", &s->in_g_a, &(struct linear_part){.w = p->g_b_proj, .y = s->g}, 1,
                  b->n_threads);
    struct kda_op op = {.layer = ordinal,
                        .n_heads = c->kda_heads,
                        .head_dim = c->kda_head_dim,
                        .taps = c->conv_taps,
                        .q = s->q,
                        .k = s->k,
                        .v = s->v,
                        .f = s->f,
                        .b = s->b,
                        .g = s->g,
                        .out = s->a,
                        .conv_q = p->conv_q,
                        .conv_k = p->conv_k,
                        .conv_v = p->conv_v,
                        .rate = p->rate,
                        .dt_bias = p->dt_bias,
                        .o_norm = p->o_norm,
                        .bounded_decay = c->bounded_decay,
                        .decay_bound = c->decay_bound,
                        .eps = c->rms_norm_eps,
                        .state = s->state,
                        .block = has(b, TECHNIQUE_FLASH_KDA) ? KDA_TOKENS : 1,
                        .parts = s->kda};
    op_kda(b->plan, &op);
    op_linear(b->plan, "kda.out", "main", &s->in_a, &(struct linear_part){.w = p->o_proj, .y = s->delta}, 1,
              b->n_threads);
}

static struct dsa_op dsa_of(const struct builder *b, const struct indexer_params *p, uint32_t layer, uint32_t ordinal)
{
    const struct buffers *s = &b->buffers;
    return (struct dsa_op){.layer = layer,
                           .ordinal = ordinal,
                           .n_heads = p->n_heads,
                           .head_dim = p->head_dim,
                           .topk = b->model->topk,
                           .eps = b->config->rms_norm_eps,
                           .rule = b->model->options.index_rule,
                           .k_norm_weight = p->k_norm_weight,
                           .k_norm_bias = p->k_norm_bias,
                           .q = s->index_q,
                           .k = s->index_k,
                           .w = s->index_w,
                           .cache = s->cache,
                           .scan = index_scan_of(b->model),
                           .query = s->index_query,
                           .n_segments = b->n_segments,
                           .candidates = s->candidates,
                           .n_candidates = s->n_candidates,
                           .selected = s->selected,
                           .n_selected = s->n_selected};
}

static void add_mla(struct builder *b, const struct mla_params *p, uint32_t ordinal, uint32_t index_ordinal)
{
    const struct config *c = b->config;
    struct buffers *s = &b->buffers;
    bool sparse = p->indexer.n_heads > 0;
    struct dsa_op dsa = dsa_of(b, &p->indexer, ordinal, index_ordinal);
    struct mla_op mla = {.layer = ordinal,
                         .n_heads = c->n_heads,
                         .q_lora_rank = c->q_lora_rank,
                         .latent = c->kv_lora_rank,
                         .nope = c->qk_nope_head_dim,
                         .rope = c->qk_rope_head_dim,
                         .v_dim = c->v_head_dim,
                         .latent_eps = c->latent_norm_eps,
                         .q_a_norm = p->q_a_norm,
                         .kv_a_norm = p->kv_a_norm,
                         .kv_b_proj = p->kv_b_proj,
                         .q_a = s->q_a,
                         .kv_a = s->kv_a,
                         .q = s->q,
                         .absorbed = s->absorbed,
                         .partials = s->partials,
                         .context = s->context,
                         .g = s->g,
                         .out = s->a,
                         .output_gate = c->mla_output_gate,
                         .cache = s->cache,
                         .sparse = sparse,
                         .masked = sparse && b->model->options.masked,
                         .alone = !has(b, TECHNIQUE_SHARING),
                         .topk = b->model->topk,
                         .selected = s->selected,
                         .n_selected = s->n_selected};
    struct linear_part in[LINEAR_PARTS_MAX];
    uint32_t n = 0;
    in[n++] = c->q_lora_rank ? (struct linear_part){.w = p->q_a_proj, .y = s->q_a}
                             : (struct linear_part){.w = p->q_proj, .y = s->q};
    in[n++] = (struct linear_part){.w = p->kv_a_proj, .y = s->kv_a};
    if (sparse) {
        in[n++] = (struct linear_part){.w = p->indexer.wk, .y = s->index_k, .exact = true};
        in[n++] = (struct linear_part){.w = p->indexer.weights_proj, .y = s->index_w, .exact = true};
    }
    if (c->mla_output_gate)
        in[n++] = (struct linear_part){.w = p->g_proj, .y = s->g};
    add_projections(b, "mla.in", "main", &s->in_x, in, n);
    op_mla_latents(b->plan, &mla);
    if (c->q_lora_rank) {
        struct linear_part up[2] = {{.w = p->q_b_proj, .y = s->q},
                                    {.w = p->indexer.wq_b, .y = s->index_q, .exact = true}};
        add_projections(b, "mla.q_b", "main", &s->in_q_a, up, sparse ? 2 : 1);
    }
    if (sparse) {
        op_dsa_keys(b->plan, &dsa);
        op_dsa_queries(b->plan, &dsa);
        op_dsa_scan(b->plan, &dsa);
        op_dsa_choose(b->plan, &dsa);
    }
    op_mla_absorb(b->plan, &mla);
    op_mla_attend(b->plan, &mla);
    op_mla_output(b->plan, &mla);
    op_linear(b->plan, "mla.out", "main", &s->in_a, &(struct linear_part){.w = p->o_proj, .y = s->delta}, 1,
              b->n_threads);
}

static void add_dense_ffn(struct builder *b, const struct ffn_params *p, const char *stream, struct buffer out)
{
    struct buffers *s = &b->buffers;
    op_ffn_inner(b->plan, "ffn.inner", stream, &s->in_x, s->inner, &p->gate_proj, &p->up_proj, b->activation,
                 b->n_threads);
    op_linear(b->plan, "ffn.down", stream, &s->in_inner, &(struct linear_part){.w = p->down_proj, .y = out}, 1,
              b->n_threads);
}

static void add_moe(struct builder *b, const struct moe_params *p)
{
    const struct config *c = b->config;
    struct buffers *s = &b->buffers;
    bool latent = c->latent_size > 0;
    struct moe_op op = {.rows = b->rows,
                        .n_experts = c->n_experts,
                        .n_chosen = c->n_experts_per_token,
                        .n_groups = c->n_expert_groups,
                        .n_groups_used = c->n_groups_used,
                        .inner = c->moe_intermediate_size,
                        .width = latent ? c->latent_size : c->hidden_size,
                        .softmax = c->router == ROUTER_SOFTMAX,
                        .renormalize = c->renormalize,
                        .scaling = c->routed_scaling_factor,
                        .eps = c->rms_norm_eps,
                        .bias = p->bias,
                        .experts = p->experts,
                        .latent_norm = p->latent_norm,
                        .activation = b->expert_activation,
                        .one_by_one = !has(b, TECHNIQUE_GROUPING),
                        .logits = s->router,
                        .chosen = s->chosen,
                        .weights = s->weights,
                        .groups = s->groups,
                        .x = latent ? &s->in_latent : &s->in_x,
                        .hidden = &s->in_inner2,
                        .expert_out = s->expert_out,
                        .out = latent ? s->routed : s->delta};
    struct linear_part in[2] = {{.w = p->gate, .y = s->router, .exact = true}, {.w = p->latent_down, .y = s->latent}};
    add_projections(b, "moe.in", "router", &s->in_x, in, latent ? 2 : 1);
    if (c->n_shared_experts > 0)
        add_dense_ffn(b, &p->shared, "shared", s->delta2);
    op_moe_route(b->plan, &op);
    op_moe_experts(b->plan, &op, b->n_threads);
    op_moe_combine(b->plan, &op);
    if (latent)
        op_linear(b->plan, "moe.up", "main", &s->in_routed, &(struct linear_part){.w = p->latent_up, .y = s->delta}, 1,
                  b->n_threads);
}

/* Marks the tap of layer `layer` - 1 at the first slot of `layer`, if there is one. */
static void set_tap(const struct model_options *options, struct residual_slot *slot, uint32_t layer)
{
    for (uint32_t t = 0; t < options->n_taps; t++)
        if (options->tap_layers[t] + 1 == layer) {
            slot->tap = options->tap_kind;
            slot->tap_index = t;
            slot->n_taps = options->n_taps;
        }
}

static void add_layers(struct builder *b)
{
    const struct config *c = b->config;
    const struct params *p = &b->model->params;
    struct buffers *s = &b->buffers;
    struct residual_slot slot = {.x = s->x};
    uint32_t n_kda = 0, n_mla = 0, n_index = 0, n_blocks = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        const struct layer_params *layer = &p->layers[l];
        plan_layer(b->plan, l);
        bool closes = c->attn_res_block_size > 0 && l % c->attn_res_block_size == 0;
        slot = (struct residual_slot){.slot = 2 * l,
                                      .deltas = {slot.deltas[0], slot.deltas[1]},
                                      .n_deltas = slot.n_deltas,
                                      .n_blocks = n_blocks,
                                      .norm = layer->input_norm,
                                      .x = s->x,
                                      .closes = closes};
        set_tap(&b->model->options, &slot, l);
        add_slot(b, &slot);
        n_blocks += closes;
        if (c->is_kda[l]) {
            add_kda(b, &layer->kda, n_kda++);
        } else {
            add_mla(b, &layer->mla, n_mla++, n_index);
            n_index += layer->mla.indexer.n_heads > 0;
        }
        end_part(b);
        slot = (struct residual_slot){.slot = 2 * l + 1,
                                      .deltas = {s->delta},
                                      .n_deltas = 1,
                                      .fresh = closes,
                                      .n_blocks = n_blocks,
                                      .norm = layer->post_attention_norm,
                                      .x = s->x};
        add_slot(b, &slot);
        slot.deltas[0] = s->delta;
        slot.deltas[1] = s->delta2;
        slot.n_deltas = 1 + (config_is_moe(c, l) && c->n_shared_experts > 0);
        if (config_is_moe(c, l))
            add_moe(b, &layer->moe);
        else
            add_dense_ffn(b, &layer->ffn, "main", s->delta);
        end_part(b);
    }
    plan_layer(b->plan, PLAN_NO_LAYER);
    struct residual_slot last = {.slot = 2 * c->n_layers,
                                 .deltas = {slot.deltas[0], slot.deltas[1]},
                                 .n_deltas = slot.n_deltas,
                                 .n_blocks = n_blocks};
    set_tap(&b->model->options, &last, c->n_layers);
    if (last.tap != TAP_NONE) { /* a tap is wanted of every row, the output of some */
        add_slot(b, &last);
        last.tap = TAP_NONE;
        last.n_deltas = 0;
    }
    last.norm = p->final_norm;
    last.x = s->final_x;
    last.logit_rows = true;
    add_slot(b, &last);
}

static void add_all(struct builder *b)
{
    const struct config *c = b->config;
    make_residual_buffers(b);
    b->buffers.x = plan_buffer(b->plan, b->rows, c->hidden_size);
    b->buffers.delta = plan_buffer(b->plan, b->rows, c->hidden_size);
    b->buffers.delta2 = plan_buffer(b->plan, b->rows, c->hidden_size);
    b->buffers.final_x = plan_buffer(b->plan, b->rows, c->hidden_size);
    make_attention_buffers(b);
    make_ffn_buffers(b);
    make_inputs(b);
    op_embed(b->plan, b->buffers.residual.sum, &b->model->params.embed_tokens);
    add_layers(b);
    op_logits(b->plan, b->buffers.final_x, &b->model->params.lm_head, b->n_threads);
}

enum status model_plan(struct plan *plan, const struct model *model, uint32_t rows, struct error *err)
{
    const struct config *c = &model->config;
    TRY(plan_init(plan, (c->n_layers + 1) * NODES_PER_LAYER_MAX, (size_t)(c->n_layers + 1) * ARGS_BYTES_PER_LAYER,
                  err));
    struct builder first = {.plan = plan,
                            .model = model,
                            .config = c,
                            .rows = rows,
                            .n_threads = team_size(model->team),
                            .n_segments = 1,
                            .activation = {.situ = c->activation == ACTIVATION_SITU,
                                           .beta = c->situ_beta,
                                           .linear_beta = c->situ_linear_beta}};
    struct builder second = first;
    add_all(&first); /* which shows how long each buffer lives */
    plan_place(plan);
    add_all(&second);
    plan_seal(plan);
    return STATUS_OK;
}
