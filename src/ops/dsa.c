#include "ops/dsa.h"

#include <math.h>
#include <string.h>

#include "tensor/index_query.h"

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
    if (op->scan == SCAN_BOUNDS)
        kernels->index_query_s16(buffer_row(context, op->query, row), q, w, op->n_heads, op->head_dim);
}

uint32_t dsa_query_width(uint32_t n_heads, uint32_t head_dim)
{
    return (uint32_t)(index_query_bytes(n_heads, head_dim) / sizeof(float));
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
             0, buffer_bit(op->q) | buffer_bit(op->w) | (op->scan == SCAN_BOUNDS ? buffer_bit(op->query) : 0));
}
