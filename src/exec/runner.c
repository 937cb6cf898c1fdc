#include "exec/runner.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"

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
};

enum status runner_init(struct runner *runner, struct team *team, const struct kernels *kernels, enum exec_mode mode,
                        uint32_t nodes_max, size_t workspace_bytes, size_t scratch_bytes, struct error *err)
{
    size_t workers = team_size(team);
    size_t stride = arena_cost(sizeof(struct progress) + workers * sizeof(uint32_t));
    *runner = (struct runner){.team = team,
                              .kernels = kernels,
                              .mode = mode,
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

/* Does the tiles of `owner`'s part that nobody has begun. */
static void run_part(const struct plan_context *context, const struct plan_node *node, struct progress *progress,
                     uint32_t n_tiles, unsigned owner, unsigned workers)
{
    uint32_t first = (uint32_t)(owner * (uint64_t)n_tiles / workers);
    uint32_t count = (uint32_t)((owner + 1) * (uint64_t)n_tiles / workers) - first;
    while (atomic_load_explicit(&progress->begun[owner], memory_order_relaxed) < count) {
        uint32_t mine = atomic_fetch_add_explicit(&progress->begun[owner], 1, memory_order_relaxed);
        if (mine >= count)
            return;
        node->run(context, node->args, first + mine);
        atomic_fetch_add_explicit(&progress->done, 1, memory_order_release);
    }
}

static void run_node(const struct run *run, const struct plan_context *context, uint32_t index, unsigned worker)
{
    const struct plan_node *node = &run->plan->nodes[index];
    struct progress *progress = progress_of(run->runner, index);
    uint32_t n_tiles = tiles_of(context, node, progress);
    unsigned workers = team_size(run->runner->team);
    for (unsigned i = 0; i < workers; i++)
        run_part(context, node, progress, n_tiles, (worker + i) % workers, workers);
}

/* Waits until all tiles of a node that this worker has passed are finished. */
static void wait_for(struct progress *progress)
{
    uint32_t n_tiles = atomic_load_explicit(&progress->tiles_and_one, memory_order_relaxed) - 1;
    unsigned turns = 0;
    while (atomic_load_explicit(&progress->done, memory_order_acquire) < n_tiles)
        team_pause(&turns);
}

static void graph_worker(void *argument, unsigned worker)
{
    const struct run *run = argument;
    struct plan_context context = context_of(run, worker);
    for (uint32_t n = 0; n < run->plan->n_nodes; n++) {
        const struct plan_node *node = &run->plan->nodes[n];
        for (uint32_t w = 0; w < node->n_waits; w++)
            wait_for(progress_of(run->runner, node->waits[w]));
        run_node(run, &context, n, worker);
    }
}

static void eager_worker(void *argument, unsigned worker)
{
    const struct run *run = argument;
    struct plan_context context = context_of(run, worker);
    run_node(run, &context, run->eager_node, worker);
}

void runner_run(struct runner *runner, const struct plan *plan, const void *step)
{
    CHECK(plan->n_nodes <= runner->nodes_max);
    struct run run = {runner, plan, step, 0};
    memset(runner->progress, 0, plan->n_nodes * runner->progress_stride);
    if (runner->mode == EXEC_GRAPH) {
        team_run(runner->team, graph_worker, &run);
        return;
    }
    for (uint32_t n = 0; n < plan->n_nodes; n++) {
        run.eager_node = n;
        team_run(runner->team, eager_worker, &run);
    }
}
