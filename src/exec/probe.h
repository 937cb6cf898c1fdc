/* What the arithmetic units of this machine can do with the threads of a team: rates that measured speeds are set
 * against, beside the bandwidth of memory (bandwidth.h). The best of many short tries counts, so that a busy machine
 * disturbs it little. */
#ifndef DAY0_EXEC_PROBE_H
#define DAY0_EXEC_PROBE_H

#include "cpu/units.h"
#include "exec/team.h"

/* In 1e9 operations a second, a multiply-add being two, for the strongest of `tiers`; 0 if they have no such unit.
 * Takes a fifth of a second. */
double probe_unit(struct team *team, enum unit unit, unsigned tiers);

#endif
