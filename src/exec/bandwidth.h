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
    uint64_t buffer_bytes; /* what was streamed; 0: the number was given by the environment */
    bool small_buffer;     /* too little memory or time for a buffer that no cache holds: the number may be too high */
    bool cached;           /* from an earlier run */
};

/* Does: measures for about 2 s, over at least 1 GiB and four times the last-level caches, but no more than a
 * quarter of `memory_bytes` (0: unknown) and no more than can be touched in time.
 * Fails: not enough memory for the smallest buffer. */
NEEDS_CHECK enum status bandwidth_measure(struct bandwidth *out, struct team *team, uint64_t memory_bytes,
                                          struct error *err);

/* Does: gives the number of an earlier run on this processor with as many threads, else measures and keeps
 * the number as a file in `folder` (made if its parent is there; NULL: nothing is kept). A file that cannot
 * be read or written is no error, a damaged one is as good as none; a number from a small buffer is not kept.
 * Fails: as bandwidth_measure. */
NEEDS_CHECK enum status bandwidth_get(struct bandwidth *out, struct team *team, const char *folder,
                                      uint64_t memory_bytes, struct error *err);

/* Whether a number can be a machine's bandwidth at all. */
bool bandwidth_believable(double gb_s);

#endif
