/* Runs plans on a team: as a graph in one parallel region, or eagerly, node by node with a barrier after each.
 *
 * All ways give the same bits: tiles never share a sum. In a graph run every worker walks the nodes in order, waits for
 * a node's inputs, does the tiles it owns (a contiguous part, the same every step) and then whole tiles that others
 * have not begun; so whatever a worker waits for is already in somebody's hands, and no run can lock up.
 *
 * A worker that waits for longer than the patience says on standard error, once a run, who waits for what, and goes on
 * waiting. */
#ifndef DAY0_EXEC_RUNNER_H
#define DAY0_EXEC_RUNNER_H

#include "exec/plan.h"
#include "exec/recorder.h"
#include "exec/team.h"

enum exec_mode { EXEC_GRAPH, EXEC_EAGER };

struct runner {
    struct team *team;             /* borrowed */
    const struct kernels *kernels; /* borrowed */
    enum exec_mode mode;
    /* For the owner to change between runs. */
    bool early_start;          /* who must wait has its first weights fetched meanwhile (plan_node.ahead) */
    bool streams;              /* a node waits for what it needs; false: for all nodes before it, too */
    double patience_seconds;   /* until a wait is reported */
    struct recorder *recorder; /* borrowed; NULL: nothing is recorded */

    char *progress; /* [nodes_max] counters, see runner.c */
    size_t progress_stride;
    char *workspace, *scratch;
    size_t scratch_bytes;
    uint32_t nodes_max;
    struct arena arena;
};

/* Makes room for plans of up to the given sizes, with streams, and a patience of half a minute. Owns its memory until
 * runner_fini. */
NEEDS_CHECK enum status runner_init(struct runner *runner, struct team *team, const struct kernels *kernels,
                                    enum exec_mode mode, uint32_t nodes_max, size_t workspace_bytes,
                                    size_t scratch_bytes, struct error *err);
void runner_fini(struct runner *runner);

/* Runs the plan once with the parameter block `step`. Allocates nothing. */
void runner_run(struct runner *runner, const struct plan *plan, const void *step);

#endif
