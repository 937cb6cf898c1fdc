#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cpu/machine.h"
#include "cpu/tiers.h"
#include "ops/kda.h"
#include "tensor/int16_row.h"

static const uint32_t bucket_rows[MODEL_BUCKETS] = {1, 4, 16, 64, MODEL_ROWS_MAX};

/* The arrays that a step's parameter block points to. */
struct step_arrays {
    struct step_span spans[MODEL_SPANS_MAX];
    int32_t tokens[MODEL_ROWS_MAX];
    uint32_t row_spans[MODEL_ROWS_MAX];
    uint32_t logit_rows[MODEL_ROWS_MAX];
    uint32_t bad_layers[MODEL_ROWS_MAX];
    uint32_t caller_spans[MODEL_SPANS_MAX]; /* which span of the call a span of the step is part of */
};

struct model_options model_options_default(void)
{
    return (struct model_options){.exec = EXEC_GRAPH,
                                  .streams = true,
                                  .act = ACT_DEFAULT,
                                  .latent_dtype = LATENT_DEFAULT,
                                  .index_dtype = DTYPE_BF16,
                                  .index_rule = MX_FLOOR,
                                  .weights = {DTYPE_AS_STORED, DTYPE_AS_STORED},
                                  .pack = true,
                                  .context_max = 4096,
                                  .sequences_max = 1};
}

static uint32_t latent_width(const struct config *config)
{
    return config->kv_lora_rank + config->qk_rope_head_dim;
}

static enum status check_options(const struct model *model, struct error *err)
{
    const struct model_options *o = &model->options;
    uint32_t n_layers = model->config.n_layers;
    if (o->context_max == 0 || o->context_max > MODEL_CONTEXT_MAX || o->sequences_max == 0)
        return error_set(err, STATUS_ARGUMENT, "the context must be 1 to %d tokens and there must be a sequence",
                         MODEL_CONTEXT_MAX);
    if (o->n_taps > MODEL_TAPS_MAX)
        return error_set(err, STATUS_ARGUMENT, "at most %d taps, %u were asked for", MODEL_TAPS_MAX, o->n_taps);
    for (uint32_t t = 0; t < o->n_taps; t++)
        if (o->tap_layers[t] >= n_layers - (o->tap_kind == TAP_MIXTURE) ||
            (t > 0 && o->tap_layers[t] <= o->tap_layers[t - 1]))
            return error_set(err, STATUS_ARGUMENT, "tap %u: layer %u is not an ascending layer index below %u", t,
                             o->tap_layers[t], n_layers - (o->tap_kind == TAP_MIXTURE));
    uint32_t width = latent_width(&model->config);
    if (o->latent_dtype == DTYPE_INT16 && width > INT16_ROW_MAX)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--kv int16 takes latents of at most %d values, here they have %u; use --kv bf16",
                         INT16_ROW_MAX, width);
    for (uint32_t l = 0; l < n_layers; l++) {
        uint32_t dim = model->config.is_kda[l] ? 0 : model->params.layers[l].mla.indexer.head_dim;
        if (o->index_dtype == DTYPE_MXFP8 && dim % MX_BLOCK != 0)
            return error_set(err, STATUS_UNSUPPORTED,
                             "--li mxfp8 needs index heads of a multiple of %d values, layer %u has %u; use --li bf16",
                             MX_BLOCK, l, dim);
    }
    return STATUS_OK;
}

static enum status make_layout(struct model *model, struct error *err)
{
    const struct config *c = &model->config;
    struct state_layout *layout = &model->layout;
    TRY(memory_take(&model->mla_slots, c->n_layers, sizeof *model->mla_slots, "the cache layout", err));
    *layout = (struct state_layout){.latent_dtype = model->options.latent_dtype,
                                    .index_dtype = model->options.index_dtype,
                                    .latent_width = latent_width(c),
                                    .mla = model->mla_slots,
                                    .rewinds = model->options.rewinds,
                                    .kda_heads = c->kda_heads,
                                    .kda_head_dim = c->kda_head_dim,
                                    .conv_taps = c->conv_taps};
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (c->is_kda[l]) {
            layout->n_kda++;
            continue;
        }
        uint32_t dim = model->params.layers[l].mla.indexer.head_dim;
        model->n_index_layers += dim > 0;
        layout->mla[layout->n_mla++].index_dim = dim;
    }
    layout_complete(layout);
    return STATUS_OK;
}

static enum status make_plans(struct model *model, struct error *err)
{
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
        TRY(model_plan(&model->plans[b], model, bucket_rows[b], err));
    return STATUS_OK;
}

