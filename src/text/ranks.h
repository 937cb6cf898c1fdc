/* The ranks of a tiktoken file: token bytes to rank and back. A rank is both the token's id and the order of
 * its merge.
 *
 * File     one line a token, base64(bytes) SPACE rank; empty lines and CR before LF are accepted. n lines
 *          hold the ranks 0 to n-1, each once, in any order; no token twice; every single byte is a token.
 * Threads  read-only once loaded. */
#ifndef DAY0_TEXT_RANKS_H
#define DAY0_TEXT_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/byte_buffer.h"

enum {
    RANKS_MAX = 1 << 24,
    RANKS_FILE_BYTES_MAX = 1 << 28,
    RANKS_TOKEN_BYTES_MAX = 1 << 16,
};

struct ranks_slot {
    uint32_t tag;          /* low half of the hash, so that a miss rarely touches the bytes */
    uint32_t rank_and_one; /* rank + 1; 0 is free */
};

struct ranks {
    char *bytes;       /* all tokens, in file order */
    uint32_t *starts;  /* [count] where a rank's bytes start */
    uint32_t *lengths; /* [count] */
    uint32_t count;
    uint32_t longest_bytes;
    struct ranks_slot *slots; /* open addressing, linear probing, at most half full */
    uint32_t slot_mask;
    int32_t byte_ranks[256];
};

/* Does     parses `data`, the contents of the file named `path` (for sentences only).
 * Owns     its memory until ranks_fini, which may be called on a zeroed struct; on failure it is already
 *          released.
 * Fails    STATUS_FORMAT with the line, STATUS_MEMORY. */
NEEDS_CHECK enum status ranks_init(struct ranks *ranks, const char *data, size_t bytes, const char *path,
                                   struct error *err);
void ranks_fini(struct ranks *ranks);

/* The rank of exactly these bytes, or -1. */
int32_t ranks_find(const struct ranks *ranks, const char *bytes, size_t count);

/* The bytes of a rank below `count`; borrowed until ranks_fini. */
struct byte_span ranks_bytes(const struct ranks *ranks, int32_t rank);

#endif
