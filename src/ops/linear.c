#include "ops/linear.h"

#include "base/check.h"

/* A tile is at least 16 outputs, so that a call is worth it, and at most 512, so that threads stay in balance. */
enum { TILE_OUTPUTS_MIN = 16, TILE_OUTPUTS_MAX = 512, TILES_PER_THREAD = 8 };

struct linear_args {
    struct inputs x;
    uint32_t n_parts, tile_outputs, n_tiles;
    struct linear_part parts[LINEAR_PARTS_MAX];
};

struct logits_args {
    struct buffer x;
    struct matrix w;
    uint32_t tile_outputs;
};

struct activate_args {
    struct activation_kind kind;
    struct buffer out;
    uint32_t columns, per_row;
};

struct ffn_args {
    struct inputs x;
    struct buffer hidden;
    struct matrix gate, up;
    struct activation_kind activation;
    uint32_t tile_outputs;
};

static uint32_t div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

uint32_t linear_tile_outputs(uint32_t total, unsigned n_threads)
{
    uint32_t outputs = div_up(div_up(total, n_threads * TILES_PER_THREAD), TILE_OUTPUTS_MIN) * TILE_OUTPUTS_MIN;
    return outputs < TILE_OUTPUTS_MIN ? TILE_OUTPUTS_MIN : outputs > TILE_OUTPUTS_MAX ? TILE_OUTPUTS_MAX : outputs;
}

void activate(const struct kernels *kernels, struct activation_kind kind, float *y, const float *gate, const float *up,
              size_t n)
{
    if (kind.situ)
        kernels->situ_mul_f32(y, gate, up, n, kind.beta, kind.linear_beta);
    else
        kernels->silu_mul_f32(y, gate, up, n);
}

/* The outputs [first, first + count) of tile `tile` of a matrix with `rows` outputs. */
static struct matrix tile_of(const struct matrix *w, uint32_t tile, uint32_t tile_outputs, uint32_t *first)
{
    *first = tile * tile_outputs;
    uint32_t left = w->rows - *first;
    return matrix_rows(w, *first, left < tile_outputs ? left : tile_outputs);
}

enum { AHEAD_STREAMS = 4, AHEAD_BYTES = 1024 }; /* kernels read a tile in about as many streams */

/* The beginnings of the streams of a tile. */
static void fetch_tile(const struct matrix *w)
{
    for (uint32_t s = 0; s < AHEAD_STREAMS; s++) {
        const char *row = (const char *)w->data + s * w->rows / AHEAD_STREAMS * matrix_row_bytes(w);
        for (size_t at = 0; at < AHEAD_BYTES && at < matrix_row_bytes(w); at += 64)
            __builtin_prefetch(row + at, 0, 2);
    }
}

/* The part of a tile, and the tile's outputs of it. */
static const struct linear_part *linear_tile(const struct linear_args *a, uint32_t tile, struct matrix *w,
                                             uint32_t *first)
{
    uint32_t part = a->n_parts - 1;
    while (a->parts[part].first_tile > tile)
        part--;
    *w = tile_of(&a->parts[part].w, tile - a->parts[part].first_tile, a->tile_outputs, first);
    return &a->parts[part];
}

static void run_linear(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct linear_args *a = args;
    uint32_t first, n_rows = step_of(context)->n_rows;
    struct matrix w;
    const struct linear_part *part = linear_tile(a, tile, &w, &first);
    for (uint32_t row = 0; row < n_rows; row += LINEAR_ROWS) {
        float *y[LINEAR_ROWS];
        uint32_t rows[LINEAR_ROWS], n = n_rows - row < LINEAR_ROWS ? n_rows - row : LINEAR_ROWS;
        for (uint32_t i = 0; i < n; i++) {
            rows[i] = row + i;
            y[i] = buffer_row(context, part->y, row + i) + part->y_column + first;
        }
        inputs_product(context, &a->x, part->form, y, rows, &w, n);
    }
}

