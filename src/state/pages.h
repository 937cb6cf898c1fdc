/* A pool of reference-counted pages: the paged cache of latents and index keys. All pages of a sequence's page table
 * come from here; sequences that share a prefix share its pages. One thread owns the pool: steps only read and fill
 * pages. */
#ifndef DAY0_STATE_PAGES_H
#define DAY0_STATE_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum { PAGE_NONE = UINT32_MAX };

struct pages {
    char *memory;
    size_t page_bytes;
    uint32_t n_pages, n_free;
    uint32_t *references; /* [n_pages] */
    uint32_t *free_list;  /* [n_pages], the first n_free are free */
    struct arena arena;
};

/* A pool of n_pages pages. Address space only: a page costs memory from its first use on. */
NEEDS_CHECK enum status pages_init(struct pages *pages, size_t page_bytes, uint32_t n_pages, struct error *err);
void pages_fini(struct pages *pages);

/* A page with one reference, or PAGE_NONE if none is free. Its contents are not defined. */
uint32_t pages_take(struct pages *pages);
/* One reference more, one less; the last one frees the page. */
void pages_share(struct pages *pages, uint32_t page);
void pages_give(struct pages *pages, uint32_t page);

static inline char *pages_at(const struct pages *pages, uint32_t page)
{
    return pages->memory + page * pages->page_bytes;
}

#endif
