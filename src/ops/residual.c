#include "ops/residual.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "ops/linear.h"

struct embed_args {
    struct buffer sum;
    struct matrix embedding;
};

struct slot_args {
    struct residual residual;
    struct residual_slot slot;
};

static void run_embed(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct embed_args *a = args;
    struct matrix source = matrix_rows(&a->embedding, (uint32_t)step_of(context)->tokens[row], 1);
    float *out = buffer_row(context, a->sum, row);
    const uint16_t *half = source.data;
    step_of(context)->bad_layers[row] = SOUND;
    switch (source.dtype) {
    case DTYPE_F32:
        memcpy(out, source.data, source.columns * sizeof(float));
        break;
    case DTYPE_BF16:
        for (uint32_t i = 0; i < source.columns; i++)
            out[i] = f32_from_bf16(half[i]);
        break;
    case DTYPE_F16:
        for (uint32_t i = 0; i < source.columns; i++)
            out[i] = f32_from_f16(half[i]);
        break;
    default:
        CHECK(!"an embedding of a plain type");
    }
}

void op_embed(struct plan *plan, struct buffer sum, const struct matrix *embedding)
{
    struct embed_args *a = plan_args(plan, sizeof *a);
    *a = (struct embed_args){sum, *embedding};
    plan_add(
        plan,
        (struct plan_node){.label = "embed", .stream = "main", .run = run_embed, .tiles = step_tiles_rows, .args = a},
        0, buffer_bit(sum));
}

static float inverse_rms(const struct kernels *kernels, const struct residual *r, const float *x)
{
    return 1.0f / sqrtf(kernels->dot_f32(x, x, r->width) / (float)r->width + r->eps);
}

static float score(const struct kernels *kernels, const struct residual *r, const float *x, const float *query)
{
    return kernels->dot_f32(x, query, r->width) * inverse_rms(kernels, r, x);
}

static void add_deltas(const struct plan_context *context, const struct slot_args *a, uint32_t row, float *sum)
{
    const struct residual_slot *slot = &a->slot;
    uint32_t width = a->residual.width;
    if (slot->n_deltas == 0)
        return;
    float *delta = buffer_row(context, slot->deltas[0], row);
    if (slot->n_deltas == 2)
        context->kernels->add_f32(delta, buffer_row(context, slot->deltas[1], row), width);
    if (slot->fresh)
        memcpy(sum, delta, width * sizeof(float));
    else
        context->kernels->add_f32(sum, delta, width);
}

/* Phase 2: the mixture of the closed blocks and the sum, in `out`. */
static void mix(const struct plan_context *context, const struct slot_args *a, uint32_t row, const float *sum,
                float *out)
{
    const struct residual *r = &a->residual;
    uint32_t n_blocks = a->slot.n_blocks;
    const float **candidates = (const float **)(void *)context->scratch;
    float *scores = (float *)(candidates + n_blocks + 1);
    const float *history = buffer_row(context, r->history, row), *inverse = buffer_row(context, r->inverse, row);
    const float *query = (const float *)r->queries.data + (size_t)a->slot.slot * r->width;
    for (uint32_t b = 0; b < n_blocks; b++) {
        candidates[b] = buffer_row(context, r->blocks, (size_t)b * r->rows + row);
        scores[b] = r->one_stage ? score(context->kernels, r, candidates[b], query)
                                 : history[b * r->n_slots + a->slot.slot] * inverse[b];
    }
    candidates[n_blocks] = sum;
    scores[n_blocks] = score(context->kernels, r, sum, query);
    context->kernels->softmax_f32(scores, scores, n_blocks + 1);
    context->kernels->weighted_sum_f32(out, candidates, scores, n_blocks + 1, r->width);
}

/* Notes the first slot that a sum comes to with something that is no number. */
static void watch(const struct plan_context *context, const struct residual *r, uint32_t slot, uint32_t row,
                  const float *sum)
{
    uint32_t *bad = &step_of(context)->bad_layers[row];
    if (*bad == SOUND && !isfinite(context->kernels->dot_f32(sum, sum, r->width)))
        *bad = slot / 2;
}

