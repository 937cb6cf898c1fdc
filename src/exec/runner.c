#include "exec/runner.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

static const double usual_patience_seconds = 30;

/* How far a node is. The first worker that gets to a node asks it for its tiles and publishes the answer; a worker that
 * comes late must not ask again, since the buffers that the answer came from may be in use for a later node by then. */
struct progress {
    _Atomic uint32_t tiles_and_one; /* 0: not asked yet */
    _Atomic uint32_t done;          /* tiles that are finished */
    _Atomic uint32_t begun[];       /* per worker, tiles begun of the part that it owns */
};

struct run {
    struct runner *runner;
    const struct plan *plan;
    const void *step;
    uint32_t eager_node;
    _Atomic bool reported; /* by a worker out of patience */
};

enum status runner_init(struct runner *runner, struct team *team, const struct kernels *kernels, enum exec_mode mode,
                        uint32_t nodes_max, size_t workspace_bytes, size_t scratch_bytes, struct error *err)
{
    size_t workers = team_size(team);
    size_t stride = arena_cost(sizeof(struct progress) + workers * sizeof(uint32_t));
    *runner = (struct runner){.team = team,
                              .kernels = kernels,
                              .mode = mode,
                              .streams = true,
                              .early_start = true,
                              .patience_seconds = usual_patience_seconds,
                              .progress_stride = stride,
                              .scratch_bytes = arena_cost(scratch_bytes),
                              .nodes_max = nodes_max};
    TRY(arena_init(&runner->arena,
                   arena_cost(nodes_max * stride) + arena_cost(workspace_bytes) + workers * runner->scratch_bytes,
                   "the workspace of a step", err));
    runner->progress = arena_take(&runner->arena, nodes_max * stride);
    runner->workspace = arena_take(&runner->arena, workspace_bytes);
    runner->scratch = arena_take(&runner->arena, workers * runner->scratch_bytes);
    return STATUS_OK;
}

void runner_fini(struct runner *runner)
{
    arena_fini(&runner->arena);
}

static struct progress *progress_of(const struct runner *runner, uint32_t node)
{
    return (struct progress *)(void *)(runner->progress + node * runner->progress_stride);
}

static struct plan_context context_of(const struct run *run, unsigned worker)
{
    const struct runner *runner = run->runner;
    return (struct plan_context){runner->kernels, run->step, runner->workspace,
                                 runner->scratch + worker * runner->scratch_bytes};
}

static uint32_t tiles_of(const struct plan_context *context, const struct plan_node *node, struct progress *progress)
{
    uint32_t known = atomic_load(&progress->tiles_and_one);
    if (known == 0) {
        uint32_t asked = node->tiles(context, node->args) + 1;
        known = atomic_compare_exchange_strong(&progress->tiles_and_one, &known, asked) ? asked : known;
    }
    return known - 1;
}

static void run_tile(const struct run *run, const struct plan_context *context, uint32_t index, uint32_t tile,
                     unsigned worker)
{
    const struct plan_node *node = &run->plan->nodes[index];
    struct recorder *recorder = run->runner->recorder;
    double begin = recorder ? clock_seconds() : 0;
    node->run(context, node->args, tile);
    if (recorder)
        recorder_add(recorder, worker, index, tile, begin);
}

/* Does the tiles of `owner`'s part that nobody has begun. */
static void run_part(const struct run *run, const struct plan_context *context, uint32_t index, uint32_t n_tiles,
                     unsigned owner, unsigned worker)
{
    struct progress *progress = progress_of(run->runner, index);
    unsigned workers = team_size(run->runner->team);
    uint32_t first = (uint32_t)(owner * (uint64_t)n_tiles / workers);
    uint32_t count = (uint32_t)((owner + 1) * (uint64_t)n_tiles / workers) - first;
    while (atomic_load_explicit(&progress->begun[owner], memory_order_relaxed) < count) {
        uint32_t mine = atomic_fetch_add_explicit(&progress->begun[owner], 1, memory_order_relaxed);
        if (mine >= count)
            return;
        run_tile(run, context, index, first + mine, worker);
        atomic_fetch_add_explicit(&progress->done, 1, memory_order_release);
    }
}

static void run_node(const struct run *run, const struct plan_context *context, uint32_t index, unsigned worker)
{
    uint32_t n_tiles = tiles_of(context, &run->plan->nodes[index], progress_of(run->runner, index));
    unsigned workers = team_size(run->runner->team);
    for (unsigned i = 0; i < workers; i++)
        run_part(run, context, index, n_tiles, (worker + i) % workers, worker);
}

/* Tiles of a node that this worker has passed. */
static uint32_t known_tiles(const struct progress *progress)
{
    return atomic_load_explicit(&progress->tiles_and_one, memory_order_relaxed) - 1;
}

