#include "model/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/bind.h"

/* One walk over what a model consists of. */
struct survey {
    struct report *report;
    struct model *model;
    struct binder binder; /* dry */
    struct bind_fault fault;
    uint8_t *seen; /* [tensors]: part of the model */
    bool expert;   /* what is being looked at is one of the routed experts */
    bool has_mxfp4;
    uint64_t expert_elements;
    struct indexer_params *indexers;
};

/* ---- faults ---- */

static enum status add_fault(struct report *report, const char *name, const char *file, const char *expected,
                             const char *found, struct error *err)
{
    if ((report->n_faults & (report->n_faults + 1)) == 0) { /* 0, 1, 3, 7, ...: full */
        size_t capacity = 2 * report->n_faults + 1;
        struct report_fault *larger = realloc(report->faults, capacity * sizeof *larger);
        if (!larger)
            return error_set(err, STATUS_MEMORY, "cannot allocate the list of %zu faults", capacity);
        report->faults = larger;
    }
    struct report_fault *fault = &report->faults[report->n_faults];
    *fault = (struct report_fault){strdup(name), file, strdup(expected), strdup(found)};
    report->n_faults++;
    report->n_missing += !file;
    if (!fault->name || !fault->expected || !fault->found)
        return error_set(err, STATUS_MEMORY, "cannot allocate the list of faults");
    return STATUS_OK;
}

/* What a dry bind failed with becomes a fault in the list. */
static enum status take_fault(struct survey *survey, const char *prefix, const char *name, const struct error *failure,
                              struct error *err)
{
    const struct bind_fault *fault = &survey->fault;
    char found[BIND_SHAPE_BYTES], full[2 * BIND_NAME_BYTES];
    if (failure->status == STATUS_MEMORY)
        return error_set(err, STATUS_MEMORY, "%s", failure->text);
    if (!fault->name[0]) { /* no plain matter of shape: the sentence tells */
        snprintf(full, sizeof full, "%s%s", prefix, name);
        return add_fault(survey->report, full, failure->status == STATUS_NOT_FOUND ? NULL : "", failure->text, "", err);
    }
    if (!fault->tensor)
        return add_fault(survey->report, fault->name, NULL, fault->expected, "", err);
    bind_describe(found, fault->tensor);
    return add_fault(survey->report, fault->name, fault->tensor->file, fault->expected, found, err);
}

/* ---- the walk ---- */

static void found(void *context, const struct tensor *tensor)
{
    struct survey *survey = context;
    size_t index = (size_t)(tensor - checkpoint_at(survey->report->checkpoint, 0));
    if (survey->seen[index])
        return;
    survey->seen[index] = 1;
    *(survey->expert ? &survey->report->expert_bytes : &survey->report->resident_bytes) += tensor->bytes;
}

static enum status bind_dry(struct survey *survey, const struct wanted *wanted, struct error *err)
{
    struct binder *binder = &survey->binder;
    struct matrix matrix = {0};
    const float *values;
    switch (wanted->kind) {
    case WANTED_MATRIX:
        TRY(bind_weights(binder, wanted->weights, wanted->name, wanted->rows, wanted->columns, &matrix, err));
        survey->has_mxfp4 = survey->has_mxfp4 || matrix.dtype == DTYPE_MXFP4;
        return STATUS_OK;
    case WANTED_PLAIN_MATRIX:
        return bind_plain_matrix(binder, wanted->name, wanted->rows, wanted->columns, &matrix, err);
    case WANTED_VECTOR:
        return bind_vector(binder, wanted->name, wanted->rows, &values, err);
    case WANTED_RATES:
        return bind_rates(binder, wanted->name, wanted->rows, &values, err);
    case WANTED_CONVOLUTION:
        return bind_convolution(binder, wanted->name, wanted->rows, wanted->columns, &values, err);
    case WANTED_DEPTH_QUERY:
        return bind_depth_query(binder, wanted->name, wanted->rows, NULL, err);
    }
    return STATUS_OK;
}

