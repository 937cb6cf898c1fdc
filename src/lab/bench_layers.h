/* Where the time of a step goes, by kinds of layers, each beside its floors; and what that says of a larger model.
 *
 * Steps are recorded (exec/recorder.h). A part's time is its share of what the workers did, of the whole step's time:
 * so that waiting is spread over all parts and they add up to the step. */
#ifndef DAY0_LAB_BENCH_LAYERS_H
#define DAY0_LAB_BENCH_LAYERS_H

#include "exec/recorder.h"
#include "lab/bench_cost.h"
#include "lab/bench_report.h"
#include "lab/bench_run.h"

/* Beside the parts that have costs: residual streams and norms between them. */
enum { LAYERS_BETWEEN = PART_COUNT, LAYERS_PARTS, LAYERS_WORKS_MAX = BENCH_LIST_MAX, LAYERS_BANDWIDTHS_MAX = 16 };

/* One kind of layers in one piece of work; times and bytes of a single layer. */
struct layers_part {
    uint32_t n_layers; /* 0: the model has none */
    double ms, share;  /* share: of the step's time, all its layers together */
    double megabytes, read_ms, compute_ms;
};

struct layers_work {
    bool decode;
    uint32_t tokens, depth, batch;
    double ms; /* of the step, or of the prompt */
    struct layers_part parts[LAYERS_PARTS];
};

/* Generation by another model of the family, as fast on each part, measured against its floor, as this one. */
struct layers_prediction {
    uint32_t depth, batch;
    double bandwidth_gb_s;     /* of a machine that has as many times this one's arithmetic as its bandwidth */
    double tokens_per_s;       /* predicted */
    double limit_tokens_per_s; /* that the floors allow */
    double check_tokens_per_s; /* that day0 check gives: bandwidth over active weights; for a batch of one */
};

struct layers_request {
    const struct bench_request *bench;
    const char *config_path;                  /* of the model to predict, or NULL */
    double bandwidths[LAYERS_BANDWIDTHS_MAX]; /* 1e9 bytes a second */
    uint32_t n_bandwidths;                    /* 0: this machine's, 100 and 400 */
    double seconds;                           /* of steps in one piece of work, at least */
    struct rates rates;                       /* zero: to be measured */
};

struct layers_result {
    struct rates rates;
    unsigned n_threads;
    const char *tier;
    uint32_t n_works, n_predictions;
    struct layers_work works[LAYERS_WORKS_MAX];
    struct layers_prediction predictions[LAYERS_WORKS_MAX * LAYERS_BANDWIDTHS_MAX];
};

/* "KDA", "attention", "dense FFN", "MoE", "ends", "between". */
const char *bench_layers_name(uint32_t part);

/* Fails as opening and running a model do. */
NEEDS_CHECK enum status bench_layers_run(const struct layers_request *request, struct layers_result *result,
                                         struct error *err);

typedef enum status bench_layers_fn(FILE *out, const struct layers_request *request, const struct layers_result *result,
                                    struct error *err);
bench_layers_fn bench_layers_table, bench_layers_csv, bench_layers_json;

#endif
