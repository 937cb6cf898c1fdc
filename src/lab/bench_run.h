/* Speed of prompts and of generation, against what the machine can do.
 *
 * Prompts are fed from nothing, with logits of the last token. Generation starts at a depth whose caches are filled with
 * random values (bench_state.h) and feeds one random token a step and sequence. Each row is warmed up, then timed `repeat`
 * times; its speed is the median. */
#ifndef DAY0_LAB_BENCH_RUN_H
#define DAY0_LAB_BENCH_RUN_H

#include <stdbool.h>

#include "model/model.h"

enum {
    BENCH_LIST_MAX = 16,
    BENCH_ROWS_MAX = BENCH_LIST_MAX + BENCH_LIST_MAX * BENCH_LIST_MAX,
    BENCH_REPEAT_MAX = 100,
    BENCH_BATCH_MAX = MODEL_ROWS_MAX,
    BENCH_STEPS_MAX = 64, /* generated tokens of a sequence in one timing */
};

struct bench_list {
    uint32_t values[BENCH_LIST_MAX], n;
};

struct bench_request {
    const char *directory;
    struct model_options options; /* context and sequences are set by the bench */
    struct bench_list prefill, depths, batches;
    uint32_t repeat;
    double seconds_min; /* one timing of generation takes so long, or BENCH_STEPS_MAX steps */
    void (*progress)(void *context, uint64_t done, uint64_t total); /* or NULL */
    void *progress_context;
};

struct bench_row {
    bool decode;
    uint32_t tokens; /* of the prompt, or generated in the median timing by all sequences together */
    uint32_t depth, batch;
    double tokens_per_s, slowest, fastest;
    double gb_per_token, gflop_per_token; /* bench_cost.h */
};

struct bench_result {
    double read_gb_s, f32_gflop_s; /* exec/probe.h; 0 if unknown */
    unsigned n_threads;
    const char *tier;
    uint32_t n_rows;
    struct bench_row rows[BENCH_ROWS_MAX];
};

/* Fails as opening and running a model do. */
NEEDS_CHECK enum status bench_run(const struct bench_request *request, struct bench_result *result, struct error *err);

#endif
