/* What a sequence keeps, as sizes and offsets: computed once from the model's shapes.
 *
 * One page holds PAGE_TOKENS consecutive positions of every full-attention layer:
 *
 *     layer 0: latent rows [PAGE_TOKENS][latent_width]   index blocks [PAGE_TOKENS / 16][index_block_bytes]
 *     layer 1: ...
 *
 * A latent row is the normed latent (R values) followed by the shared key part (rope values), in `latent_dtype` (INT16:
 * a row of tensor/int16_row.h). An index block holds 16 keys side by side, as kernels/index.def lays them out. Layers
 * without an indexer have no index blocks.
 *
 * A KDA layer keeps, for each head, S [ceil(V / 16)][K][16] float32, and the last inputs of its three convolutions as
 * a ring over positions. Sequences that can be rewound also keep the state of some tokens ago and a ring of (k, u,
 * exp g) records of the tokens since: replaying all but the last of them undoes those, with the same bits as if they
 * had never been fed. */
#ifndef DAY0_STATE_LAYOUT_H
#define DAY0_STATE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* Rows of 16-bit integers are nearer to their values than BF16, and faster where products of integers are; like
 * ACT_DEFAULT a matter of the architecture, not of the tier. */
#ifdef __x86_64__
#define LATENT_DEFAULT DTYPE_INT16
#else
#define LATENT_DEFAULT DTYPE_BF16
#endif

enum {
    PAGE_TOKENS = 64,
    INDEX_BLOCK_KEYS = 16,
    REWIND_TOKENS = 16, /* R of law 4: how many tokens can be undone */
};

struct mla_slot {
    size_t latent_offset, index_offset; /* bytes from the start of a page */
    uint32_t index_dim;                 /* 0: no indexer in this layer */
    size_t index_block_bytes;
};

struct state_layout {
    enum dtype latent_dtype; /* INT16, BF16 or F32 */
    enum dtype index_dtype;  /* F32, BF16 or MXFP8 */
    uint32_t latent_width;
    size_t latent_row_bytes;
    uint32_t n_mla;
    struct mla_slot *mla; /* [n_mla]; owned by whoever owns the layout */
    size_t page_bytes;

    uint32_t n_kda, kda_heads, kda_head_dim, conv_taps;
    bool rewinds;             /* sequences keep what rewinding needs */
    size_t head_state_floats; /* of one head's S */
    uint32_t conv_rows;       /* positions whose inputs a layer keeps: position p lies in row p % conv_rows */
    size_t conv_floats;       /* of one layer: [conv_rows][3][heads * head_dim]; q, k, v */
    size_t ring_floats;       /* of one layer: [REWIND_TOKENS][3][heads * head_dim]; k, u, exp g; 0 without rewinding */
};

/* Bytes of one block of 16 index keys. */
size_t layout_index_block_bytes(enum dtype dtype, uint32_t dim);

/* Fills head_state_floats, conv_floats, ring_floats, latent_row_bytes, page_bytes and the offsets of mla[] from the
 * rest. */
void layout_complete(struct state_layout *layout);

/* Bytes of KDA state and convolution tails of one sequence, the ring left out. */
size_t layout_recurrent_bytes(const struct state_layout *layout);

#endif
