/* A sequence: everything the model remembers of one text. Tokens are only ever added at its end. */
#ifndef DAY0_STATE_SEQUENCE_H
#define DAY0_STATE_SEQUENCE_H

#include <stdbool.h>

#include "state/layout.h"
#include "state/pages.h"

struct sequence {
    const struct state_layout *layout; /* borrowed */
    struct pages *pages;               /* borrowed */
    uint32_t length;                   /* tokens fed */
    uint32_t length_max;
    uint32_t n_pages;
    uint32_t *page_table; /* [length_max / PAGE_TOKENS, rounded up] */
    float *kda;           /* [n_kda][heads][head_state_floats] */
    float *conv;          /* [n_kda][conv_floats] */
    uint32_t base;        /* rewinding: records of positions base to length - 1 are in the ring; length if none */
    float *kda_base;      /* like kda, the state before position base; NULL without rewinding */
    float *ring;          /* [n_kda][ring_floats], position p in row p % REWIND_TOKENS */
    struct arena arena;
};

/* An empty sequence of up to length_max tokens. Owns its memory and its references to pages until sequence_fini, which
 * may be called twice. */
NEEDS_CHECK enum status sequence_init(struct sequence *sequence, const struct state_layout *layout, struct pages *pages,
                                      uint32_t length_max, struct error *err);
void sequence_fini(struct sequence *sequence);

/* Bytes that a sequence takes besides its pages. */
size_t sequence_bytes(const struct state_layout *layout, uint32_t length_max);

/* Makes `sequence` (initialized, any content) a copy of `source`: pages are shared, the recurrent state is copied. */
void sequence_copy(struct sequence *sequence, const struct sequence *source);

/* Back to the empty text. */
void sequence_reset(struct sequence *sequence);

/* Makes sure that the next `n` positions have pages that no other sequence sees; changes nothing if it fails, which it
 * does past length_max and when the pool is empty. */
NEEDS_CHECK enum status sequence_reserve(struct sequence *sequence, uint32_t n, struct error *err);

/* Gives back the pages that were reserved past the length. */
void sequence_release(struct sequence *sequence);

/* The latent row of a position in full-attention layer `m`. */
static inline char *sequence_latent(const struct sequence *s, uint32_t m, uint32_t position)
{
    return pages_at(s->pages, s->page_table[position / PAGE_TOKENS]) + s->layout->mla[m].latent_offset +
           position % PAGE_TOKENS * s->layout->latent_row_bytes;
}

/* The block of index keys that holds a position; the position is key `position % INDEX_BLOCK_KEYS` of it. */
static inline char *sequence_index_block(const struct sequence *s, uint32_t m, uint32_t position)
{
    const struct mla_slot *slot = &s->layout->mla[m];
    return pages_at(s->pages, s->page_table[position / PAGE_TOKENS]) + slot->index_offset +
           position % PAGE_TOKENS / INDEX_BLOCK_KEYS * slot->index_block_bytes;
}

/* One head's state in KDA layer `k`. */
static inline float *sequence_kda(const struct sequence *s, uint32_t k, uint32_t head)
{
    return s->kda + ((size_t)k * s->layout->kda_heads + head) * s->layout->head_state_floats;
}

static inline float *sequence_kda_base(const struct sequence *s, uint32_t k, uint32_t head)
{
    return s->kda_base + ((size_t)k * s->layout->kda_heads + head) * s->layout->head_state_floats;
}

/* The convolution inputs of KDA layer `k` at `position`: [3][heads * head_dim], q, k, v. Positions before the text
 * (from -taps + 1) are rows of zeros. */
static inline float *sequence_conv(const struct sequence *s, uint32_t k, int64_t position)
{
    int64_t row = (position + s->layout->conv_rows) % s->layout->conv_rows;
    return s->conv + k * s->layout->conv_floats + (size_t)row * 3 * s->layout->kda_heads * s->layout->kda_head_dim;
}

/* The record of `position` in KDA layer `k`: [3][heads * head_dim], k, u, exp g. */
static inline float *sequence_record(const struct sequence *s, uint32_t k, uint32_t position)
{
    return s->ring + k * s->layout->ring_floats +
           (size_t)(position % REWIND_TOKENS) * 3 * s->layout->kda_heads * s->layout->kda_head_dim;
}

/* Tokens that can be undone now. */
static inline uint32_t sequence_rewindable(const struct sequence *s)
{
    return s->layout->rewinds || s->layout->n_kda == 0 ? s->length - s->base : 0;
}

/* Counts `n` new tokens in, after their step; and `n` tokens out, whose recurrent state the caller has undone: their
 * pages are given back. */
void sequence_advance(struct sequence *sequence, uint32_t n);
void sequence_retreat(struct sequence *sequence, uint32_t n);

#endif
