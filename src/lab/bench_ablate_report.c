#include <stdio.h>
#include <string.h>

#include "lab/bench_ablate.h"
#include "lab/rates_find.h"

static const char *work_of(const struct ablate_row *row)
{
    return row->decode ? "decode" : "prefill";
}

enum status bench_ablate_table(FILE *out, const struct bench_request *request, const struct ablate_result *result,
                               struct error *err)
{
    bench_report_head(out, request, &result->rates, result->n_threads, result->tier);
    fprintf(out, "%-20s %-34s %-7s %6s %7s %5s  %9s %9s  %7s  %s\n", "switch", "means", "work", "tokens", "depth",
            "batch", "default", "switched", "ratio", "(lowest, highest)");
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct ablate_row *row = &result->rows[i];
        if (*row->skipped) {
            if (i == 0 || strcmp(row->policy, row[-1].policy) != 0)
                fprintf(out, "%-20s %-34s not measured: %s\n", row->policy, row->what, row->skipped);
            continue;
        }
        fprintf(out, "%-20s %-34s %-7s %6u %7u %5u  %9.1f %9.1f  %7.3f  (%.3f, %.3f)\n", row->policy, row->what,
                work_of(row), row->tokens, row->depth, row->batch, row->base_tokens_per_s, row->tokens_per_s,
                row->ratio, row->ratio_low, row->ratio_high);
    }
    fprintf(out,
            "\ntokens/s by turns, medians of %u; ratio: the median of switched over default, each pair by itself.\n",
            request->repeat);
    return bench_report_written(out, err);
}

enum status bench_ablate_csv(FILE *out, const struct bench_request *request, const struct ablate_result *result,
                             struct error *err)
{
    (void)request;
    fprintf(out, "switch,work,tokens,depth,batch,threads,default_tokens_per_s,tokens_per_s,ratio,ratio_lowest,"
                 "ratio_highest,skipped\n");
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct ablate_row *row = &result->rows[i];
        fprintf(out, "%s,%s,%u,%u,%u,%u,", row->policy, work_of(row), row->tokens, row->depth, row->batch,
                result->n_threads);
        if (*row->skipped)
            fprintf(out, ",,,,,\"%s\"\n", row->skipped);
        else
            fprintf(out, "%.6g,%.6g,%.6g,%.6g,%.6g,\n", row->base_tokens_per_s, row->tokens_per_s, row->ratio,
                    row->ratio_low, row->ratio_high);
    }
    return bench_report_written(out, err);
}

static json_t *row_json(const struct ablate_row *row)
{
    bool measured = !*row->skipped;
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"switch", json_string(row->policy)},
        {"means", json_string(row->what)},
        {"work", json_string(work_of(row))},
        {"tokens", json_integer(row->tokens)},
        {"depth", json_integer(row->depth)},
        {"batch", json_integer(row->batch)},
        {"default_tokens_per_s", measured ? json_real(row->base_tokens_per_s) : json_null()},
        {"tokens_per_s", measured ? json_real(row->tokens_per_s) : json_null()},
        {"ratio", measured ? json_real(row->ratio) : json_null()},
        {"ratio_lowest", measured ? json_real(row->ratio_low) : json_null()},
        {"ratio_highest", measured ? json_real(row->ratio_high) : json_null()},
        {"skipped", measured ? json_null() : json_string(row->skipped)},
    };
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_object_set_new(object, members[i].key, members[i].value);
    return object;
}

enum status bench_ablate_json(FILE *out, const struct bench_request *request, const struct ablate_result *result,
                              struct error *err)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < result->n_rows; i++)
        json_array_append_new(rows, row_json(&result->rows[i]));
    return bench_report_object(out, bench_report_machine(request, &result->rates, result->n_threads, result->tier),
                               "ablation", rows, err);
}
