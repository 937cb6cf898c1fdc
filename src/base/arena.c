#include "base/arena.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum status arena_init(struct arena *arena, size_t bytes, const char *purpose, struct error *err)
{
    *arena = (struct arena){0};
    bytes = arena_cost(bytes ? bytes : 1);
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return error_set(err, STATUS_MEMORY, "cannot reserve %.1f MB for %s: %s; lower the limits or free memory",
                         (double)bytes / 1e6, purpose, strerror(errno));
    madvise(start, bytes, MADV_HUGEPAGE);
    *arena = (struct arena){start, bytes, 0};
    return STATUS_OK;
}

void arena_fini(struct arena *arena)
{
    if (arena->start)
        munmap(arena->start, arena->capacity_bytes);
    *arena = (struct arena){0};
}

size_t arena_cost(size_t bytes)
{
    return (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

void *arena_take(struct arena *arena, size_t bytes)
{
    bytes = arena_cost(bytes);
    CHECK(bytes <= arena->capacity_bytes - arena->used_bytes);
    void *taken = arena->start + arena->used_bytes;
    arena->used_bytes += bytes;
    return taken;
}

enum status memory_take(void *pointer_out, size_t count, size_t size, const char *purpose, struct error *err)
{
    void *memory = size && count > SIZE_MAX / size ? NULL : calloc(count ? count : 1, size ? size : 1);
    memcpy(pointer_out, &memory, sizeof memory);
    if (!memory)
        return error_set(err, STATUS_MEMORY, "cannot allocate %.1f MB for %s; free memory and try again",
                         (double)count * (double)size / 1e6, purpose);
    return STATUS_OK;
}
