/* The memory that a model takes, computed before anything is reserved: what `day0 check` prints and what an
 * engine compares with its budget. */
#ifndef DAY0_MODEL_BUDGET_H
#define DAY0_MODEL_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { BUDGET_NAME_BYTES = 64 };

struct model;

struct budget {
    uint32_t context, sessions;
    uint64_t weights_bytes;   /* mapped from the checkpoint; read at every step, so they belong in memory */
    uint64_t cache_bytes;     /* pages of latents and index keys of all sessions */
    uint64_t state_bytes;     /* recurrent state, convolution tails, rewind records, text and logits of all sessions */
    uint64_t kept_bytes;      /* the same of states kept for reuse */
    uint64_t workspace_bytes; /* buffers of a step, compiled plans, and: */
    uint64_t widened_bytes;   /* of the workspace, what is rather weights: vectors as float32, the list of experts */
    uint64_t program_bytes;   /* of the workspace, an allowance for the program, its libraries and the tokenizer */
    uint64_t total_bytes;
    uint64_t budget_bytes;
    char budget_name[BUDGET_NAME_BYTES]; /* where the budget comes from */
    bool fits;
    uint32_t context_that_fits; /* the longest for as many sessions; 0 if none */
};

/* Does: fills `budget` for a model that model_prepare has seen. Reserves nothing that lasts; needs shapes, no
 * data. `budget_bytes` 0 stands for the memory that the machine, its control groups and limits leave. */
NEEDS_CHECK enum status budget_compute(struct budget *budget, const struct model *model, uint64_t weights_bytes,
                                       uint64_t budget_bytes, struct error *err);

/* Fails with the plan and what would fit, unless it fits. */
NEEDS_CHECK enum status budget_check(const struct budget *budget, struct error *err);

#endif
