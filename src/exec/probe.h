/* The machine's read bandwidth: how fast all threads together stream memory that no cache holds. A decoding step reads
 * every active weight once, so this number over those bytes is the speed that no engine can beat. */
#ifndef DAY0_EXEC_PROBE_H
#define DAY0_EXEC_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "exec/team.h"

struct probe {
    double bandwidth_gb_s;
    uint64_t buffer_bytes; /* what was streamed; 0: the number was given by the environment */
    bool small_buffer;     /* too little memory was free for a buffer that no cache holds: the number may be too high */
    bool cached;           /* from an earlier run */
};

/* Does: gives the bandwidth of this machine with the team's threads: $DAY0_BANDWIDTH_GB_S if it is set, else the number of an
 * earlier run on this processor with as many threads, else measures for at most about 2 s and keeps the number in
 * $XDG_CACHE_HOME/day0 (~/.cache/day0). A cache that cannot be read or written is no error. Measurements with a small
 * buffer are not kept.
 * Fails: not enough memory for the smallest buffer. */
NEEDS_CHECK enum status probe_bandwidth(struct probe *probe, struct team *team, struct error *err);

#endif
