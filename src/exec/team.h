/* A team of threads that stays alive: the caller is worker 0, the others spin briefly, then sleep, between runs.
 * The caller's stack must have room for kernels, 2 MB. */
#ifndef DAY0_EXEC_TEAM_H
#define DAY0_EXEC_TEAM_H

#include <stdbool.h>

#include "base/error.h"

enum { TEAM_THREADS_MAX = 256 };

struct team;

/* Starts n_threads - 1 threads; 0 asks for one thread a core (hwloc). Owns them until team_close (accepts NULL). */
NEEDS_CHECK enum status team_open(struct team **out, unsigned n_threads, struct error *err);
void team_close(struct team *team);

unsigned team_size(const struct team *team);

/* Runs function(context, worker) on every worker; returns when all have. Not reentrant. */
void team_run(struct team *team, void (*function)(void *context, unsigned worker), void *context);

/* One turn of waiting for another thread: a pause, or after many of them a nap, so that a crowded machine goes on; then
 * it gives true. `turns` counts from 0 and belongs to the caller. */
bool team_pause(unsigned *turns);

#endif
