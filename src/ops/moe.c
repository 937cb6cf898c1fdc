#include "ops/moe.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* Who goes to which expert. Pairs are (row, slot) numbered row * A + slot, in order of expert, then of row. */
struct groups {
    uint32_t n_active;
    uint32_t *active; /* [E] experts with at least one pair */
    uint32_t *first;  /* [E + 1] by active expert: its first place in `pairs` */
    uint32_t *pairs;  /* [rows A] */
    uint32_t *place;  /* [rows A] the place of each pair */
};

struct experts_args {
    struct moe_op op;
    struct inputs x;      /* of the half: the experts' input, or what its first half made */
    struct buffer hidden; /* out of the first half */
    uint32_t tile_outputs, rows_together;
};

enum { EXPERT_ROWS = 64 }; /* rows of one expert that a tile holds in scratch at a time */

size_t moe_groups_bytes(uint32_t rows, uint32_t n_experts, uint32_t n_chosen)
{
    return ((size_t)2 + 2 * n_experts + 2 * (size_t)rows * n_chosen) * sizeof(uint32_t);
}

static uint32_t *words_of(const struct plan_context *context, const struct moe_op *op)
{
    return (uint32_t *)(void *)(context->workspace + op->groups.offset);
}

static struct groups groups_of(const struct plan_context *context, const struct moe_op *op)
{
    uint32_t *words = words_of(context, op);
    size_t n_pairs = (size_t)op->rows * op->n_chosen;
    struct groups g = {.n_active = words[0], .active = words + 1};
    g.first = g.active + op->n_experts;
    g.pairs = g.first + op->n_experts + 1;
    g.place = g.pairs + n_pairs;
    return g;
}

/* Index of the best of n values not yet taken (-inf), ties to the lowest; UINT32_MAX if all are. */
static uint32_t best_of(const float *values, uint32_t n)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (values[i] > (best == UINT32_MAX ? -INFINITY : values[best]))
            best = i;
    return best;
}

/* Keeps only the experts of the best groups: a group's score is the sum of its two best choices. */
static void drop_groups(const struct moe_op *op, float *choice)
{
    uint32_t size = op->n_experts / op->n_groups;
    float scores[CHOICE_GROUPS_MAX];
    bool used[CHOICE_GROUPS_MAX] = {false};
    for (uint32_t g = 0; g < op->n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            if (choice[i] > first) {
                second = first;
                first = choice[i];
            } else if (choice[i] > second) {
                second = choice[i];
            }
        }
        scores[g] = size > 1 ? first + second : first;
    }
    for (uint32_t i = 0; i < op->n_groups_used; i++) {
        uint32_t best = best_of(scores, op->n_groups);
        if (best == UINT32_MAX)
            break;
        used[best] = true;
        scores[best] = -INFINITY;
    }
    for (uint32_t g = 0; g < op->n_groups; g++)
        for (uint32_t i = g * size; !used[g] && i < (g + 1) * size; i++)
            choice[i] = -INFINITY;
}

void moe_choose(const struct moe_op *op, const float *scores, float *choice, uint32_t *chosen, float *weights)
{
    for (uint32_t e = 0; e < op->n_experts; e++)
        choice[e] = scores[e] + op->bias[e];
    if (op->n_groups > 1)
        drop_groups(op, choice);
    float sum = 0.0f;
    for (uint32_t i = 0; i < op->n_chosen; i++) {
        uint32_t best = best_of(choice, op->n_experts);
        if (best == UINT32_MAX) /* scores that are not numbers: some expert must still be named */
            best = i;
        choice[best] = -INFINITY;
        chosen[i] = best;
        weights[i] = scores[best];
        sum += weights[i];
    }
    for (uint32_t i = 0; i < op->n_chosen; i++) {
        if (op->renormalize)
            weights[i] = weights[i] / (sum + 1e-20f);
        weights[i] *= op->scaling;
    }
}

static void run_route(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct moe_op *op = args;
    float *scores = buffer_row(context, op->logits, row);
    if (op->softmax)
        context->kernels->softmax_f32(scores, scores, op->n_experts);
    else
        context->kernels->sigmoid_f32(scores, scores, op->n_experts);
    moe_choose(op, scores, (float *)(void *)context->scratch, (uint32_t *)(void *)buffer_row(context, op->chosen, row),
               buffer_row(context, op->weights, row));
}

