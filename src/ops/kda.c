#include "ops/kda.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

enum { KDA_TAPS_MAX = 8 };

/* What a tile does: all, or one of them where the region is three nodes. */
enum stage { PREPARE = 1, RECUR = 2, FINISH = 4 };

/* What the stages of a tile hand on, for some tokens: rows with the same stride. */
struct kda_scratch {
    float *q, *k, *v, *decay, *o, *u, *beta;
    size_t stride;
};

/* The rows of tokens from `first` on. */
static struct kda_scratch rows_of(const struct plan_context *context, const struct kda_op *op,
                                  const struct step_span *span, uint32_t head, uint32_t first)
{
    const struct kda_parts *p = &op->parts;
    const struct buffer buffers[] = {p->q, p->k, p->v, p->decay, p->o, p->u};
    size_t row = (size_t)span->first_row + first, column = (size_t)head * op->head_dim;
    struct kda_scratch s = {.stride = p->q.stride, .beta = buffer_row(context, p->beta, head) + row};
    float **parts[] = {&s.q, &s.k, &s.v, &s.decay, &s.o, &s.u};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i] = buffer_row(context, buffers[i], row) + column;
    return s;
}

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

/* The input of one convolution at `token` of the span, counted from its first row; negative: from earlier steps. */
static const float *conv_input(const struct plan_context *context, const struct kda_op *op,
                               const struct step_span *span, struct buffer buffer, uint32_t which, int64_t token,
                               uint32_t head)
{
    size_t inner = (size_t)op->n_heads * op->head_dim, column = (size_t)head * op->head_dim;
    if (token >= 0)
        return buffer_row(context, buffer, span->first_row + (size_t)token) + column;
    return sequence_conv(span->sequence, op->layer, span->first_position + token) + which * inner + column;
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

/* The span's last inputs go where later steps look for them. */
static void keep_inputs(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                        uint32_t head)
{
    const struct buffer buffers[3] = {op->q, op->k, op->v};
    size_t inner = (size_t)op->n_heads * op->head_dim, column = (size_t)head * op->head_dim;
    uint32_t rows = span->sequence->layout->conv_rows;
    CHECK(rows > 0);
    for (uint32_t token = span->n_rows > rows ? span->n_rows - rows : 0; token < span->n_rows; token++) {
        float *out = sequence_conv(span->sequence, op->layer, (int64_t)span->first_position + token) + column;
        for (uint32_t which = 0; which < 3; which++)
            memcpy(out + which * inner, buffer_row(context, buffers[which], span->first_row + (size_t)token) + column,
                   op->head_dim * sizeof(float));
    }
}

/* One head's parts of a record. */
struct record {
    float *k, *u, *decay;
};

static struct record record_at(const struct sequence *sequence, uint32_t layer, uint32_t head, uint32_t position)
{
    const struct state_layout *layout = sequence->layout;
    size_t inner = (size_t)layout->kda_heads * layout->kda_head_dim;
    float *start = sequence_record(sequence, layer, position) + (size_t)head * layout->kda_head_dim;
    return (struct record){start, start + inner, start + 2 * inner};
}

/* Applies the records of positions [from, to) to a head's state. */
static void replay(const struct kernels *kernels, const struct sequence *sequence, uint32_t layer, uint32_t head,
                   float *state, uint32_t from, uint32_t to)
{
    size_t dim = sequence->layout->kda_head_dim;
    for (uint32_t position = from; position < to; position++) {
        struct record r = record_at(sequence, layer, head, position);
        kernels->kda_replay_f32(state, r.k, r.u, r.decay, 1, dim, dim, dim);
    }
}

/* Before tokens whose records will push older ones out: brings the base state up to the first record that stays. A
 * span of REWIND_TOKENS and more instead copies the state when all but those are through, see run_kda. */
static void advance_base(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                         uint32_t head)
{
    const struct sequence *s = span->sequence;
    uint32_t end = span->first_position + span->n_rows, base = end > REWIND_TOKENS ? end - REWIND_TOKENS : 0;
    if (s->base < base)
        replay(context->kernels, s, op->layer, head, sequence_kda_base(s, op->layer, head), s->base, base);
}

static void keep_records(const struct kda_op *op, const struct step_span *span, uint32_t head, uint32_t first,
                         uint32_t n, const struct kda_scratch *s)
{
    size_t bytes = op->head_dim * sizeof(float);
    for (uint32_t i = 0; i < n; i++) {
        struct record r = record_at(span->sequence, op->layer, head, span->first_position + first + i);
        memcpy(r.k, s->k + i * s->stride, bytes);
        memcpy(r.u, s->u + i * s->stride, bytes);
        memcpy(r.decay, s->decay + i * s->stride, bytes);
    }
}

/* The recurrence over n tokens, and what a rewind needs of them: the state before the first recorded token, and the
 * records from there on. */
static void recur(const struct plan_context *context, const struct kda_op *op, const struct step_span *span,
                  uint32_t head, uint32_t first, uint32_t n, uint32_t recorded, const struct kda_scratch *s)
{
    const struct state_layout *layout = span->sequence->layout;
    float *state = sequence_kda(span->sequence, op->layer, head);
    context->kernels->kda_f32(s->o, s->u, state, s->q, s->k, s->v, s->decay, s->beta, n, s->stride, op->head_dim,
                              op->head_dim);
    if (first >= recorded)
        keep_records(op, span, head, first, n, s);
    else if (first + n == recorded && layout->rewinds)
        memcpy(sequence_kda_base(span->sequence, op->layer, head), state, layout->head_state_floats * sizeof(float));
}

static void run_stages(const struct plan_context *context, const struct kda_op *op, uint32_t tile, unsigned stages)
{
    const struct step_span *span = &step_of(context)->spans[tile / op->n_heads];
    const struct state_layout *layout = span->sequence->layout;
    uint32_t head = tile % op->n_heads, n_rows = span->n_rows;
    bool in_rows = op->parts.q.stride > 0;
    struct kda_scratch s = scratch_of(context, op);
    /* Tokens before `recorded` leave no record. */
    uint32_t recorded = !layout->rewinds ? n_rows : n_rows > REWIND_TOKENS ? n_rows - REWIND_TOKENS : 0;
    if (recorded == 0 && stages & RECUR)
        advance_base(context, op, span, head);
    for (uint32_t first = 0, n; first < n_rows; first += n) {
        uint32_t end = first < recorded ? recorded : n_rows;
        n = end - first < op->block ? end - first : op->block;
        if (in_rows)
            s = rows_of(context, op, span, head, first);
        if (stages & PREPARE)
            prepare(context, op, span, head, first, n, &s);
        if (stages & RECUR)
            recur(context, op, span, head, first, n, recorded, &s);
        if (stages & FINISH)
            finish(context, op, span, head, first, n, &s);
    }
    if (stages & PREPARE)
        keep_inputs(context, op, span, head);
}

static void run_kda(const struct plan_context *context, const void *args, uint32_t tile)
{
    run_stages(context, args, tile, PREPARE | RECUR | FINISH);
}

static void run_prepare(const struct plan_context *context, const void *args, uint32_t tile)
{
    run_stages(context, args, tile, PREPARE);
}

static void run_recur(const struct plan_context *context, const void *args, uint32_t tile)
{
    run_stages(context, args, tile, RECUR);
}

static void run_finish(const struct plan_context *context, const void *args, uint32_t tile)
{
    run_stages(context, args, tile, FINISH);
}

void kda_rewind(const struct kernels *kernels, struct sequence *sequence, uint32_t n)
{
    const struct state_layout *layout = sequence->layout;
    sequence_retreat(sequence, n);
    for (uint32_t layer = 0; layer < layout->n_kda; layer++)
        for (uint32_t head = 0; head < layout->kda_heads; head++) {
            float *state = sequence_kda(sequence, layer, head);
            memcpy(state, sequence_kda_base(sequence, layer, head), layout->head_state_floats * sizeof(float));
            replay(kernels, sequence, layer, head, state, sequence->base, sequence->length);
        }
}

static uint32_t tiles_kda(const struct plan_context *context, const void *args)
{
    return step_of(context)->n_spans * ((const struct kda_op *)args)->n_heads;
}

static void add_stage(struct plan *plan, const struct kda_op *op, const char *label, plan_run_fn *run, uint64_t reads,
                      uint64_t writes)
{
    plan_add(plan, (struct plan_node){.label = label, .stream = "main", .run = run, .tiles = tiles_kda, .args = op},
             reads, writes);
}

void op_kda(struct plan *plan, const struct kda_op *op)
{
    CHECK(op->taps >= 1 && op->taps <= KDA_TAPS_MAX && op->block >= 1 && op->block <= KDA_TOKENS);
    struct kda_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    plan_scratch(plan, 7 * KDA_TOKENS * arena_cost(op->head_dim * sizeof(float)));
    const struct kda_parts *p = &op->parts;
    uint64_t in = buffer_bit(op->q) | buffer_bit(op->k) | buffer_bit(op->v) | buffer_bit(op->f) | buffer_bit(op->b);
    uint64_t state = (uint64_t)1 << op->state, gate = buffer_bit(op->g), out = buffer_bit(op->out);
    if (p->q.stride == 0) {
        add_stage(plan, a, "kda.heads", run_kda, in | gate, out | state);
        return;
    }
    uint64_t prepared =
        buffer_bit(p->q) | buffer_bit(p->k) | buffer_bit(p->v) | buffer_bit(p->decay) | buffer_bit(p->beta);
    add_stage(plan, a, "kda.prepare", run_prepare, in, prepared | state);
    add_stage(plan, a, "kda.recur", run_recur, prepared, buffer_bit(p->o) | buffer_bit(p->u) | state);
    add_stage(plan, a, "kda.finish", run_finish, gate, buffer_bit(p->o) | out);
}
