/* What a recorder saw of a step (exec/recorder.h), for people and for programs. */
#ifndef DAY0_LAB_TRACE_REPORT_H
#define DAY0_LAB_TRACE_REPORT_H

#include <stdio.h>

#include "exec/recorder.h"

enum { TRACE_LABELS_MAX = 64 };

/* All nodes of one label together, of all layers and runs. */
struct trace_label {
    const char *label, *stream;
    uint64_t n_tiles;
    double busy, waited; /* seconds of all workers: in its tiles, and for its inputs */
};

struct trace_summary {
    unsigned n_workers;
    uint32_t n_nodes;          /* of all runs */
    uint64_t n_lost;           /* events that the recorder had no room for */
    double wall, busy, waited; /* seconds; the last two of all workers */
    /* The longest chain of nodes that wait for each other, each node as fast as if all workers shared it evenly: no
     * order of nodes is faster with as many workers. */
    double critical_path;
    double *worker_busy, *worker_waited; /* [n_workers] */
    uint32_t n_labels;
    struct trace_label labels[TRACE_LABELS_MAX]; /* the busiest first */
};

/* Sums up; release with trace_summary_fini. Labels are borrowed from the plans. */
NEEDS_CHECK enum status trace_summarize(struct trace_summary *summary, const struct recorder *recorder,
                                        struct error *err);
void trace_summary_fini(struct trace_summary *summary);

void trace_print_table(FILE *out, const struct trace_summary *summary);
void trace_print_json(FILE *out, const struct trace_summary *summary);

/* The events in the format of chrome://tracing and Perfetto: {"traceEvents": [...]}, a thread a worker, times in
 * microseconds from the first run's begin. */
void trace_print_events(FILE *out, const struct recorder *recorder);

#endif
