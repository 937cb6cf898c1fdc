/* What this machine can do at best with the threads of a team: the rates that measured speeds are set against.
 *
 * Both run for some tenths of a second and give the best of several tries, so that a busy machine disturbs them little. */
#ifndef DAY0_EXEC_RATES_H
#define DAY0_EXEC_RATES_H

#include <stdint.h>

#include "exec/team.h"

enum { RATES_READ_BYTES = 1 << 30 }; /* more than any cache holds */

/* Reading a buffer of `bytes`, each thread its own part, in 1e9 bytes a second; 0 if there is no room for it. */
double rates_read_gb_s(struct team *team, uint64_t bytes);

/* Fused multiply-adds of float32 in registers, two operations each, on the machine's strongest tier, in 1e9 a second. */
double rates_f32_gflop_s(struct team *team);

#endif
