#include "model/budget.h"

/* What the plan would be for another context. The workspace is taken as it is: it grows with the context only up to topk. */
static uint64_t total_for(const struct model *model, uint32_t context)
{
    const struct model_options *o = &model->options;
    const struct model_memory *m = &model->memory;
    uint64_t pages = (uint64_t)o->sequences_max * model_pages(model, context);
    uint64_t sequences = (uint64_t)o->sequences_max + o->kept_max;
    return m->weights + m->workspace + pages * model->layout.page_bytes +
           sequences * sequence_bytes(&model->layout, context);
}

/* The total grows with the context, so the longest one is found by halving. */
static uint32_t longest_that_fits(const struct model *model, uint64_t budget_bytes)
{
    uint32_t fits = 0, too_long = MODEL_CONTEXT_MAX + 1;
    while (too_long - fits > 1) {
        uint32_t middle = fits + (too_long - fits) / 2;
        *(total_for(model, middle) <= budget_bytes ? &fits : &too_long) = middle;
    }
    return fits;
}

struct budget budget_of(const struct model *model, uint64_t budget_bytes)
{
    return (struct budget){.context = model->options.context_max,
                           .sessions = model->options.sequences_max,
                           .memory = model->memory,
                           .budget_bytes = budget_bytes,
                           .fits = model->memory.total <= budget_bytes,
                           .context_that_fits = longest_that_fits(model, budget_bytes)};
}
