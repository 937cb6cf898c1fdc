#include "ops/step.h"

uint32_t step_tiles_rows(const struct plan_context *context, const void *args)
{
    (void)args;
    return step_of(context)->n_rows;
}
