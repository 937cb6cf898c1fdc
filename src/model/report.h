/* What a checkpoint needs and whether day0 can run it, from config.json and the headers alone: no byte of a
 * weight is read. Only the cache file of converted weights, if there is one, is read and checked in full.
 *
 * Where binding stops at the first fault, the report goes on and lists them all. What a model consists of it
 * asks the code that binds (params_walk), so the two cannot disagree. */
#ifndef DAY0_MODEL_REPORT_H
#define DAY0_MODEL_REPORT_H

#include "model/budget.h"
#include "model/model.h"
#include "model/operators.h"

/* A tensor that is missing or not as the config says. Strings are owned by the report. */
struct report_fault {
    char *name;
    const char *file; /* NULL: missing */
    char *expected, *found;
};

struct report {
    struct config config;
    struct checkpoint *checkpoint;
    bool runnable; /* every operator is there, no tensor is missing or misshapen, no doubtful key was left unaccepted */
    size_t n_tensors;
    uint64_t parameters_total;
    uint64_t parameters_active; /* those of the embedding, of one token's experts and of everything else */
    struct weight_types types;  /* that the options ask for */
    struct conversion conversion;
    enum weight_cache_state cache_state; /* of the conversion's file, if there is anything to convert */
    char cache_path[PATH_BYTES_MAX], cache_fault[ERROR_TEXT_BYTES];
    uint64_t resident_bytes; /* all tensors but the routed experts', converted as the options ask for */
    uint64_t expert_bytes;
    uint64_t
        active_bytes_per_token; /* weights read for one token: one row of the embedding, the chosen experts, the rest */
    uint64_t kda_state_bytes, conv_state_bytes;             /* per sequence */
    uint64_t latent_bytes_per_token, index_bytes_per_token; /* in all layers */
    struct operator operators[OPERATORS_MAX];
    uint32_t n_operators;
    struct report_fault *faults; /* missing and misshapen ones, in the model's order */
    size_t n_faults, n_missing;
    const char **unknown_tensors; /* names, borrowed from the checkpoint */
    size_t n_unknown_tensors;
    struct budget budget;
};

/* Does: reads config and headers of `directory`. `options` are those the model would be opened with; the plan
 * of memory is set against `budget_bytes`.
 * Owns: *out until report_close (accepts NULL).
 * Fails: only where nothing can be said: config.json is missing or no config of the family, a header is
 * damaged. */
NEEDS_CHECK enum status report_open(struct report **out, const char *directory, const struct model_options *options,
                                    uint64_t budget_bytes, struct error *err);
void report_close(struct report *report);

#endif