static enum status see(void *context, const struct wanted *wanted, struct error *err)
{
    struct survey *survey = context;
    struct error failure;
    uint64_t before = survey->binder.elements;
    if (strcmp(survey->binder.prefix, wanted->prefix) != 0)
        bind_prefix(&survey->binder, "%s", wanted->prefix);
    survey->expert = strstr(wanted->prefix, ".experts.") != NULL;
    survey->fault.name[0] = 0;
    if (bind_dry(survey, wanted, &failure) != STATUS_OK)
        TRY(take_fault(survey, wanted->prefix, wanted->name, &failure, err));
    if (survey->expert)
        survey->expert_elements += survey->binder.elements - before;
    return STATUS_OK;
}

/* The sizes of the indexers, from the tensors; where tensors and config disagree, as the config says. */
static enum status read_indexers(struct survey *survey, bool *any, struct error *err)
{
    const struct config *config = &survey->report->config;
    TRY(memory_take(&survey->indexers, config->n_layers, sizeof *survey->indexers, "the indexers", err));
    for (uint32_t i = 0; i < config->n_layers; i++) {
        struct indexer_params *indexer = &survey->indexers[i];
        struct error failure;
        char prefix[BIND_NAME_BYTES];
        if (config->is_kda[i])
            continue;
        if (params_indexer_sizes(indexer, config, i, survey->report->checkpoint, &failure) != STATUS_OK) {
            bool said = config->index_layers_said && config->is_index_layer[i] && config->q_lora_rank;
            *indexer = (struct indexer_params){.n_heads = said ? config->index_heads_said : 0,
                                               .head_dim = said ? config->index_head_dim_said : 0};
            if (!indexer->n_heads || !indexer->head_dim)
                *indexer = (struct indexer_params){0};
            snprintf(prefix, sizeof prefix, "model.layers.%u.self_attn.", i);
            survey->fault.name[0] = 0;
            if (!indexer->n_heads) /* else the walk finds each tensor's own fault */
                TRY(take_fault(survey, prefix, "indexer", &failure, err));
        }
        *any = *any || indexer->n_heads > 0;
    }
    if (config->index_topk && !*any && survey->report->n_faults == 0)
        return add_fault(survey->report, "model.layers.*.self_attn.indexer.*", NULL,
                         "an indexer in at least one layer, as config.json has index_topk", "", err);
    return STATUS_OK;
}

static enum status list_unknown(struct survey *survey, struct error *err)
{
    struct report *report = survey->report;
    for (size_t i = 0; i < report->n_tensors; i++)
        report->n_unknown_tensors += !survey->seen[i];
    TRY(memory_take(&report->unknown_tensors, report->n_unknown_tensors, sizeof *report->unknown_tensors,
                    "the list of unknown tensors", err));
    size_t n = 0;
    for (size_t i = 0; i < report->n_tensors; i++)
        if (!survey->seen[i])
            report->unknown_tensors[n++] = checkpoint_at(report->checkpoint, i)->name;
    return STATUS_OK;
}

/* ---- figures ---- */

static void count_weights(struct report *report, const struct survey *survey)
{
    const struct config *c = &report->config;
    const struct tensor *embedding = checkpoint_find(report->checkpoint, "model.embed_tokens.weight");
    double used = c->n_experts ? (double)c->n_experts_per_token / c->n_experts : 0;
    struct conversion_totals dense = conversion_totals(&report->conversion, false);
    struct conversion_totals experts = conversion_totals(&report->conversion, true);
    report->resident_bytes += dense.bytes - dense.source_bytes;
    report->expert_bytes += experts.bytes - experts.source_bytes;
    report->parameters_total = survey->binder.elements;
    report->parameters_active =
        report->parameters_total - survey->expert_elements + (uint64_t)((double)survey->expert_elements * used);
    report->active_bytes_per_token = report->resident_bytes + (uint64_t)((double)report->expert_bytes * used);
    if (embedding && !c->tie_word_embeddings) /* a tied one is read whole, as the output matrix */
        report->active_bytes_per_token -= embedding->bytes - embedding->bytes / c->vocab_size;
}

