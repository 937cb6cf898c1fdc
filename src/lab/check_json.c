#include <jansson.h>

#include "lab/check_print.h"

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *operators_json(const struct report *report)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < report->n_operators; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:b}", "name", report->operators[i].name, "have", report->operators[i].have));
    return list;
}

static json_t *keys_json(const struct config *config)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < config->n_unknown_keys; i++)
        json_array_append_new(list, json_string(config->unknown_keys[i]));
    return list;
}

static json_t *unknown_json(const struct report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->n_unknown_tensors; i++)
        json_array_append_new(list, json_string(report->unknown_tensors[i]));
    return list;
}

static json_t *missing_json(const struct report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->n_faults; i++)
        if (!report->faults[i].file)
            json_array_append_new(list, json_string(report->faults[i].name));
    return list;
}

static json_t *misshapen_json(const struct report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->n_faults; i++) {
        const struct report_fault *fault = &report->faults[i];
        if (fault->file)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", fault->name, "file", fault->file,
                                                  "expected", fault->expected, "found", fault->found));
    }
    return list;
}

static json_t *weights_json(const struct report *report)
{
    static const char *const states[] = {[WEIGHT_CACHE_NOWHERE] = "no folder",
                                         [WEIGHT_CACHE_MISSING] = "missing",
                                         [WEIGHT_CACHE_UNUSABLE] = "unusable",
                                         [WEIGHT_CACHE_WHOLE] = "whole"};
    struct conversion_totals dense = conversion_totals(&report->conversion, false);
    struct conversion_totals experts = conversion_totals(&report->conversion, true);
    json_t *cache = report->conversion.n_records ? json_pack("{s:s, s:s, s:s}", "file", report->cache_path, "state",
                                                             states[report->cache_state], "fault", report->cache_fault)
                                                 : json_null();
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "dense", model_weight_type_name(report->types.dense),
                     "experts", model_weight_type_name(report->types.experts), "dense_stored_bytes",
                     (json_int_t)dense.source_bytes, "dense_converted_bytes", (json_int_t)dense.bytes,
                     "experts_stored_bytes", (json_int_t)experts.source_bytes, "experts_converted_bytes",
                     (json_int_t)experts.bytes, "packed_bytes",
                     (json_int_t)conversion_packed_bytes(&report->conversion), "cache", cache);
}

static json_t *plan_json(const struct budget *budget)
{
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"context", budget->context},
        {"sessions", budget->sessions},
        {"weights_bytes", budget->weights_bytes},
        {"cache_bytes", budget->cache_bytes},
        {"state_bytes", budget->state_bytes + budget->kept_bytes},
        {"workspace_bytes", budget->workspace_bytes},
        {"total_bytes", budget->total_bytes},
        {"budget_bytes", budget->budget_bytes},
        {"context_that_fits", budget->context_that_fits},
    };
    json_t *plan = json_object();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(plan, counts[i].key, number(counts[i].value));
    json_object_set_new(plan, "fits", json_boolean(budget->fits));
    return plan;
}

enum status check_print_json(FILE *out, const struct report *report, const struct rates *rates, struct error *err)
{
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"architecture", json_string(report->config.architecture)},
        {"runnable", json_boolean(report->runnable)},
        {"tensors", number(report->n_tensors)},
        {"parameters_total", number(report->parameters_total)},
        {"parameters_active", number(report->parameters_active)},
        {"weights", weights_json(report)},
        {"resident_bytes", number(report->resident_bytes)},
        {"expert_bytes", number(report->expert_bytes)},
        {"active_bytes_per_token", number(report->active_bytes_per_token)},
        {"kda_state_bytes_per_sequence", number(report->kda_state_bytes)},
        {"conv_state_bytes_per_sequence", number(report->conv_state_bytes)},
        {"latent_bytes_per_token", number(report->latent_bytes_per_token)},
        {"index_bytes_per_token", number(report->index_bytes_per_token)},
        {"operators", operators_json(report)},
        {"unknown_keys", keys_json(&report->config)},
        {"unknown_tensors", unknown_json(report)},
        {"missing_tensors", missing_json(report)},
        {"misshapen_tensors", misshapen_json(report)},
        {"plan", plan_json(&report->budget)},
        {"tokens_per_s_decode", json_real(check_tokens_per_s(report, rates))},
        {"bandwidth_gb_s", json_real(rates->read.gb_s)},
        {"f32_gflop_s", json_real(rates->gop_s[UNIT_F32])},
        {"int16_gop_s", json_real(rates->gop_s[UNIT_INT16])},
        {"int8_gop_s", json_real(rates->gop_s[UNIT_INT8])},
        {"f16_gflop_s", json_real(rates->gop_s[UNIT_F16])},
    };
    json_t *root = json_object();
    int failed = 0;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        failed |= json_object_set_new(root, members[i].key, members[i].value);
    if (!failed)
        failed = json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0 || fputc('\n', out) == EOF;
    json_decref(root);
    return failed ? error_set(err, STATUS_IO, "cannot write the report; is the disk full?") : STATUS_OK;
}
