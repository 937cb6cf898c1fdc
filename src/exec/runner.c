#include "exec/runner.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"

/* How far a node is: tiles done, and per worker the tiles begun of the part that it owns. */
struct progress {
    _Atomic uint32_t done;
    _Atomic uint32_t begun[];
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
    size_t counts_bytes = workers * nodes_max * sizeof(uint32_t);
    TRY(arena_init(&runner->arena,
                   arena_cost(nodes_max * stride) + arena_cost(counts_bytes) + arena_cost(workspace_bytes) +
                       workers * runner->scratch_bytes,
                   "the workspace of a step", err));
    runner->progress = arena_take(&runner->arena, nodes_max * stride);
    runner->tile_counts = arena_take(&runner->arena, counts_bytes);
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

/* Does the tiles of `owner`'s part that nobody has begun. */
static void run_part(const struct run *run, const struct plan_context *context, uint32_t index, uint32_t n_tiles,
                     unsigned owner)
{
    const struct plan_node *node = &run->plan->nodes[index];
    struct progress *progress = progress_of(run->runner, index);
    uint64_t workers = team_size(run->runner->team);
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

static void run_node(const struct run *run, const struct plan_context *context, uint32_t index, uint32_t n_tiles,
                     unsigned worker)
{
    unsigned workers = team_size(run->runner->team);
    for (unsigned i = 0; i < workers; i++)
        run_part(run, context, index, n_tiles, (worker + i) % workers);
}

static void graph_worker(void *argument, unsigned worker)
{
    const struct run *run = argument;
    const struct runner *runner = run->runner;
    struct plan_context context = context_of(run, worker);
    uint32_t *counts = runner->tile_counts + (size_t)worker * runner->nodes_max;
    for (uint32_t n = 0; n < run->plan->n_nodes; n++) {
        const struct plan_node *node = &run->plan->nodes[n];
        for (uint32_t w = 0; w < node->n_waits; w++) {
            struct progress *before = progress_of(runner, node->waits[w]);
            unsigned turns = 0;
            while (atomic_load_explicit(&before->done, memory_order_acquire) < counts[node->waits[w]])
                team_pause(&turns);
        }
        counts[n] = node->tiles(&context, node->args);
        run_node(run, &context, n, counts[n], worker);
    }
}

static void eager_worker(void *argument, unsigned worker)
{
    const struct run *run = argument;
    struct plan_context context = context_of(run, worker);
    const struct plan_node *node = &run->plan->nodes[run->eager_node];
    run_node(run, &context, run->eager_node, node->tiles(&context, node->args), worker);
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
