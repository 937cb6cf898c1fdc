#include "ops/kda.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* Tokens that a tile holds in scratch at a time: enough to keep a state slice in L1 over many of them. */
enum { KDA_TOKENS = 32, KDA_TAPS_MAX = 8 };

/* The scratch of a tile: KDA_TOKENS rows of each, all with the same stride. */
struct kda_scratch {
    float *q, *k, *v, *decay, *o, *u, *beta;
    size_t stride;
};

static struct kda_scratch scratch_of(const struct plan_context *context, const struct kda_op *op)
{
    size_t stride = arena_cost(op->head_dim * sizeof(float)) / sizeof(float);
    float *at = (float *)(void *)context->scratch;
    struct kda_scratch s = {.stride = stride};
    float **parts[] = {&s.q, &s.k, &s.v, &s.decay, &s.o, &s.u, &s.beta};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++, at += KDA_TOKENS * stride)
        *parts[i] = at;
    return s;
}

/* The input of one convolution at `token` of the span, counted from its first row; negative: from the tail. */
static const float *conv_input(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                               struct buffer buffer, uint32_t which, int64_t token, uint32_t head)
{
    size_t inner = (size_t)op->n_heads * op->head_dim, column = (size_t)head * op->head_dim;
    if (token >= 0)
        return buffer_row(context, buffer, span->first_row + (size_t)token) + column;
    const float *tail = sequence_conv(span->sequence, op->layer);
    return tail + ((size_t)(token + op->taps - 1) * 3 + which) * inner + column;
}

static void convolve(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                     struct buffer buffer, uint32_t which, const float *w, int64_t token, uint32_t head, float *out)
{
    const float *inputs[KDA_TAPS_MAX];
    for (uint32_t j = 0; j < op->taps; j++)
        inputs[j] = conv_input(context, op, span, buffer, which, token - (op->taps - 1) + j, head);
    context->kernels->conv_silu_f32(out, inputs, w + (size_t)head * op->head_dim, (size_t)op->n_heads * op->head_dim,
                                    op->taps, op->head_dim);
}

/* Queries, keys, values, decays and write strengths of `n` tokens from `first`. */
static void prepare(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                    uint32_t head, uint32_t first, uint32_t n, const struct kda_scratch *s)
{
    const struct kernels *kernels = context->kernels;
    size_t dim = op->head_dim, column = (size_t)head * dim;
    float scale = 1.0f / sqrtf((float)dim);
    for (uint32_t i = 0; i < n; i++) {
        size_t at = i * s->stride, row = (size_t)span->first_row + first + i;
        convolve(context, op, span, op->q, 0, op->conv_q, (int64_t)first + i, head, s->q + at);
        convolve(context, op, span, op->k, 1, op->conv_k, (int64_t)first + i, head, s->k + at);
        convolve(context, op, span, op->v, 2, op->conv_v, (int64_t)first + i, head, s->v + at);
        kernels->l2_norm_f32(s->q + at, s->q + at, dim, 1e-6f, scale);
        kernels->l2_norm_f32(s->k + at, s->k + at, dim, 1e-6f, 1.0f);
        const float *f = buffer_row(context, op->f, row) + column;
        if (op->bounded_decay)
            kernels->decay_bounded_f32(s->decay + at, f, op->dt_bias + column, dim, op->rate[head], op->decay_bound);
        else
            kernels->decay_softplus_f32(s->decay + at, f, op->dt_bias + column, dim, op->rate[head]);
        s->beta[i] = buffer_row(context, op->b, row)[head];
    }
    kernels->sigmoid_f32(s->beta, s->beta, n);
}

/* Output norm, output gate, and out of the tile. */
static void finish(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                   uint32_t head, uint32_t first, uint32_t n, const struct kda_scratch *s)
{
    size_t dim = op->head_dim, column = (size_t)head * dim;
    for (uint32_t i = 0; i < n; i++) {
        size_t row = (size_t)span->first_row + first + i;
        float *o = s->o + i * s->stride;
        context->kernels->rms_norm_f32(o, o, op->o_norm, dim, op->eps);
        context->kernels->sigmoid_mul_f32(buffer_row(context, op->out, row) + column, o,
                                          buffer_row(context, op->g, row) + column, dim);
    }
}

/* The last taps - 1 inputs of the span become the tail. Ascending order: what a move overwrites was moved before. */
static void keep_tail(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                      uint32_t head)
{
    const struct buffer buffers[3] = {op->q, op->k, op->v};
    size_t inner = (size_t)op->n_heads * op->head_dim, column = (size_t)head * op->head_dim;
    float *tail = sequence_conv(span->sequence, op->layer);
    for (uint32_t j = 0; j + 1 < op->taps; j++)
        for (uint32_t which = 0; which < 3; which++) {
            int64_t token = (int64_t)span->n_rows - (op->taps - 1) + j;
            const float *source = conv_input(context, op, span, buffers[which], which, token, head);
            memcpy(tail + ((size_t)j * 3 + which) * inner + column, source, op->head_dim * sizeof(float));
        }
}

static void run_kda(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct kda_op *op = args;
    const struct step_span *span = &step_of(context)->spans[tile / op->n_heads];
    uint32_t head = tile % op->n_heads;
    struct kda_scratch s = scratch_of(context, op);
    float *state = sequence_kda(span->sequence, op->layer, head);
    for (uint32_t first = 0; first < span->n_rows; first += KDA_TOKENS) {
        uint32_t n = span->n_rows - first < KDA_TOKENS ? span->n_rows - first : KDA_TOKENS;
        prepare(context, op, span, head, first, n, &s);
        context->kernels->kda_f32(s.o, s.u, state, s.q, s.k, s.v, s.decay, s.beta, n, s.stride, op->head_dim,
                                  op->head_dim);
        finish(context, op, span, head, first, n, &s);
    }
    keep_tail(context, op, span, head);
}

static uint32_t tiles_kda(const struct plan_context *context, const void *args)
{
    return step_of(context)->n_spans * ((const struct kda_op *)args)->n_heads;
}

void op_kda(struct plan *plan, const struct kda_op *op)
{
    CHECK(op->taps >= 1 && op->taps <= KDA_TAPS_MAX);
    struct kda_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    plan_scratch(plan, 7 * KDA_TOKENS * arena_cost(op->head_dim * sizeof(float)));
    plan_add(plan,
             (struct plan_node){.label = "kda.heads", .stream = "main", .run = run_kda, .tiles = tiles_kda, .args = a},
             buffer_bit(op->q) | buffer_bit(op->k) | buffer_bit(op->v) | buffer_bit(op->f) | buffer_bit(op->b) |
                 buffer_bit(op->g),
             buffer_bit(op->out) | (uint64_t)1 << op->state);
}
