#include "lab/bench_ablate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cpu/tiers.h"
#include "lab/policy.h"
#include "lab/rates_find.h"

/* What a switch acts on: without it, nothing is to be measured. */
enum needs { NEEDS_NOTHING, NEEDS_INDEX, NEEDS_BF16_EXPERTS, NEEDS_ATTN_RES, NEEDS_EXPERTS };

/* Every switch, as a policy (lab/policy.h) over the command line's options. To add one: a line. */
static const struct ablate_switch {
    const char *policy, *what;
    enum needs needs;
} switches[] = {
    {"exec=eager", "a barrier after each node", NEEDS_NOTHING},
    {"streams=off", "nodes one after the other", NEEDS_NOTHING},
    {"act=exact", "activations in float32", NEEDS_NOTHING},
    {"act=int8", "INT8 for MXFP4 weights alone", NEEDS_NOTHING},
    {"act=int16", "that, and INT16 for BF16 weights", NEEDS_NOTHING},
    {"act=f16", "that, and FP16 for BF16 weights", NEEDS_NOTHING},
    {"dense=mxfp8", "dense weights in MXFP8", NEEDS_NOTHING},
    {"dense=int8", "dense weights in INT8", NEEDS_NOTHING},
    {"dense=mxfp4", "dense weights in MXFP4", NEEDS_NOTHING},
    {"experts=int8", "BF16 experts in INT8", NEEDS_BF16_EXPERTS},
    {"experts=mxfp4", "BF16 experts in MXFP4", NEEDS_BF16_EXPERTS},
    {"without=projections", "a node for each projection", NEEDS_NOTHING},
    {"without=attn-res", "Attention Residuals in one stage", NEEDS_ATTN_RES},
    {"without=grouping", "rows of an expert one by one", NEEDS_EXPERTS},
    {"without=sharing", "every head reads latents itself", NEEDS_NOTHING},
    {"without=norms", "a slot's norm is a node of its own", NEEDS_NOTHING},
    {"without=epilogue", "activations are nodes of their own", NEEDS_NOTHING},
    {"without=kda-region", "a KDA layer's heads are three nodes", NEEDS_NOTHING},
    {"without=flash-kda", "KDA states go through the caches for every token", NEEDS_NOTHING},
    {"without=early-start", "who must wait fetches no weights meanwhile", NEEDS_NOTHING},
    {"without=segments", "keys are not split over threads", NEEDS_NOTHING},
    {"pack=off", "products from rows, not panels", NEEDS_NOTHING},
    {"kv=int16", "latents in INT16, attention in integers", NEEDS_NOTHING},
    {"kv=bf16", "latents in BF16, attention in float32", NEEDS_NOTHING},
    {"kv=f32", "latents in float32", NEEDS_NOTHING},
    {"li=f32", "index keys in float32", NEEDS_INDEX},
    {"li=bf16", "index keys in BF16", NEEDS_INDEX},
    {"li=mxfp8", "index keys in MXFP8", NEEDS_INDEX},
    {"li-scan=exact", "every index score exactly", NEEDS_INDEX},
    {"sfa=masked", "all positions are read, the unselected masked", NEEDS_INDEX},
    {"threads=1", "one thread", NEEDS_NOTHING},
};
#define N_SWITCHES (sizeof switches / sizeof *switches)
_Static_assert(N_SWITCHES <= ABLATE_SWITCHES_MAX, "the rows have room for every switch");

struct work {
    bool decode;
    uint32_t tokens, depth, batch;
};

/* One of the two that take turns. */
struct contender {
    struct model_options options;
    struct bench_rig rig;
    bool open;
    const struct work *ready; /* what its sequences are filled and warmed up for */
};

struct ablation {
    const struct bench_request *request;
    struct ablate_result *result;
    struct bench_needs needs;
    struct contender base, other;
    struct work works[ABLATE_ROWS_MAX];
    uint32_t n_works;
    uint64_t done;
};

static void list_works(struct ablation *a)
{
    const struct bench_request *r = a->request;
    for (uint32_t d = 0; d < r->prefill_depths.n; d++)
        for (uint32_t i = 0; i < r->prefill.n; i++)
            a->works[a->n_works++] = (struct work){false, r->prefill.values[i], r->prefill_depths.values[d], 1};
    for (uint32_t d = 0; d < r->depths.n; d++)
        for (uint32_t i = 0; i < r->batches.n; i++)
            a->works[a->n_works++] = (struct work){true, 1, r->depths.values[d], r->batches.values[i]};
    CHECK(a->n_works <= BENCH_LIST_MAX);
}

