#include "lab/bench_cost.h"

#include <math.h>
#include <string.h>

/* A step's rows and where its costs go. */
struct count {
    struct bench_cost *cost;
    const struct model *model;
    struct bench_shape shape;
    double rows; /* of all sequences */
};

static double elements(const struct matrix *m)
{
    return (double)m->rows * m->columns;
}

static double bytes_of(const struct matrix *m)
{
    return (double)matrix_bytes(m);
}

static void add(struct count *c, double bytes, enum unit unit, double flops)
{
    c->cost->bytes += bytes;
    c->cost->flops[unit] += flops;
}

/* The unit that multiplies such weights with activations. `exact`: the policy leaves them in float32. */
static enum unit unit_of(const struct count *c, const struct matrix *m, bool exact)
{
    static const enum unit units[FORM_COUNT] = {
        [FORM_F32] = UNIT_F32, [FORM_INT8] = UNIT_INT8, [FORM_INT16] = UNIT_INT16, [FORM_F16] = UNIT_F16};
    struct inputs inputs = {.act = exact ? ACT_EXACT : c->model->options.act};
    return units[inputs_form(&inputs, m)];
}

static void add_weights(struct count *c, double bytes, enum unit unit, double flops)
{
    add(c, bytes, unit, flops);
    c->cost->weight_bytes += bytes;
}

/* Read once, met by `rows` rows. Matrices that a layer lacks have no rows. */
static void add_matrix(struct count *c, const struct matrix *m, double rows)
{
    if (m->rows > 0)
        add_weights(c, bytes_of(m), unit_of(c, m, false), 2 * elements(m) * rows);
}

static void add_exact(struct count *c, const struct matrix *m, double rows)
{
    if (m->rows > 0)
        add_weights(c, bytes_of(m), unit_of(c, m, true), 2 * elements(m) * rows);
}

static void add_ffn(struct count *c, const struct ffn_params *p)
{
    add_matrix(c, &p->gate_proj, c->rows);
    add_matrix(c, &p->up_proj, c->rows);
    add_matrix(c, &p->down_proj, c->rows);
}

static void add_kda(struct count *c, const struct kda_params *p)
{
    const struct config *config = &c->model->config;
    const struct state_layout *layout = &c->model->layout;
    const struct matrix *matrices[] = {&p->q_proj, &p->k_proj, &p->v_proj,   &p->f_a_proj, &p->f_b_proj,
                                       &p->b_proj, &p->g_proj, &p->g_a_proj, &p->g_b_proj, &p->o_proj};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        add_matrix(c, matrices[i], c->rows);
    double heads = config->kda_heads, dim = config->kda_head_dim;
    double state = heads * (double)layout->head_state_floats + (double)layout->conv_floats;
    add(c, 2 * sizeof(float) * state * c->shape.n_sequences, UNIT_F32,
        (7 * heads * dim * dim + 3 * 2.0 * config->conv_taps * heads * dim) * c->rows);
}

/* The unit that passes over all index keys; what bounds do not decide is too little to count. */
static enum unit scan_unit(const struct model *model)
{
    return model->layout.index_dtype == DTYPE_F32 || model->options.index_scan == SCAN_SCORES ? UNIT_F32 : UNIT_INT16;
}

/* Latents and index keys of one layer. */
static void add_caches(struct count *c, const struct indexer_params *indexer)
{
    const struct config *config = &c->model->config;
    const struct state_layout *layout = &c->model->layout;
    bool sparse = indexer->n_heads > 0;
    double rows = c->shape.rows, end = c->shape.first + rows, topk = sparse ? c->model->topk : end;
    double attended = fmin(end, topk * rows); /* positions that some row may attend to */
    double latent = (double)layout->latent_row_bytes;
    double key =
        sparse ? (double)layout_index_block_bytes(layout->index_dtype, indexer->head_dim) / INDEX_BLOCK_KEYS : 0;
    double scanned = end > topk ? end : 0;
    add(c, c->shape.n_sequences * ((attended + rows) * latent + (scanned + rows) * key), UNIT_F32, 0);
    double per_key = 2.0 * config->n_heads * (2.0 * config->kv_lora_rank + config->qk_rope_head_dim);
    double per_score = 2.0 * indexer->n_heads * indexer->head_dim;
    for (uint32_t row = 0; row < c->shape.rows; row++) {
        double context = (double)c->shape.first + 1 + row;
        add(c, 0, layout->latent_dtype == DTYPE_INT16 ? UNIT_INT16 : UNIT_F32,
            c->shape.n_sequences * per_key * fmin(context, topk));
        if (context > topk)
            add(c, 0, scan_unit(c->model), c->shape.n_sequences * per_score * context);
    }
}

