#include <stdarg.h>
#include <string.h>

#include "lab/check_print.h"

enum { NAMES_SHOWN = 20, SIZE_BYTES = 24, LABEL_WIDTH = 26, LINE_WIDTH = 108 };

/* "113.5 GB", with units of 1000. */
static const char *size_text(char out[SIZE_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KB", "MB", "GB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1000 && unit < 3) {
        value /= 1000;
        unit++;
    }
    snprintf(out, SIZE_BYTES, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

static void line(FILE *out, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void line(FILE *out, const char *label, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(out, "  %-*s", LABEL_WIDTH, label);
    vfprintf(out, format, args);
    fputc('\n', out);
    va_end(args);
}

static void size_line(FILE *out, const char *label, uint64_t bytes, const char *note)
{
    char size[SIZE_BYTES];
    line(out, label, "%11s%s%s", size_text(size, bytes), *note ? "   " : "", note);
}

/* ---- parts ---- */

/* "104.36 billion" */
static const char *count_text(char out[SIZE_BYTES], uint64_t count)
{
    if (count >= 1000000000)
        snprintf(out, SIZE_BYTES, "%.2f billion", (double)count / 1e9);
    else
        snprintf(out, SIZE_BYTES, "%.2f million", (double)count / 1e6);
    return out;
}

static void print_shape(FILE *out, const struct report *report)
{
    const struct config *c = &report->config;
    char total[SIZE_BYTES], active[SIZE_BYTES];
    uint32_t n_kda = 0, n_moe = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        n_kda += c->is_kda[i];
        n_moe += config_is_moe(c, i);
    }
    line(out, "layers", "%u: %u KDA, %u full attention", c->n_layers, n_kda, c->n_layers - n_kda);
    line(out, "width, vocabulary", "%u, %u", c->hidden_size, c->vocab_size);
    if (n_moe)
        line(out, "experts", "%u of %u in %u layers, %u shared", c->n_experts_per_token, c->n_experts, n_moe,
             c->n_shared_experts);
    if (c->index_topk)
        line(out, "sparse attention", "%u positions", c->index_topk);
    line(out, "tensors", "%zu", report->n_tensors);
    line(out, "parameters", "%s, %s active", count_text(total, report->parameters_total),
         count_text(active, report->parameters_active));
}

static void print_operators(FILE *out, const struct report *report)
{
    for (int have = 1; have >= 0; have--) {
        int column = 0;
        for (uint32_t i = 0; i < report->n_operators; i++) {
            const struct operator* operator= & report->operators[i];
            if (operator->have != have)
                continue;
            if (column == 0 || column + (int)strlen(operator->name) > LINE_WIDTH)
                column = fprintf(out, "%s  %-*s%s", column ? "\n" : "", LABEL_WIDTH,
                                 column ? ""
                                 : have ? "operators that day0 has"
                                        : "operators it LACKS",
                                 operator->name);
            else
                column += fprintf(out, " %s", operator->name);
        }
        if (column)
            fputc('\n', out);
    }
}

static void print_faults(FILE *out, const struct report *report)
{
    const struct config *c = &report->config;
    size_t n_misshapen = report->n_faults - report->n_missing;
    for (uint32_t i = 0; i < c->n_unknown_keys; i++)
        line(out, i ? "" : "unknown keys", "%s%s", c->unknown_keys[i],
             i < c->n_doubtful_keys ? "   may change what the model computes" : "");
    for (size_t i = 0; i < report->n_unknown_tensors && i < NAMES_SHOWN; i++)
        line(out, i ? "" : "unknown tensors", "%s", report->unknown_tensors[i]);
    if (report->n_unknown_tensors > NAMES_SHOWN)
        line(out, "", "and %zu more", report->n_unknown_tensors - NAMES_SHOWN);
    for (int missing = 1; missing >= 0; missing--) {
        size_t n = 0, total = missing ? report->n_missing : n_misshapen;
        for (size_t i = 0; i < report->n_faults && n < NAMES_SHOWN; i++) {
            const struct report_fault *f = &report->faults[i];
            if ((f->file == NULL) != (missing == 1))
                continue;
            const char *label = n++ ? "" : missing ? "MISSING tensors" : "MISSHAPEN tensors";
            if (missing || !*f->found)
                line(out, label, "%s: %s%s", f->name, missing ? "expected " : "", f->expected);
            else
                line(out, label, "%s: %s: expected %s, found %s", f->file, f->name, f->expected, f->found);
        }
        if (total > NAMES_SHOWN)
            line(out, "", "and %zu more; --json lists all", total - NAMES_SHOWN);
    }
}

static void conversion_line(FILE *out, const struct report *report, bool experts)
{
    char from[SIZE_BYTES], to[SIZE_BYTES];
    enum dtype type = experts ? report->types.experts : report->types.dense;
    struct conversion_totals totals = conversion_totals(&report->conversion, experts);
    if (type == DTYPE_AS_STORED)
        return;
    const char *label = experts ? "--experts" : "--dense";
    if (totals.bytes)
        line(out, label, "%s: %s become %s", dtype_name(type), size_text(from, totals.source_bytes),
             size_text(to, totals.bytes));
    else
        line(out, label, "%s: nothing to convert, all of them have scales already", dtype_name(type));
}

static void print_conversion(FILE *out, const struct report *report)
{
    static const char *const states[] = {[WEIGHT_CACHE_NOWHERE] = "no folder for one",
                                         [WEIGHT_CACHE_MISSING] = "is made at the first start",
                                         [WEIGHT_CACHE_UNUSABLE] = "is made anew at the next start: ",
                                         [WEIGHT_CACHE_WHOLE] = "whole, all checksums are right"};
    conversion_line(out, report, false);
    conversion_line(out, report, true);
    uint64_t packed = conversion_packed_bytes(&report->conversion);
    char size[SIZE_BYTES];
    if (packed)
        line(out, "panels", "%s of stored weights are brought into panels; --no-pack leaves them",
             size_text(size, packed));
    if (report->conversion.n_records)
        line(out, "weight cache", "%s%s%s%s", report->cache_path, *report->cache_path ? ": " : "",
             states[report->cache_state], report->cache_fault);
}

static void print_plan(FILE *out, const struct report *report, const struct rates *rates)
{
    const struct budget *b = &report->budget;
    char note[120];
    fprintf(out, "Memory for %u session%s of %u tokens\n", b->sessions, b->sessions == 1 ? "" : "s", b->context);
    size_line(out, "weights", b->weights_bytes, "");
    size_line(out, "cache", b->cache_bytes, "");
    size_line(out, "recurrent state", b->state_bytes + b->kept_bytes, "");
    size_line(out, "workspace", b->workspace_bytes, "");
    snprintf(note, sizeof note, "%s", b->fits ? "fits" : "DOES NOT FIT");
    size_line(out, "total", b->total_bytes, note);
    if (b->context_that_fits)
        snprintf(note, sizeof note, "room for contexts up to %u tokens", b->context_that_fits);
    else
        snprintf(note, sizeof note, "not enough for any context");
    size_line(out, "budget", b->budget_bytes, note);
    fprintf(out, "Speed\n");
    static const char *const sources[] = {"measured now", "measured before", "given by DAY0_BANDWIDTH_GB_S"};
    line(out, "read bandwidth", "%6.1f GB/s   %s%s", rates->read.gb_s, sources[rates->source],
         rates->read.small_buffer ? ", but over little memory: may be too high" : "");
    line(out, "arithmetic", "%6.0f GFLOP/s in float32", rates->gop_s[UNIT_F32]);
    if (rates->gop_s[UNIT_INT16] > 0)
        line(out, "", "%6.0f GOP/s in INT16", rates->gop_s[UNIT_INT16]);
    if (rates->gop_s[UNIT_INT8] > 0)
        line(out, "", "%6.0f GOP/s in INT8", rates->gop_s[UNIT_INT8]);
    if (rates->gop_s[UNIT_F16] > 0)
        line(out, "", "%6.0f GFLOP/s in FP16", rates->gop_s[UNIT_F16]);
    line(out, "decoding", "%8.4g tokens/s at most, one sequence: bandwidth over active weights",
         check_tokens_per_s(report, rates));
}

void check_print_text(FILE *out, const char *directory, const struct report *report, const struct rates *rates)
{
    const char *architecture = report->config.architecture;
    fprintf(out, "%s: %s, %s\n", directory, *architecture ? architecture : "no architecture named",
            report->runnable ? "day0 can run it" : "day0 CANNOT run it");
    print_shape(out, report);
    print_operators(out, report);
    print_faults(out, report);
    fprintf(out, "Weights and state\n");
    print_conversion(out, report);
    size_line(out, "resident weights", report->resident_bytes, "everything but the routed experts");
    size_line(out, "routed experts", report->expert_bytes, "");
    size_line(out, "read per token", report->active_bytes_per_token, "active weights");
    size_line(out, "KDA state", report->kda_state_bytes, "per sequence");
    size_line(out, "convolution tails", report->conv_state_bytes, "per sequence");
    size_line(out, "latents", report->latent_bytes_per_token, "per token");
    size_line(out, "index keys", report->index_bytes_per_token, "per token");
    print_plan(out, report, rates);
}
