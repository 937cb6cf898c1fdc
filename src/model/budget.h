/* The memory plan of a model set against a budget: what `day0 check` prints of it. The plan itself is the one that model_open
 * makes and checks (struct model_memory). */
#ifndef DAY0_MODEL_BUDGET_H
#define DAY0_MODEL_BUDGET_H

#include "model/model.h"

struct budget {
    uint32_t context, sessions;
    struct model_memory memory;
    uint64_t budget_bytes;
    bool fits;
    uint32_t context_that_fits; /* the longest for as many sessions; 0 if none */
};

/* Sets the plan of a model that model_prepare has seen against `budget_bytes`. */
struct budget budget_of(const struct model *model, uint64_t budget_bytes);

#endif
