/* What the workers did when: a record of plan runs, for traces and profiles. Every worker writes into its own ring,
 * which was there before, so recording neither allocates nor shares a cache line. */
#ifndef DAY0_EXEC_RECORDER_H
#define DAY0_EXEC_RECORDER_H

#include "exec/plan.h"

enum {
    RECORDER_RUNS_MAX = 1024,      /* runs of a plan; later ones are lost */
    RECORDER_EVENTS_MAX = 1 << 20, /* of a worker; later ones are lost */
    RECORDER_WAIT = UINT32_MAX,    /* in place of a tile: the worker waited for the node's inputs */
};

struct recorder_event {
    double begin, end; /* seconds, clock_seconds */
    uint32_t run;      /* index in runs */
    uint32_t node, tile;
};

struct recorder_run {
    const struct plan *plan; /* borrowed */
    double begin, end;
};

struct recorder_ring {
    struct recorder_event *events;
    uint32_t n_events;
    uint64_t n_lost;
    char padding[40]; /* rings of two workers lie on different cache lines */
};

struct recorder {
    unsigned n_workers;
    struct recorder_ring *rings; /* [n_workers] */
    struct recorder_run *runs;
    uint32_t n_runs;
    struct arena arena;
};

/* Reserves the rings; pages of them cost memory once they are written. Owns them until recorder_fini. */
NEEDS_CHECK enum status recorder_init(struct recorder *recorder, unsigned n_workers, struct error *err);
void recorder_fini(struct recorder *recorder);

/* Around a run of a plan; by one thread. */
void recorder_begin(struct recorder *recorder, const struct plan *plan);
void recorder_end(struct recorder *recorder);

/* Notes what a worker did from `begin` until now, in the run that has begun. */
void recorder_add(struct recorder *recorder, unsigned worker, uint32_t node, uint32_t tile, double begin);

/* Events that did not fit. */
uint64_t recorder_lost(const struct recorder *recorder);

#endif
