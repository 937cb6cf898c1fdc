#include "lab/bench_run.h"

#include <math.h>
#include <stdlib.h>

#include "cpu/tiers.h"
#include "lab/bench_cost.h"
#include "lab/rates_find.h"

/* A row of prompts is not timed again once it has taken so long. */
static const double prefill_seconds_max = 60;

struct bench {
    const struct bench_request *request;
    struct bench_result *result;
    struct bench_rig rig;
    uint64_t done, total; /* tokens, about */
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

struct bench_needs bench_run_needs(const struct bench_request *r)
{
    uint64_t prompt = largest(&r->prefill), prefill = r->prefill.n ? prompt + largest(&r->prefill_depths) : 0;
    uint64_t decode = r->depths.n ? (uint64_t)largest(&r->depths) + BENCH_STEPS_MAX : 0;
    uint64_t context = prefill > decode ? prefill : decode;
    return (struct bench_needs){context < UINT32_MAX ? (uint32_t)context : UINT32_MAX, (uint32_t)prompt,
                                r->depths.n ? largest(&r->batches) : 1};
}

/* Tells of progress: `tokens` are counted once the share of the row that they stand for is through. */
static void tell(struct bench *b, double share, uint64_t tokens)
{
    if (b->request->progress)
        b->request->progress(b->request->progress_context, b->done + (uint64_t)(share * (double)tokens), b->total);
    b->done += share >= 1 ? tokens : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* Fills in speeds and floors of a row whose step, or prompt, is `tokens` tokens, and adds it. */
static void add_row(struct bench *b, struct bench_row row, double *speeds, uint32_t n, struct bench_cost cost,
                    double tokens)
{
    struct bench_floors floors = bench_cost_floors(&cost, &b->result->rates);
    row.tokens_per_s = bench_median(speeds, n);
    row.slowest = speeds[0];
    row.fastest = speeds[n - 1];
    row.gb_per_token = 1e-9 * cost.bytes / tokens;
    row.gflop_per_token = 1e-9 * bench_cost_flops(&cost) / tokens;
    row.ms = 1e3 * tokens / row.tokens_per_s;
    row.read_ms = 1e3 * floors.read_s;
    row.compute_ms = 1e3 * floors.compute_s;
    b->result->rows[b->result->n_rows++] = row;
}

static enum status run_prefill(struct bench *b, uint32_t depth, uint32_t n, struct error *err)
{
    const struct bench_request *r = b->request;
    double speeds[BENCH_REPEAT_MAX], seconds, spent = 0;
    uint32_t warm_up = n < MODEL_ROWS_MAX ? n : MODEL_ROWS_MAX, timings = 0;
    TRY(bench_rig_fill(&b->rig, depth, 1, n, err));
    TRY(bench_rig_prompt(&b->rig, depth, warm_up, &seconds, err));
    while (timings < r->repeat && spent < prefill_seconds_max) {
        TRY(bench_rig_prompt(&b->rig, depth, n, &seconds, err));
        speeds[timings++] = n / seconds;
        spent += seconds;
        tell(b, (double)timings / r->repeat, (uint64_t)n * r->repeat);
    }
    struct bench_row row = {.tokens = n, .depth = depth, .batch = 1, .batch_asked = 1};
    add_row(b, row, speeds, timings, bench_cost_prompt(b->rig.model, depth, n), n);
    return STATUS_OK;
}

static enum status run_decode(struct bench *b, uint32_t depth, uint32_t asked, struct error *err)
{
    const struct bench_request *r = b->request;
    uint32_t batch = bench_rig_fits(&b->rig, depth, asked), timings = 0, steps = 2;
    struct bench_row row = {.decode = true, .tokens = UINT32_MAX, .depth = depth, .batch = batch, .batch_asked = asked};
    double speeds[BENCH_REPEAT_MAX], seconds, spent = 0;
    uint64_t work = (uint64_t)BENCH_STEPS_MAX * asked;
    TRY(bench_rig_generate(&b->rig, depth, batch, &steps, r->seconds_min, &seconds, err)); /* warms up */
    while (timings < BENCH_REPEAT_MAX && (timings < r->repeat || spent < r->seconds_min)) {
        steps = BENCH_STEPS_MAX;
        TRY(bench_rig_generate(&b->rig, depth, batch, &steps, r->seconds_min / r->repeat, &seconds, err));
        uint32_t tokens = steps * batch;
        speeds[timings++] = tokens / seconds;
        row.tokens = tokens < row.tokens ? tokens : row.tokens;
        spent += seconds;
        tell(b, 0.99 * fmin(1, fmin(spent / r->seconds_min, (double)timings / r->repeat)), work);
    }
    tell(b, 1, work);
    add_row(b, row, speeds, timings, bench_cost_step(b->rig.model, (struct bench_shape){batch, 1, depth, batch}),
            batch);
    return STATUS_OK;
}

static enum status run_all(struct bench *b, struct error *err)
{
    const struct bench_request *r = b->request;
    for (uint32_t d = 0; d < r->prefill_depths.n; d++)
        for (uint32_t i = 0; i < r->prefill.n; i++)
            TRY(run_prefill(b, r->prefill_depths.values[d], r->prefill.values[i], err));
    for (uint32_t d = 0; d < r->depths.n; d++) {
        uint32_t depth = r->depths.values[d];
        TRY(bench_rig_fill(&b->rig, depth, bench_rig_fits(&b->rig, depth, largest(&r->batches)), 0, err));
        for (uint32_t i = 0; i < r->batches.n; i++)
            TRY(run_decode(b, depth, r->batches.values[i], err));
    }
    return STATUS_OK;
}

enum status bench_run(const struct bench_request *request, struct bench_result *result, struct error *err)
{
    struct bench b = {.request = request, .result = result};
    *result = (struct bench_result){0};
    b.total = request->repeat * request->prefill_depths.n * total_of(&request->prefill) +
              request->depths.n * BENCH_STEPS_MAX * total_of(&request->batches);
    enum status status = bench_rig_open(&b.rig, request->directory, &request->options, bench_run_needs(request), err);
    if (status == STATUS_OK) {
        result->n_threads = team_size(b.rig.model->team);
        result->tier = tiers_name(b.rig.model->kernels.tiers);
        if (request->probe)
            status = rates_find(&result->rates, b.rig.model->team, b.rig.model->kernels.tiers, RATES_FROM_RUN, err);
    }
    if (status == STATUS_OK)
        status = run_all(&b, err);
    for (int c = 0; status == STATUS_OK && c < STEP_COUNTERS; c++)
        result->counters[c] = b.rig.model->counters[c];
    bench_rig_close(&b.rig);
    return status;
}
