/* Which buffers share memory. A buffer lives from the node that writes it first to the last node before it is
 * forgotten, and may have many lives, one a layer. Two buffers can have one place if each life of one is over before
 * the next of the other begins, by the waits that are there anyway: then whoever uses the place later waits for all who
 * used it before. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "exec/plan_building.h"

enum { LIFE_NODES_MAX = 64 }; /* whoever is used by more keeps its place to itself */

/* The life at hand of a buffer, while nodes pass by. */
struct life {
    uint64_t bit;
    uint32_t nodes[LIFE_NODES_MAX], n_nodes; /* that used it */
    bool ended;                              /* forgotten: the next use begins another life */
    bool left;                               /* its place is another's now */
};

/* The node uses the buffer of `mine`, the other one is `theirs`; false if they are in each other's way. */
static bool use(const struct plan_hazards *hazards, struct life *mine, struct life *theirs, uint32_t node)
{
    if (mine->ended)
        *mine = (struct life){.bit = mine->bit};
    if (mine->left || mine->n_nodes == LIFE_NODES_MAX)
        return false;
    for (uint32_t i = 0; i < theirs->n_nodes; i++)
        if (!plan_comes_after(hazards, node, theirs->nodes[i]))
            return false;
    theirs->left = theirs->n_nodes > 0;
    mine->nodes[mine->n_nodes++] = node;
    return true;
}

static bool never_meet(const struct plan *plan, uint32_t r, uint32_t s)
{
    const struct plan_hazards *hazards = plan->hazards;
    struct life a = {.bit = (uint64_t)1 << r}, b = {.bit = (uint64_t)1 << s};
    for (uint32_t n = 0; n < plan->n_nodes; n++) {
        const struct plan_uses *uses = &hazards->uses[n];
        a.ended |= (uses->forgotten & a.bit) != 0;
        b.ended |= (uses->forgotten & b.bit) != 0;
        bool uses_a = uses->touched & a.bit, uses_b = uses->touched & b.bit;
        if (uses_a && uses_b)
            return false;
        if ((uses_a && !use(hazards, &a, &b, n)) || (uses_b && !use(hazards, &b, &a, n)))
            return false;
    }
    return true;
}

/* The lowest place for resource r where it meets none of those that have one. */
static size_t lowest_place(const struct plan_hazards *hazards, uint64_t meets, uint64_t placed, uint32_t r)
{
    size_t place = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < PLAN_RESOURCES_MAX; s++) {
            size_t end = hazards->places[s] + hazards->bytes[s];
            if ((meets & placed) >> s & 1 && place < end && hazards->places[s] < place + hazards->bytes[r]) {
                place = end;
                moved = true;
            }
        }
    }
    return place;
}

/* The largest first, each as low as it can be. */
static void choose_places(struct plan *plan, const uint64_t *meets)
{
    struct plan_hazards *hazards = plan->hazards;
    uint64_t placed = 0;
    plan->workspace_bytes = 0;
    for (uint32_t turn = 0; turn < plan->n_resources; turn++) {
        uint32_t largest = PLAN_RESOURCES_MAX;
        for (uint32_t r = 0; r < plan->n_resources; r++)
            if (!(placed >> r & 1) && (largest == PLAN_RESOURCES_MAX || hazards->bytes[r] > hazards->bytes[largest]))
                largest = r;
        hazards->places[largest] = lowest_place(hazards, meets[largest], placed, largest);
        placed |= (uint64_t)1 << largest;
        size_t end = hazards->places[largest] + hazards->bytes[largest];
        plan->workspace_bytes = end > plan->workspace_bytes ? end : plan->workspace_bytes;
    }
}

static void build_anew(struct plan *plan)
{
    struct plan_hazards *hazards = plan->hazards;
    size_t nodes_bytes = plan->nodes_max * sizeof *plan->nodes;
    memset(plan->arena.start, 0, plan->arena.used_bytes);
    plan->arena.used_bytes = 0;
    plan->nodes = arena_take(&plan->arena, nodes_bytes);
    memset(hazards->ancestors, 0, (size_t)plan->n_nodes * hazards->set_words * sizeof *hazards->ancestors);
    memset(hazards->uses, 0, (plan->n_nodes + 1) * sizeof *hazards->uses);
    for (uint32_t r = 0; r < PLAN_RESOURCES_MAX; r++)
        hazards->resources[r] = (struct hazard){.writer = PLAN_NO_NODE};
    hazards->lost = 0;
    hazards->placed = true;
    plan->n_nodes = plan->n_resources = 0;
    plan->layer = PLAN_NO_LAYER;
}

void plan_place(struct plan *plan)
{
    uint64_t meets[PLAN_RESOURCES_MAX] = {0};
    CHECK(plan->hazards && !plan->hazards->placed);
    for (uint32_t r = 0; r < plan->n_resources; r++)
        for (uint32_t s = 0; s < r; s++)
            if (!never_meet(plan, r, s)) {
                meets[r] |= (uint64_t)1 << s;
                meets[s] |= (uint64_t)1 << r;
            }
    choose_places(plan, meets);
    build_anew(plan);
}
