/* The attention of MLA: queries of a tile share every cache row that they read.
 *
 * Keys are summed up in chunks of ATTEND_CHUNK, chunks in at most ATTEND_SEGMENTS segments, segments in order. Where
 * chunks and segments lie follows from the number of a row's keys alone, so it is the same however rows are grouped
 * into tiles and tiles given to threads. */
#include "ops/mla.h"

#include <string.h>

#include "base/check.h"
#include "tensor/int16_row.h"

enum {
    QUERIES_PER_TILE = 64, /* heads of one row or of neighbouring rows: enough to be worth widening a key for */
};

struct attend_args {
    struct mla_op op;
    bool split; /* a tile is one segment of a row, and op_mla_attend joins them afterwards */
    uint32_t tile_heads, n_groups, tile_rows;
};

/* The state of softmax attention over some keys, for the queries of a tile. */
struct partial {
    float *acc, *peak, *total; /* [queries][latent], [queries], [queries] */
};

struct attend_scratch {
    const void **rows;
    float *mask;
    char *q; /* [queries], query_bytes apart */
    float *scores;
    struct partial chunk, segment, sum;
};

/* Some queries of a tile: `n_rows` rows from `row` with the same number of chunks, and `n_heads` heads of each. */
struct queries {
    const struct sequence *sequence;
    uint32_t row, n_rows, head, n_heads, n_chunks;
};

static uint32_t n_keys_of(const struct plan_context *context, const struct mla_op *op, uint32_t row)
{
    if (op->sparse && !op->masked)
        return *(const uint32_t *)(void *)buffer_row(context, op->n_selected, row);
    return step_row_position(step_of(context), row) + 1;
}

static uint32_t n_chunks_of(const struct plan_context *context, const struct mla_op *op, uint32_t row)
{
    return (n_keys_of(context, op, row) + ATTEND_CHUNK - 1) / ATTEND_CHUNK;
}

/* Chunks of a segment. */
static uint32_t segment_chunks(uint32_t n_chunks)
{
    return (n_chunks + ATTEND_SEGMENTS - 1) / ATTEND_SEGMENTS;
}

/* Room for one query, as floats or as a row of 16-bit integers. */
static size_t query_room(const struct mla_op *op)
{
    size_t floats = mla_width(op) * sizeof(float), codes = int16_row_bytes(mla_width(op));
    return floats > codes ? floats : codes;
}

static size_t partial_bytes(uint32_t queries, uint32_t latent)
{
    return arena_cost((size_t)queries * latent * sizeof(float)) + 2 * arena_cost(queries * sizeof(float));
}

static struct partial take_partial(struct arena *arena, uint32_t queries, uint32_t latent)
{
    return (struct partial){arena_take(arena, (size_t)queries * latent * sizeof(float)),
                            arena_take(arena, queries * sizeof(float)), arena_take(arena, queries * sizeof(float))};
}

static size_t scratch_bytes(const struct attend_args *a)
{
    uint32_t queries = a->tile_heads * a->tile_rows;
    return arena_cost(ATTEND_CHUNK * sizeof(void *)) + arena_cost(ATTEND_CHUNK * sizeof(float)) +
           arena_cost(queries * query_room(&a->op)) + arena_cost((size_t)queries * ATTEND_CHUNK * sizeof(float)) +
           3 * partial_bytes(queries, a->op.latent);
}

static struct attend_scratch scratch_of(const struct plan_context *context, const struct attend_args *a)
{
    uint32_t queries = a->tile_heads * a->tile_rows;
    struct arena arena = {.start = context->scratch, .capacity_bytes = scratch_bytes(a)};
    struct attend_scratch s;
    s.rows = arena_take(&arena, ATTEND_CHUNK * sizeof(void *));
    s.mask = arena_take(&arena, ATTEND_CHUNK * sizeof(float));
    s.q = arena_take(&arena, queries * query_room(&a->op));
    s.scores = arena_take(&arena, (size_t)queries * ATTEND_CHUNK * sizeof(float));
    s.chunk = take_partial(&arena, queries, a->op.latent);
    s.segment = take_partial(&arena, queries, a->op.latent);
    s.sum = take_partial(&arena, queries, a->op.latent);
    return s;
}

/* The partial of queries from `query` on. */
static struct partial partial_at(struct partial p, uint32_t query, uint32_t latent)
{
    return (struct partial){p.acc + (size_t)query * latent, p.peak + query, p.total + query};
}

/* Bytes from a query to the next. */
static size_t query_bytes(const struct mla_op *op, enum dtype latents)
{
    return latents == DTYPE_INT16 ? int16_row_bytes(mla_width(op)) : mla_width(op) * sizeof(float);
}

