#include "model/budget.h"

#include <stdio.h>

#include "cpu/machine.h"
#include "model/model.h"

/* Measured on Debian 12: code and libraries 5 MB, heap 2 MB; a tokenizer's bytes, places and index. */
enum { PROGRAM_BYTES = 8 << 20, TOKENIZER_BYTES_PER_TOKEN = 64 };

/* What the engine holds for a session beside its sequence: raw and adjusted logits, those of the step, counts of
 * tokens; and the text. For a kept state logits and text alone. */
static uint64_t session_bytes(const struct model *model, uint32_t context)
{
    return (4 * (uint64_t)model->config.vocab_size + context) * sizeof(float) + sequence_bytes(&model->layout, context);
}

static uint64_t kept_state_bytes(const struct model *model, uint32_t context)
{
    return ((uint64_t)model->config.vocab_size + context) * sizeof(float) + sequence_bytes(&model->layout, context);
}

static enum status workspace_bytes(uint64_t *out, const struct model *model, struct error *err)
{
    struct plan plan;
    uint64_t selections = (uint64_t)model->n_index_layers * MODEL_ROWS_MAX * (model->topk + 1) * sizeof(uint32_t);
    selections = model->options.reports_selected ? selections : 0;
    TRY(model_plan(&plan, model, MODEL_ROWS_MAX, err));
    *out = plan.workspace_bytes + (uint64_t)team_size(model->team) * plan.scratch_bytes +
           MODEL_BUCKETS * (uint64_t)plan.arena.used_bytes + selections;
    plan_fini(&plan);
    return STATUS_OK;
}

static uint64_t cache_bytes(const struct model *model, uint32_t context, uint32_t sessions)
{
    return model_pages(model, context, sessions) * model->layout.page_bytes;
}

static uint64_t total_for(const struct model *model, const struct budget *budget, uint32_t context)
{
    return budget->weights_bytes + budget->workspace_bytes + cache_bytes(model, context, budget->sessions) +
           budget->sessions * session_bytes(model, context) +
           model->options.kept_max * kept_state_bytes(model, context);
}

/* The total grows with the context, so the longest one is found by halving. The workspace is taken as it is:
 * it only grows up to a context of topk. */
static uint32_t longest_that_fits(const struct model *model, const struct budget *budget)
{
    uint32_t fits = 0, too_long = MODEL_CONTEXT_MAX + 1;
    while (too_long - fits > 1) {
        uint32_t middle = fits + (too_long - fits) / 2;
        *(total_for(model, budget, middle) <= budget->budget_bytes ? &fits : &too_long) = middle;
    }
    return fits;
}

enum status budget_compute(struct budget *budget, const struct model *model, uint64_t weights_bytes,
                           uint64_t budget_bytes, struct error *err)
{
    uint32_t context = model->options.context_max, sessions = model->options.sequences_max;
    *budget = (struct budget){.context = context, .sessions = sessions, .weights_bytes = weights_bytes};
    TRY(workspace_bytes(&budget->workspace_bytes, model, err));
    budget->widened_bytes = model->params.arena.used_bytes;
    budget->program_bytes = PROGRAM_BYTES + TOKENIZER_BYTES_PER_TOKEN * (uint64_t)model->config.vocab_size;
    budget->workspace_bytes += budget->widened_bytes + budget->program_bytes;
    snprintf(budget->budget_name, sizeof budget->budget_name, "as asked for");
    budget->budget_bytes = budget_bytes ? budget_bytes : machine_memory_bytes(budget->budget_name);
    budget->cache_bytes = cache_bytes(model, context, sessions);
    budget->state_bytes = sessions * session_bytes(model, context);
    budget->kept_bytes = model->options.kept_max * kept_state_bytes(model, context);
    budget->total_bytes = total_for(model, budget, context);
    budget->fits = budget->total_bytes <= budget->budget_bytes;
    budget->context_that_fits = longest_that_fits(model, budget);
    return STATUS_OK;
}

enum status budget_check(const struct budget *b, struct error *err)
{
    char advice[128] = "no context fits: fewer sessions and kept states may, or a larger machine";
    if (b->fits)
        return STATUS_OK;
    if (b->context_that_fits > 0)
        snprintf(advice, sizeof advice, "a context of %u tokens would fit", b->context_that_fits);
    return error_set(err, STATUS_MEMORY,
                     "the model does not fit: weights %.2f GB + cache %.2f GB (%u x %u tokens) + states %.2f GB + kept "
                     "states %.2f GB + workspace %.2f GB = %.2f GB, the budget (%s) is %.2f GB; %s",
                     (double)b->weights_bytes / 1e9, (double)b->cache_bytes / 1e9, b->sessions, b->context,
                     (double)b->state_bytes / 1e9, (double)b->kept_bytes / 1e9, (double)b->workspace_bytes / 1e9,
                     (double)b->total_bytes / 1e9, b->budget_name, (double)b->budget_bytes / 1e9, advice);
}
