/* The special tokens of a tokenizer: names for the ids above the ranks, from `added_tokens_decoder` of
 * tokenizer_config.json. An id without a name there is `<|reserved_token_{id}|>`, up to the largest id the
 * file names. */
#ifndef DAY0_TEXT_SPECIALS_H
#define DAY0_TEXT_SPECIALS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/byte_buffer.h"

enum {
    SPECIALS_MAX = 4096,
    SPECIALS_NAME_BYTES_MAX = 256,
    SPECIALS_FILE_BYTES_MAX = 1 << 24,
};

struct specials {
    char **names;  /* [count], terminated */
    int32_t first; /* the id of names[0]: one above the last rank */
    int32_t count;
};

/* Does     parses `json`, the contents of the file named `path` (for sentences only); `first` is the number
 *          of ranks.
 * Owns     its memory until specials_fini, which may be called on a zeroed struct; on failure it is already
 *          released.
 * Fails    STATUS_FORMAT, STATUS_MEMORY. */
NEEDS_CHECK enum status specials_init(struct specials *specials, const char *json, size_t bytes, int32_t first,
                                      const char *path, struct error *err);
void specials_fini(struct specials *specials);

/* The id of a name, or -1. */
int32_t specials_find(const struct specials *specials, const char *name);

#endif
