/* What a sequence keeps, as sizes and offsets: computed once from the model's shapes.
 *
 * One page holds PAGE_TOKENS consecutive positions of every full-attention layer:
 *
 *     layer 0: latent rows [PAGE_TOKENS][latent_width]   index blocks [PAGE_TOKENS / 16][index_block_bytes]
 *     layer 1: ...
 *
 * A latent row is the normed latent (R values) followed by the shared key part (rope values), in `latent_dtype`. An index
 * block holds 16 keys side by side, as kernels/index.def lays them out. Layers without an indexer have no index blocks.
 *
 * A KDA layer keeps, for each head, S [ceil(V / 16)][K][16] float32, the last taps - 1 inputs of its three convolutions,
 * and room for a ring of RING_TOKENS (k, u, exp g) records, from which a later step can replay or undo tokens. */
#ifndef DAY0_STATE_LAYOUT_H
#define DAY0_STATE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

enum {
    PAGE_TOKENS = 64,
    INDEX_BLOCK_KEYS = 16,
    RING_TOKENS = 16,
};

struct mla_slot {
    size_t latent_offset, index_offset; /* bytes from the start of a page */
    uint32_t index_dim;                 /* 0: no indexer in this layer */
    size_t index_block_bytes;
};

struct state_layout {
    enum dtype latent_dtype; /* F32 or BF16 */
    enum dtype index_dtype;  /* F32, BF16 or MXFP8 */
    uint32_t latent_width;
    size_t latent_row_bytes;
    uint32_t n_mla;
    struct mla_slot *mla; /* [n_mla]; owned by whoever owns the layout */
    size_t page_bytes;

    uint32_t n_kda, kda_heads, kda_head_dim, conv_taps;
    size_t head_state_floats; /* of one head's S */
    size_t conv_floats;       /* of one layer's tail: [taps - 1][3][heads * head_dim] */
    size_t ring_floats;       /* of one layer's ring: [RING_TOKENS][heads][3][head_dim] */
};

/* Bytes of one block of 16 index keys. */
size_t layout_index_block_bytes(enum dtype dtype, uint32_t dim);

/* Fills head_state_floats, conv_floats, ring_floats, latent_row_bytes, page_bytes and the offsets of mla[] from the rest. */
void layout_complete(struct state_layout *layout);

/* Bytes of KDA state and convolution tails of one sequence, the ring left out. */
size_t layout_recurrent_bytes(const struct state_layout *layout);

#endif
