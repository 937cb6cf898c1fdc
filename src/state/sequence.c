#include "state/sequence.h"

#include <string.h>

#include "base/check.h"

static size_t kda_bytes(const struct state_layout *layout)
{
    return layout->n_kda * layout->kda_heads * layout->head_state_floats * sizeof(float);
}

static size_t conv_bytes(const struct state_layout *layout)
{
    return layout->n_kda * layout->conv_floats * sizeof(float);
}

static size_t ring_bytes(const struct state_layout *layout)
{
    return layout->n_kda * layout->ring_floats * sizeof(float);
}

static uint32_t pages_for(uint32_t tokens)
{
    return (uint32_t)(((uint64_t)tokens + PAGE_TOKENS - 1) / PAGE_TOKENS);
}

static size_t table_bytes(uint32_t length_max)
{
    return pages_for(length_max) * sizeof(uint32_t);
}

size_t sequence_bytes(const struct state_layout *layout, uint32_t length_max)
{
    return arena_cost(table_bytes(length_max)) + (1 + layout->rewinds) * arena_cost(kda_bytes(layout)) +
           arena_cost(conv_bytes(layout)) + arena_cost(ring_bytes(layout));
}

enum status sequence_init(struct sequence *sequence, const struct state_layout *layout, struct pages *pages,
                          uint32_t length_max, struct error *err)
{
    *sequence = (struct sequence){.layout = layout, .pages = pages, .length_max = length_max};
    TRY(arena_init(&sequence->arena, sequence_bytes(layout, length_max), "a sequence", err));
    sequence->page_table = arena_take(&sequence->arena, table_bytes(length_max));
    sequence->kda = arena_take(&sequence->arena, kda_bytes(layout));
    sequence->conv = arena_take(&sequence->arena, conv_bytes(layout));
    if (layout->rewinds)
        sequence->kda_base = arena_take(&sequence->arena, kda_bytes(layout));
    sequence->ring = arena_take(&sequence->arena, ring_bytes(layout));
    return STATUS_OK;
}

static void give_pages(struct sequence *sequence)
{
    for (uint32_t i = 0; i < sequence->n_pages; i++)
        pages_give(sequence->pages, sequence->page_table[i]);
    sequence->n_pages = 0;
    sequence->length = 0;
    sequence->base = 0;
}

void sequence_fini(struct sequence *sequence)
{
    give_pages(sequence);
    arena_fini(&sequence->arena);
}

void sequence_reset(struct sequence *sequence)
{
    give_pages(sequence);
    memset(sequence->kda, 0, kda_bytes(sequence->layout));
    memset(sequence->conv, 0, conv_bytes(sequence->layout));
    if (sequence->kda_base)
        memset(sequence->kda_base, 0, kda_bytes(sequence->layout));
}

void sequence_copy(struct sequence *sequence, const struct sequence *source)
{
    CHECK(sequence != source && sequence->layout == source->layout && sequence->pages == source->pages);
    CHECK(sequence->length_max >= source->length);
    give_pages(sequence);
    /* Pages past the length were reserved and not used: shared, they would be written by both. */
    uint32_t n_pages = source->n_pages ? pages_for(source->length) : 0;
    for (uint32_t i = 0; i < n_pages; i++)
        pages_share(source->pages, source->page_table[i]);
    memcpy(sequence->page_table, source->page_table, n_pages * sizeof(uint32_t));
    memcpy(sequence->kda, source->kda, kda_bytes(source->layout));
    memcpy(sequence->conv, source->conv, conv_bytes(source->layout));
    if (source->kda_base)
        memcpy(sequence->kda_base, source->kda_base, kda_bytes(source->layout));
    memcpy(sequence->ring, source->ring, ring_bytes(source->layout));
    sequence->base = source->base;
    sequence->n_pages = n_pages;
    sequence->length = source->length;
}

void sequence_release(struct sequence *sequence)
{
    while (sequence->n_pages > pages_for(sequence->length))
        pages_give(sequence->pages, sequence->page_table[--sequence->n_pages]);
}

enum status sequence_reserve(struct sequence *sequence, uint32_t n, struct error *err)
{
    struct pages *pages = sequence->pages;
    if (n > sequence->length_max - sequence->length)
        return error_set(
            err, STATUS_ARGUMENT,
            "the context is %u tokens at most, %u are in it and %u more were to follow; ask for a longer one",
            sequence->length_max, sequence->length, n);
    if (sequence->layout->n_mla == 0) {
        return STATUS_OK;
    }
    uint32_t wanted = pages_for(sequence->length + n);
    /* Only the page of the next position can be partly full, so only it can be shared and about to be written. */
    uint32_t partial = sequence->length / PAGE_TOKENS;
    bool copies = partial < sequence->n_pages && pages->references[sequence->page_table[partial]] > 1;
    uint32_t missing = (wanted > sequence->n_pages ? wanted - sequence->n_pages : 0) + copies;
    if (missing > pages->n_free)
        return error_set(
            err, STATUS_MEMORY,
            "the cache is full: %u pages of %d tokens are needed, %u of %u are free; end another sequence or "
            "ask for a larger cache",
            missing, PAGE_TOKENS, pages->n_free, pages->n_pages);
    if (copies) {
        uint32_t mine = pages_take(pages), shared = sequence->page_table[partial];
        memcpy(pages_at(pages, mine), pages_at(pages, shared), pages->page_bytes);
        pages_give(pages, shared);
        sequence->page_table[partial] = mine;
    }
    while (sequence->n_pages < wanted)
        sequence->page_table[sequence->n_pages++] = pages_take(pages);
    return STATUS_OK;
}

void sequence_advance(struct sequence *sequence, uint32_t n)
{
    CHECK(n <= sequence->length_max - sequence->length);
    sequence->length += n;
    if (sequence->length - sequence->base > REWIND_TOKENS)
        sequence->base = sequence->length - REWIND_TOKENS;
}

void sequence_retreat(struct sequence *sequence, uint32_t n)
{
    CHECK(n <= sequence_rewindable(sequence));
    sequence->length -= n;
    sequence_release(sequence);
}
