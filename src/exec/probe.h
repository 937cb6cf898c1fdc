/* What this machine can do at best with the threads of a team: the rates that measured speeds are set
 * against.
 *
 * Both run for some tenths of a second and give the best of several tries, so that a busy machine disturbs
 * them little. */
#ifndef DAY0_EXEC_PROBE_H
#define DAY0_EXEC_PROBE_H

#include "exec/team.h"

/* Reading memory that no cache holds (1 GiB, each thread its own part), in 1e9 bytes a second; 0 if there
 * is no room for it. */
double probe_read_gb_s(struct team *team);

/* Fused multiply-adds of float32 in registers, two operations each, on the machine's strongest tier, in
 * 1e9 a second. */
double probe_f32_gflop_s(struct team *team);

#endif