static void close_contender(struct contender *c)
{
    bench_rig_close(&c->rig);
    c->open = false;
    c->ready = NULL;
}

/* Opens a contender; if there is no room beside the other, that one makes way. */
static enum status open_contender(const struct ablation *a, struct contender *c, struct contender *beside,
                                  struct error *err)
{
    if (c->open)
        return STATUS_OK;
    enum status status = bench_rig_open(&c->rig, a->request->directory, &c->options, a->needs, err);
    if (status == STATUS_MEMORY && beside->open) {
        bench_rig_close(&c->rig);
        close_contender(beside);
        status = bench_rig_open(&c->rig, a->request->directory, &c->options, a->needs, err);
    }
    c->open = status == STATUS_OK;
    if (!c->open)
        bench_rig_close(&c->rig);
    return status;
}

static enum status warm_up(const struct ablation *a, struct contender *c, const struct work *w, struct error *err)
{
    double seconds;
    uint32_t steps = 2, rows = w->tokens < MODEL_ROWS_MAX ? w->tokens : MODEL_ROWS_MAX;
    if (c->ready == w)
        return STATUS_OK;
    TRY(bench_rig_fill(&c->rig, w->depth, w->batch, w->decode ? 0 : w->tokens, err));
    if (w->decode)
        TRY(bench_rig_generate(&c->rig, w->depth, w->batch, &steps, a->request->seconds_min, &seconds, err));
    else
        TRY(bench_rig_prompt(&c->rig, w->depth, rows, &seconds, err));
    c->ready = w;
    return STATUS_OK;
}

/* One turn: the work again and again until it took its share of seconds_min. */
static enum status time_work(const struct ablation *a, struct contender *c, const struct work *w, double *tokens_per_s,
                             struct error *err)
{
    double enough = a->request->seconds_min / a->request->repeat, spent = 0, seconds;
    uint64_t tokens = 0;
    TRY(warm_up(a, c, w, err));
    do {
        uint32_t steps = BENCH_STEPS_MAX;
        if (w->decode)
            TRY(bench_rig_generate(&c->rig, w->depth, w->batch, &steps, enough - spent, &seconds, err));
        else
            TRY(bench_rig_prompt(&c->rig, w->depth, w->tokens, &seconds, err));
        tokens += w->decode ? (uint64_t)steps * w->batch : w->tokens;
        spent += seconds;
    } while (spent < enough);
    *tokens_per_s = (double)tokens / spent;
    return STATUS_OK;
}

/* Pairs of timings, by turns. */
static enum status compare(struct ablation *a, const struct work *w, struct ablate_row *row, struct error *err)
{
    double base[BENCH_REPEAT_MAX], other[BENCH_REPEAT_MAX], ratios[BENCH_REPEAT_MAX];
    uint32_t n = a->request->repeat;
    for (uint32_t i = 0; i < n; i++) {
        TRY(open_contender(a, &a->base, &a->other, err));
        TRY(time_work(a, &a->base, w, &base[i], err));
        TRY(open_contender(a, &a->other, &a->base, err));
        TRY(time_work(a, &a->other, w, &other[i], err));
        ratios[i] = other[i] / base[i];
    }
    row->base_tokens_per_s = bench_median(base, n);
    row->tokens_per_s = bench_median(other, n);
    row->ratio = bench_median(ratios, n);
    row->ratio_low = ratios[0];
    row->ratio_high = ratios[n - 1];
    return STATUS_OK;
}

static bool has_bf16_experts(const struct model *model)
{
    for (uint32_t l = 0; l < model->config.n_layers; l++)
        if (config_is_moe(&model->config, l) && model->params.layers[l].moe.experts[0].gate.dtype != DTYPE_MXFP4)
            return true;
    return false;
}

/* Why a switch has nothing to act on in this model; NULL if it has. */
static const char *lacks(const struct model *model, enum needs needs)
{
    if (needs == NEEDS_INDEX && model->n_index_layers == 0)
        return "the model has no index layers";
    if (needs == NEEDS_BF16_EXPERTS && !has_bf16_experts(model))
        return "the model has no BF16 experts";
    if (needs == NEEDS_ATTN_RES && model->config.attn_res_block_size == 0)
        return "the model has no Attention Residuals";
    if (needs == NEEDS_EXPERTS && model->config.n_experts == 0)
        return "the model has no experts";
    return NULL;
}

/* Byte by byte, so that a new option is compared, too. Copies have the same padding; if not, the default is measured
 * against itself. */
