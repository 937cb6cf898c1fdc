#include "state/snapshot.h"

#include <string.h>

static uint32_t index_blocks(uint32_t length)
{
    return (length + INDEX_BLOCK_KEYS - 1) / INDEX_BLOCK_KEYS;
}

uint64_t snapshot_bytes(const struct state_layout *layout, uint32_t length)
{
    uint64_t bytes = layout_recurrent_bytes(layout);
    for (uint32_t m = 0; m < layout->n_mla; m++)
        bytes += (uint64_t)length * layout->latent_row_bytes +
                 (uint64_t)index_blocks(length) * layout->mla[m].index_block_bytes;
    return bytes;
}

/* Visits all parts in order, page by page. */
static enum status visit(const struct sequence *s, uint32_t length, snapshot_part_fn *part, void *context,
                         struct error *err)
{
    const struct state_layout *layout = s->layout;
    size_t kda = layout->n_kda * layout->kda_heads * layout->head_state_floats * sizeof(float);
    TRY(part(context, s->kda, kda, err));
    TRY(part(context, s->conv, layout->n_kda * layout->conv_floats * sizeof(float), err));
    for (uint32_t m = 0; m < layout->n_mla; m++)
        for (uint32_t first = 0; first < length; first += PAGE_TOKENS) {
            uint32_t n = length - first < PAGE_TOKENS ? length - first : PAGE_TOKENS;
            TRY(part(context, sequence_latent(s, m, first), n * layout->latent_row_bytes, err));
            TRY(part(context, sequence_index_block(s, m, first), index_blocks(n) * layout->mla[m].index_block_bytes,
                     err));
        }
    return STATUS_OK;
}

enum status snapshot_write(const struct sequence *sequence, snapshot_part_fn *take, void *context, struct error *err)
{
    return visit(sequence, sequence->length, take, context, err);
}

enum status snapshot_read(struct sequence *sequence, uint32_t length, snapshot_part_fn *fill, void *context,
                          struct error *err)
{
    sequence_reset(sequence);
    TRY(sequence_reserve(sequence, length, err));
    enum status status = visit(sequence, length, fill, context, err);
    if (status != STATUS_OK) {
        sequence_reset(sequence);
        return status;
    }
    sequence->length = sequence->base = length;
    if (sequence->kda_base)
        memcpy(sequence->kda_base, sequence->kda,
               sequence->layout->n_kda * sequence->layout->kda_heads * sequence->layout->head_state_floats *
                   sizeof(float));
    return STATUS_OK;
}
