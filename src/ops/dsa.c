#include "ops/dsa.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "ops/select.h"

static const struct dsa_op *keep(struct plan *plan, const struct dsa_op *op)
{
    struct dsa_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    return a;
}

/* Writes one key into column `column` of its block, rounded to the cache's type. */
static void store_key(const struct plan_context *context, const struct dsa_op *op, char *block, uint32_t column,
                      enum dtype dtype, const float *key)
{
    uint32_t dim = op->head_dim;
    if (dtype == DTYPE_F32) {
        float *out = (float *)(void *)block;
        for (uint32_t d = 0; d < dim; d++)
            out[d * INDEX_BLOCK_KEYS + column] = key[d];
    } else if (dtype == DTYPE_BF16) {
        uint16_t *out = (uint16_t *)(void *)block;
        for (uint32_t d = 0; d < dim; d++)
            out[d * INDEX_BLOCK_KEYS + column] = bf16_from_f32(key[d]);
    } else {
        uint8_t *codes = (uint8_t *)context->scratch, *scales = codes + dim;
        context->kernels->quantize_mxfp8(codes, scales, key, dim, op->rule);
        uint8_t *out = (uint8_t *)block, *out_scales = out + (size_t)dim * INDEX_BLOCK_KEYS;
        for (uint32_t d = 0; d < dim; d++)
            out[d * INDEX_BLOCK_KEYS + column] = codes[d];
        for (uint32_t g = 0; g < dim / MX_BLOCK; g++)
            out_scales[g * INDEX_BLOCK_KEYS + column] = scales[g];
    }
}

static void run_keys(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct dsa_op *op = args;
    const struct step *step = step_of(context);
    const struct sequence *sequence = step_row_span(step, row)->sequence;
    uint32_t position = step_row_position(step, row);
    float *k = buffer_row(context, op->k, row);
    context->kernels->layer_norm_f32(k, k, op->k_norm_weight, op->k_norm_bias, op->head_dim, op->eps);
    store_key(context, op, sequence_index_block(sequence, op->layer, position), position % INDEX_BLOCK_KEYS,
              sequence->layout->index_dtype, k);
}

void op_dsa_keys(struct plan *plan, const struct dsa_op *op)
{
    plan_scratch(plan, op->head_dim + op->head_dim / MX_BLOCK);
    plan_add(plan,
             (struct plan_node){.label = "index.keys",
                                .stream = "index.keys",
                                .run = run_keys,
                                .tiles = step_tiles_rows,
                                .args = keep(plan, op)},
             0, buffer_bit(op->k) | (uint64_t)1 << op->cache);
}

static void run_queries(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct dsa_op *op = args;
    const struct kernels *kernels = context->kernels;
    size_t n = (size_t)op->n_heads * op->head_dim;
    float *q = buffer_row(context, op->q, row), *w = buffer_row(context, op->w, row);
    enum dtype dtype = step_row_span(step_of(context), row)->sequence->layout->index_dtype;
    if (dtype == DTYPE_BF16) {
        kernels->round_bf16_f32(q, q, n);
    } else if (dtype == DTYPE_MXFP8) {
        uint8_t *codes = (uint8_t *)context->scratch, *scales = codes + n;
        kernels->quantize_mxfp8(codes, scales, q, n, op->rule);
        kernels->dequantize_mxfp8(q, codes, scales, n);
    }
    float scale = 1.0f / sqrtf((float)op->n_heads) * (1.0f / sqrtf((float)op->head_dim));
    for (uint32_t h = 0; h < op->n_heads; h++)
        w[h] *= scale;
}

void op_dsa_queries(struct plan *plan, const struct dsa_op *op)
{
    size_t n = (size_t)op->n_heads * op->head_dim;
    plan_scratch(plan, n + n / MX_BLOCK);
    plan_add(plan,
             (struct plan_node){.label = "index.queries",
                                .stream = "index.queries",
                                .run = run_queries,
                                .tiles = step_tiles_rows,
                                .args = keep(plan, op)},
             0, buffer_bit(op->q) | buffer_bit(op->w));
}

static uint64_t *candidates_of(const struct plan_context *context, const struct dsa_op *op, uint32_t row,
                               uint32_t segment)
{
    return (uint64_t *)(void *)buffer_row(context, op->candidates, (size_t)row * op->n_segments + segment);
}

static uint32_t *n_candidates_of(const struct plan_context *context, const struct dsa_op *op, uint32_t row)
{
    return (uint32_t *)(void *)buffer_row(context, op->n_candidates, row);
}

/* Ranks that a scan collects before it keeps the best k of them. */
static size_t ranks_max(const struct dsa_op *op)
{
    size_t wanted = 4 * (size_t)op->topk;
    return (wanted < 1024 ? 1024 : wanted) + PAGE_TOKENS;
}

