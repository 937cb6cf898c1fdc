#include "ops/mla.h"

#include <math.h>
#include <string.h>

#include "ops/linear.h"

enum {
    HEADS_PER_TILE_MAX = 32, /* they share each cache row that is read and widened */
    TILES_PER_THREAD = 4,    /* enough to keep all threads busy */
};

struct attend_args {
    struct mla_op op;
    uint32_t n_threads;
};

static struct mla_op *keep(struct plan *plan, const struct mla_op *op)
{
    struct mla_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    return a;
}

static uint32_t width_of(const struct mla_op *op)
{
    return op->latent + op->rope;
}

/* Writes n values in the cache's element type. */
static void store(void *out, const float *x, uint32_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
        memcpy(out, x, n * sizeof(float));
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
    store(sequence_latent(sequence, op->layer, step_row_position(step, row)), kv, width_of(op),
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
    uint32_t n_rows = step_of(context)->n_rows, width = width_of(op), query = op->nope + op->rope;
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

/* Scratch of an attention tile: a chunk's result beside the running one. */
struct attend_scratch {
    const void **rows;
    float *scores, *acc, *peak, *total, *acc2, *peak2, *total2;
};

static size_t attend_scratch_bytes(uint32_t heads, uint32_t latent)
{
    return arena_cost(ATTEND_CHUNK * sizeof(void *)) + arena_cost((size_t)heads * ATTEND_CHUNK * sizeof(float)) +
           2 * arena_cost((size_t)heads * latent * sizeof(float)) + 4 * arena_cost(heads * sizeof(float));
}

static struct attend_scratch attend_scratch_of(const struct plan_context *context, uint32_t heads, uint32_t latent)
{
    struct arena arena = {.start = context->scratch, .capacity_bytes = attend_scratch_bytes(heads, latent)};
    struct attend_scratch s;
    s.rows = arena_take(&arena, ATTEND_CHUNK * sizeof(void *));
    s.scores = arena_take(&arena, (size_t)heads * ATTEND_CHUNK * sizeof(float));
    s.acc = arena_take(&arena, (size_t)heads * latent * sizeof(float));
    s.acc2 = arena_take(&arena, (size_t)heads * latent * sizeof(float));
    s.peak = arena_take(&arena, heads * sizeof(float));
    s.peak2 = arena_take(&arena, heads * sizeof(float));
    s.total = arena_take(&arena, heads * sizeof(float));
    s.total2 = arena_take(&arena, heads * sizeof(float));
    return s;
}

/* Groups that a row's heads fall into: as few as leave every thread its tiles. */
static uint32_t head_groups(const struct attend_args *a, uint32_t n_rows)
{
    uint32_t least = (a->op.n_heads + HEADS_PER_TILE_MAX - 1) / HEADS_PER_TILE_MAX;
    if (n_rows >= TILES_PER_THREAD * a->n_threads || least >= a->n_threads)
        return least;
    return a->op.n_heads < a->n_threads ? a->op.n_heads : a->n_threads;
}

static uint32_t heads_per_tile(const struct attend_args *a, uint32_t n_rows)
{
    uint32_t groups = head_groups(a, n_rows);
    return (a->op.n_heads + groups - 1) / groups;
}

static void run_attend(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct attend_args *a = args;
    const struct mla_op *op = &a->op;
    const struct step *step = step_of(context);
    uint32_t groups = head_groups(a, step->n_rows), share = heads_per_tile(a, step->n_rows);
    uint32_t row = tile / groups, first_head = tile % groups * share;
    uint32_t left = op->n_heads > first_head ? op->n_heads - first_head : 0, n_heads = left < share ? left : share;
    const struct sequence *sequence = step_row_span(step, row)->sequence;
    const uint32_t *selected = NULL;
    uint32_t n_keys = step_row_position(step, row) + 1;
    if (op->sparse) {
        selected = (const uint32_t *)(void *)buffer_row(context, op->selected, row);
        n_keys = *(const uint32_t *)(void *)buffer_row(context, op->n_selected, row);
    }
    attend_f32_fn *attend =
        sequence->layout->latent_dtype == DTYPE_F32 ? context->kernels->attend_f32 : context->kernels->attend_bf16;
    const float *q = buffer_row(context, op->absorbed, row) + (size_t)first_head * width_of(op);
    struct attend_scratch s = attend_scratch_of(context, share, op->latent);
    if (n_heads == 0)
        return;
    for (uint32_t first = 0; first < n_keys; first += ATTEND_CHUNK) {
        uint32_t n = n_keys - first < ATTEND_CHUNK ? n_keys - first : ATTEND_CHUNK;
        for (uint32_t i = 0; i < n; i++)
            s.rows[i] = sequence_latent(sequence, op->layer, selected ? selected[first + i] : first + i);
        if (first == 0) {
            attend(s.acc, s.peak, s.total, s.scores, q, s.rows, n_heads, n, width_of(op), op->latent);
            continue;
        }
        attend(s.acc2, s.peak2, s.total2, s.scores, q, s.rows, n_heads, n, width_of(op), op->latent);
        context->kernels->attend_merge_f32(s.acc, s.peak, s.total, s.acc2, s.peak2, s.total2, n_heads, op->latent);
    }
    for (uint32_t h = 0; h < n_heads; h++) {
        float *out = buffer_row(context, op->context, row) + (size_t)(first_head + h) * op->latent;
        for (uint32_t c = 0; c < op->latent; c++)
            out[c] = s.acc[h * op->latent + c] / s.total[h];
    }
}

static uint32_t tiles_attend(const struct plan_context *context, const void *args)
{
    uint32_t n_rows = step_of(context)->n_rows;
    return n_rows * head_groups(args, n_rows);
}

void op_mla_attend(struct plan *plan, const struct mla_op *op, unsigned n_threads)
{
    struct attend_args *a = plan_args(plan, sizeof *a);
    a->op = *op;
    a->n_threads = n_threads;
    plan_scratch(plan, attend_scratch_bytes(op->n_heads < HEADS_PER_TILE_MAX ? op->n_heads : HEADS_PER_TILE_MAX,
                                            op->latent));
    uint64_t reads = buffer_bit(op->absorbed) | (uint64_t)1 << op->cache;
    if (op->sparse)
        reads |= buffer_bit(op->selected) | buffer_bit(op->n_selected);
    plan_add(plan,
             (struct plan_node){
                 .label = "mla.attend", .stream = "main", .run = run_attend, .tiles = tiles_attend, .args = a},
             reads, buffer_bit(op->context));
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