/* One chunk for some queries that see the same n_rows keys of it. */
static void attend(const struct plan_context *context, const struct mla_op *op, const struct attend_scratch *s,
                   enum dtype latents, struct partial out, const char *q, uint32_t n_queries, uint32_t n_rows)
{
    const struct kernels *k = context->kernels;
    uint32_t width = mla_width(op);
    const float *mask = op->masked ? s->mask : NULL;
    if (latents == DTYPE_INT16)
        k->attend_int16(out.acc, out.peak, out.total, s->scores, q, s->rows, mask, n_queries, n_rows, width,
                        op->latent);
    else
        (latents == DTYPE_F32 ? k->attend_f32 : k->attend_bf16)(out.acc, out.peak, out.total, s->scores,
                                                                (const float *)(const void *)q, s->rows, mask,
                                                                n_queries, n_rows, width, op->latent);
}

/* The mask of positions [first, first + n), of which `n_selected` ascending ones are selected. */
static void mask_unselected(float *mask, uint32_t first, uint32_t n, const uint32_t *selected, uint32_t n_selected)
{
    uint32_t low = 0, high = n_selected;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (selected[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool found = low < n_selected && selected[low] == first + i;
        mask[i] = found ? 0.0f : ATTEND_MASKED;
        low += found;
    }
}

/* One chunk of keys for all queries. All rows see all keys of a chunk but the last, which ends with the row. */
static void attend_chunk(const struct plan_context *context, const struct mla_op *op, const struct attend_scratch *s,
                         const struct queries *q, uint32_t chunk, struct partial out)
{
    enum dtype latents = q->sequence->layout->latent_dtype;
    const uint32_t *selected = op->sparse ? (const uint32_t *)(void *)buffer_row(context, op->selected, q->row) : NULL;
    bool gathers = selected && !op->masked;
    bool last = chunk + 1 == q->n_chunks;
    uint32_t first = chunk * ATTEND_CHUNK, most = n_keys_of(context, op, q->row + q->n_rows - 1) - first;
    most = most < ATTEND_CHUNK ? most : ATTEND_CHUNK;
    for (uint32_t i = 0; i < most; i++)
        s->rows[i] = sequence_latent(q->sequence, op->layer, gathers ? selected[first + i] : first + i);
    if (selected && op->masked)
        mask_unselected(s->mask, first, most, selected,
                        *(const uint32_t *)(void *)buffer_row(context, op->n_selected, q->row));
    uint32_t step = last ? 1 : q->n_rows;
    for (uint32_t r = 0; r < q->n_rows; r += step) {
        struct partial p = partial_at(out, r * q->n_heads, op->latent);
        attend(context, op, s, latents, p, s->q + (size_t)r * q->n_heads * query_bytes(op, latents), step * q->n_heads,
               last ? n_keys_of(context, op, q->row + r) - first : ATTEND_CHUNK);
    }
}

static void join(const struct plan_context *context, const struct mla_op *op, struct partial to, struct partial from,
                 uint32_t n)
{
    context->kernels->attend_merge_f32(to.acc, to.peak, to.total, from.acc, from.peak, from.total, n, op->latent);
}

static void attend_segment(const struct plan_context *context, const struct mla_op *op, const struct attend_scratch *s,
                           const struct queries *q, uint32_t segment, struct partial out)
{
    uint32_t length = segment_chunks(q->n_chunks), first = segment * length;
    uint32_t end = q->n_chunks - first < length ? q->n_chunks : first + length;
    attend_chunk(context, op, s, q, first, out);
    for (uint32_t chunk = first + 1; chunk < end; chunk++) {
        attend_chunk(context, op, s, q, chunk, s->chunk);
        join(context, op, out, s->chunk, q->n_rows * q->n_heads);
    }
}

static void gather_queries(const struct plan_context *context, const struct mla_op *op, const struct attend_scratch *s,
                           const struct queries *q)
{
    enum dtype latents = q->sequence->layout->latent_dtype;
    size_t width = mla_width(op), bytes = query_bytes(op, latents);
    for (uint32_t r = 0; r < q->n_rows; r++) {
        const float *from = buffer_row(context, op->absorbed, q->row + r) + q->head * width;
        char *to = s->q + r * q->n_heads * bytes;
        for (uint32_t h = 0; latents == DTYPE_INT16 && h < q->n_heads; h++)
            context->kernels->quantize_int16_row(to + h * bytes, from + h * width, width);
        if (latents != DTYPE_INT16)
            memcpy(to, from, q->n_heads * bytes);
    }
}

static void finish(const struct plan_context *context, const struct mla_op *op, uint32_t row, uint32_t head,
                   struct partial p, uint32_t n_heads)
{
    float *out = buffer_row(context, op->context, row) + (size_t)head * op->latent;
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t c = 0; c < op->latent; c++)
            out[h * op->latent + c] = p.acc[h * op->latent + c] / p.total[h];
}

/* The queries of a group of heads from `row` on, before `end`, that go together. */
static struct queries queries_from(const struct plan_context *context, const struct attend_args *a, uint32_t group,
                                   uint32_t row, uint32_t end)
{
    const struct mla_op *op = &a->op;
    const struct step *step = step_of(context);
    const struct step_span *span = step_row_span(step, row);
    uint32_t head = group * a->tile_heads, n_heads = op->n_heads - head;
    struct queries q = {.sequence = span->sequence,
                        .row = row,
                        .head = head,
                        .n_heads = n_heads < a->tile_heads ? n_heads : a->tile_heads,
                        .n_chunks = n_chunks_of(context, op, row)};
    for (q.n_rows = 1; row + q.n_rows < end && !op->sparse; q.n_rows++)
        if (step_row_span(step, row + q.n_rows) != span || n_chunks_of(context, op, row + q.n_rows) != q.n_chunks)
            break;
    return q;
}

