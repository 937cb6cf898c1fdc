/* Plans: a step compiled once, run many times.
 *
 * A plan is an array of nodes. A node is a task split into tiles, with the nodes it waits for; how many tiles it has is
 * a function of the step, asked when its inputs are ready, since contexts grow and the router decides. Nodes name the
 * resources (buffers, caches) they read and write, and the plan derives who waits for whom, so an order is never stated
 * twice. Buffers have fixed offsets in one workspace, and may share memory (plan_place). Everything that varies from
 * step to step lives in the caller's parameter block, which nodes see as `step`; a plan is never rebuilt. */
#ifndef DAY0_EXEC_PLAN_H
#define DAY0_EXEC_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "kernels/kernels.h"

enum {
    PLAN_RESOURCES_MAX = 64, /* one bit each in a mask */
    PLAN_WAITS_MAX = 12,
    PLAN_NO_LAYER = UINT32_MAX,
};

/* What a tile sees. `scratch` belongs to the worker, `workspace` to the step. */
struct plan_context {
    const struct kernels *kernels;
    const void *step;
    char *workspace;
    char *scratch;
};

typedef void plan_run_fn(const struct plan_context *context, const void *args, uint32_t tile);
/* Fetches into the caches what tile `share * n_tiles / shares` reads first and no node writes: weights. */
typedef void plan_ahead_fn(const void *args, unsigned share, unsigned shares);
typedef uint32_t plan_tiles_fn(const struct plan_context *context, const void *args);

struct plan_node {
    const char *label;  /* what it computes, "kda.step" */
    const char *stream; /* which chain it belongs to, "main", "index", "shared": names the intent of an overlap */
    plan_run_fn *run;
    plan_tiles_fn *tiles;
    const void *args;
    plan_ahead_fn *ahead; /* or NULL */
    /* Filled by plan_add. */
    uint32_t layer; /* see plan_layer */
    bool awaited;   /* some node waits for this one */
    uint32_t n_waits;
    uint32_t waits[PLAN_WAITS_MAX];
};

/* A buffer of the workspace, [rows][stride] elements of 4 bytes, rows ARENA_ALIGNMENT-aligned. */
struct buffer {
    size_t offset;
    uint32_t stride;
    uint32_t resource;
};

struct plan {
    struct plan_node *nodes;
    uint32_t n_nodes, nodes_max;
    uint32_t n_resources;
    uint32_t layer;
    size_t workspace_bytes, scratch_bytes;
    struct arena arena; /* nodes and argument blocks */
    struct plan_hazards *hazards;
};

/* An empty plan of at most `nodes_max` nodes whose argument blocks fit in `args_bytes`. Owns its memory until
 * plan_fini. */
NEEDS_CHECK enum status plan_init(struct plan *plan, uint32_t nodes_max, size_t args_bytes, struct error *err);
void plan_fini(struct plan *plan);

/* A buffer of `rows` rows of `width` floats (or 32-bit integers). */
struct buffer plan_buffer(struct plan *plan, uint32_t rows, uint32_t width);
/* Bytes in the workspace, not in rows. */
struct buffer plan_bytes(struct plan *plan, size_t bytes);
/* A resource without a buffer: something outside of the workspace that nodes read and write. */
uint32_t plan_resource(struct plan *plan);
/* Every worker's scratch is at least this large. */
void plan_scratch(struct plan *plan, size_t bytes);

/* Zeroed memory for an argument block, living as long as the plan. */
void *plan_args(struct plan *plan, size_t bytes);

/* Nodes that are added from now on belong to this layer, PLAN_NO_LAYER: to none. For those who read traces. */
void plan_layer(struct plan *plan, uint32_t layer);

/* Adds a node (its waits are filled here). `reads` and `writes` are masks of resources; a node that updates something
 * names it in `writes` alone. */
void plan_add(struct plan *plan, struct plan_node node, uint64_t reads, uint64_t writes);

/* The node that wrote a buffer last, while building; UINT32_MAX before any. */
uint32_t plan_writer(const struct plan *plan, struct buffer buffer);

/* What the resources of a mask hold is needed by no later node: before another reads one it is written as a whole. */
void plan_forget(struct plan *plan, uint64_t resources);

/* Once all nodes are there: gives buffers that are never in use at the same time a common place, and starts building
 * anew; the caller makes the same buffers and adds the same nodes again. Only what the waits keep apart anyway shares
 * memory, so no node waits for longer. */
void plan_place(struct plan *plan);

/* Ends building: what only building needed is released. */
void plan_seal(struct plan *plan);

static inline uint64_t buffer_bit(struct buffer buffer)
{
    return (uint64_t)1 << buffer.resource;
}

static inline float *buffer_row(const struct plan_context *context, struct buffer buffer, size_t row)
{
    return (float *)(void *)(context->workspace + buffer.offset) + row * buffer.stride;
}

#endif