static index_scores_f32_fn *scores_kernel(const struct kernels *kernels, enum dtype dtype)
{
    return dtype == DTYPE_F32    ? kernels->index_scores_f32
           : dtype == DTYPE_BF16 ? kernels->index_scores_bf16
                                 : kernels->index_scores_mxfp8;
}

static void run_scan(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct dsa_op *op = args;
    const struct step *step = step_of(context);
    uint32_t row = tile / op->n_segments, segment = tile % op->n_segments;
    uint32_t n_keys = step_row_position(step, row) + 1;
    const struct sequence *sequence = step_row_span(step, row)->sequence;
    const struct state_layout *layout = sequence->layout;
    size_t block_bytes = layout->mla[op->layer].index_block_bytes;
    uint64_t *ranks = (uint64_t *)(void *)context->scratch, threshold = 0;
    const float *q = buffer_row(context, op->q, row), *w = buffer_row(context, op->w, row);
    index_scores_f32_fn *score = scores_kernel(context->kernels, layout->index_dtype);
    uint64_t pages = (n_keys + PAGE_TOKENS - 1) / PAGE_TOKENS;
    uint32_t first = (uint32_t)(segment * pages / op->n_segments) * PAGE_TOKENS;
    uint32_t end = (uint32_t)((segment + 1) * pages / op->n_segments) * PAGE_TOKENS;
    end = end < n_keys ? end : n_keys;
    size_t count = 0;
    if (n_keys <= op->topk)
        return;
    for (uint32_t at = first; at < end; at += PAGE_TOKENS) {
        float scores[PAGE_TOKENS];
        uint32_t n = end - at < PAGE_TOKENS ? end - at : PAGE_TOKENS;
        score(scores, q, w, sequence_index_block(sequence, op->layer, at), block_bytes,
              (n + INDEX_BLOCK_KEYS - 1) / INDEX_BLOCK_KEYS, op->n_heads, op->head_dim);
        count += context->kernels->index_filter(ranks + count, scores, n, at, threshold);
        if (count > ranks_max(op) - PAGE_TOKENS) {
            threshold = select_largest(ranks, count, op->topk);
            count = op->topk;
        }
    }
    if (count > op->topk) {
        select_largest(ranks, count, op->topk);
        count = op->topk;
    }
    memcpy(candidates_of(context, op, row, segment), ranks, count * sizeof *ranks);
    n_candidates_of(context, op, row)[segment] = (uint32_t)count;
}

static uint32_t tiles_scan(const struct plan_context *context, const void *args)
{
    return step_of(context)->n_rows * ((const struct dsa_op *)args)->n_segments;
}

void op_dsa_scan(struct plan *plan, const struct dsa_op *op)
{
    plan_scratch(plan, ranks_max(op) * sizeof(uint64_t));
    plan_add(
        plan,
        (struct plan_node){
            .label = "index.scan", .stream = "index", .run = run_scan, .tiles = tiles_scan, .args = keep(plan, op)},
        buffer_bit(op->q) | buffer_bit(op->w) | (uint64_t)1 << op->cache,
        buffer_bit(op->candidates) | buffer_bit(op->n_candidates));
}

static void run_choose(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct dsa_op *op = args;
    const struct step *step = step_of(context);
    uint32_t n_keys = step_row_position(step, row) + 1;
    uint32_t *selected = (uint32_t *)(void *)buffer_row(context, op->selected, row);
    size_t count = 0;
    if (n_keys <= op->topk) {
        for (; count < n_keys; count++)
            selected[count] = (uint32_t)count;
    } else {
        uint64_t *ranks = (uint64_t *)(void *)context->scratch;
        for (uint32_t s = 0; s < op->n_segments; s++) {
            uint32_t n = n_candidates_of(context, op, row)[s];
            memcpy(ranks + count, candidates_of(context, op, row, s), n * sizeof *ranks);
            count += n;
        }
        if (count > op->topk) {
            select_largest(ranks, count, op->topk);
            count = op->topk;
        }
        CHECK(count == op->topk);
        select_positions(selected, (uint32_t *)(void *)(ranks + (size_t)op->n_segments * op->topk), ranks, count);
    }
    *(uint32_t *)(void *)buffer_row(context, op->n_selected, row) = (uint32_t)count;
    if (step->selected) {
        size_t at = (size_t)op->ordinal * step->n_rows + row;
        memcpy(step->selected + at * op->topk, selected, count * sizeof *selected);
        step->n_selected[at] = (uint32_t)count;
    }
}

void op_dsa_choose(struct plan *plan, const struct dsa_op *op)
{
    plan_scratch(plan, op->topk * (op->n_segments * sizeof(uint64_t) + sizeof(uint32_t)));
    plan_add(plan,
             (struct plan_node){.label = "index.choose",
                                .stream = "index",
                                .run = run_choose,
                                .tiles = step_tiles_rows,
                                .args = keep(plan, op)},
             buffer_bit(op->candidates) | buffer_bit(op->n_candidates),
             buffer_bit(op->selected) | buffer_bit(op->n_selected));
}