static void linear_ahead(const void *args, unsigned share, unsigned shares)
{
    const struct linear_args *a = args;
    struct matrix w;
    uint32_t first;
    linear_tile(a, (uint32_t)(share * (uint64_t)a->n_tiles / shares), &w, &first);
    fetch_tile(&w);
}

static uint32_t tiles_linear(const struct plan_context *context, const void *args)
{
    (void)context;
    return ((const struct linear_args *)args)->n_tiles;
}

void op_linear(struct plan *plan, const char *label, const char *stream, struct inputs *x,
               const struct linear_part *parts, uint32_t n_parts, unsigned n_threads)
{
    CHECK(n_parts >= 1 && n_parts <= LINEAR_PARTS_MAX);
    struct linear_args *a = plan_args(plan, sizeof *a);
    a->n_parts = n_parts;
    uint32_t total = 0;
    uint64_t reads = 0, writes = 0;
    for (uint32_t p = 0; p < n_parts; p++)
        total += parts[p].w.rows;
    a->tile_outputs = linear_tile_outputs(total, n_threads);
    for (uint32_t p = 0; p < n_parts; p++) {
        CHECK(parts[p].y_column + parts[p].w.rows <= parts[p].y.stride &&
              parts[p].w.columns <= x->forms[FORM_F32].stride);
        a->parts[p] = parts[p];
        a->parts[p].first_tile = a->n_tiles;
        if (!parts[p].exact) {
            op_narrow(plan, stream, x, &parts[p].w);
            a->parts[p].form = inputs_form(x, &parts[p].w);
        }
        reads |= buffer_bit(x->forms[a->parts[p].form]);
        a->n_tiles += div_up(parts[p].w.rows, a->tile_outputs);
        writes |= buffer_bit(parts[p].y);
    }
    a->x = *x;
    plan_add(plan,
             (struct plan_node){.label = label,
                                .stream = stream,
                                .run = run_linear,
                                .tiles = tiles_linear,
                                .args = a,
                                .ahead = linear_ahead},
             reads, writes);
}

static void run_logits(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct logits_args *a = args;
    const struct step *step = step_of(context);
    uint32_t first;
    struct matrix w = tile_of(&a->w, tile, a->tile_outputs, &first);
    linear_f32_fn *kernel = kernels_linear(context->kernels, w.dtype);
    for (uint32_t row = 0; row < step->n_logit_rows; row += LINEAR_ROWS) {
        float *y[LINEAR_ROWS];
        const float *x[LINEAR_ROWS];
        uint32_t n = step->n_logit_rows - row < LINEAR_ROWS ? step->n_logit_rows - row : LINEAR_ROWS;
        for (uint32_t i = 0; i < n; i++) {
            y[i] = step->logits + (size_t)(row + i) * a->w.rows + first;
            x[i] = buffer_row(context, a->x, row + i);
        }
        kernel(y, x, &w, n);
    }
}

static uint32_t tiles_logits(const struct plan_context *context, const void *args)
{
    const struct logits_args *a = args;
    return step_of(context)->n_logit_rows ? div_up(a->w.rows, a->tile_outputs) : 0;
}

void op_logits(struct plan *plan, struct buffer x, const struct matrix *w, unsigned n_threads)
{
    struct logits_args *a = plan_args(plan, sizeof *a);
    *a = (struct logits_args){x, *w, linear_tile_outputs(w->rows, n_threads)};
    plan_add(
        plan,
        (struct plan_node){.label = "logits", .stream = "main", .run = run_logits, .tiles = tiles_logits, .args = a},
        buffer_bit(x), 0);
}

static void run_activate(const struct plan_context *context, const void *args, uint32_t row)
{
    const struct activate_args *a = args;
    for (uint32_t i = row * a->per_row; i < (row + 1) * a->per_row; i++)
        activate(context->kernels, a->kind, buffer_row(context, a->out, i), buffer_row(context, a->kind.gates, i),
                 buffer_row(context, a->kind.ups, i), a->columns);
}