static void run_slot(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct slot_args *a = args;
    const struct residual *r = &a->residual;
    const struct residual_slot *slot = &a->slot;
    const struct step *step = step_of(context);
    uint32_t row = slot->logit_rows ? step->logit_rows[tile] : tile;
    float *sum = buffer_row(context, r->sum, row);
    float *tap = slot->tap == TAP_NONE || !step->taps
                     ? NULL
                     : step->taps + ((size_t)row * slot->n_taps + slot->tap_index) * r->width;
    add_deltas(context, a, row, sum);
    if (tap && slot->tap == TAP_SUM)
        memcpy(tap, sum, r->width * sizeof(float));
    if (slot->norm) {
        float *x = buffer_row(context, slot->x, tile);
        const float *h = sum;
        if (slot->n_blocks > 0) {
            mix(context, a, row, sum, x);
            h = x;
        }
        if (tap && slot->tap == TAP_MIXTURE)
            memcpy(tap, h, r->width * sizeof(float));
        if (!r->norm_apart)
            context->kernels->rms_norm_f32(x, h, slot->norm, r->width, r->eps);
        else if (h != x)
            memcpy(x, h, r->width * sizeof(float));
        watch(context, r, slot->slot, row, sum);
    }
    if (slot->closes) {
        memcpy(buffer_row(context, r->blocks, (size_t)slot->n_blocks * r->rows + row), sum, r->width * sizeof(float));
        buffer_row(context, r->inverse, row)[slot->n_blocks] = inverse_rms(context->kernels, r, sum);
    }
}

static void run_norm(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct slot_args *a = args;
    float *x = buffer_row(context, a->slot.x, tile);
    context->kernels->rms_norm_f32(x, x, a->slot.norm, a->residual.width, a->residual.eps);
}

static uint32_t tiles_slot(const struct plan_context *context, const void *args)
{
    const struct slot_args *a = args;
    return a->slot.logit_rows ? step_of(context)->n_logit_rows : step_of(context)->n_rows;
}

/* Phase 1: the block that slot `s` closed meets the queries of all slots after it. */
static void add_history(struct plan *plan, const struct residual *r, const struct residual_slot *s, unsigned n_threads)
{
    struct buffer block = r->blocks;
    block.offset += (size_t)s->n_blocks * r->rows * r->blocks.stride * sizeof(float);
    struct linear_part part = {.w = matrix_rows(&r->queries, s->slot + 1, r->n_slots - s->slot - 1),
                               .y = r->history,
                               .y_column = s->n_blocks * r->n_slots + s->slot + 1};
    struct inputs inputs = inputs_of(ACT_EXACT, block, r->rows, 1);
    op_linear(plan, "residual.history", "history", &inputs, &part, 1, n_threads);
}

void op_slot(struct plan *plan, const struct residual *residual, const struct residual_slot *slot, unsigned n_threads)
{
    CHECK(!slot->fresh || slot->n_deltas > 0);
    CHECK(!(slot->closes && slot->logit_rows));
    struct slot_args *a = plan_args(plan, sizeof *a);
    *a = (struct slot_args){*residual, *slot};
    uint64_t reads = 0, writes = buffer_bit(residual->sum);
    if (slot->norm)
        writes |= buffer_bit(slot->x);
    for (uint32_t d = 0; d < slot->n_deltas; d++)
        writes |= buffer_bit(slot->deltas[d]);
    if (slot->n_blocks > 0) {
        reads |= buffer_bit(residual->blocks) | buffer_bit(residual->inverse) | buffer_bit(residual->history);
        plan_scratch(plan, (slot->n_blocks + 1) * (sizeof(float *) + sizeof(float)));
    }
    if (slot->closes)
        writes |= buffer_bit(residual->blocks) | buffer_bit(residual->inverse);
    plan_add(
        plan,
        (struct plan_node){.label = "residual.slot", .stream = "main", .run = run_slot, .tiles = tiles_slot, .args = a},
        reads & ~writes, writes);
    if (slot->norm && residual->norm_apart)
        plan_add(plan,
                 (struct plan_node){
                     .label = "residual.norm", .stream = "main", .run = run_norm, .tiles = tiles_slot, .args = a},
                 0, buffer_bit(slot->x));
    if (slot->closes && !residual->one_stage)
        add_history(plan, residual, slot, n_threads);
}
