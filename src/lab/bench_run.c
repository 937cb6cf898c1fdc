#include "lab/bench_run.h"

#include <stdlib.h>

#include "base/clock.h"
#include "cpu/tiers.h"
#include "exec/bandwidth.h"
#include "exec/probe.h"
#include "lab/bench_cost.h"
#include "lab/bench_state.h"

static const uint64_t seed = 42;

struct bench {
    const struct bench_request *request;
    struct bench_result *result;
    struct model *model;
    struct sequence *sequences; /* [n_sequences] */
    uint32_t n_sequences;
    int32_t *tokens; /* [n_tokens] random */
    uint32_t n_tokens;
    float *logits; /* [n_sequences][vocabulary] */
    struct rng rng;
    uint64_t done, total;
};

static uint32_t largest(const struct bench_list *list)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < list->n; i++)
        value = list->values[i] > value ? list->values[i] : value;
    return value;
}

static uint64_t total_of(const struct bench_list *list)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < list->n; i++)
        sum += list->values[i];
    return sum;
}

static enum status open_all(struct bench *b, struct error *err)
{
    const struct bench_request *r = b->request;
    uint32_t prompt = largest(&r->prefill), batch = r->depths.n ? largest(&r->batches) : 1;
    uint64_t deep = r->depths.n ? (uint64_t)largest(&r->depths) + BENCH_STEPS_MAX : 0;
    uint64_t context = prompt > deep ? prompt : deep;
    if (context > MODEL_CONTEXT_MAX)
        return error_set(err, STATUS_ARGUMENT, "a context of %llu tokens is over the limit of %d",
                         (unsigned long long)context, MODEL_CONTEXT_MAX);
    struct model_options options = r->options;
    options.context_max = (uint32_t)context;
    options.sequences_max = batch;
    TRY(model_open(&b->model, r->directory, &options, err));
    TRY(memory_take(&b->sequences, batch, sizeof *b->sequences, "sequences", err));
    while (b->n_sequences < batch) {
        TRY(model_sequence_init(b->model, &b->sequences[b->n_sequences], err));
        b->n_sequences++;
    }
    uint32_t vocabulary = b->model->config.vocab_size, steps = batch * BENCH_STEPS_MAX;
    b->n_tokens = prompt > steps ? prompt : steps;
    TRY(memory_take(&b->tokens, b->n_tokens, sizeof *b->tokens, "token ids", err));
    for (uint32_t i = 0; i < b->n_tokens; i++)
        b->tokens[i] = (int32_t)rng_below(&b->rng, vocabulary);
    return memory_take(&b->logits, (size_t)batch * vocabulary, sizeof *b->logits, "logits", err);
}

static void close_all(struct bench *b)
{
    for (uint32_t i = 0; i < b->n_sequences; i++)
        sequence_fini(&b->sequences[i]);
    free(b->sequences);
    free(b->tokens);
    free(b->logits);
    model_close(b->model);
}

