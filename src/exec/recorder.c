#include "exec/recorder.h"

#include "base/check.h"
#include "base/clock.h"

enum status recorder_init(struct recorder *recorder, unsigned n_workers, struct error *err)
{
    size_t rings = n_workers * sizeof *recorder->rings, events = RECORDER_EVENTS_MAX * sizeof(struct recorder_event);
    size_t runs = RECORDER_RUNS_MAX * sizeof *recorder->runs;
    *recorder = (struct recorder){.n_workers = n_workers};
    TRY(arena_init(&recorder->arena, arena_cost(rings) + arena_cost(runs) + n_workers * arena_cost(events), "a trace",
                   err));
    recorder->rings = arena_take(&recorder->arena, rings);
    recorder->runs = arena_take(&recorder->arena, runs);
    for (unsigned worker = 0; worker < n_workers; worker++)
        recorder->rings[worker].events = arena_take(&recorder->arena, events);
    return STATUS_OK;
}

void recorder_fini(struct recorder *recorder)
{
    arena_fini(&recorder->arena);
}

void recorder_begin(struct recorder *recorder, const struct plan *plan)
{
    if (recorder->n_runs < RECORDER_RUNS_MAX)
        recorder->runs[recorder->n_runs] = (struct recorder_run){.plan = plan, .begin = clock_seconds()};
}

void recorder_end(struct recorder *recorder)
{
    if (recorder->n_runs < RECORDER_RUNS_MAX)
        recorder->runs[recorder->n_runs++].end = clock_seconds();
}

void recorder_add(struct recorder *recorder, unsigned worker, uint32_t node, uint32_t tile, double begin)
{
    struct recorder_ring *ring = &recorder->rings[worker];
    CHECK(worker < recorder->n_workers);
    if (ring->n_events == RECORDER_EVENTS_MAX || recorder->n_runs == RECORDER_RUNS_MAX) {
        ring->n_lost++;
        return;
    }
    ring->events[ring->n_events++] = (struct recorder_event){begin, clock_seconds(), recorder->n_runs, node, tile};
}

uint64_t recorder_lost(const struct recorder *recorder)
{
    uint64_t lost = 0;
    for (unsigned worker = 0; worker < recorder->n_workers; worker++)
        lost += recorder->rings[worker].n_lost;
    return lost;
}
