/* What a plan knows while it is built: for plan.c and plan_memory.c alone. */
#ifndef DAY0_EXEC_PLAN_BUILDING_H
#define DAY0_EXEC_PLAN_BUILDING_H

#include "exec/plan.h"

enum { PLAN_READERS_MAX = 32, PLAN_NO_NODE = UINT32_MAX };

struct plan_hazards {
    /* Who wrote each resource last, and who has read it since. */
    struct hazard {
        uint32_t writer;
        uint32_t n_readers;
        uint32_t readers[PLAN_READERS_MAX];
    } resources[PLAN_RESOURCES_MAX];
    uint64_t lost; /* forgotten, and not written since */
    /* For the memory. */
    bool placed;
    size_t bytes[PLAN_RESOURCES_MAX], places[PLAN_RESOURCES_MAX];
    struct plan_uses {
        uint64_t touched;   /* resources that the node reads or writes */
        uint64_t forgotten; /* before it */
    } * uses;               /* [nodes_max + 1] */
    /* Which nodes each node comes after. */
    uint32_t set_words;
    uint64_t *ancestors; /* [nodes_max][set_words] */
    struct arena arena;
};

static inline bool plan_comes_after(const struct plan_hazards *hazards, uint32_t later, uint32_t earlier)
{
    return hazards->ancestors[(size_t)later * hazards->set_words + earlier / 64] >> earlier % 64 & 1;
}

#endif
