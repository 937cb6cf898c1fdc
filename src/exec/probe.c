#include "exec/probe.h"

#include "base/clock.h"

static const double seconds_max = 0.2;
enum { RUNS = 16 }; /* of the loop, while all others do the same */

struct probe {
    struct unit_loop loop;
    volatile float seed;
    struct worker {
        double best_s;
        volatile float sink;
        char padding[48];
    } workers[TEAM_THREADS_MAX];
};

/* Each worker times its own runs: on a busy machine all of them are seldom left alone at once. */
static void probe_part(void *context, unsigned worker)
{
    struct probe *probe = context;
    struct worker *mine = &probe->workers[worker];
    for (int i = 0; i < RUNS; i++) {
        double start = clock_seconds();
        mine->sink = probe->loop.run(probe->seed);
        double seconds = clock_seconds() - start;
        mine->best_s = mine->best_s == 0 || seconds < mine->best_s ? seconds : mine->best_s;
    }
}

double probe_unit(struct team *team, enum unit unit, unsigned tiers)
{
    struct probe probe = {.loop = units_loop(unit, tiers), .seed = 0.5f};
    double started = clock_seconds(), rate = 0;
    if (!probe.loop.run)
        return 0;
    do
        team_run(team, probe_part, &probe);
    while (clock_seconds() - started < seconds_max);
    for (unsigned w = 0; w < team_size(team); w++)
        rate += 1e-9 * probe.loop.operations / probe.workers[w].best_s;
    return rate;
}
