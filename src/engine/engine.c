#include "engine/engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cpu/tiers.h"

/* Bumped whenever an order of summation or a stored format changes: the bits then differ. */
#define NUMERICS_VERSION "2"

enum { PRELOAD_CHUNK_BYTES = 16 << 20 };

day0_status engine_error(day0_error *out, enum status status, const struct error *err)
{
    if (out && status != STATUS_OK) {
        out->status = (day0_status)status;
        snprintf(out->text, sizeof out->text, "%s", err->text);
    }
    return (day0_status)status;
}

day0_options day0_options_default(void)
{
    return (day0_options){.context_max = 8192, .sessions_max = 1, .checkpoints_max = 16, .piece_tokens = 256};
}

/* The place of `word` among the choices, the first if it is NULL. */
static enum status choose(const char *name, const char *word, const char *const *choices, int n, int *out,
                          struct error *err)
{
    *out = 0;
    for (int i = 0; word && i < n; i++)
        if (strcmp(word, choices[i]) == 0)
            return *out = i, STATUS_OK;
    if (!word)
        return STATUS_OK;
    return error_set(err, STATUS_ARGUMENT, "%s cannot be '%s'; the choices begin with '%s'", name, word, choices[0]);
}

static enum status model_options_of(const day0_options *o, struct model_options *m, struct error *err)
{
    static const char *const execs[] = {"graph", "eager"}, *const switches[] = {"on", "off"},
                             *const kvs[] = {"int16", "bf16", "f32"}, *const lis[] = {"bf16", "mxfp8", "f32"},
                             *const rules[] = {"floor", "ceil"}, *const scans[] = {"bounds", "exact"};
    static const enum dtype kv_types[] = {DTYPE_INT16, DTYPE_BF16, DTYPE_F32},
                            li_types[] = {DTYPE_BF16, DTYPE_MXFP8, DTYPE_F32};
    static const char *const denses[] = {"as-stored", "mxfp8", "int8", "mxfp4"}, *const expert_words[] = {
                                                                                     "as-stored", "mxfp4", "int8"};
    static const enum dtype dense_types[] = {DTYPE_AS_STORED, DTYPE_MXFP8, DTYPE_INT8, DTYPE_MXFP4},
                            expert_types[] = {DTYPE_AS_STORED, DTYPE_MXFP4, DTYPE_INT8};
    int exec, streams, kv, li, rule, scan, act, dense, experts, pack;
    TRY(choose("act", o->act ? o->act : act_name(ACT_DEFAULT), act_names, ACT_COUNT, &act, err));
    TRY(choose("exec", o->exec, execs, 2, &exec, err));
    TRY(choose("streams", o->streams, switches, 2, &streams, err));
    TRY(choose("pack", o->pack, switches, 2, &pack, err));
    TRY(choose("kv", o->kv ? o->kv : dtype_name(LATENT_DEFAULT), kvs, 3, &kv, err));
    TRY(choose("li", o->li, lis, 3, &li, err));
    TRY(choose("li_scale", o->li_scale, rules, 2, &rule, err));
    TRY(choose("dense", o->dense, denses, 4, &dense, err));
    TRY(choose("experts", o->experts, expert_words, 3, &experts, err));
    TRY(choose("li_scan", o->li_scan, scans, 2, &scan, err));
    *m = model_options_default();
    m->cpu = o->cpu;
    m->n_threads = o->threads;
    m->exec = (enum exec_mode)exec;
    m->streams = streams == 0;
    m->act = (enum act)act;
    m->latent_dtype = kv_types[kv];
    m->index_dtype = li_types[li];
    m->index_rule = rule ? MX_CEIL : MX_FLOOR;
    m->weights = (struct weight_types){dense_types[dense], expert_types[experts]};
    m->pack = pack == 0;
    TRY(techniques_parse(&m->without, o->without, err));
    m->cache_folder = o->cache;
    m->watch = (struct watch){o->progress, o->notice, o->progress_context};
    m->index_scan = (enum dsa_scan)scan;
    m->context_max = o->context_max;
    m->sequences_max = o->sessions_max;
    m->kept_max = o->checkpoints_max;
    m->rewinds = true;
    m->config.accept_unknown = o->accept_unknown;
    return STATUS_OK;
}

static enum status check_options(const day0_options *o, struct error *err)
{
    enum { SESSIONS_LIMIT = MODEL_SPANS_MAX, CHECKPOINTS_LIMIT = 4096 };
    if (!o->model)
        return error_set(err, STATUS_ARGUMENT, "a checkpoint directory is needed");
    if (o->sessions_max < 1 || o->sessions_max > SESSIONS_LIMIT)
        return error_set(err, STATUS_ARGUMENT, "sessions_max must be 1 to %d, not %u", SESSIONS_LIMIT, o->sessions_max);
    if (o->checkpoints_max > CHECKPOINTS_LIMIT)
        return error_set(err, STATUS_ARGUMENT, "checkpoints_max must be at most %d, not %u", CHECKPOINTS_LIMIT,
                         o->checkpoints_max);
    if (o->piece_tokens < 1 || o->piece_tokens > MODEL_ROWS_MAX)
        return error_set(err, STATUS_ARGUMENT, "piece_tokens must be 1 to %d, not %u", MODEL_ROWS_MAX, o->piece_tokens);
    return STATUS_OK;
}