static void tell(struct bench *b, uint64_t tokens)
{
    b->done += tokens;
    if (b->request->progress)
        b->request->progress(b->request->progress_context, b->done, b->total);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the speeds of the timings and adds the row. Of an even number the lower middle is taken. */
static void add_row(struct bench *b, struct bench_row row, double *speeds, struct bench_cost cost, double cost_tokens)
{
    uint32_t n = b->request->repeat;
    qsort(speeds, n, sizeof *speeds, ascending);
    row.tokens_per_s = speeds[(n - 1) / 2];
    row.slowest = speeds[0];
    row.fastest = speeds[n - 1];
    row.gb_per_token = 1e-9 * cost.bytes / cost_tokens;
    row.gflop_per_token = 1e-9 * cost.flops / cost_tokens;
    b->result->rows[b->result->n_rows++] = row;
}

static enum status feed_prompt(struct bench *b, uint32_t n, double *seconds, struct error *err)
{
    struct model_span span = {&b->sequences[0], b->tokens, n, n - 1};
    struct model_outputs outputs = {.logits = b->logits};
    sequence_reset(&b->sequences[0]);
    double start = clock_seconds();
    TRY(model_step(b->model, &span, 1, &outputs, err));
    *seconds = clock_seconds() - start;
    return STATUS_OK;
}

static enum status run_prefill(struct bench *b, uint32_t n, struct error *err)
{
    double speeds[BENCH_REPEAT_MAX], seconds;
    TRY(feed_prompt(b, n < MODEL_ROWS_MAX ? n : MODEL_ROWS_MAX, &seconds, err));
    for (uint32_t i = 0; i < b->request->repeat; i++) {
        TRY(feed_prompt(b, n, &seconds, err));
        speeds[i] = n / seconds;
        tell(b, n);
    }
    struct bench_row row = {.tokens = n, .batch = 1};
    add_row(b, row, speeds, bench_cost_prompt(b->model, n), n);
    return STATUS_OK;
}

/* Steps of one token for each of `batch` sequences, from `depth` on, until there were steps_max or the
 * time is up. */
static enum status generate(struct bench *b, uint32_t depth, uint32_t batch, uint32_t steps_max, uint32_t *steps,
                            double *seconds, struct error *err)
{
    struct model_span spans[BENCH_BATCH_MAX];
    struct model_outputs outputs = {.logits = b->logits};
    for (uint32_t i = 0; i < batch; i++)
        bench_state_shorten(&b->sequences[i], depth);
    double start = clock_seconds();
    *steps = 0;
    do {
        for (uint32_t i = 0; i < batch; i++)
            spans[i] = (struct model_span){&b->sequences[i], b->tokens + *steps * batch + i, 1, 0};
        TRY(model_step(b->model, spans, batch, &outputs, err));
        *seconds = clock_seconds() - start;
    } while (++*steps < steps_max && *seconds < b->request->seconds_min);
    return STATUS_OK;
}

static enum status run_decode(struct bench *b, uint32_t depth, uint32_t batch, struct error *err)
{
    double speeds[BENCH_REPEAT_MAX], seconds;
    struct bench_row row = {.decode = true, .tokens = UINT32_MAX, .depth = depth, .batch = batch};
    uint32_t steps, warm_up = 2;
    TRY(generate(b, depth, batch, warm_up, &steps, &seconds, err));
    for (uint32_t i = 0; i < b->request->repeat; i++) {
        TRY(generate(b, depth, batch, BENCH_STEPS_MAX, &steps, &seconds, err));
        uint32_t tokens = steps * batch;
        speeds[i] = tokens / seconds;
        row.tokens = tokens < row.tokens ? tokens : row.tokens;
        tell(b, (uint64_t)BENCH_STEPS_MAX * batch);
    }
    add_row(b, row, speeds, bench_cost_step(b->model, batch, 1, depth, batch), batch);
    return STATUS_OK;
}

static enum status run_all(struct bench *b, struct error *err)
{
    const struct bench_request *r = b->request;
    for (uint32_t i = 0; i < r->prefill.n; i++)
        TRY(run_prefill(b, r->prefill.values[i], err));
    for (uint32_t d = 0; d < r->depths.n; d++) {
        for (uint32_t i = 0; i < b->n_sequences; i++)
            TRY(bench_state_fill(&b->sequences[i], r->depths.values[d], &b->rng, err));
        for (uint32_t i = 0; i < r->batches.n; i++)
            TRY(run_decode(b, r->depths.values[d], r->batches.values[i], err));
    }
    return STATUS_OK;
}

enum status bench_run(const struct bench_request *request, struct bench_result *result, struct error *err)
{
    struct bench b = {.request = request, .result = result, .rng = {seed}};
    *result = (struct bench_result){0};
    b.total = request->repeat *
              (total_of(&request->prefill) + request->depths.n * BENCH_STEPS_MAX * total_of(&request->batches));
    enum status status = open_all(&b, err);
    if (status == STATUS_OK) {
        result->n_threads = team_size(b.model->team);
        result->tier = tiers_name(b.model->kernels.tiers);
        if (request->probe) {
            struct bandwidth read;
            result->read_gb_s = bandwidth_measure(&read, b.model->team, 0, NULL) == STATUS_OK ? read.gb_s : 0;
            result->f32_gflop_s = probe_f32_gflop_s(b.model->team);
        }
        status = run_all(&b, err);
        for (int c = 0; c < STEP_COUNTERS; c++)
            result->counters[c] = b.model->counters[c];
    }
    close_all(&b);
    return status;
}