static enum status make_runner(struct model *model, struct error *err)
{
    size_t workspace = 0, scratch = 0;
    uint32_t nodes = 0;
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++) {
        const struct plan *plan = &model->plans[b];
        workspace = plan->workspace_bytes > workspace ? plan->workspace_bytes : workspace;
        scratch = plan->scratch_bytes > scratch ? plan->scratch_bytes : scratch;
        nodes = plan->n_nodes > nodes ? plan->n_nodes : nodes;
    }
    TRY(runner_init(&model->runner, model->team, &model->kernels, model->options.exec, nodes, workspace, scratch, err));
    model->runner.streams = model->options.streams;
    model->runner.early_start = (model->options.without & 1u << TECHNIQUE_EARLY_START) == 0;
    return STATUS_OK;
}

enum status model_prepare(struct model *model, struct error *err)
{
    uint32_t context = model->options.context_max, topk = model->config.index_topk;
    TRY(check_options(model, err));
    TRY(team_open(&model->team, model->options.n_threads, err));
    TRY(make_layout(model, err));
    model->topk = topk < context ? topk : context;
    return STATUS_OK;
}

uint64_t model_pages(const struct model *model, uint32_t context, uint32_t sequences)
{
    return model->layout.n_mla ? (uint64_t)sequences * ((context + PAGE_TOKENS - 1) / PAGE_TOKENS + 1) : 0;
}

static enum status check_act(enum act act, unsigned tiers, struct error *err)
{
    unsigned needed;
    if (tiers_parse(act_tier(act), &needed, NULL) == STATUS_OK && (needed & ~tiers) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "--act %s needs the instruction tier %s, this run has %s; use --act exact%s", act_name(act),
                     act_tier(act), tiers_name(tiers), act == ACT_F16 ? ", int8 or int16" : "");
}

static enum status check_weight_types(const struct weight_types *types, struct error *err)
{
    const enum dtype given[] = {types->dense, types->experts};
    for (int i = 0; i < 2; i++)
        if (given[i] != DTYPE_AS_STORED && !dtype_has_scales(given[i]))
            return error_set(err, STATUS_ARGUMENT, "weights are converted to mxfp4, mxfp8 or int8, not to %s",
                             dtype_name(given[i]));
    return STATUS_OK;
}

const char *model_weight_type_name(enum dtype dtype)
{
    return dtype == DTYPE_AS_STORED ? "as-stored" : dtype_name(dtype);
}

uint64_t model_weight_bytes(const struct checkpoint *checkpoint, const struct conversion *conversion)
{
    return checkpoint_bytes(checkpoint) - conversion->source_bytes + conversion->bytes;
}

enum packing model_packing(const struct model *model)
{
    const struct model_options *o = &model->options;
    if (!o->pack || o->act == ACT_EXACT)
        return PACK_NOTHING;
    bool fits = checkpoint_bytes(model->checkpoint) <= machine_memory_bytes(NULL);
    if (!o->cache_folder || !fits)
        return PACK_CONVERTED;
    return o->act == ACT_INT16 ? PACK_BF16 : PACK_STORED;
}

struct weight_cache_request model_weight_request(const struct model *model, const char *directory,
                                                 struct conversion *conversion, char suffix[WEIGHT_SUFFIX_BYTES])
{
    static const char *const panels[] = {[PACK_NOTHING] = "",
                                         [PACK_CONVERTED] = "-panels",
                                         [PACK_STORED] = "-all-panels",
                                         [PACK_BF16] = "-int16-panels"};
    struct weight_types types = model->options.weights;
    if (conversion_totals(conversion, false).bytes == 0)
        types.dense = DTYPE_AS_STORED;
    if (conversion_totals(conversion, true).bytes == 0)
        types.experts = DTYPE_AS_STORED;
    snprintf(suffix, WEIGHT_SUFFIX_BYTES, "%s-%s%s", model_weight_type_name(types.dense),
             model_weight_type_name(types.experts), panels[model->packing]);
    return (struct weight_cache_request){.directory = directory,
                                         .checkpoint = model->checkpoint,
                                         .conversion = conversion,
                                         .suffix = suffix,
                                         .folder = model->options.cache_folder,
                                         .kernels = &model->kernels,
                                         .team = model->team,
                                         .watch = &model->options.watch};
}