/* ---- preload: all workers read ahead, the first one reports ---- */

struct preload {
    const day0_engine *engine;
    struct range {
        const char *start;
        uint64_t bytes;
    } * ranges;
    size_t n_ranges;
    uint64_t total;
    _Atomic size_t next;
    _Atomic uint64_t done;
    _Atomic bool stopped;
};

/* Says where it stands; true if it shall stop. */
static bool report(const struct preload *p, uint64_t done)
{
    return watch_progress(&p->engine->model->options.watch, "reading weights", done, p->total);
}

static void preload_worker(void *context, unsigned worker)
{
    enum { TOUCH_BYTES = 4096 };
    struct preload *p = context;
    for (size_t i; !p->stopped && (i = atomic_fetch_add(&p->next, 1)) < p->n_ranges;) {
        for (uint64_t at = 0; at < p->ranges[i].bytes; at += TOUCH_BYTES)
            (void)((const volatile char *)p->ranges[i].start)[at];
        uint64_t done = atomic_fetch_add(&p->done, p->ranges[i].bytes) + p->ranges[i].bytes;
        if (worker == 0 && report(p, done))
            p->stopped = true;
    }
}

/* Cuts memory into ranges; with `ranges` NULL only counts them. */
static void add_range(struct preload *p, const char *start, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PRELOAD_CHUNK_BYTES, p->n_ranges++)
        if (p->ranges)
            p->ranges[p->n_ranges] =
                (struct range){start + at, bytes - at < PRELOAD_CHUNK_BYTES ? bytes - at : PRELOAD_CHUNK_BYTES};
    p->total += bytes;
}

/* What steps read: tensors as they are stored, but for those whose converted form is read instead. */
static void add_ranges(struct preload *p, const bool *is_converted)
{
    const struct model *model = p->engine->model;
    p->n_ranges = 0;
    p->total = 0;
    for (size_t i = 0; i < checkpoint_count(model->checkpoint); i++)
        if (!is_converted[i])
            add_range(p, checkpoint_at(model->checkpoint, i)->data, checkpoint_at(model->checkpoint, i)->bytes);
    if (model->weight_cache.map)
        add_range(p, model->weight_cache.map, model->weight_cache.map_bytes);
}

static enum status preload(const day0_engine *engine, struct error *err)
{
    const struct checkpoint *checkpoint = engine->model->checkpoint;
    const struct conversion *conversion = &engine->model->params.conversion;
    struct preload p = {.engine = engine};
    bool *is_converted;
    TRY(memory_take(&is_converted, checkpoint_count(checkpoint), sizeof *is_converted, "the list of weights", err));
    for (size_t r = 0; r < conversion->n_records; r++)
        for (uint32_t i = 0; i < conversion->records[r].n_parts; i++) {
            const struct conversion_part *part = &conversion->records[r].parts[i];
            is_converted[part->from - checkpoint_at(checkpoint, 0)] = true;
            if (part->scales)
                is_converted[part->scales - checkpoint_at(checkpoint, 0)] = true;
        }
    add_ranges(&p, is_converted);
    enum status status = memory_take(&p.ranges, p.n_ranges, sizeof *p.ranges, "the list of weights", err);
    if (status == STATUS_OK) {
        add_ranges(&p, is_converted);
        p.stopped = report(&p, 0);
        team_run(engine->model->team, preload_worker, &p);
        if (p.stopped || report(&p, p.total))
            status = error_set(err, STATUS_INTERRUPTED, "reading the weights was stopped");
    }
    free(p.ranges);
    free(is_converted);
    return status;
}

/* ---- open and close ---- */

/* A checkpoint without tokenizer files still computes ids. */
static enum status open_tokenizer(day0_engine *engine, struct error *err)
{
    char path[PATH_BYTES_MAX];
    TRY(file_join(path, engine->directory, "tiktoken.model", err));
    if (!file_exists(path))
        return STATUS_OK;
    TRY(tokenizer_open(&engine->tokenizer, engine->directory, err));
    if ((uint32_t)tokenizer_vocab_size(engine->tokenizer) > engine->model->config.vocab_size)
        return error_set(err, STATUS_FORMAT, "%s: the tokenizer has %d tokens, config.json a vocabulary of %u",
                         engine->directory, tokenizer_vocab_size(engine->tokenizer), engine->model->config.vocab_size);
    return STATUS_OK;
}

