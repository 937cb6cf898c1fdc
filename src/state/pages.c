#include "state/pages.h"

#include "base/check.h"

enum status pages_init(struct pages *pages, size_t page_bytes, uint32_t n_pages, struct error *err)
{
    *pages = (struct pages){.page_bytes = page_bytes, .n_pages = n_pages, .n_free = n_pages};
    size_t table_bytes = n_pages * sizeof(uint32_t);
    TRY(arena_init(&pages->arena, arena_cost(n_pages * page_bytes) + 2 * arena_cost(table_bytes),
                   "the latent and index-key cache", err));
    pages->memory = arena_take(&pages->arena, n_pages * page_bytes);
    pages->references = arena_take(&pages->arena, table_bytes);
    pages->free_list = arena_take(&pages->arena, table_bytes);
    for (uint32_t i = 0; i < n_pages; i++)
        pages->free_list[i] = n_pages - 1 - i;
    return STATUS_OK;
}

void pages_fini(struct pages *pages)
{
    arena_fini(&pages->arena);
}

uint32_t pages_take(struct pages *pages)
{
    if (pages->n_free == 0)
        return PAGE_NONE;
    uint32_t page = pages->free_list[--pages->n_free];
    CHECK(pages->references[page] == 0);
    pages->references[page] = 1;
    return page;
}

void pages_share(struct pages *pages, uint32_t page)
{
    CHECK(page < pages->n_pages && pages->references[page] > 0 && pages->references[page] < UINT32_MAX);
    pages->references[page]++;
}

void pages_give(struct pages *pages, uint32_t page)
{
    CHECK(page < pages->n_pages && pages->references[page] > 0);
    if (--pages->references[page] == 0)
        pages->free_list[pages->n_free++] = page;
}
