/* Arenas: one reservation, carved front to back, released as a whole. Engine, sequence and step memory each live in
 * one, so that after open nothing is allocated.
 *
 * The reservation is address space: pages cost memory only once they are touched. Fresh memory reads as zero. */
#ifndef DAY0_BASE_ARENA_H
#define DAY0_BASE_ARENA_H

#include <stddef.h>

#include "base/error.h"

enum { ARENA_ALIGNMENT = 64 };

struct arena {
    char *start;
    size_t capacity_bytes;
    size_t used_bytes;
};

/* Reserves `bytes`. Owns the mapping until arena_fini, which may be called twice and on a zeroed struct. */
NEEDS_CHECK enum status arena_init(struct arena *arena, size_t bytes, const char *purpose, struct error *err);
void arena_fini(struct arena *arena);

/* Takes `bytes`, aligned to ARENA_ALIGNMENT, zeroed. Running over the capacity is a bug: sizes are computed before. */
void *arena_take(struct arena *arena, size_t bytes);

/* The space arena_take(bytes) uses up. */
size_t arena_cost(size_t bytes);

/* calloc with an error sentence instead of NULL; `count` * `size` must not overflow. Free with free(). */
NEEDS_CHECK enum status memory_take(void *pointer_out, size_t count, size_t size, const char *purpose,
                                    struct error *err);

#endif
