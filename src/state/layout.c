#include "state/layout.h"

#include "base/arena.h"
#include "base/check.h"
#include "tensor/int16_row.h"
#include "tensor/mx.h"

size_t layout_index_block_bytes(enum dtype dtype, uint32_t dim)
{
    if (dtype == DTYPE_MXFP8)
        return (size_t)INDEX_BLOCK_KEYS * (dim + dim / MX_BLOCK);
    return INDEX_BLOCK_KEYS * dtype_bytes(dtype, dim);
}

void layout_complete(struct state_layout *layout)
{
    enum dtype latent = layout->latent_dtype;
    CHECK(latent == DTYPE_F32 || latent == DTYPE_BF16 || latent == DTYPE_INT16);
    layout->latent_row_bytes =
        latent == DTYPE_INT16 ? int16_row_bytes(layout->latent_width) : dtype_bytes(latent, layout->latent_width);
    size_t offset = 0;
    for (uint32_t m = 0; m < layout->n_mla; m++) {
        struct mla_slot *slot = &layout->mla[m];
        slot->latent_offset = offset;
        offset += arena_cost(PAGE_TOKENS * layout->latent_row_bytes);
        slot->index_offset = offset;
        slot->index_block_bytes = layout_index_block_bytes(layout->index_dtype, slot->index_dim);
        offset += arena_cost(PAGE_TOKENS / INDEX_BLOCK_KEYS * slot->index_block_bytes);
    }
    layout->page_bytes = offset;
    size_t inner = (size_t)layout->kda_heads * layout->kda_head_dim;
    size_t slices = (layout->kda_head_dim + 15) / 16;
    layout->head_state_floats = slices * 16 * layout->kda_head_dim;
    /* Enough inputs for a convolution at the earliest position that a rewind leads to. */
    layout->conv_rows = REWIND_TOKENS + layout->conv_taps;
    layout->conv_floats = layout->conv_rows * 3 * inner;
    layout->ring_floats = layout->rewinds ? REWIND_TOKENS * 3 * inner : 0;
}

size_t layout_recurrent_bytes(const struct state_layout *layout)
{
    return layout->n_kda * sizeof(float) * (layout->kda_heads * layout->head_state_floats + layout->conv_floats);
}
