#include "lab/eval_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lab/eval_score.h"

enum {
    CHUNK_ROWS = MODEL_ROWS_MAX,
    LOGITS_BYTES_MAX = 1 << 26, /* of one chunk, while it has more than CHUNK_ROWS_MIN rows */
    CHUNK_ROWS_MIN = 64,
};

struct lockstep {
    const struct eval_request *request;
    struct eval_result *result;
    struct model *models[POLICIES_MAX];
    struct sequence sequences[POLICIES_MAX];
    uint32_t vocabulary, rows_max;
    uint32_t ordinals[CONFIG_LAYERS_MAX]; /* of a layer, among those with an indexer */
    int32_t *window;                      /* the tokens of a window and the one after it */
    float *reference_logits, *logits;     /* [rows_max][vocabulary] */
    struct score_row *reference_scores, *scores;
    uint32_t *chosen, *n_chosen; /* of the reference, [n_index_layers][rows_max][topk] and [n_index_layers][rows_max] */
    uint32_t policy, chunk_first; /* what runs */
    uint64_t done;
};

/* Notes what the reference selects, and compares what the others do. */
static void note_selected(void *context, uint32_t layer, uint32_t span, uint32_t position, const uint32_t *chosen,
                          uint32_t n_chosen)
{
    (void)span;
    struct lockstep *l = context;
    uint32_t topk = l->result->topk;
    size_t at = (size_t)l->ordinals[layer] * l->rows_max + (position - l->chunk_first);
    struct eval_recall *recall = &l->result->figures[l->policy].recall[l->ordinals[layer]];
    if (position < topk) /* everything is chosen */
        return;
    double share = 1;
    if (l->policy == 0) {
        memcpy(l->chosen + at * topk, chosen, n_chosen * sizeof *chosen);
        l->n_chosen[at] = n_chosen;
    } else {
        share = (double)eval_score_shared(l->chosen + at * topk, l->n_chosen[at], chosen, n_chosen) / l->n_chosen[at];
    }
    recall->rows++;
    recall->mean += share; /* a sum until the end */
    recall->lowest = share < recall->lowest ? share : recall->lowest;
}

static enum status add_scores(struct lockstep *l, const struct score_row *scores, uint32_t n, uint64_t first_token,
                              struct error *err)
{
    struct eval_figures *f = &l->result->figures[l->policy];
    for (uint32_t row = 0; row < n; row++) {
        if (!isfinite(scores[row].nll) || !isfinite(scores[row].kl))
            return error_set(err, STATUS_FORMAT, "policy '%s': the logits before token %llu of the text are not finite",
                             l->request->policies[l->policy].name, (unsigned long long)(first_token + row));
        f->nll += scores[row].nll;
        f->kl_mean += scores[row].kl;
        f->agreement += scores[row].best == l->reference_scores[row].best;
        if (scores[row].kl > f->kl_max) {
            f->kl_max = scores[row].kl;
            f->kl_max_token = first_token + row;
        }
    }
    return STATUS_OK;
}

/* Rows [first, first + n) of the window through every policy; `first_token` is the token of the text that
 * the first predicts. */
static enum status run_chunk(struct lockstep *l, uint32_t first, uint32_t n, uint64_t first_token, uint64_t total,
                             struct error *err)
{
    const struct eval_request *r = l->request;
    l->chunk_first = first;
    for (l->policy = 0; l->policy < r->n_policies; l->policy++) {
        struct model *model = l->models[l->policy];
        bool others = l->policy > 0;
        struct score_row *scores = others ? l->scores : l->reference_scores;
        struct model_span span = {&l->sequences[l->policy], l->window + first, n, 0};
        struct model_outputs outputs = {.logits = others ? l->logits : l->reference_logits,
                                        .selected = l->result->n_index_layers ? note_selected : NULL,
                                        .selected_context = l};
        double start = clock_seconds();
        TRY(model_step(model, &span, 1, &outputs, err));
        l->result->figures[l->policy].seconds += clock_seconds() - start;
        eval_score_rows(l->models[0]->team, scores, outputs.logits, l->window + first + 1, n, l->vocabulary,
                        others ? l->reference_logits : NULL, l->reference_scores);
        TRY(add_scores(l, scores, n, first_token, err));
        if (r->progress)
            r->progress(r->progress_context, l->done += n, total);
    }
    return STATUS_OK;
}

static enum status run_windows(struct lockstep *l, struct error *err)
{
    const struct eval_request *r = l->request;
    struct eval_result *out = l->result;
    uint32_t mark = r->bos >= 0;
    for (size_t first = 0; first < r->n_tokens;) {
        size_t left = r->n_tokens - first;
        uint32_t n = left < out->context - mark ? (uint32_t)left : out->context - mark;
        l->window[0] = r->bos;
        memcpy(l->window + mark, r->tokens + first, n * sizeof *l->window);
        uint32_t n_rows = n + mark - 1; /* the last token predicts nothing */
        for (uint32_t p = 0; p < r->n_policies; p++)
            sequence_reset(&l->sequences[p]);
        for (uint32_t done = 0; done < n_rows;) {
            uint32_t rows = n_rows - done < l->rows_max ? n_rows - done : l->rows_max;
            TRY(run_chunk(l, done, rows, first + done + 1 - mark, out->n_predictions * r->n_policies, err));
            done += rows;
        }
        first += n;
    }
    return STATUS_OK;
}