static void run_rows(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct attend_args *a = args;
    const struct mla_op *op = &a->op;
    struct attend_scratch s = scratch_of(context, a);
    uint32_t row = tile / a->n_groups * a->tile_rows;
    uint32_t n_rows = step_of(context)->n_rows, end = n_rows - row < a->tile_rows ? n_rows : row + a->tile_rows;
    while (row < end) {
        struct queries q = queries_from(context, a, tile % a->n_groups, row, end);
        gather_queries(context, op, &s, &q);
        attend_segment(context, op, &s, &q, 0, s.sum);
        for (uint32_t g = 1; g * segment_chunks(q.n_chunks) < q.n_chunks; g++) {
            attend_segment(context, op, &s, &q, g, s.segment);
            join(context, op, s.sum, s.segment, q.n_rows * q.n_heads);
        }
        for (uint32_t r = 0; r < q.n_rows; r++)
            finish(context, op, row + r, q.head, partial_at(s.sum, r * q.n_heads, op->latent), q.n_heads);
        row += q.n_rows;
    }
}

/* Where the partial of a segment is kept until all are there. */
static struct partial kept(const struct plan_context *context, const struct mla_op *op, uint32_t row, uint32_t segment,
                           uint32_t head)
{
    float *start = buffer_row(context, op->partials, (size_t)row * ATTEND_SEGMENTS + segment);
    float *peaks = start + (size_t)op->n_heads * op->latent;
    return (struct partial){start + (size_t)head * op->latent, peaks + head, peaks + op->n_heads + head};
}

static void run_segment(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct attend_args *a = args;
    const struct mla_op *op = &a->op;
    uint32_t place = tile / a->n_groups, row = place / ATTEND_SEGMENTS, segment = place % ATTEND_SEGMENTS;
    struct queries q = queries_from(context, a, tile % a->n_groups, row, row + 1);
    if (segment * segment_chunks(q.n_chunks) >= q.n_chunks)
        return;
    struct attend_scratch s = scratch_of(context, a);
    gather_queries(context, op, &s, &q);
    attend_segment(context, op, &s, &q, segment, kept(context, op, row, segment, q.head));
}

static void run_join(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct mla_op *op = args;
    uint32_t row = tile / op->n_heads, head = tile % op->n_heads, n_chunks = n_chunks_of(context, op, row);
    struct partial sum = kept(context, op, row, 0, head);
    for (uint32_t g = 1; g * segment_chunks(n_chunks) < n_chunks; g++)
        join(context, op, sum, kept(context, op, row, g, head), 1);
    finish(context, op, row, head, sum, 1);
}

static uint32_t tiles_rows(const struct plan_context *context, const void *args)
{
    const struct attend_args *a = args;
    return (step_of(context)->n_rows + a->tile_rows - 1) / a->tile_rows * a->n_groups;
}

static uint32_t tiles_segments(const struct plan_context *context, const void *args)
{
    return step_of(context)->n_rows * ATTEND_SEGMENTS * ((const struct attend_args *)args)->n_groups;
}

static uint32_t tiles_join(const struct plan_context *context, const void *args)
{
    return step_of(context)->n_rows * ((const struct mla_op *)args)->n_heads;
}

static void op_join(struct plan *plan, const struct mla_op *op)
{
    struct mla_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    plan_add(plan,
             (struct plan_node){.label = "mla.join", .stream = "main", .run = run_join, .tiles = tiles_join, .args = a},
             op->sparse ? buffer_bit(op->n_selected) : 0, buffer_bit(op->partials) | buffer_bit(op->context));
}

void op_mla_attend(struct plan *plan, const struct mla_op *op)
{
    struct attend_args *a = plan_args(plan, sizeof *a);
    *a = (struct attend_args){.op = *op, .split = op->partials.stride > 0};
    uint32_t queries = op->alone ? 1 : QUERIES_PER_TILE;
    a->tile_heads = op->n_heads < queries ? op->n_heads : queries;
    CHECK(a->tile_heads > 0);
    a->n_groups = (op->n_heads + a->tile_heads - 1) / a->tile_heads;
    a->tile_rows = a->split || op->sparse ? 1 : queries / a->tile_heads;
    plan_scratch(plan, scratch_bytes(a));
    uint64_t reads = buffer_bit(op->absorbed) | (uint64_t)1 << op->cache;
    if (op->sparse)
        reads |= buffer_bit(op->selected) | buffer_bit(op->n_selected);
    plan_add(plan,
             (struct plan_node){.label = "mla.attend",
                                .stream = "main",
                                .run = a->split ? run_segment : run_rows,
                                .tiles = a->split ? tiles_segments : tiles_rows,
                                .args = a},
             reads, buffer_bit(a->split ? op->partials : op->context));
    if (a->split)
        op_join(plan, op);
}
