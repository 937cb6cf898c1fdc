#include "lab/bench_report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "lab/rates_find.h"

enum { JSON_DIGITS = 9 };

enum status bench_report_written(FILE *out, struct error *err)
{
    if (fflush(out) != 0 || ferror(out))
        return error_set(err, STATUS_IO, "cannot write the report: %s", strerror(errno));
    return STATUS_OK;
}

static const char *work_of(const struct bench_row *row)
{
    return row->decode ? "decode" : "prefill";
}

/* Shares of the time that the floors would take; -1 if a rate is not known. */
static double share(double floor_ms, const struct bench_row *row)
{
    return floor_ms > 0 ? floor_ms / row->ms : -1;
}

static double floor_share(const struct bench_row *row)
{
    return share(row->read_ms > row->compute_ms ? row->read_ms : row->compute_ms, row);
}

void bench_report_head(FILE *out, const struct bench_request *request, const struct rates *rates, unsigned n_threads,
                       const char *tier)
{
    const struct model_options *o = &request->options;
    fprintf(out, "%s: %u threads, tier %s, act %s, kv %s, li %s\n", request->directory, n_threads, tier,
            act_name(o->act), dtype_name(o->latent_dtype), dtype_name(o->index_dtype));
    if (rates->read.gb_s > 0) {
        fprintf(out, "machine: ");
        rates_print(out, rates);
        fputc('\n', out);
    }
    fputc('\n', out);
}

enum status bench_report_table(FILE *out, const struct bench_request *request, const struct bench_result *result,
                               struct error *err)
{
    bench_report_head(out, request, &result->rates, result->n_threads, result->tier);
    fprintf(out, "%-7s %6s %7s %5s  %9s  %-19s %10s %9s %11s  %8s  %9s %11s\n", "work", "tokens", "depth", "batch",
            "tokens/s", "(slowest, fastest)", "ms", "read ms", "compute ms", "of floor", "MB/token", "MFLOP/token");
    bool shrunk = false;
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct bench_row *row = &result->rows[i];
        char range[32];
        snprintf(range, sizeof range, "(%.1f, %.1f)", row->slowest, row->fastest);
        fprintf(out, "%-7s %6u %7u %5u%c %9.1f  %-19s %10.3f %9.3f %11.3f  %7.1f%%  %9.3f %11.2f\n", work_of(row),
                row->tokens, row->depth, row->batch, row->batch < row->batch_asked ? '*' : ' ', row->tokens_per_s,
                range, row->ms, row->read_ms, row->compute_ms, 100 * floor_share(row), 1e3 * row->gb_per_token,
                1e3 * row->gflop_per_token);
        shrunk = shrunk || row->batch < row->batch_asked;
    }
    fprintf(out,
            "\nms: of the prompt or of a step; read ms, compute ms: what memory and arithmetic alone would take.\n");
    if (shrunk)
        fprintf(out, "*: fewer sequences than asked for, as many as the memory has room for.\n");
    if (result->counters[STEP_SCANS] > 0)
        fprintf(out, "index scans: %llu, %.1f keys a scan scored exactly, %llu scans fell back to exact scores\n",
                (unsigned long long)result->counters[STEP_SCANS],
                (double)result->counters[STEP_KEYS_RESCORED] / (double)result->counters[STEP_SCANS],
                (unsigned long long)result->counters[STEP_SCANS_FELL_BACK]);
    return bench_report_written(out, err);
}

enum status bench_report_csv(FILE *out, const struct bench_request *request, const struct bench_result *result,
                             struct error *err)
{
    (void)request;
    fprintf(out, "work,tokens,depth,batch,threads,tokens_per_s,tokens_per_s_slowest,tokens_per_s_fastest,gb_per_token,"
                 "bandwidth_fraction,gflop_per_token,arithmetic_fraction,ms,read_floor_ms,compute_floor_ms,"
                 "floor_fraction,batch_asked\n");
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct bench_row *row = &result->rows[i];
        fprintf(out, "%s,%u,%u,%u,%u,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%u\n", work_of(row),
                row->tokens, row->depth, row->batch, result->n_threads, row->tokens_per_s, row->slowest, row->fastest,
                row->gb_per_token, share(row->read_ms, row), row->gflop_per_token, share(row->compute_ms, row), row->ms,
                row->read_ms, row->compute_ms, floor_share(row), row->batch_asked);
    }
    return bench_report_written(out, err);
}

static json_t *known(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *row_json(const struct bench_row *row, unsigned n_threads)
{
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"work", json_string(work_of(row))},
        {"tokens", json_integer(row->tokens)},
        {"depth", json_integer(row->depth)},
        {"batch", json_integer(row->batch)},
        {"threads", json_integer(n_threads)},
        {"tokens_per_s", json_real(row->tokens_per_s)},
        {"gb_per_token", json_real(row->gb_per_token)},
        {"bandwidth_fraction", known(share(row->read_ms, row))},
        {"gflop_per_token", json_real(row->gflop_per_token)},
        {"arithmetic_fraction", known(share(row->compute_ms, row))},
        {"tokens_per_s_slowest", json_real(row->slowest)},
        {"tokens_per_s_fastest", json_real(row->fastest)},
        {"ms", json_real(row->ms)},
        {"read_floor_ms", known(row->read_ms)},
        {"compute_floor_ms", known(row->compute_ms)},
        {"floor_fraction", known(floor_share(row))},
        {"batch_asked", json_integer(row->batch_asked)},
    };
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_object_set_new(object, members[i].key, members[i].value);
    return object;
}

json_t *bench_report_machine(const struct bench_request *request, const struct rates *rates, unsigned n_threads,
                             const char *tier)
{
    const struct model_options *o = &request->options;
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"read_gb_s", known(rates->read.gb_s)},
        {"f32_gflop_s", known(rates->gop_s[UNIT_F32])},
        {"int16_gop_s", known(rates->gop_s[UNIT_INT16])},
        {"int8_gop_s", known(rates->gop_s[UNIT_INT8])},
        {"f16_gflop_s", known(rates->gop_s[UNIT_F16])},
        {"threads", json_integer(n_threads)},
        {"tier", json_string(tier)},
        {"act", json_string(act_name(o->act))},
        {"kv", json_string(dtype_name(o->latent_dtype))},
        {"li", json_string(dtype_name(o->index_dtype))},
    };
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_object_set_new(object, members[i].key, members[i].value);
    return object;
}

enum status bench_report_dump(FILE *out, json_t *report, struct error *err)
{
    bool failed =
        json_dumpf(report, out, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS)) != 0 || fputc('\n', out) == EOF;
    json_decref(report);
    return failed ? error_set(err, STATUS_IO, "cannot write the report; is the disk full?")
                  : bench_report_written(out, err);
}

enum status bench_report_object(FILE *out, json_t *machine, const char *key, json_t *rows, struct error *err)
{
    json_t *report = json_object();
    json_object_set_new(report, "machine", machine);
    json_object_set_new(report, key, rows);
    return bench_report_dump(out, report, err);
}

enum status bench_report_json(FILE *out, const struct bench_request *request, const struct bench_result *result,
                              struct error *err)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < result->n_rows; i++)
        json_array_append_new(rows, row_json(&result->rows[i], result->n_threads));
    return bench_report_object(out, bench_report_machine(request, &result->rates, result->n_threads, result->tier),
                               "rows", rows, err);
}
