#include "lab/bench_state.h"

#include <string.h>

#include "base/check.h"
#include "tensor/int16_row.h"

static const float unit_rms = 1.7320508f, kda_size = 0.1f; /* half widths of uniform distributions */

static float uniform(struct rng *rng, float half_width)
{
    return half_width * (float)(2 * rng_uniform(rng) - 1);
}

static void fill_floats(float *out, size_t n, float half_width, struct rng *rng)
{
    for (size_t i = 0; i < n; i++)
        out[i] = uniform(rng, half_width);
}

/* A page's latents as rows of 16-bit integers. */
static void fill_int16(char *out, uint32_t width, struct rng *rng)
{
    int32_t most = (int32_t)(INT16_ROW_LENGTH / sqrtf((float)width)); /* so that no row is too long */
    for (int row = 0; row < PAGE_TOKENS; row++, out += int16_row_bytes(width)) {
        memset(out, 0, int16_row_bytes(width));
        int16_row_set_unit(out, width, unit_rms / (float)most);
        uint64_t bits = 0; /* four codes a draw: a deep context is gigabytes */
        for (uint32_t i = 0; i < width; i++, bits >>= 16) {
            bits = i % 4 ? bits : rng_next(rng);
            ((int16_t *)(void *)out)[i] = (int16_t)((int16_t)(uint16_t)bits * most / 32768);
        }
    }
}

/* `n` elements of a cache. */
static void fill_plain(char *out, size_t n, enum dtype dtype, struct rng *rng)
{
    if (dtype == DTYPE_F32) {
        fill_floats((float *)(void *)out, n, unit_rms, rng);
        return;
    }
    CHECK(dtype == DTYPE_BF16);
    uint64_t bits = 0; /* four values a draw: a deep context is gigabytes */
    for (size_t i = 0; i < n; i++, bits >>= 16) {
        bits = i % 4 ? bits : rng_next(rng);
        uint16_t value = bf16_from_f32((float)(int16_t)(uint16_t)bits * (unit_rms / 32768));
        memcpy(out + 2 * i, &value, sizeof value);
    }
}

/* Blocks of 16 MXFP8 keys: codes of every size, as quantizing makes them, every scale 2^-8. */
static void fill_mxfp8(char *out, const struct mla_slot *slot, struct rng *rng)
{
    size_t codes = (size_t)INDEX_BLOCK_KEYS * slot->index_dim;
    for (int block = 0; block < PAGE_TOKENS / INDEX_BLOCK_KEYS; block++, out += slot->index_block_bytes) {
        for (size_t i = 0; i < codes; i++) {
            uint8_t code = (uint8_t)rng_next(rng);
            out[i] = (char)((code & 0x7f) == 0x7f ? code ^ 1 : code); /* not NaN */
        }
        memset(out + codes, 127 - 8, slot->index_block_bytes - codes);
    }
}

static void fill_page(char *page, const struct state_layout *layout, struct rng *rng)
{
    for (uint32_t m = 0; m < layout->n_mla; m++) {
        const struct mla_slot *slot = &layout->mla[m];
        if (layout->latent_dtype == DTYPE_INT16)
            fill_int16(page + slot->latent_offset, layout->latent_width, rng);
        else
            fill_plain(page + slot->latent_offset, (size_t)PAGE_TOKENS * layout->latent_width, layout->latent_dtype,
                       rng);
        if (slot->index_dim == 0)
            continue;
        if (layout->index_dtype == DTYPE_MXFP8)
            fill_mxfp8(page + slot->index_offset, slot, rng);
        else
            fill_plain(page + slot->index_offset, (size_t)PAGE_TOKENS * slot->index_dim, layout->index_dtype, rng);
    }
}

enum status bench_state_fill(struct sequence *sequence, uint32_t length, struct rng *rng, struct error *err)
{
    const struct state_layout *layout = sequence->layout;
    sequence_reset(sequence);
    TRY(sequence_reserve(sequence, length, err));
    for (uint32_t i = 0; i < sequence->n_pages; i++)
        fill_page(pages_at(sequence->pages, sequence->page_table[i]), layout, rng);
    fill_floats(sequence->kda, layout->n_kda * layout->kda_heads * layout->head_state_floats, kda_size, rng);
    fill_floats(sequence->conv, layout->n_kda * layout->conv_floats, unit_rms, rng);
    sequence->length = sequence->base = length;
    return STATUS_OK;
}

void bench_state_shorten(struct sequence *sequence, uint32_t length)
{
    CHECK(length <= sequence->length);
    sequence->length = sequence->base = length;
}