/* Counting sort of the step's pairs by expert. */
static void run_group(const struct plan_context *context, const void *args, uint32_t tile)
{
    (void)tile;
    const struct moe_op *op = args;
    struct groups g = groups_of(context, op);
    uint32_t n_rows = step_of(context)->n_rows, n_active = 0, place = 0;
    uint32_t *counts = (uint32_t *)(void *)context->scratch;
    memset(counts, 0, op->n_experts * sizeof *counts);
    for (uint32_t row = 0; row < n_rows; row++) {
        const uint32_t *chosen = (const uint32_t *)(void *)buffer_row(context, op->chosen, row);
        for (uint32_t slot = 0; slot < op->n_chosen; slot++)
            counts[chosen[slot]]++;
    }
    for (uint32_t e = 0; e < op->n_experts; e++) {
        uint32_t count = counts[e];
        counts[e] = place;
        if (count > 0) {
            g.active[n_active] = e;
            g.first[n_active++] = place;
        }
        place += count;
    }
    g.first[n_active] = place;
    for (uint32_t row = 0; row < n_rows; row++) {
        const uint32_t *chosen = (const uint32_t *)(void *)buffer_row(context, op->chosen, row);
        for (uint32_t slot = 0; slot < op->n_chosen; slot++) {
            uint32_t pair = row * op->n_chosen + slot, at = counts[chosen[slot]]++;
            g.pairs[at] = pair;
            g.place[pair] = at;
        }
    }
    words_of(context, op)[0] = n_active;
}

static uint32_t tiles_one(const struct plan_context *context, const void *args)
{
    (void)context;
    (void)args;
    return 1;
}

void op_moe_route(struct plan *plan, const struct moe_op *op)
{
    CHECK(op->n_groups <= CHOICE_GROUPS_MAX);
    struct moe_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    plan_scratch(plan, op->n_experts * sizeof(float));
    plan_add(plan,
             (struct plan_node){
                 .label = "moe.route", .stream = "router", .run = run_route, .tiles = step_tiles_rows, .args = a},
             0, buffer_bit(op->logits) | buffer_bit(op->chosen) | buffer_bit(op->weights));
    plan_add(
        plan,
        (struct plan_node){.label = "moe.group", .stream = "router", .run = run_group, .tiles = tiles_one, .args = a},
        buffer_bit(op->chosen), buffer_bit(op->groups));
}

static uint32_t blocks_of(uint32_t outputs, uint32_t tile_outputs)
{
    return (outputs + tile_outputs - 1) / tile_outputs;
}

/* The expert of a tile, and its outputs [first, first + count). */
static uint32_t tile_expert(const struct groups *g, uint32_t tile, uint32_t outputs, uint32_t tile_outputs,
                            uint32_t *first, uint32_t *count, uint32_t *begin, uint32_t *end)
{
    uint32_t blocks = blocks_of(outputs, tile_outputs), index = tile / blocks;
    *first = tile % blocks * tile_outputs;
    *count = outputs - *first < tile_outputs ? outputs - *first : tile_outputs;
    *begin = g->first[index];
    *end = g->first[index + 1];
    return g->active[index];
}

static void run_inner(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct experts_args *a = args;
    const struct moe_op *op = &a->op;
    struct groups g = groups_of(context, op);
    bool apart = op->activation.gates.stride > 0;
    uint32_t first, count, begin, end;
    uint32_t e = tile_expert(&g, tile, op->inner, a->tile_outputs, &first, &count, &begin, &end);
    struct matrix gate = matrix_rows(&op->experts[e].gate, first, count);
    struct matrix up = matrix_rows(&op->experts[e].up, first, count);
    float *gates = (float *)(void *)context->scratch, *ups = gates + (size_t)EXPERT_ROWS * a->tile_outputs;
    for (uint32_t at = begin; at < end; at += a->rows_together) {
        float *gp[EXPERT_ROWS], *up_rows[EXPERT_ROWS];
        uint32_t rows[EXPERT_ROWS], n = end - at < a->rows_together ? end - at : a->rows_together;
        for (uint32_t i = 0; i < n; i++) {
            gp[i] = apart ? buffer_row(context, op->activation.gates, at + i) + first : gates + i * a->tile_outputs;
            up_rows[i] = apart ? buffer_row(context, op->activation.ups, at + i) + first : ups + i * a->tile_outputs;
            rows[i] = g.pairs[at + i] / op->n_chosen;
        }
        inputs_product(context, &a->x, inputs_form(&a->x, &gate), gp, rows, &gate, n);
        inputs_product(context, &a->x, inputs_form(&a->x, &up), up_rows, rows, &up, n);
        for (uint32_t i = 0; !apart && i < n; i++)
            activate(context->kernels, op->activation, buffer_row(context, a->hidden, at + i) + first, gp[i],
                     up_rows[i], count);
    }
}

