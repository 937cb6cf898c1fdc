/* What each switch is worth: the same work by turns with the default and with one thing changed, in one process.
 *
 * A row is a switch and a piece of work; its ratio is the median, over pairs of timings that follow each other, of the
 * switched speed over the default's, so that what slows the machine for a while slows both. */
#ifndef DAY0_LAB_BENCH_ABLATE_H
#define DAY0_LAB_BENCH_ABLATE_H

#include "lab/bench_report.h"
#include "lab/bench_run.h"

enum {
    ABLATE_SWITCHES_MAX = 32,
    ABLATE_ROWS_MAX = ABLATE_SWITCHES_MAX * BENCH_LIST_MAX,
    ABLATE_REASON_BYTES = sizeof((struct error *)0)->text,
};

struct ablate_row {
    const char *policy, *what; /* "kv=f32", what that means */
    bool decode;
    uint32_t tokens, depth, batch; /* tokens: of the prompt, 1 for a step */
    double base_tokens_per_s, tokens_per_s;
    double ratio, ratio_low, ratio_high;
    char skipped[ABLATE_REASON_BYTES]; /* why the switch was not measured; else empty */
};

struct ablate_result {
    struct rates rates; /* zero if not asked for */
    unsigned n_threads;
    const char *tier;
    uint32_t n_rows;
    struct ablate_row rows[ABLATE_ROWS_MAX];
};

/* Prompts of each length at each of prefill_depths, generation at each depth with each batch; `repeat` pairs. Both
 * models are open at once where the memory has room for both, else each is opened anew for its turn.
 * Fails as opening and running the default do; a switch that cannot be opened is a row with the reason. */
NEEDS_CHECK enum status bench_ablate_run(const struct bench_request *request, struct ablate_result *result,
                                         struct error *err);

typedef enum status bench_ablate_fn(FILE *out, const struct bench_request *request, const struct ablate_result *result,
                                    struct error *err);
bench_ablate_fn bench_ablate_table, bench_ablate_csv, bench_ablate_json;

#endif