static bool same_options(const struct model_options *a, const struct model_options *b)
{
    const unsigned char *x = (const void *)a, *y = (const void *)b;
    size_t i = 0;
    while (i < sizeof *a && x[i] == y[i])
        i++;
    return i == sizeof *a;
}

/* Why a switch is not measured: it is the default, the model lacks what it acts on, it cannot be opened. Memory alone
 * is no reason until the default has made way. */
static void find_reason(struct ablation *a, const struct ablate_switch *s, char reason[ABLATE_REASON_BYTES])
{
    struct policy policy = {0};
    struct error why = {0};
    const struct model *model = a->base.rig.model;
    const char *lacking = lacks(model, s->needs);
    if (lacking) {
        snprintf(reason, ABLATE_REASON_BYTES, "%s", lacking);
    } else if (policy_parse(&policy, s->policy, &a->base.options, &why) != STATUS_OK) {
        snprintf(reason, ABLATE_REASON_BYTES, "%s", why.text);
    } else if (same_options(&policy.options, &a->base.options) ||
               (policy.options.n_threads == 1 && team_size(model->team) == 1)) {
        snprintf(reason, ABLATE_REASON_BYTES, "is the default");
    } else {
        a->other.options = policy.options;
        if (open_contender(a, &a->other, &a->base, &why) != STATUS_OK)
            snprintf(reason, ABLATE_REASON_BYTES, "%s", why.text);
    }
}

static void tell(struct ablation *a)
{
    if (a->request->progress)
        a->request->progress(a->request->progress_context, ++a->done,
                             (a->request->policy ? 1 : (uint64_t)N_SWITCHES) * a->n_works);
}

static enum status run_switch(struct ablation *a, const struct ablate_switch *s, struct error *err)
{
    char reason[ABLATE_REASON_BYTES] = "";
    TRY(open_contender(a, &a->base, &a->other, err));
    find_reason(a, s, reason);
    for (uint32_t i = 0; i < a->n_works; i++) {
        const struct work *w = &a->works[i];
        struct ablate_row *row = &a->result->rows[a->result->n_rows++];
        *row = (struct ablate_row){s->policy, s->what, w->decode, w->tokens, w->depth, w->batch, .ratio = 0};
        memcpy(row->skipped, reason, sizeof reason);
        if (!*reason)
            TRY(compare(a, w, row, err));
        tell(a);
    }
    close_contender(&a->other);
    return STATUS_OK;
}

static enum status run(struct ablation *a, struct error *err)
{
    struct policy policy;
    if (a->request->policy)
        TRY(policy_parse(&policy, a->request->policy, &a->request->options, err));
    list_works(a);
    for (uint32_t i = 0; i < a->n_works; i++) {
        const struct work *w = &a->works[i];
        uint32_t context = w->depth + (w->decode ? BENCH_STEPS_MAX : w->tokens);
        a->needs.context = context > a->needs.context ? context : a->needs.context;
        a->needs.prompt = w->tokens > a->needs.prompt ? w->tokens : a->needs.prompt;
        a->needs.batch = w->batch > a->needs.batch ? w->batch : a->needs.batch;
    }
    TRY(open_contender(a, &a->base, &a->other, err));
    const struct model *model = a->base.rig.model;
    a->result->n_threads = team_size(model->team);
    a->result->tier = tiers_name(model->kernels.tiers);
    if (a->request->probe)
        TRY(rates_find(&a->result->rates, model->team, model->kernels.tiers, RATES_FROM_RUN, err));
    for (uint32_t i = 0; i < a->n_works; i++)
        if (bench_rig_fits(&a->base.rig, a->works[i].depth, a->works[i].batch) < a->works[i].batch)
            return error_set(err, STATUS_MEMORY,
                             "there is no room for %u sequences of %u tokens; choose a smaller --batch",
                             a->works[i].batch, a->works[i].depth);
    const struct ablate_switch named = {a->request->policy, "as named", NEEDS_NOTHING};
    if (a->request->policy)
        return run_switch(a, &named, err);
    for (size_t s = 0; s < N_SWITCHES; s++)
        TRY(run_switch(a, &switches[s], err));
    return STATUS_OK;
}

enum status bench_ablate_run(const struct bench_request *request, struct ablate_result *result, struct error *err)
{
    struct ablation *a;
    TRY(memory_take(&a, 1, sizeof *a, "the ablation", err));
    *result = (struct ablate_result){0};
    a->request = request;
    a->result = result;
    a->base.options = request->options;
    enum status status = run(a, err);
    close_contender(&a->base);
    close_contender(&a->other);
    free(a);
    return status;
}