static void run_down(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct experts_args *a = args;
    const struct moe_op *op = &a->op;
    struct groups g = groups_of(context, op);
    uint32_t first, count, begin, end;
    uint32_t e = tile_expert(&g, tile, op->width, a->tile_outputs, &first, &count, &begin, &end);
    struct matrix down = matrix_rows(&op->experts[e].down, first, count);
    for (uint32_t at = begin; at < end; at += a->rows_together) {
        float *y[EXPERT_ROWS];
        uint32_t rows[EXPERT_ROWS], n = end - at < a->rows_together ? end - at : a->rows_together;
        for (uint32_t i = 0; i < n; i++) {
            y[i] = buffer_row(context, op->expert_out, at + i) + first;
            rows[i] = at + i;
        }
        inputs_product(context, &a->x, inputs_form(&a->x, &down), y, rows, &down, n);
    }
}

static uint32_t tiles_inner(const struct plan_context *context, const void *args)
{
    const struct experts_args *a = args;
    return words_of(context, &a->op)[0] * blocks_of(a->op.inner, a->tile_outputs);
}

static uint32_t tiles_down(const struct plan_context *context, const void *args)
{
    const struct experts_args *a = args;
    return words_of(context, &a->op)[0] * blocks_of(a->op.width, a->tile_outputs);
}

static struct experts_args *experts_args(struct plan *plan, const struct moe_op *op, uint32_t outputs,
                                         unsigned n_threads)
{
    struct experts_args *a = plan_args(plan, sizeof *a);
    *a = (struct experts_args){.op = *op,
                               .hidden = op->hidden->forms[FORM_F32],
                               .tile_outputs = linear_tile_outputs(op->n_chosen * outputs, n_threads),
                               .rows_together = op->one_by_one ? 1 : EXPERT_ROWS};
    return a;
}

/* What a node reads of its inputs in the forms that a matrix of each expert wants. */
static uint64_t forms_read(const struct inputs *x, const struct matrix *w)
{
    return buffer_bit(x->forms[inputs_form(x, w)]);
}

void op_moe_experts(struct plan *plan, const struct moe_op *op, unsigned n_threads)
{
    struct experts_args *inner = experts_args(plan, op, op->inner, n_threads);
    struct experts_args *down = experts_args(plan, op, op->width, n_threads);
    plan_scratch(plan, (size_t)2 * EXPERT_ROWS * inner->tile_outputs * sizeof(float));
    uint64_t reads = buffer_bit(op->groups), reads_down = reads;
    for (uint32_t e = 0; e < op->n_experts; e++) {
        op_narrow(plan, "main", op->x, &op->experts[e].gate);
        op_narrow(plan, "main", op->x, &op->experts[e].up);
        reads |= forms_read(op->x, &op->experts[e].gate) | forms_read(op->x, &op->experts[e].up);
    }
    inner->x = *op->x;
    plan_add(plan,
             (struct plan_node){
                 .label = "moe.inner", .stream = "main", .run = run_inner, .tiles = tiles_inner, .args = inner},
             reads,
             op->activation.gates.stride ? buffer_bit(op->activation.gates) | buffer_bit(op->activation.ups)
                                         : buffer_bit(inner->hidden));
    if (op->activation.gates.stride)
        op_activate(plan, "moe.activate", "main", op->activation, inner->hidden, op->inner, op->n_chosen);
    for (uint32_t e = 0; e < op->n_experts; e++) {
        op_narrow(plan, "main", op->hidden, &op->experts[e].down);
        reads_down |= forms_read(op->hidden, &op->experts[e].down);
    }
    down->x = *op->hidden;
    plan_add(
        plan,
        (struct plan_node){.label = "moe.down", .stream = "main", .run = run_down, .tiles = tiles_down, .args = down},
        reads_down, buffer_bit(op->expert_out));
}

static void run_combine(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct moe_op *op = args;
    struct groups g = groups_of(context, op);
    const float **rows = (const float **)(void *)context->scratch;
    float *out = buffer_row(context, op->out, row);
    for (uint32_t slot = 0; slot < op->n_chosen; slot++)
        rows[slot] = buffer_row(context, op->expert_out, g.place[row * op->n_chosen + slot]);
    context->kernels->weighted_sum_f32(out, rows, buffer_row(context, op->weights, row), op->n_chosen, op->width);
    if (op->latent_norm)
        context->kernels->rms_norm_f32(out, out, op->latent_norm, op->width, op->eps);
}

void op_moe_combine(struct plan *plan, const struct moe_op *op)
{
    struct moe_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    plan_scratch(plan, op->n_chosen * sizeof(float *));
    plan_add(plan,
             (struct plan_node){
                 .label = "moe.combine", .stream = "main", .run = run_combine, .tiles = step_tiles_rows, .args = a},
             buffer_bit(op->groups) | buffer_bit(op->expert_out) | buffer_bit(op->weights), buffer_bit(op->out));
}