void op_activate(struct plan *plan, const char *label, const char *stream, struct activation_kind kind,
                 struct buffer out, uint32_t columns, uint32_t per_row)
{
    struct activate_args *a = plan_args(plan, sizeof *a);
    *a = (struct activate_args){kind, out, columns, per_row};
    plan_add(
        plan,
        (struct plan_node){.label = label, .stream = stream, .run = run_activate, .tiles = step_tiles_rows, .args = a},
        buffer_bit(kind.gates) | buffer_bit(kind.ups), buffer_bit(out));
}

static void run_ffn_inner(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct ffn_args *a = args;
    bool apart = a->activation.gates.stride > 0;
    uint32_t first, n_rows = step_of(context)->n_rows;
    struct matrix gate = tile_of(&a->gate, tile, a->tile_outputs, &first);
    struct matrix up = tile_of(&a->up, tile, a->tile_outputs, &first);
    float *gates = (float *)(void *)context->scratch, *ups = gates + LINEAR_ROWS * TILE_OUTPUTS_MAX;
    for (uint32_t row = 0; row < n_rows; row += LINEAR_ROWS) {
        float *g[LINEAR_ROWS], *u[LINEAR_ROWS];
        uint32_t rows[LINEAR_ROWS], n = n_rows - row < LINEAR_ROWS ? n_rows - row : LINEAR_ROWS;
        for (uint32_t i = 0; i < n; i++) {
            rows[i] = row + i;
            g[i] = apart ? buffer_row(context, a->activation.gates, row + i) + first : gates + i * TILE_OUTPUTS_MAX;
            u[i] = apart ? buffer_row(context, a->activation.ups, row + i) + first : ups + i * TILE_OUTPUTS_MAX;
        }
        inputs_product(context, &a->x, inputs_form(&a->x, &gate), g, rows, &gate, n);
        inputs_product(context, &a->x, inputs_form(&a->x, &up), u, rows, &up, n);
        for (uint32_t i = 0; !apart && i < n; i++)
            activate(context->kernels, a->activation, buffer_row(context, a->hidden, row + i) + first, g[i], u[i],
                     gate.rows);
    }
}

static void ffn_inner_ahead(const void *args, unsigned share, unsigned shares)
{
    const struct ffn_args *a = args;
    uint32_t first, n_tiles = div_up(a->gate.rows, a->tile_outputs);
    struct matrix gate = tile_of(&a->gate, (uint32_t)(share * (uint64_t)n_tiles / shares), a->tile_outputs, &first);
    fetch_tile(&gate);
}

static uint32_t tiles_ffn_inner(const struct plan_context *context, const void *args)
{
    (void)context;
    const struct ffn_args *a = args;
    return div_up(a->gate.rows, a->tile_outputs);
}

void op_ffn_inner(struct plan *plan, const char *label, const char *stream, struct inputs *x, struct buffer hidden,
                  const struct matrix *gate, const struct matrix *up, struct activation_kind activation,
                  unsigned n_threads)
{
    CHECK(gate->rows == up->rows && gate->rows <= hidden.stride);
    struct ffn_args *a = plan_args(plan, sizeof *a);
    op_narrow(plan, stream, x, gate);
    op_narrow(plan, stream, x, up);
    *a = (struct ffn_args){*x, hidden, *gate, *up, activation, linear_tile_outputs(gate->rows, n_threads)};
    plan_scratch(plan, 2 * LINEAR_ROWS * TILE_OUTPUTS_MAX * sizeof(float));
    plan_add(plan,
             (struct plan_node){.label = label,
                                .stream = stream,
                                .run = run_ffn_inner,
                                .tiles = tiles_ffn_inner,
                                .args = a,
                                .ahead = ffn_inner_ahead},
             buffer_bit(x->forms[inputs_form(x, gate)]) | buffer_bit(x->forms[inputs_form(x, up)]),
             activation.gates.stride ? buffer_bit(activation.gates) | buffer_bit(activation.ups) : buffer_bit(hidden));
    if (activation.gates.stride)
        op_activate(plan, "ffn.activate", stream, activation, hidden, gate->rows, 1);
}
