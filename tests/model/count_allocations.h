/* Counts what a test program allocates, for law 9: malloc and its family stand in front of the C library's. Included by
 * one file of a test, which reads `allocations`. */
#ifndef DAY0_TESTS_COUNT_ALLOCATIONS_H
#define DAY0_TESTS_COUNT_ALLOCATIONS_H

#include <stdlib.h>

static _Atomic unsigned long allocations;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1

/* Visible, so that what the C library allocates for itself is counted too. */
#define COUNTED __attribute__((visibility("default")))
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
COUNTED void *malloc(size_t bytes);
COUNTED void *calloc(size_t count, size_t bytes);
COUNTED void *realloc(void *old, size_t bytes);
COUNTED void *aligned_alloc(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    allocations++;
    return __libc_memalign(alignment, bytes);
}
#endif

#endif