static void describe(day0_engine *engine)
{
    const struct model *model = engine->model;
    const struct model_options *o = &model->options;
    char *numerics = engine->numerics;
    int used = snprintf(
        numerics, sizeof engine->numerics, "day0-%s act=%s kv=%s li=%s%s", NUMERICS_VERSION, act_name(o->act),
        dtype_name(o->latent_dtype), model->n_index_layers ? dtype_name(o->index_dtype) : "none",
        model->n_index_layers && o->index_dtype == DTYPE_MXFP8 ? o->index_rule == MX_CEIL ? "-ceil" : "-floor" : "");
    /* Only what was converted makes other bits. */
    const char *const names[] = {"dense", "experts"};
    const enum dtype types[] = {o->weights.dense, o->weights.experts};
    for (int i = 0; i < 2; i++)
        if (conversion_totals(&model->params.conversion, i == 1).bytes > 0)
            used += snprintf(numerics + used, sizeof engine->numerics - (size_t)used, " %s=%s", names[i],
                             dtype_name(types[i]));
    snprintf(engine->description, sizeof engine->description,
             "%s, %u layers, %.1f million parameters; tier %s, %u threads", model->config.architecture,
             model->config.n_layers, (double)model->params.parameters_total / 1e6, tiers_name(model->kernels.tiers),
             team_size(model->team));
}

static enum status open_parts(day0_engine *engine, const day0_options *options, struct error *err)
{
    struct model_options model_options;
    TRY(check_options(options, err));
    TRY(model_options_of(options, &model_options, err));
    if (snprintf(engine->directory, sizeof engine->directory, "%s", options->model) >= (int)sizeof engine->directory)
        return error_set(err, STATUS_ARGUMENT, "the checkpoint directory's path is too long");
    engine->options = *options;
    engine->options.model = engine->directory;
    model_options.budget_bytes = options->budget_bytes;
    TRY(model_open(&engine->model, engine->directory, &model_options, err));
    TRY(open_tokenizer(engine, err));
    TRY(sampling_load(&engine->sampling, engine->directory, err));
    checkpoint_identity(engine->model->checkpoint, engine->identity);
    describe(engine);
    uint32_t n = options->sessions_max;
    TRY(memory_take(&engine->spans, n, sizeof *engine->spans, "the scheduler", err));
    TRY(memory_take(&engine->span_sessions, n, sizeof *engine->span_sessions, "the scheduler", err));
    TRY(memory_take(&engine->bad_layers, n, sizeof *engine->bad_layers, "the scheduler", err));
    TRY(memory_take(&engine->step_logits, (size_t)n * engine->model->config.vocab_size, sizeof *engine->step_logits,
                    "logits", err));
    TRY(reuse_open(engine, err));
    return options->preload ? preload(engine, err) : STATUS_OK;
}

day0_status day0_engine_open(day0_engine **out, const day0_options *options, day0_error *error)
{
    struct error err;
    day0_engine *engine;
    *out = NULL;
    enum status status = memory_take(&engine, 1, sizeof *engine, "the engine", &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    status = open_parts(engine, options, &err);
    if (status != STATUS_OK) {
        day0_engine_close(engine);
        return engine_error(error, status, &err);
    }
    *out = engine;
    return DAY0_OK;
}

void day0_engine_close(day0_engine *engine)
{
    if (!engine)
        return;
    while (engine->sessions)
        day0_session_close(engine->sessions);
    reuse_close(engine);
    free(engine->spans);
    free(engine->span_sessions);
    free(engine->bad_layers);
    free(engine->step_logits);
    tokenizer_close(engine->tokenizer);
    model_close(engine->model);
    free(engine);
}

/* ---- questions ---- */

day0_memory day0_engine_memory(const day0_engine *engine)
{
    const struct budget *budget = &engine->model->budget;
    const struct pages *pages = &engine->model->pages;
    return (day0_memory){.budget_bytes = budget->budget_bytes,
                         .weights_bytes = budget->weights_bytes,
                         .converted_bytes = engine->model->params.conversion.bytes,
                         .cache_bytes = budget->cache_bytes,
                         .cache_used_bytes = (uint64_t)(pages->n_pages - pages->n_free) * pages->page_bytes,
                         .sessions_bytes = budget->state_bytes,
                         .checkpoints_bytes = budget->kept_bytes,
                         .workspace_bytes = budget->workspace_bytes,
                         .total_bytes = budget->total_bytes};
}

uint32_t day0_engine_vocabulary(const day0_engine *engine)
{
    return engine->model->config.vocab_size;
}

const char *day0_engine_numerics(const day0_engine *engine)
{
    return engine->numerics;
}

const char *day0_engine_description(const day0_engine *engine)
{
    return engine->description;
}

day0_sampling day0_engine_sampling(const day0_engine *engine)
{
    const struct sampling *s = &engine->sampling;
    return (day0_sampling){.temperature = s->temperature,
                           .top_k = s->top_k,
                           .top_p = s->top_p,
                           .min_p = s->min_p,
                           .repetition_penalty = 1.0f};
}

day0_generation day0_generation_default(const day0_engine *engine)
{
    return (day0_generation){.sampling = day0_engine_sampling(engine), .tokens_max = 256};
}
