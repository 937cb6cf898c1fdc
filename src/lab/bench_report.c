#include "lab/bench_report.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

enum { JSON_DIGITS = 9 };

static enum status written(FILE *out, struct error *err)
{
    if (fflush(out) != 0 || ferror(out))
        return error_set(err, STATUS_IO, "cannot write the report: %s", strerror(errno));
    return STATUS_OK;
}

static const char *work_of(const struct bench_row *row)
{
    return row->decode ? "decode" : "prefill";
}

/* Shares of the measured rates; -1 if the rate is not known. */
static double bandwidth_fraction(const struct bench_result *result, const struct bench_row *row)
{
    return result->read_gb_s > 0 ? row->tokens_per_s * row->gb_per_token / result->read_gb_s : -1;
}

static double arithmetic_fraction(const struct bench_result *result, const struct bench_row *row)
{
    return result->f32_gflop_s > 0 ? row->tokens_per_s * row->gflop_per_token / result->f32_gflop_s : -1;
}

enum status bench_report_table(FILE *out, const struct bench_request *request, const struct bench_result *result,
                               struct error *err)
{
    fprintf(out, "%s: %u threads, tier %s, kv %s, li %s\nmachine: reads %.1f GB/s, float32 FMA %.0f GFLOP/s\n\n",
            request->directory, result->n_threads, result->tier, dtype_name(request->options.latent_dtype),
            dtype_name(request->options.index_dtype), result->read_gb_s, result->f32_gflop_s);
    fprintf(out,
            "work     tokens   depth  batch  tokens/s  (slowest, fastest)    MB/token  of read  MFLOP/token  of FMA\n");
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct bench_row *row = &result->rows[i];
        char range[32];
        snprintf(range, sizeof range, "(%.1f, %.1f)", row->slowest, row->fastest);
        fprintf(out, "%-7s %7u %7u %6u  %8.1f  %-18s  %10.3f  %6.1f%%  %11.2f  %5.1f%%\n", work_of(row), row->tokens,
                row->depth, row->batch, row->tokens_per_s, range, 1e3 * row->gb_per_token,
                100 * bandwidth_fraction(result, row), 1e3 * row->gflop_per_token,
                100 * arithmetic_fraction(result, row));
    }
    if (result->counters[STEP_SCANS] > 0)
        fprintf(out, "\nindex scans: %llu, %.1f keys a scan scored exactly, %llu scans fell back to exact scores\n",
                (unsigned long long)result->counters[STEP_SCANS],
                (double)result->counters[STEP_KEYS_RESCORED] / (double)result->counters[STEP_SCANS],
                (unsigned long long)result->counters[STEP_SCANS_FELL_BACK]);
    return written(out, err);
}

enum status bench_report_csv(FILE *out, const struct bench_request *request, const struct bench_result *result,
                             struct error *err)
{
    (void)request;
    fprintf(out, "work,tokens,depth,batch,threads,tokens_per_s,tokens_per_s_slowest,tokens_per_s_fastest,gb_per_token,"
                 "bandwidth_fraction,gflop_per_token,arithmetic_fraction\n");
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct bench_row *row = &result->rows[i];
        fprintf(out, "%s,%u,%u,%u,%u,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g\n", work_of(row), row->tokens, row->depth,
                row->batch, result->n_threads, row->tokens_per_s, row->slowest, row->fastest, row->gb_per_token,
                bandwidth_fraction(result, row), row->gflop_per_token, arithmetic_fraction(result, row));
    }
    return written(out, err);
}

static json_t *fraction(double value)
{
    return value >= 0 ? json_real(value) : json_null();
}

enum status bench_report_json(FILE *out, const struct bench_request *request, const struct bench_result *result,
                              struct error *err)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct bench_row *row = &result->rows[i];
        json_array_append_new(
            rows, json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:f, s:o}", "work", work_of(row), "tokens",
                            (json_int_t)row->tokens, "depth", (json_int_t)row->depth, "batch", (json_int_t)row->batch,
                            "threads", (json_int_t)result->n_threads, "tokens_per_s", row->tokens_per_s, "gb_per_token",
                            row->gb_per_token, "bandwidth_fraction", fraction(bandwidth_fraction(result, row)),
                            "gflop_per_token", row->gflop_per_token, "arithmetic_fraction",
                            fraction(arithmetic_fraction(result, row))));
    }
    json_t *report = json_pack("{s:{s:f, s:f, s:I, s:s, s:s, s:s}, s:o}", "machine", "read_gb_s", result->read_gb_s,
                               "f32_gflop_s", result->f32_gflop_s, "threads", (json_int_t)result->n_threads, "tier",
                               result->tier, "kv", dtype_name(request->options.latent_dtype), "li",
                               dtype_name(request->options.index_dtype), "rows", rows);
    if (!report)
        return error_set(err, STATUS_MEMORY, "cannot make JSON of the report: memory is short");
    json_dumpf(report, out, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS));
    fputc('\n', out);
    json_decref(report);
    return written(out, err);
}
