/* The parameter block of a step: all that varies from one run of a plan to the next.
 *
 * A step is a ragged list of spans: some consecutive new tokens of one sequence each. Prompt pieces, decoded tokens
 * and any mixture of them are instances. Rows are the new tokens of all spans, one after the other. */
#ifndef DAY0_OPS_STEP_H
#define DAY0_OPS_STEP_H

#include <stdatomic.h>

#include "exec/plan.h"
#include "state/sequence.h"

enum { SOUND = UINT32_MAX };

/* What a step counts of the work that depends on the data. */
enum step_counter {
    STEP_SCANS,           /* index scans: of a row, or of a row's segment */
    STEP_SCANS_FELL_BACK, /* of those, by scores because bounds did not do */
    STEP_KEYS_RESCORED,   /* keys whose bounds did not decide */
    STEP_COUNTERS,
};

struct step_span {
    struct sequence *sequence; /* borrowed; `length` is advanced after the step, not by it */
    uint32_t first_row, n_rows;
    uint32_t first_position;
};

struct step {
    uint32_t n_rows, n_spans, n_logit_rows;
    const struct step_span *spans;
    const int32_t *tokens;      /* [n_rows], each below the vocabulary size */
    const uint32_t *row_spans;  /* [n_rows] the span of a row */
    const uint32_t *logit_rows; /* [n_logit_rows] rows whose logits are wanted, ascending */
    float *logits;              /* [n_logit_rows][vocabulary] out */
    uint32_t *bad_layers;       /* [n_rows] out: the first layer whose input held a NaN or infinity, else SOUND */
    /* Optional outputs, NULL where not wanted. */
    float *taps;                /* [n_rows][taps][hidden] out, see model.h */
    uint32_t *selected;         /* [DSA layers][n_rows][topk] out: chosen positions, ascending */
    uint32_t *n_selected;       /* [DSA layers][n_rows] out */
    _Atomic uint64_t *counters; /* [STEP_COUNTERS], added to */
};

static inline const struct step *step_of(const struct plan_context *context)
{
    return context->step;
}

static inline void step_count(const struct plan_context *context, enum step_counter counter, uint64_t n)
{
    _Atomic uint64_t *counters = step_of(context)->counters;
    if (counters && n > 0)
        atomic_fetch_add_explicit(&counters[counter], n, memory_order_relaxed);
}

static inline const struct step_span *step_row_span(const struct step *step, uint32_t row)
{
    return &step->spans[step->row_spans[row]];
}

static inline uint32_t step_row_position(const struct step *step, uint32_t row)
{
    const struct step_span *span = step_row_span(step, row);
    return span->first_position + (row - span->first_row);
}

/* The tile count of nodes with a tile a row. */
uint32_t step_tiles_rows(const struct plan_context *context, const void *args);

#endif
