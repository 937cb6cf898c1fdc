/* Policies of one model side by side on one text: likelihood, divergence from the first, agreement,
 * selections recalled.
 *
 * The policies run in lockstep: each chunk of tokens goes through all of them before the next, so two
 * chunks of logits are held, the reference's and the current one's, however long the text is. Every policy
 * is a model of its own, opened on the same checkpoint, whose pages they share. */
#ifndef DAY0_LAB_EVAL_RUN_H
#define DAY0_LAB_EVAL_RUN_H

#include "lab/policy.h"

struct eval_request {
    const char *directory;
    const struct policy *policies; /* [n_policies], the first is the reference */
    uint32_t n_policies;
    const int32_t *tokens; /* [n_tokens] of the text, without a leading mark */
    size_t n_tokens;
    int32_t bos;      /* put first in every window; -1: nothing is */
    uint32_t context; /* tokens of a window, the mark included; 0: the whole text, as far as a model can */
    void (*progress)(void *context, uint64_t done, uint64_t total); /* in tokens of all policies; or NULL */
    void *progress_context;
};

/* Of one layer with an indexer, over the rows whose context is longer than top-k. */
struct eval_recall {
    uint32_t layer; /* from 0 */
    uint64_t rows;
    double mean, lowest; /* share of the reference's positions that the policy selects too; 1 if there are no rows */
};

struct eval_figures {
    double nll; /* mean, nats a predicted token */
    double kl_mean, kl_max;
    uint64_t kl_max_token;      /* which token of the text was being predicted there */
    double agreement;           /* share of rows whose best token is the reference's */
    double seconds;             /* in the model's steps */
    struct eval_recall *recall; /* [n_index_layers] */
};

struct eval_result {
    uint32_t context, topk, n_index_layers; /* topk 0: no layer has an indexer */
    uint64_t n_windows, n_predictions;
    uint32_t n_policies;
    struct eval_figures *figures; /* [n_policies] */
};

/* Fills `result`, which owns its memory until eval_result_fini (also on failure). Fails with
 * STATUS_ARGUMENT if nothing is predicted, STATUS_FORMAT where logits are not finite, and as opening and
 * running a model do. */
NEEDS_CHECK enum status eval_run(const struct eval_request *request, struct eval_result *result, struct error *err);
void eval_result_fini(struct eval_result *result);

#endif