static void add_mla(struct count *c, const struct mla_params *p)
{
    const struct matrix *matrices[] = {&p->q_a_proj, &p->q_b_proj, &p->q_proj, &p->kv_a_proj, &p->g_proj, &p->o_proj};
    const struct matrix *exact[] = {&p->kv_b_proj, &p->indexer.wq_b, &p->indexer.wk, &p->indexer.weights_proj};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        add_matrix(c, matrices[i], c->rows);
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        add_exact(c, exact[i], c->rows);
    add_caches(c, &p->indexer);
}

static void add_moe(struct count *c, const struct moe_params *p)
{
    add_exact(c, &p->gate, c->rows);
    add_matrix(c, &p->latent_down, c->rows);
    add_matrix(c, &p->latent_up, c->rows);
    add_ffn(c, &p->shared);
    double n = c->model->config.n_experts, chosen = c->model->config.n_experts_per_token;
    double touched = n * (1 - pow(1 - chosen / n, c->rows));
    const struct matrix *expert[] = {&p->experts[0].gate, &p->experts[0].up, &p->experts[0].down};
    for (size_t i = 0; i < sizeof expert / sizeof *expert; i++)
        add_weights(c, touched * bytes_of(expert[i]), unit_of(c, expert[i], false),
                    2 * chosen * c->rows * elements(expert[i]));
}

void bench_cost_parts(struct bench_cost out[PART_COUNT], const struct model *model, struct bench_shape shape)
{
    const struct params *p = &model->params;
    struct count c = {NULL, model, shape, (double)shape.n_sequences * shape.rows};
    memset(out, 0, PART_COUNT * sizeof *out);
    c.cost = &out[PART_ENDS];
    add_weights(&c, c.rows * (double)matrix_row_bytes(&p->embed_tokens), UNIT_F32, 0);
    if (shape.logit_rows > 0)
        add_exact(&c, &p->lm_head, shape.logit_rows);
    for (uint32_t l = 0; l < model->config.n_layers; l++) {
        const struct layer_params *layer = &p->layers[l];
        bool is_kda = model->config.is_kda[l], is_moe = config_is_moe(&model->config, l);
        c.cost = &out[is_kda ? PART_KDA : PART_MLA];
        if (is_kda)
            add_kda(&c, &layer->kda);
        else
            add_mla(&c, &layer->mla);
        c.cost = &out[is_moe ? PART_MOE : PART_DENSE];
        if (is_moe)
            add_moe(&c, &layer->moe);
        else
            add_ffn(&c, &layer->ffn);
    }
}

void bench_cost_add(struct bench_cost *sum, const struct bench_cost *cost)
{
    sum->bytes += cost->bytes;
    sum->weight_bytes += cost->weight_bytes;
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        sum->flops[unit] += cost->flops[unit];
}

struct bench_cost bench_cost_step(const struct model *model, struct bench_shape shape)
{
    struct bench_cost parts[PART_COUNT], sum = {0};
    bench_cost_parts(parts, model, shape);
    for (int part = 0; part < PART_COUNT; part++)
        bench_cost_add(&sum, &parts[part]);
    return sum;
}

struct bench_cost bench_cost_prompt(const struct model *model, uint32_t depth, uint32_t n)
{
    struct bench_cost sum = {0};
    for (uint32_t first = 0; first < n; first += MODEL_ROWS_MAX) {
        uint32_t rows = n - first < MODEL_ROWS_MAX ? n - first : MODEL_ROWS_MAX;
        struct bench_cost cost =
            bench_cost_step(model, (struct bench_shape){1, rows, depth + first, first + rows == n});
        bench_cost_add(&sum, &cost);
    }
    return sum;
}

double bench_cost_flops(const struct bench_cost *cost)
{
    double sum = 0;
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        sum += cost->flops[unit];
    return sum;
}

struct bench_floors bench_cost_floors(const struct bench_cost *cost, const struct rates *rates)
{
    struct bench_floors floors = {0};
    if (rates->read.gb_s > 0)
        floors.read_s = cost->bytes / (1e9 * rates->read.gb_s);
    /* Units are counted one after the other: a core has them at the same ports. A tier without one does such products
     * in another. */
    for (int unit = 0; unit < UNIT_COUNT; unit++) {
        double rate = rates->gop_s[unit] > 0 ? rates->gop_s[unit] : rates->gop_s[UNIT_F32];
        if (rate > 0)
            floors.compute_s += cost->flops[unit] / (1e9 * rate);
    }
    return floors;
}
