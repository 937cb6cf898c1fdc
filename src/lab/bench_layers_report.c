#include <stdio.h>

#include "lab/bench_layers.h"

static const char *work_of(const struct layers_work *w)
{
    return w->decode ? "decode" : "prefill";
}

static double floor_of(const struct layers_part *part)
{
    return part->read_ms > part->compute_ms ? part->read_ms : part->compute_ms;
}

static void print_work(FILE *out, const struct layers_work *w)
{
    if (w->decode)
        fprintf(out, "decode at depth %u, batch %u: %.2f ms a step\n", w->depth, w->batch, w->ms);
    else
        fprintf(out, "prefill of %u tokens at depth %u: %.2f ms\n", w->tokens, w->depth, w->ms);
    fprintf(out, "  %-10s %6s  %10s %10s %9s %11s  %8s  %8s\n", "part", "layers", "ms a layer", "MB a layer", "read ms",
            "compute ms", "of floor", "of time");
    for (uint32_t p = 0; p < LAYERS_PARTS; p++) {
        const struct layers_part *part = &w->parts[p];
        if (part->n_layers == 0)
            continue;
        fprintf(out, "  %-10s %6u  %10.4f ", bench_layers_name(p), part->n_layers, part->ms);
        if (p == LAYERS_BETWEEN)
            fprintf(out, "%10s %9s %11s  %8s", "", "", "", "");
        else
            fprintf(out, "%10.3f %9.4f %11.4f  %7.1f%%", part->megabytes, part->read_ms, part->compute_ms,
                    100 * floor_of(part) / part->ms);
        fprintf(out, "  %7.1f%%\n", 100 * part->share);
    }
    fputc('\n', out);
}

enum status bench_layers_table(FILE *out, const struct layers_request *request, const struct layers_result *result,
                               struct error *err)
{
    bench_report_head(out, request->bench, &result->rates, result->n_threads, result->tier);
    for (uint32_t i = 0; i < result->n_works; i++)
        print_work(out, &result->works[i]);
    if (result->n_predictions > 0)
        fprintf(out,
                "%s, each part as near its floor as here, arithmetic growing with the bandwidth\n"
                "  %6s %7s %5s  %9s  %22s  %26s\n",
                request->config_path, "GB/s", "depth", "batch", "tokens/s", "at most, by all floors",
                "at most, weights alone (1)");
    for (uint32_t i = 0; i < result->n_predictions; i++) {
        const struct layers_prediction *p = &result->predictions[i];
        fprintf(out, "  %6.0f %7u %5u  %9.3f  %22.3f  %26.3f\n", p->bandwidth_gb_s, p->depth, p->batch, p->tokens_per_s,
                p->limit_tokens_per_s, p->check_tokens_per_s);
    }
    if (result->n_predictions > 0)
        fprintf(out, "  (1) as day0 check says: one sequence, bandwidth over active weights\n");
    return bench_report_written(out, err);
}

enum status bench_layers_csv(FILE *out, const struct layers_request *request, const struct layers_result *result,
                             struct error *err)
{
    (void)request;
    fprintf(out, "work,tokens,depth,batch,threads,part,layers,layer_ms,layer_mb,layer_read_floor_ms,"
                 "layer_compute_floor_ms,time_fraction\n");
    for (uint32_t i = 0; i < result->n_works; i++) {
        const struct layers_work *w = &result->works[i];
        for (uint32_t p = 0; p < LAYERS_PARTS; p++) {
            const struct layers_part *part = &w->parts[p];
            if (part->n_layers > 0)
                fprintf(out, "%s,%u,%u,%u,%u,%s,%u,%.6g,%.6g,%.6g,%.6g,%.6g\n", work_of(w), w->tokens, w->depth,
                        w->batch, result->n_threads, bench_layers_name(p), part->n_layers, part->ms, part->megabytes,
                        part->read_ms, part->compute_ms, part->share);
        }
    }
    return bench_report_written(out, err);
}

static json_t *work_json(const struct layers_work *w)
{
    json_t *parts = json_array();
    for (uint32_t p = 0; p < LAYERS_PARTS; p++) {
        const struct layers_part *part = &w->parts[p];
        if (part->n_layers > 0)
            json_array_append_new(parts,
                                  json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "part", bench_layers_name(p),
                                            "layers", (json_int_t)part->n_layers, "layer_ms", part->ms, "layer_mb",
                                            part->megabytes, "layer_read_floor_ms", part->read_ms,
                                            "layer_compute_floor_ms", part->compute_ms, "time_fraction", part->share));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:o}", "work", work_of(w), "tokens", (json_int_t)w->tokens, "depth",
                     (json_int_t)w->depth, "batch", (json_int_t)w->batch, "ms", w->ms, "parts", parts);
}

enum status bench_layers_json(FILE *out, const struct layers_request *request, const struct layers_result *result,
                              struct error *err)
{
    json_t *report = json_object(), *works = json_array(), *predictions = json_array();
    for (uint32_t i = 0; i < result->n_works; i++)
        json_array_append_new(works, work_json(&result->works[i]));
    for (uint32_t i = 0; i < result->n_predictions; i++) {
        const struct layers_prediction *p = &result->predictions[i];
        json_array_append_new(predictions,
                              json_pack("{s:f, s:I, s:I, s:f, s:f, s:f}", "bandwidth_gb_s", p->bandwidth_gb_s, "depth",
                                        (json_int_t)p->depth, "batch", (json_int_t)p->batch, "tokens_per_s",
                                        p->tokens_per_s, "limit_tokens_per_s", p->limit_tokens_per_s,
                                        "check_tokens_per_s", p->check_tokens_per_s));
    }
    json_object_set_new(report, "machine",
                        bench_report_machine(request->bench, &result->rates, result->n_threads, result->tier));
    json_object_set_new(report, "layers", works);
    json_object_set_new(report, "predictions", predictions);
    return bench_report_dump(out, report, err);
}