static enum status make_plan(struct survey *survey, uint64_t budget_bytes, struct error *err)
{
    struct report *report = survey->report;
    struct model *model = survey->model;
    const struct state_layout *layout = &model->layout;
    TRY(model_prepare(model, err));
    report->kda_state_bytes = (uint64_t)layout->n_kda * layout->kda_heads * layout->head_state_floats * sizeof(float);
    report->conv_state_bytes = (uint64_t)layout->n_kda * layout->conv_floats * sizeof(float);
    report->latent_bytes_per_token = (uint64_t)layout->n_mla * layout->latent_row_bytes;
    for (uint32_t m = 0; m < layout->n_mla; m++)
        report->index_bytes_per_token += layout->mla[m].index_block_bytes / INDEX_BLOCK_KEYS;
    return budget_compute(&report->budget, model, model_weight_bytes(report->checkpoint, &report->conversion),
                          budget_bytes, err);
}

static void judge(struct report *report, const struct model_options *options)
{
    report->runnable = report->n_faults == 0;
    for (uint32_t i = 0; i < report->n_operators; i++)
        report->runnable = report->runnable && report->operators[i].have;
    if (report->config.n_doubtful_keys && !options->config.accept_unknown)
        report->runnable = false;
}

/* The cache file of converted weights, read in full if there is one. */
static enum status find_cache(struct survey *survey, const char *directory, struct error *err)
{
    struct report *report = survey->report;
    char suffix[WEIGHT_SUFFIX_BYTES];
    if (report->conversion.n_records == 0)
        return STATUS_OK;
    struct weight_cache_request request = model_weight_request(survey->model, directory, &report->conversion, suffix);
    return weight_cache_verify(&report->cache_state, report->cache_path, report->cache_fault, &request, err);
}

static enum status run(struct survey *survey, const char *directory, uint64_t budget_bytes, struct error *err)
{
    struct report *report = survey->report;
    struct model *model = survey->model;
    bool has_indexers = false;
    report->n_tensors = checkpoint_count(report->checkpoint);
    TRY(memory_take(&survey->seen, report->n_tensors, 1, "marks of tensors", err));
    model->packing = model_packing(model);
    survey->binder = (struct binder){.checkpoint = report->checkpoint,
                                     .dry = true,
                                     .found = found,
                                     .found_context = survey,
                                     .types = model->options.weights,
                                     .packing = model->packing,
                                     .conversion = &report->conversion,
                                     .fault = &survey->fault};
    TRY(read_indexers(survey, &has_indexers, err));
    TRY(params_walk(&model->params, &report->config, survey->indexers, see, survey, err));
    TRY(list_unknown(survey, err));
    report->n_operators =
        operators_list(report->operators, &report->config, (struct operator_hints){has_indexers, survey->has_mxfp4});
    count_weights(report, survey);
    judge(report, &model->options);
    TRY(make_plan(survey, budget_bytes, err));
    return find_cache(survey, directory, err);
}

enum status report_open(struct report **out, const char *directory, const struct model_options *options,
                        uint64_t budget_bytes, struct error *err)
{
    struct report *report;
    struct survey survey = {0};
    struct config_options config_options = options->config;
    config_options.survey = true;
    *out = NULL;
    TRY(memory_take(&report, 1, sizeof *report, "a report", err));
    survey.report = report;
    report->types = options->weights;
    enum status status = memory_take(&survey.model, 1, sizeof *survey.model, "a report", err);
    if (status == STATUS_OK)
        status = config_load(&report->config, directory, &config_options, err);
    if (status == STATUS_OK)
        status = checkpoint_open(&report->checkpoint, directory, err);
    if (status == STATUS_OK) {
        survey.model->config = report->config;
        survey.model->options = *options;
        survey.model->checkpoint = report->checkpoint;
        status = run(&survey, directory, budget_bytes, err);
        survey.model->checkpoint = NULL; /* the report's own */
    }
    model_close(survey.model);
    free(survey.seen);
    free(survey.indexers);
    if (status != STATUS_OK) {
        report_close(report);
        return status;
    }
    *out = report;
    return STATUS_OK;
}

void report_close(struct report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->n_faults; i++) {
        free(report->faults[i].name);
        free(report->faults[i].expected);
        free(report->faults[i].found);
    }
    free(report->faults);
    free(report->unknown_tensors);
    conversion_fini(&report->conversion);
    checkpoint_close(report->checkpoint);
    free(report);
}
