/* What this machine can compute at best with the threads of a team: a rate that measured speeds are set against,
 * beside the bandwidth of memory (bandwidth.h). The best of several tries counts, so that a busy machine disturbs it
 * little. */
#ifndef DAY0_EXEC_PROBE_H
#define DAY0_EXEC_PROBE_H

#include "exec/team.h"

/* Multiply-adds of float32 in registers, two operations each, on the machine's strongest tier, in 1e9 a second. */
double probe_f32_gflop_s(struct team *team);

#endif
