#include "exec/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { READERS_MAX = 32, NO_NODE = UINT32_MAX };

/* While building: who wrote each resource last, who has read it since, and which nodes each node comes after. */
struct plan_hazards {
    struct hazard {
        uint32_t writer;
        uint32_t n_readers;
        uint32_t readers[READERS_MAX];
    } resources[PLAN_RESOURCES_MAX];
    uint32_t set_words;
    uint64_t ancestors[]; /* [nodes_max][set_words] */
};

enum status plan_init(struct plan *plan, uint32_t nodes_max, size_t args_bytes, struct error *err)
{
    *plan = (struct plan){.nodes_max = nodes_max, .layer = PLAN_NO_LAYER};
    TRY(arena_init(&plan->arena, arena_cost(nodes_max * sizeof(struct plan_node)) + args_bytes, "a plan", err));
    plan->nodes = arena_take(&plan->arena, nodes_max * sizeof(struct plan_node));
    uint32_t words = (nodes_max + 63) / 64;
    enum status status =
        memory_take(&plan->hazards, 1, sizeof(struct plan_hazards) + (size_t)nodes_max * words * sizeof(uint64_t),
                    "building a plan", err);
    if (status != STATUS_OK) {
        plan_fini(plan);
        return status;
    }
    plan->hazards->set_words = words;
    for (uint32_t r = 0; r < PLAN_RESOURCES_MAX; r++)
        plan->hazards->resources[r].writer = NO_NODE;
    return STATUS_OK;
}

uint32_t plan_writer(const struct plan *plan, struct buffer buffer)
{
    return plan->hazards->resources[buffer.resource].writer;
}

void plan_fini(struct plan *plan)
{
    plan_seal(plan);
    arena_fini(&plan->arena);
}

void plan_seal(struct plan *plan)
{
    free(plan->hazards);
    plan->hazards = NULL;
}

uint32_t plan_resource(struct plan *plan)
{
    CHECK(plan->n_resources < PLAN_RESOURCES_MAX);
    return plan->n_resources++;
}

struct buffer plan_bytes(struct plan *plan, size_t bytes)
{
    struct buffer buffer = {.offset = plan->workspace_bytes, .resource = plan_resource(plan)};
    plan->workspace_bytes += arena_cost(bytes);
    return buffer;
}

struct buffer plan_buffer(struct plan *plan, uint32_t rows, uint32_t width)
{
    uint32_t stride = (uint32_t)(arena_cost(width * sizeof(float)) / sizeof(float));
    struct buffer buffer = plan_bytes(plan, (size_t)rows * stride * sizeof(float));
    buffer.stride = stride;
    return buffer;
}

void plan_scratch(struct plan *plan, size_t bytes)
{
    if (arena_cost(bytes) > plan->scratch_bytes)
        plan->scratch_bytes = arena_cost(bytes);
}

void *plan_args(struct plan *plan, size_t bytes)
{
    return arena_take(&plan->arena, bytes);
}

void plan_layer(struct plan *plan, uint32_t layer)
{
    plan->layer = layer;
}

static bool comes_after(const struct plan_hazards *hazards, uint32_t later, uint32_t earlier)
{
    return hazards->ancestors[(size_t)later * hazards->set_words + earlier / 64] >> earlier % 64 & 1;
}

/* Makes node `later` wait for `earlier`, unless it does through another. */
static void add_wait(struct plan *plan, uint32_t later, uint32_t earlier)
{
    struct plan_hazards *hazards = plan->hazards;
    struct plan_node *node = &plan->nodes[later];
    if (earlier == NO_NODE || comes_after(hazards, later, earlier))
        return;
    uint64_t *mine = &hazards->ancestors[(size_t)later * hazards->set_words];
    const uint64_t *theirs = &hazards->ancestors[(size_t)earlier * hazards->set_words];
    for (uint32_t w = 0; w < hazards->set_words; w++)
        mine[w] |= theirs[w];
    mine[earlier / 64] |= (uint64_t)1 << earlier % 64;
    CHECK(node->n_waits < PLAN_WAITS_MAX);
    node->waits[node->n_waits++] = earlier;
    plan->nodes[earlier].awaited = true;
}

void plan_add(struct plan *plan, struct plan_node node, uint64_t reads, uint64_t writes)
{
    CHECK(plan->hazards && plan->n_nodes < plan->nodes_max);
    uint32_t index = plan->n_nodes++;
    node.n_waits = 0;
    node.layer = plan->layer;
    node.awaited = false;
    plan->nodes[index] = node;
    for (uint32_t r = 0; r < plan->n_resources; r++) {
        struct hazard *resource = &plan->hazards->resources[r];
        uint64_t bit = (uint64_t)1 << r;
        if (writes & bit) {
            add_wait(plan, index, resource->writer);
            for (uint32_t i = 0; i < resource->n_readers; i++)
                add_wait(plan, index, resource->readers[i]);
            resource->writer = index;
            resource->n_readers = 0;
        } else if (reads & bit) {
            add_wait(plan, index, resource->writer);
        }
    }
    for (uint32_t r = 0; r < plan->n_resources; r++) {
        struct hazard *resource = &plan->hazards->resources[r];
        if (!(reads & ~writes & (uint64_t)1 << r))
            continue;
        /* Readers that this node comes after need not be remembered beside it. */
        uint32_t kept = 0;
        for (uint32_t i = 0; i < resource->n_readers; i++)
            if (!comes_after(plan->hazards, index, resource->readers[i]))
                resource->readers[kept++] = resource->readers[i];
        CHECK(kept < READERS_MAX);
        resource->readers[kept++] = index;
        resource->n_readers = kept;
    }
}