/* Windows and predictions of the text, before anything is opened. */
static enum status lay_out(const struct eval_request *r, struct eval_result *out, struct error *err)
{
    uint32_t mark = r->bos >= 0;
    size_t whole = r->n_tokens + mark;
    out->context = r->context ? r->context : MODEL_CONTEXT_MAX;
    out->context = whole < out->context ? (uint32_t)whole : out->context;
    if (whole < 2 || out->context < 2)
        return error_set(err, STATUS_ARGUMENT, "two tokens at least are needed, one to predict the other; there %s %zu",
                         whole == 1 ? "is" : "are", whole);
    uint32_t step = out->context - mark;
    out->n_windows = (r->n_tokens + step - 1) / step;
    out->n_predictions = r->n_tokens - (mark ? 0 : out->n_windows);
    return STATUS_OK;
}

static enum status open_models(struct lockstep *l, struct error *err)
{
    const struct eval_request *r = l->request;
    for (uint32_t p = 0; p < r->n_policies; p++) {
        struct model_options options = r->policies[p].options;
        options.context_max = l->result->context;
        options.sequences_max = 1;
        options.reports_selected = true;
        enum status status = model_open(&l->models[p], r->directory, &options, err);
        if (status != STATUS_OK)
            return p > 0 ? error_prefix(err, "policy '%s'", r->policies[p].name) : status;
        TRY(model_sequence_init(l->models[p], &l->sequences[p], err));
    }
    return STATUS_OK;
}

static enum status take_memory(struct lockstep *l, struct error *err)
{
    const struct model *model = l->models[0];
    struct eval_result *out = l->result;
    uint32_t n_index = model->n_index_layers;
    l->vocabulary = model->config.vocab_size;
    size_t row_bytes = l->vocabulary * sizeof(float);
    l->rows_max = CHUNK_ROWS * row_bytes <= LOGITS_BYTES_MAX ? CHUNK_ROWS : CHUNK_ROWS_MIN;
    out->n_index_layers = n_index;
    out->topk = n_index ? model->topk : 0;
    out->n_policies = l->request->n_policies;
    TRY(memory_take(&out->figures, out->n_policies, sizeof *out->figures, "the figures", err));
    for (uint32_t p = 0; p < out->n_policies; p++) {
        TRY(memory_take(&out->figures[p].recall, n_index, sizeof *out->figures[p].recall, "the figures", err));
        uint32_t ordinal = 0;
        for (uint32_t layer = 0; layer < model->config.n_layers; layer++) {
            if (model->config.is_kda[layer] || model->params.layers[layer].mla.indexer.n_heads == 0)
                continue;
            l->ordinals[layer] = ordinal;
            out->figures[p].recall[ordinal++] = (struct eval_recall){.layer = layer, .lowest = 1};
        }
    }
    TRY(memory_take(&l->window, (size_t)out->context + 1, sizeof *l->window, "the tokens of a window", err));
    TRY(memory_take(&l->reference_logits, l->rows_max, row_bytes, "logits", err));
    TRY(memory_take(&l->logits, l->rows_max, row_bytes, "logits", err));
    TRY(memory_take(&l->reference_scores, l->rows_max, sizeof *l->scores, "scores", err));
    TRY(memory_take(&l->scores, l->rows_max, sizeof *l->scores, "scores", err));
    size_t n = (size_t)n_index * l->rows_max;
    TRY(memory_take(&l->chosen, n * out->topk, sizeof *l->chosen, "selections", err));
    return memory_take(&l->n_chosen, n, sizeof *l->n_chosen, "selections", err);
}

/* Sums to means. */
static void conclude(struct eval_result *out)
{
    for (uint32_t p = 0; p < out->n_policies; p++) {
        struct eval_figures *f = &out->figures[p];
        double n = (double)out->n_predictions;
        f->nll /= n;
        f->kl_mean /= n;
        f->agreement /= n;
        for (uint32_t i = 0; i < out->n_index_layers; i++)
            f->recall[i].mean = f->recall[i].rows ? f->recall[i].mean / (double)f->recall[i].rows : 1;
    }
}

enum status eval_run(const struct eval_request *request, struct eval_result *result, struct error *err)
{
    *result = (struct eval_result){0};
    if (request->n_policies == 0 || request->n_policies > POLICIES_MAX)
        return error_set(err, STATUS_ARGUMENT, "1 to %d policies run side by side, not %u", POLICIES_MAX,
                         request->n_policies);
    TRY(lay_out(request, result, err));
    struct lockstep l = {.request = request, .result = result};
    enum status status = open_models(&l, err);
    if (status == STATUS_OK)
        status = take_memory(&l, err);
    if (status == STATUS_OK)
        status = run_windows(&l, err);
    if (status == STATUS_OK)
        conclude(result);
    for (uint32_t p = 0; p < request->n_policies; p++) {
        sequence_fini(&l.sequences[p]);
        model_close(l.models[p]);
    }
    free(l.window);
    free(l.reference_logits);
    free(l.logits);
    free(l.reference_scores);
    free(l.scores);
    free(l.chosen);
    free(l.n_chosen);
    return status;
}

void eval_result_fini(struct eval_result *result)
{
    for (uint32_t p = 0; result->figures && p < result->n_policies; p++)
        free(result->figures[p].recall);
    free(result->figures);
    *result = (struct eval_result){0};
}
