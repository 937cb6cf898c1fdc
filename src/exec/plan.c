#include "exec/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "exec/plan_building.h"

static enum status begin_building(struct plan *plan, struct error *err)
{
    uint32_t words = (plan->nodes_max + 63) / 64;
    size_t ancestors = (size_t)plan->nodes_max * words * sizeof(uint64_t);
    size_t uses = (plan->nodes_max + 1) * sizeof(struct plan_uses);
    TRY(memory_take(&plan->hazards, 1, sizeof *plan->hazards, "building a plan", err));
    struct plan_hazards *hazards = plan->hazards;
    TRY(arena_init(&hazards->arena, arena_cost(ancestors) + arena_cost(uses), "building a plan", err));
    hazards->ancestors = arena_take(&hazards->arena, ancestors);
    hazards->uses = arena_take(&hazards->arena, uses);
    hazards->set_words = words;
    for (uint32_t r = 0; r < PLAN_RESOURCES_MAX; r++)
        hazards->resources[r].writer = PLAN_NO_NODE;
    return STATUS_OK;
}

enum status plan_init(struct plan *plan, uint32_t nodes_max, size_t args_bytes, struct error *err)
{
    *plan = (struct plan){.nodes_max = nodes_max, .layer = PLAN_NO_LAYER};
    TRY(arena_init(&plan->arena, arena_cost(nodes_max * sizeof(struct plan_node)) + args_bytes, "a plan", err));
    plan->nodes = arena_take(&plan->arena, nodes_max * sizeof(struct plan_node));
    enum status status = begin_building(plan, err);
    if (status != STATUS_OK)
        plan_fini(plan);
    return status;
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
    if (plan->hazards)
        arena_fini(&plan->hazards->arena);
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
    struct plan_hazards *hazards = plan->hazards;
    struct buffer buffer = {.offset = plan->workspace_bytes, .resource = plan_resource(plan)};
    if (hazards->placed) { /* the second time: as the first time said */
        CHECK(hazards->bytes[buffer.resource] == arena_cost(bytes));
        buffer.offset = hazards->places[buffer.resource];
        return buffer;
    }
    hazards->bytes[buffer.resource] = arena_cost(bytes);
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

void plan_forget(struct plan *plan, uint64_t resources)
{
    plan->hazards->uses[plan->n_nodes].forgotten |= resources;
    plan->hazards->lost |= resources;
}

/* Makes node `later` wait for `earlier`, unless it does through another. */
static void add_wait(struct plan *plan, uint32_t later, uint32_t earlier)
{
    struct plan_hazards *hazards = plan->hazards;
    struct plan_node *node = &plan->nodes[later];
    if (earlier == PLAN_NO_NODE || plan_comes_after(hazards, later, earlier))
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
    CHECK((reads & ~writes & plan->hazards->lost) == 0);
    plan->hazards->lost &= ~writes;
    plan->hazards->uses[index].touched = reads | writes;
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
            if (!plan_comes_after(plan->hazards, index, resource->readers[i]))
                resource->readers[kept++] = resource->readers[i];
        CHECK(kept < PLAN_READERS_MAX);
        resource->readers[kept++] = index;
        resource->n_readers = kept;
    }
}
