#include "lab/eval_report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

enum { JSON_DIGITS = 12, RECALL_WIDTH = 17 };

static enum status written(FILE *out, struct error *err)
{
    if (fflush(out) != 0 || ferror(out))
        return error_set(err, STATUS_IO, "cannot write the report: %s", strerror(errno));
    return STATUS_OK;
}

static int name_width(const struct eval_request *request)
{
    size_t width = strlen("policy");
    for (uint32_t p = 0; p < request->n_policies; p++)
        width = strlen(request->policies[p].name) > width ? strlen(request->policies[p].name) : width;
    return (int)width;
}

/* Layers down, policies across: a real model has two dozen layers. The reference is left out. */
static void recall_table(FILE *out, const struct eval_request *request, const struct eval_result *result)
{
    fprintf(out, "\nShare of the reference's top %u that is selected too: mean, (lowest of a token)\nlayer    rows",
            result->topk);
    for (uint32_t p = 1; p < result->n_policies; p++) {
        int width = (int)strlen(request->policies[p].name);
        fprintf(out, "  %*s", width > RECALL_WIDTH ? width : RECALL_WIDTH, request->policies[p].name);
    }
    for (uint32_t i = 0; i < result->n_index_layers; i++) {
        const struct eval_recall *reference = &result->figures[0].recall[i];
        fprintf(out, "\n%5u %7llu", reference->layer + 1, (unsigned long long)reference->rows);
        for (uint32_t p = 1; p < result->n_policies; p++) {
            const struct eval_recall *recall = &result->figures[p].recall[i];
            int width = (int)strlen(request->policies[p].name);
            char cell[RECALL_WIDTH + 1] = "-";
            if (recall->rows)
                snprintf(cell, sizeof cell, "%.4f (%.4f)", recall->mean, recall->lowest);
            fprintf(out, "  %*s", width > RECALL_WIDTH ? width : RECALL_WIDTH, cell);
        }
    }
    fputc('\n', out);
}

enum status eval_report_table(FILE *out, const char *text_name, const struct eval_request *request,
                              const struct eval_result *result, struct error *err)
{
    int width = name_width(request);
    fprintf(out, "%s: %llu predictions in %llu window%s of up to %u tokens%s\n\n", text_name,
            (unsigned long long)result->n_predictions, (unsigned long long)result->n_windows,
            result->n_windows == 1 ? "" : "s", result->context, request->bos >= 0 ? ", the first its start mark" : "");
    fprintf(out, "%-*s  %9s  %10s", width, "policy", "nll", "perplexity");
    if (result->n_policies > 1)
        fprintf(out, "  %9s  %9s  %9s", "KL mean", "KL max", "same best");
    fprintf(out, "  %8s\n", "tokens/s");
    for (uint32_t p = 0; p < result->n_policies; p++) {
        const struct eval_figures *f = &result->figures[p];
        fprintf(out, "%-*s  %9.6f  %10.4f", width, request->policies[p].name, f->nll, exp(f->nll));
        if (p > 0)
            fprintf(out, "  %9.3g  %9.3g  %8.3f%%", f->kl_mean, f->kl_max, 100 * f->agreement);
        else if (result->n_policies > 1)
            fprintf(out, "  %9s  %9s  %9s", "reference", "", "");
        fprintf(out, "  %8.1f\n", (double)result->n_predictions / f->seconds);
    }
    if (result->n_policies > 1 && result->n_index_layers > 0)
        recall_table(out, request, result);
    return written(out, err);
}

static json_t *recall_json(const struct eval_result *result, const struct eval_figures *figures)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < result->n_index_layers; i++) {
        const struct eval_recall *r = &figures->recall[i];
        json_t *mean = r->rows ? json_real(r->mean) : json_null(),
               *lowest = r->rows ? json_real(r->lowest) : json_null();
        json_array_append_new(list, json_pack("{s:I, s:I, s:o, s:o}", "layer", (json_int_t)r->layer + 1, "rows",
                                              (json_int_t)r->rows, "mean", mean, "lowest", lowest));
    }
    return list;
}

enum status eval_report_json(FILE *out, const char *text_name, const struct eval_request *request,
                             const struct eval_result *result, struct error *err)
{
    json_t *policies = json_array();
    for (uint32_t p = 0; p < result->n_policies; p++) {
        const struct eval_figures *f = &result->figures[p];
        json_array_append_new(policies,
                              json_pack("{s:s, s:b, s:f, s:f, s:f, s:f, s:I, s:f, s:o, s:f}", "policy",
                                        request->policies[p].name, "reference", p == 0, "nll", f->nll, "perplexity",
                                        exp(f->nll), "kl_mean", f->kl_mean, "kl_max", f->kl_max, "kl_max_token",
                                        (json_int_t)f->kl_max_token, "agreement", f->agreement, "recall",
                                        recall_json(result, f), "seconds", f->seconds));
    }
    json_t *report = json_pack("{s:s%, s:s%, s:I, s:I, s:I, s:I, s:o, s:I, s:o}", "model", request->directory,
                               strlen(request->directory), "text", text_name, strlen(text_name), "tokens",
                               (json_int_t)request->n_tokens, "windows", (json_int_t)result->n_windows, "context",
                               (json_int_t)result->context, "predictions", (json_int_t)result->n_predictions, "bos",
                               request->bos >= 0 ? json_integer(request->bos) : json_null(), "topk",
                               (json_int_t)result->topk, "policies", policies);
    if (!report)
        return error_set(err, STATUS_FORMAT, "cannot make JSON of the report: a path is not UTF-8, or memory is short");
    json_dumpf(report, out, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS));
    fputc('\n', out);
    json_decref(report);
    return written(out, err);
}