static enum status open_parts(struct model *model, const char *directory, struct error *err)
{
    unsigned tiers;
    TRY(tiers_parse(model->options.cpu, &tiers, err));
    TRY(check_act(model->options.act, tiers, err));
    kernels_select(&model->kernels, tiers);
    TRY(config_load(&model->config, directory, &model->options.config, err));
    TRY(checkpoint_open(&model->checkpoint, directory, err));
    TRY(check_weight_types(&model->options.weights, err));
    model->packing = model_packing(model);
    TRY(params_init(&model->params, &model->config, model->checkpoint, model->options.weights, model->packing, err));
    TRY(model_prepare(model, err));
    uint64_t pages = model_pages(model, model->options.context_max, model->options.sequences_max);
    if (pages >= PAGE_NONE)
        return error_set(err, STATUS_ARGUMENT, "%u sequences of %u tokens are more than the cache can count",
                         model->options.sequences_max, model->options.context_max);
    TRY(budget_compute(&model->budget, model, model_weight_bytes(model->checkpoint, &model->params.conversion),
                       model->options.budget_bytes, err));
    TRY(budget_check(&model->budget, err));
    char suffix[WEIGHT_SUFFIX_BYTES];
    struct weight_cache_request request = model_weight_request(model, directory, &model->params.conversion, suffix);
    TRY(weight_cache_open(&model->weight_cache, &request, err));
    TRY(make_plans(model, err));
    TRY(pages_init(&model->pages, model->layout.page_bytes, (uint32_t)pages, err));
    TRY(make_runner(model, err));
    TRY(memory_take(&model->arrays, 1, sizeof *model->arrays, "the step's arrays", err));
    if (!model->options.reports_selected)
        return STATUS_OK;
    size_t n = (size_t)model->n_index_layers * MODEL_ROWS_MAX;
    TRY(memory_take(&model->selected, n * model->topk, sizeof(uint32_t), "selections", err));
    return memory_take(&model->n_selected, n, sizeof(uint32_t), "selections", err);
}

enum status model_open(struct model **out, const char *directory, const struct model_options *options,
                       struct error *err)
{
    struct model *model;
    *out = NULL;
    TRY(memory_take(&model, 1, sizeof *model, "the model", err));
    model->options = *options;
    enum status status = open_parts(model, directory, err);
    if (status != STATUS_OK) {
        model_close(model);
        return status;
    }
    *out = model;
    return STATUS_OK;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    for (uint32_t b = 0; b < MODEL_BUCKETS; b++)
        plan_fini(&model->plans[b]);
    runner_fini(&model->runner);
    pages_fini(&model->pages);
    team_close(model->team);
    params_fini(&model->params);
    weight_cache_close(&model->weight_cache);
    checkpoint_close(model->checkpoint);
    free(model->mla_slots);
    free(model->arrays);
    free(model->selected);
    free(model->n_selected);
    free(model);
}

enum status model_sequence_init(struct model *model, struct sequence *sequence, struct error *err)
{
    return sequence_init(sequence, &model->layout, &model->pages, model->options.context_max, err);
}

/* Checks the tokens of all spans, then makes room for them in the caches; where that fails, none has kept any. */
static enum status admit_spans(const struct model *model, const struct model_span *spans, uint32_t n_spans,
                               struct error *err)
{
    uint32_t vocabulary = model->config.vocab_size;
    for (uint32_t s = 0; s < n_spans; s++) {
        for (uint32_t i = 0; i < n_spans; i++)
            CHECK(i == s || spans[i].sequence != spans[s].sequence);
        for (uint32_t i = 0; i < spans[s].n_tokens; i++)
            if (spans[s].tokens[i] < 0 || (uint32_t)spans[s].tokens[i] >= vocabulary)
                return error_set(err, STATUS_ARGUMENT, "token %u is %d; the vocabulary has ids 0 to %u", i,
                                 spans[s].tokens[i], vocabulary - 1);
    }
    for (uint32_t s = 0; s < n_spans; s++) {
        enum status status = sequence_reserve(spans[s].sequence, spans[s].n_tokens, err);
        if (status == STATUS_OK)
            continue;
        for (uint32_t i = 0; i < s; i++)
            sequence_release(spans[i].sequence);
        return status;
    }
    return STATUS_OK;
}

