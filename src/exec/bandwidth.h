/* The machine's read bandwidth: how fast all threads together stream memory that no cache holds. A decoding
 * step reads every active weight once, so this number over those bytes is the speed that no engine can beat.
 */
#ifndef DAY0_EXEC_BANDWIDTH_H
#define DAY0_EXEC_BANDWIDTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "exec/team.h"

struct bandwidth {
    double gb_s;           /* in 1e9 bytes a second */
    uint64_t buffer_bytes; /* what was streamed */
    bool small_buffer;     /* too little memory or time for a buffer that no cache holds: the number may be too high */
};

/* Does: measures for about 2 s (4 s at most), over at least 1 GiB and four times the last-level caches, but no more
 * than a quarter of `memory_bytes` (0: unknown) and no more than can be touched in time.
 * Fails: not enough memory for the smallest buffer. */
NEEDS_CHECK enum status bandwidth_measure(struct bandwidth *out, struct team *team, uint64_t memory_bytes,
                                          struct error *err);

#endif
