#include "ops/mla.h"

#include <math.h>
#include <string.h>

#include "ops/linear.h"

static struct mla_op *keep(struct plan *plan, const struct mla_op *op)
{
    struct mla_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    return a;
}

/* Writes n values in the cache's element type. */
static void store(const struct kernels *kernels, void *out, const float *x, uint32_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
        memcpy(out, x, n * sizeof(float));
        return;
    }
    if (dtype == DTYPE_INT16) {
        kernels->quantize_int16_row(out, x, n);
        return;
    }
    uint16_t *half = out;
    for (uint32_t i = 0; i < n; i++)
        half[i] = bf16_from_f32(x[i]);
}

static void run_latents(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct mla_op *op = args;
    const struct kernels *kernels = context->kernels;
    const struct step *step = step_of(context);
    const struct sequence *sequence = step_row_span(step, row)->sequence;
    if (op->q_lora_rank > 0) {
        float *q_a = buffer_row(context, op->q_a, row);
        kernels->rms_norm_f32(q_a, q_a, op->q_a_norm, op->q_lora_rank, op->latent_eps);
    }
    float *kv = buffer_row(context, op->kv_a, row);
    kernels->rms_norm_f32(kv, kv, op->kv_a_norm, op->latent, op->latent_eps);
    store(kernels, sequence_latent(sequence, op->layer, step_row_position(step, row)), kv, mla_width(op),
          sequence->layout->latent_dtype);
}

void op_mla_latents(struct plan *plan, const struct mla_op *op)
{
    uint64_t writes = buffer_bit(op->kv_a) | (uint64_t)1 << op->cache;
    if (op->q_lora_rank > 0)
        writes |= buffer_bit(op->q_a);
    plan_add(plan,
             (struct plan_node){.label = "mla.latents",
                                .stream = "main",
                                .run = run_latents,
                                .tiles = step_tiles_rows,
                                .args = keep(plan, op)},
             0, writes);
}

/* One head's key part (rows nope) or value part (rows V) of kv_b. */
static struct matrix key_rows(const struct mla_op *op, uint32_t head)
{
    return matrix_rows(&op->kv_b_proj, head * (op->nope + op->v_dim), op->nope);
}

static struct matrix value_rows(const struct mla_op *op, uint32_t head)
{
    return matrix_rows(&op->kv_b_proj, head * (op->nope + op->v_dim) + op->nope, op->v_dim);
}

/* The head's queries in latent space, scaled: (W_key^T q_nope | q_rope) / sqrt(nope + rope). */
static void run_absorb(const struct plan_context *context, const void *args, uint32_t head)
{
    const struct mla_op *op = args;
    uint32_t n_rows = step_of(context)->n_rows, width = mla_width(op), query = op->nope + op->rope;
    float scale = 1.0f / sqrtf((float)query);
    struct matrix w = key_rows(op, head);
    linear_t_f32_fn *kernel = kernels_linear_t(context->kernels, w.dtype);
    for (uint32_t row = 0; row < n_rows; row += LINEAR_ROWS) {
        float *y[LINEAR_ROWS];
        const float *x[LINEAR_ROWS];
        uint32_t n = n_rows - row < LINEAR_ROWS ? n_rows - row : LINEAR_ROWS;
        for (uint32_t i = 0; i < n; i++) {
            y[i] = buffer_row(context, op->absorbed, row + i) + (size_t)head * width;
            x[i] = buffer_row(context, op->q, row + i) + (size_t)head * query;
        }
        kernel(y, x, &w, n);
        for (uint32_t i = 0; i < n; i++) {
            memcpy(y[i] + op->latent, x[i] + op->nope, op->rope * sizeof(float));
            for (uint32_t c = 0; c < width; c++)
                y[i][c] *= scale;
        }
    }
}

static uint32_t tiles_heads(const struct plan_context *context, const void *args)
{
    (void)context;
    return ((const struct mla_op *)args)->n_heads;
}

void op_mla_absorb(struct plan *plan, const struct mla_op *op)
{
    plan_add(
        plan,
        (struct plan_node){
            .label = "mla.absorb", .stream = "main", .run = run_absorb, .tiles = tiles_heads, .args = keep(plan, op)},
        buffer_bit(op->q), buffer_bit(op->absorbed));
}

static void run_output(const struct plan_context *context, const void *args, uint32_t head)
{
    const struct mla_op *op = args;
    uint32_t n_rows = step_of(context)->n_rows;
    struct matrix w = value_rows(op, head);
    for (uint32_t row = 0; row < n_rows; row += LINEAR_ROWS) {
        float *y[LINEAR_ROWS];
        const float *x[LINEAR_ROWS];
        uint32_t n = n_rows - row < LINEAR_ROWS ? n_rows - row : LINEAR_ROWS;
        for (uint32_t i = 0; i < n; i++) {
            y[i] = buffer_row(context, op->out, row + i) + (size_t)head * op->v_dim;
            x[i] = buffer_row(context, op->context, row + i) + (size_t)head * op->latent;
        }
        kernels_linear(context->kernels, w.dtype)(y, x, &w, n);
        for (uint32_t i = 0; op->output_gate && i < n; i++)
            context->kernels->sigmoid_mul_f32(
                y[i], y[i], buffer_row(context, op->g, row + i) + (size_t)head * op->v_dim, op->v_dim);
    }
}

void op_mla_output(struct plan *plan, const struct mla_op *op)
{
    uint64_t reads = buffer_bit(op->context) | (op->output_gate ? buffer_bit(op->g) : 0);
    plan_add(
        plan,
        (struct plan_node){
            .label = "mla.output", .stream = "main", .run = run_output, .tiles = tiles_heads, .args = keep(plan, op)},
        reads, buffer_bit(op->out));
}