/* Hands the selections of an inner step to the caller. */
static void report_selected(const struct model *model, const struct step *step, const struct model_outputs *outputs)
{
    uint32_t ordinal = 0;
    for (uint32_t l = 0; l < model->config.n_layers; l++) {
        if (model->config.is_kda[l] || model->params.layers[l].mla.indexer.n_heads == 0)
            continue;
        for (uint32_t row = 0; row < step->n_rows; row++) {
            size_t at = (size_t)ordinal * step->n_rows + row;
            outputs->selected(outputs->selected_context, l, model->arrays->caller_spans[step->row_spans[row]],
                              step_row_position(step, row), model->selected + at * model->topk, model->n_selected[at]);
        }
        ordinal++;
    }
}

/* Keeps the earliest bad layer of each of the caller's spans. */
static void report_bad_layers(const struct model *model, const struct step *step, uint32_t *bad_layers)
{
    for (uint32_t row = 0; row < step->n_rows; row++) {
        uint32_t *of_span = &bad_layers[model->arrays->caller_spans[step->row_spans[row]]];
        *of_span = step->bad_layers[row] < *of_span ? step->bad_layers[row] : *of_span;
    }
}

/* Where a call stands: the next token to feed is `token` of span `span`. */
struct cursor {
    uint32_t span, token;
    size_t rows, logit_rows; /* done so far */
};

/* Fills a parameter block with as many of the next rows as one plan takes. */
static struct step next_step(struct model *model, const struct model_span *spans, uint32_t n_spans, struct cursor *at)
{
    struct step_arrays *a = model->arrays;
    struct step step = {.spans = a->spans,
                        .tokens = a->tokens,
                        .row_spans = a->row_spans,
                        .logit_rows = a->logit_rows,
                        .bad_layers = a->bad_layers};
    while (at->span < n_spans && step.n_rows < MODEL_ROWS_MAX) {
        const struct model_span *from = &spans[at->span];
        uint32_t left = from->n_tokens - at->token, room = MODEL_ROWS_MAX - step.n_rows;
        uint32_t n = left < room ? left : room;
        if (n > 0) {
            a->caller_spans[step.n_spans] = at->span;
            a->spans[step.n_spans] = (struct step_span){from->sequence, step.n_rows, n, from->sequence->length};
            memcpy(a->tokens + step.n_rows, from->tokens + at->token, n * sizeof *a->tokens);
            for (uint32_t i = 0; i < n; i++) {
                a->row_spans[step.n_rows + i] = step.n_spans;
                if (at->token + i >= from->first_logit)
                    a->logit_rows[step.n_logit_rows++] = step.n_rows + i;
            }
            step.n_spans++;
            step.n_rows += n;
            at->token += n;
        }
        if (at->token == from->n_tokens) {
            at->span++;
            at->token = 0;
        }
    }
    return step;
}

enum status model_step(struct model *model, const struct model_span *spans, uint32_t n_spans,
                       const struct model_outputs *outputs, struct error *err)
{
    TRY(admit_spans(model, spans, n_spans, err));
    for (uint32_t s = 0; outputs->bad_layers && s < n_spans; s++)
        outputs->bad_layers[s] = SOUND;
    struct cursor at = {0};
    for (;;) {
        struct step step = next_step(model, spans, n_spans, &at);
        if (step.n_rows == 0)
            return STATUS_OK;
        CHECK(step.n_logit_rows == 0 || outputs->logits);
        CHECK(!outputs->selected || model->selected);
        step.logits = step.n_logit_rows ? outputs->logits + at.logit_rows * model->config.vocab_size : NULL;
        step.taps = outputs->taps ? outputs->taps + at.rows * model->options.n_taps * model->config.hidden_size : NULL;
        step.selected = outputs->selected ? model->selected : NULL;
        step.n_selected = model->n_selected;
        step.counters = model->counters;
        uint32_t bucket = 0;
        while (bucket_rows[bucket] < step.n_rows)
            bucket++;
        runner_run(&model->runner, &model->plans[bucket], &step);
        if (outputs->selected)
            report_selected(model, &step, outputs);
        if (outputs->bad_layers)
            report_bad_layers(model, &step, outputs->bad_layers);
        for (uint32_t i = 0; i < step.n_spans; i++)
            sequence_advance(step.spans[i].sequence, step.spans[i].n_rows);
        at.rows += step.n_rows;
        at.logit_rows += step.n_logit_rows;
    }
}

enum status model_rewind(struct model *model, struct sequence *sequence, uint32_t n, struct error *err)
{
    if (n > sequence_rewindable(sequence))
        return error_set(err, STATUS_ARGUMENT,
                         "%u tokens were to be undone, of the %u in the sequence the last %u can be", n,
                         sequence->length, sequence_rewindable(sequence));
    kda_rewind(&model->kernels, sequence, n);
    return STATUS_OK;
}
