#include "exec/probe.h"

#include "base/clock.h"

static const double seconds_max = 0.25;

struct probe {
    struct unit_loop loop;
    volatile float seed, sink[TEAM_THREADS_MAX];
};

static void probe_part(void *context, unsigned worker)
{
    struct probe *probe = context;
    probe->sink[worker] = probe->loop.run(probe->seed);
}

double probe_unit(struct team *team, enum unit unit, unsigned tiers)
{
    struct probe probe = {.loop = units_loop(unit, tiers), .seed = 0.5f};
    double best = 0, started = clock_seconds(), before, now = started;
    if (!probe.loop.run)
        return 0;
    do {
        before = now;
        team_run(team, probe_part, &probe);
        now = clock_seconds();
        double rate = 1e-9 * team_size(team) * probe.loop.operations / (now - before);
        best = rate > best ? rate : best;
    } while (now - started < seconds_max);
    return best;
}
