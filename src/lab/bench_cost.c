#include "lab/bench_cost.h"

#include <math.h>

struct shape {
    double sequences, rows, all_rows; /* rows of a sequence, of all */
    double first;
};

static double elements(const struct matrix *m)
{
    return (double)m->rows * m->columns;
}

static double bytes_of(const struct matrix *m)
{
    return (double)matrix_bytes(m);
}

static void add(struct bench_cost *cost, double bytes, double flops)
{
    cost->bytes += bytes;
    cost->flops += flops;
}

/* Read once, met by `rows` rows. Matrices that a layer lacks have no rows. */
static void add_matrix(struct bench_cost *cost, const struct matrix *m, double rows)
{
    if (m->rows > 0)
        add(cost, bytes_of(m), 2 * elements(m) * rows);
}

static void add_ffn(struct bench_cost *cost, const struct ffn_params *p, double rows)
{
    add_matrix(cost, &p->gate_proj, rows);
    add_matrix(cost, &p->up_proj, rows);
    add_matrix(cost, &p->down_proj, rows);
}

static void add_kda(struct bench_cost *cost, const struct model *model, const struct kda_params *p,
                    const struct shape *s)
{
    const struct config *c = &model->config;
    const struct matrix *matrices[] = {&p->q_proj, &p->k_proj, &p->v_proj,   &p->f_a_proj, &p->f_b_proj,
                                       &p->b_proj, &p->g_proj, &p->g_a_proj, &p->g_b_proj, &p->o_proj};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        add_matrix(cost, matrices[i], s->all_rows);
    const struct state_layout *layout = &model->layout;
    double heads = c->kda_heads, dim = c->kda_head_dim;
    double state = heads * (double)layout->head_state_floats + (double)layout->conv_floats;
    add(cost, 2 * sizeof(float) * state * s->sequences,
        (7 * heads * dim * dim + 3 * 2.0 * c->conv_taps * heads * dim) * s->all_rows);
}

/* Latents and index keys of one layer. */
static void add_caches(struct bench_cost *cost, const struct model *model, const struct indexer_params *indexer,
                       const struct shape *s)
{
    const struct config *c = &model->config;
    const struct state_layout *layout = &model->layout;
    bool sparse = indexer->n_heads > 0;
    double end = s->first + s->rows, topk = sparse ? model->topk : end;
    double attended = fmin(end, topk * s->rows); /* positions that some row may attend to */
    double latent = (double)layout->latent_row_bytes;
    double key =
        sparse ? (double)layout_index_block_bytes(layout->index_dtype, indexer->head_dim) / INDEX_BLOCK_KEYS : 0;
    double scanned = end > topk ? end : 0;
    add(cost, s->sequences * ((attended + s->rows) * latent + (scanned + s->rows) * key), 0);
    double per_key = 2.0 * c->n_heads * (2.0 * c->kv_lora_rank + c->qk_rope_head_dim);
    double per_score = 2.0 * indexer->n_heads * indexer->head_dim;
    for (uint32_t row = 0; row < (uint32_t)s->rows; row++) {
        double context = s->first + 1 + row;
        add(cost, 0, s->sequences * (per_key * fmin(context, topk) + (context > topk ? per_score * context : 0)));
    }
}

static void add_mla(struct bench_cost *cost, const struct model *model, const struct mla_params *p,
                    const struct shape *s)
{
    const struct matrix *matrices[] = {
        &p->q_a_proj, &p->q_b_proj, &p->q_proj,       &p->kv_a_proj,  &p->kv_b_proj,
        &p->g_proj,   &p->o_proj,   &p->indexer.wq_b, &p->indexer.wk, &p->indexer.weights_proj};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        add_matrix(cost, matrices[i], s->all_rows);
    add_caches(cost, model, &p->indexer, s);
}

static void add_moe(struct bench_cost *cost, const struct config *c, const struct moe_params *p, double rows)
{
    add_matrix(cost, &p->gate, rows);
    add_matrix(cost, &p->latent_down, rows);
    add_matrix(cost, &p->latent_up, rows);
    add_ffn(cost, &p->shared, rows);
    double n = c->n_experts, chosen = c->n_experts_per_token, touched = n * (1 - pow(1 - chosen / n, rows));
    const struct expert *e = &p->experts[0];
    add(cost, touched * (bytes_of(&e->gate) + bytes_of(&e->up) + bytes_of(&e->down)),
        2 * chosen * rows * (elements(&e->gate) + elements(&e->up) + elements(&e->down)));
}

struct bench_cost bench_cost_step(const struct model *model, uint32_t n_sequences, uint32_t rows, uint32_t first,
                                  uint32_t logit_rows)
{
    const struct config *c = &model->config;
    const struct params *p = &model->params;
    struct shape s = {n_sequences, rows, (double)n_sequences * rows, first};
    struct bench_cost cost = {0};
    add(&cost, s.all_rows * (double)matrix_row_bytes(&p->embed_tokens), 0);
    if (logit_rows > 0)
        add_matrix(&cost, &p->lm_head, logit_rows);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        const struct layer_params *layer = &p->layers[l];
        if (c->is_kda[l])
            add_kda(&cost, model, &layer->kda, &s);
        else
            add_mla(&cost, model, &layer->mla, &s);
        if (config_is_moe(c, l))
            add_moe(&cost, c, &layer->moe, s.all_rows);
        else
            add_ffn(&cost, &layer->ffn, s.all_rows);
    }
    return cost;
}

struct bench_cost bench_cost_prompt(const struct model *model, uint32_t n)
{
    struct bench_cost sum = {0};
    for (uint32_t first = 0; first < n; first += MODEL_ROWS_MAX) {
        uint32_t rows = n - first < MODEL_ROWS_MAX ? n - first : MODEL_ROWS_MAX;
        struct bench_cost cost = bench_cost_step(model, 1, rows, first, first + rows == n);
        add(&sum, cost.bytes, cost.flops);
    }
    return sum;
}