static bool is_done(struct progress *progress)
{
    return atomic_load_explicit(&progress->done, memory_order_acquire) >= known_tiles(progress);
}

/* "kda.in of layer 4", for people: layers count from 1. */
static void describe(char *out, size_t out_bytes, const struct plan_node *node)
{
    if (node->layer == PLAN_NO_LAYER)
        snprintf(out, out_bytes, "%s", node->label);
    else
        snprintf(out, out_bytes, "%s of layer %u", node->label, node->layer + 1);
}

static void report_wait(struct run *run, unsigned worker, uint32_t waiting, uint32_t producer, double seconds)
{
    char who[64], what[64] = "the end of the step";
    struct progress *progress = progress_of(run->runner, producer);
    if (atomic_exchange(&run->reported, true))
        return;
    describe(who, sizeof who, &run->plan->nodes[producer]);
    if (waiting < run->plan->n_nodes)
        describe(what, sizeof what, &run->plan->nodes[waiting]);
    fprintf(
        stderr, "day0: worker %u of %u has waited %.1f s at %s for %s: %u of %u tiles are done; it goes on waiting\n",
        worker, team_size(run->runner->team), seconds, what, who, atomic_load(&progress->done), known_tiles(progress));
}

/* Waits until all tiles of a node that this worker has passed are finished; node `waiting` needs them. */
static void wait_for(struct run *run, uint32_t producer, uint32_t waiting, unsigned worker)
{
    struct progress *progress = progress_of(run->runner, producer);
    unsigned turns = 0;
    double begin = 0;
    while (!is_done(progress)) {
        if (!team_pause(&turns))
            continue;
        double now = clock_seconds();
        begin = begin > 0 ? begin : now;
        if (now - begin > run->runner->patience_seconds)
            report_wait(run, worker, waiting, producer, now - begin);
    }
}

/* Without streams a node waits for the one before, which has waited for all others. */
static bool must_wait(const struct run *run, uint32_t index)
{
    const struct plan_node *node = &run->plan->nodes[index];
    if (!run->runner->streams)
        return index > 0 && !is_done(progress_of(run->runner, index - 1));
    for (uint32_t w = 0; w < node->n_waits; w++)
        if (!is_done(progress_of(run->runner, node->waits[w])))
            return true;
    return false;
}

/* Waits for what node `index` needs, and has the weights fetched meanwhile that the worker will begin with. */
static void wait_inputs(struct run *run, uint32_t index, unsigned worker)
{
    const struct plan_node *node = &run->plan->nodes[index];
    struct recorder *recorder = run->runner->recorder;
    double begin = recorder ? clock_seconds() : 0;
    if (run->runner->early_start && node->ahead && must_wait(run, index))
        node->ahead(node->args, worker, team_size(run->runner->team));
    if (!run->runner->streams && index > 0)
        wait_for(run, index - 1, index, worker);
    for (uint32_t w = 0; run->runner->streams && w < node->n_waits; w++)
        wait_for(run, node->waits[w], index, worker);
    if (recorder)
        recorder_add(recorder, worker, index, RECORDER_WAIT, begin);
}

static void graph_worker(void *argument, unsigned worker)
{
    struct run *run = argument;
    struct plan_context context = context_of(run, worker);
    uint32_t n_nodes = run->plan->n_nodes;
    for (uint32_t n = 0; n < n_nodes; n++) {
        wait_inputs(run, n, worker);
        run_node(run, &context, n, worker);
    }
    /* The team waits for all workers; here it is known what for. */
    for (uint32_t n = 0; worker == 0 && n < n_nodes; n++)
        if (!run->plan->nodes[n].awaited)
            wait_for(run, n, n_nodes, worker);
}

static void eager_worker(void *argument, unsigned worker)
{
    struct run *run = argument;
    struct plan_context context = context_of(run, worker);
    run_node(run, &context, run->eager_node, worker);
    if (worker == 0)
        wait_for(run, run->eager_node, run->plan->n_nodes, worker);
}

void runner_run(struct runner *runner, const struct plan *plan, const void *step)
{
    CHECK(plan->n_nodes <= runner->nodes_max);
    struct run run = {.runner = runner, .plan = plan, .step = step};
    memset(runner->progress, 0, plan->n_nodes * runner->progress_stride);
    if (runner->recorder)
        recorder_begin(runner->recorder, plan);
    if (runner->mode == EXEC_GRAPH)
        team_run(runner->team, graph_worker, &run);
    for (uint32_t n = 0; runner->mode == EXEC_EAGER && n < plan->n_nodes; n++) {
        run.eager_node = n;
        team_run(runner->team, eager_worker, &run);
    }
    if (runner->recorder)
        recorder_end(runner->recorder);
}
