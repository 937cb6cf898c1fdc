#include "lab/bench_rig.h"

#include <stdlib.h>

#include "base/clock.h"
#include "lab/bench_state.h"

static const uint64_t seed = 42;

/* Sequences beyond those that the pool could hold at full length count as kept ones: the plan of memory has their
 * states, and shallow rows share the pool. */
static enum status open_model(struct bench_rig *rig, const char *directory, const struct model_options *options,
                              struct bench_needs needs, struct error *err)
{
    struct model_options o = *options;
    o.context_max = needs.context;
    for (uint32_t full = needs.batch;; full = (full + 1) / 2) {
        o.sequences_max = full;
        o.kept_max = needs.batch - full;
        enum status status = model_open(&rig->model, directory, &o, err);
        if (status != STATUS_MEMORY || full == 1)
            return status;
    }
}

enum status bench_rig_open(struct bench_rig *rig, const char *directory, const struct model_options *options,
                           struct bench_needs needs, struct error *err)
{
    *rig = (struct bench_rig){.rng = {seed}};
    if (needs.context > MODEL_CONTEXT_MAX)
        return error_set(err, STATUS_ARGUMENT, "a context of %u tokens is over the limit of %d", needs.context,
                         MODEL_CONTEXT_MAX);
    TRY(open_model(rig, directory, options, needs, err));
    TRY(memory_take(&rig->sequences, needs.batch, sizeof *rig->sequences, "sequences", err));
    while (rig->n_sequences < needs.batch) {
        TRY(model_sequence_init(rig->model, &rig->sequences[rig->n_sequences], err));
        rig->n_sequences++;
    }
    uint32_t vocabulary = rig->model->config.vocab_size, steps = needs.batch * BENCH_STEPS_MAX;
    rig->n_tokens = needs.prompt > steps ? needs.prompt : steps;
    TRY(memory_take(&rig->tokens, rig->n_tokens, sizeof *rig->tokens, "token ids", err));
    for (uint32_t i = 0; i < rig->n_tokens; i++)
        rig->tokens[i] = (int32_t)rng_below(&rig->rng, vocabulary);
    return memory_take(&rig->logits, (size_t)needs.batch * vocabulary, sizeof *rig->logits, "logits", err);
}

void bench_rig_close(struct bench_rig *rig)
{
    for (uint32_t i = 0; i < rig->n_sequences; i++)
        sequence_fini(&rig->sequences[i]);
    free(rig->sequences);
    free(rig->tokens);
    free(rig->logits);
    model_close(rig->model);
    *rig = (struct bench_rig){0};
}

uint32_t bench_rig_fits(const struct bench_rig *rig, uint32_t depth, uint32_t batch)
{
    uint64_t each = model_pages(rig->model, depth + BENCH_STEPS_MAX, 1);
    uint64_t fits = each ? rig->model->pages.n_pages / each : batch;
    return fits < batch ? (uint32_t)fits : batch;
}

enum status bench_rig_fill(struct bench_rig *rig, uint32_t depth, uint32_t batch, uint32_t n_tokens, struct error *err)
{
    for (uint32_t i = 0; i < rig->n_sequences; i++)
        sequence_reset(&rig->sequences[i]);
    for (uint32_t i = 0; i < batch; i++) {
        TRY(bench_state_fill(&rig->sequences[i], depth + (i == 0 ? n_tokens : 0), &rig->rng, err));
        bench_state_shorten(&rig->sequences[i], depth);
    }
    return STATUS_OK;
}

enum status bench_rig_prompt(struct bench_rig *rig, uint32_t depth, uint32_t n, double *seconds, struct error *err)
{
    struct model_span span = {&rig->sequences[0], rig->tokens, n, n - 1};
    struct model_outputs outputs = {.logits = rig->logits};
    bench_state_shorten(&rig->sequences[0], depth);
    double start = clock_seconds();
    TRY(model_step(rig->model, &span, 1, &outputs, err));
    *seconds = clock_seconds() - start;
    return STATUS_OK;
}

enum status bench_rig_generate(struct bench_rig *rig, uint32_t depth, uint32_t batch, uint32_t *steps,
                               double seconds_max, double *seconds, struct error *err)
{
    struct model_span spans[BENCH_BATCH_MAX];
    struct model_outputs outputs = {.logits = rig->logits};
    uint32_t steps_max = *steps;
    for (uint32_t i = 0; i < batch; i++)
        bench_state_shorten(&rig->sequences[i], depth);
    double start = clock_seconds();
    *steps = 0;
    do {
        for (uint32_t i = 0; i < batch; i++)
            spans[i] = (struct model_span){&rig->sequences[i], rig->tokens + *steps * batch + i, 1, 0};
        TRY(model_step(rig->model, spans, batch, &outputs, err));
        *seconds = clock_seconds() - start;
    } while (++*steps < steps_max && *seconds < seconds_max);
    return STATUS_OK;
}
