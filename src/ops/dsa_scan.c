/* The indexer's scan and choice (ops/dsa.h). */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "ops/dsa.h"
#include "ops/select.h"
#include "tensor/index_query.h"

enum {
    ROWS_PER_TILE = 8, /* of one span that read the keys together */
};

/* Keys that a row keeps between two narrowings, and those that may be left at its end. */
static size_t kept_max(const struct dsa_op *op)
{
    size_t wanted = 4 * (size_t)op->topk;
    return (wanted < 1024 ? 1024 : wanted) + PAGE_TOKENS;
}

static size_t candidates_max(uint32_t topk)
{
    enum { AMBIGUOUS_MIN = 256 };
    return topk + (topk > AMBIGUOUS_MIN ? topk : AMBIGUOUS_MIN);
}

uint32_t dsa_candidates_width(uint32_t topk)
{
    return (uint32_t)(2 * candidates_max(topk) * sizeof(uint64_t) / sizeof(float));
}

/* Candidates as two parallel arrays of ranks: of the upper and of the lower bound. */
struct kept {
    uint64_t *upper, *lower;
    size_t count;
};

static struct kept candidates_of(const struct plan_context *context, const struct dsa_op *op, uint32_t row,
                                 uint32_t segment)
{
    uint64_t *upper = (uint64_t *)(void *)buffer_row(context, op->candidates, (size_t)row * op->n_segments + segment);
    const uint32_t *counts = (uint32_t *)(void *)buffer_row(context, op->n_candidates, row);
    return (struct kept){upper, upper + candidates_max(op->topk), counts[segment]};
}

/* Drops what cannot be among the k best: those whose upper bound is below the k-th largest lower bound, which is
 * returned; 0 if there are no more than k. spare [count]. */
static uint64_t narrow(struct kept *kept, uint64_t *spare, size_t k)
{
    if (kept->count <= k)
        return 0;
    memcpy(spare, kept->lower, kept->count * sizeof *spare);
    uint64_t least = select_largest(spare, kept->count, k);
    size_t n = 0;
    for (size_t i = 0; i < kept->count; i++) { /* without a branch, as in select_largest */
        uint64_t upper = kept->upper[i];
        kept->upper[n] = upper;
        kept->lower[n] = kept->lower[i];
        n += upper >= least;
    }
    kept->count = n;
    return least;
}

/* One row of a tile: the positions [first, end) of its context that the tile scans. */
struct scan_row {
    uint32_t row, first, end;
    uint64_t threshold; /* ranks of upper bounds up to it are not kept */
    struct kept kept;
    bool by_scores;
};

struct scan {
    const struct plan_context *context;
    const struct dsa_op *op;
    const struct sequence *sequence;
    uint64_t *spare; /* [kept_max] */
    struct scan_row rows[ROWS_PER_TILE];
    uint32_t n_rows;
};

static uint32_t keys_of_page(const struct scan_row *row, uint32_t at)
{
    return at >= row->end ? 0 : row->end - at < PAGE_TOKENS ? row->end - at : PAGE_TOKENS;
}

static index_scores_f32_fn *scores_kernel(const struct kernels *kernels, enum dtype dtype)
{
    return dtype == DTYPE_F32    ? kernels->index_scores_f32
           : dtype == DTYPE_BF16 ? kernels->index_scores_bf16
                                 : kernels->index_scores_mxfp8;
}

/* Adds the keys of the page at `at`. */
static void add(const struct scan *scan, struct scan_row *row, const float *lower, const float *upper, uint32_t at)
{
    size_t k = scan->op->topk, room = kept_max(scan->op) - PAGE_TOKENS;
    struct kept *kept = &row->kept;
    size_t added = scan->context->kernels->index_filter(kept->upper + kept->count, upper, keys_of_page(row, at), at,
                                                        row->threshold);
    for (size_t end = kept->count + added; kept->count < end; kept->count++) {
        uint32_t position = select_position(kept->upper[kept->count]);
        kept->lower[kept->count] = select_rank(lower[position - at], position);
    }
    if (kept->count <= room)
        return;
    row->threshold = narrow(kept, scan->spare, k) - 1;
    row->by_scores = kept->count > room;
}

static void scan_scores(const struct scan *scan, struct scan_row *row)
{
    const struct dsa_op *op = scan->op;
    const struct state_layout *layout = scan->sequence->layout;
    const float *q = buffer_row(scan->context, op->q, row->row), *w = buffer_row(scan->context, op->w, row->row);
    index_scores_f32_fn *score = scores_kernel(scan->context->kernels, layout->index_dtype);
    row->threshold = row->kept.count = 0;
    for (uint32_t at = row->first; at < row->end; at += PAGE_TOKENS) {
        float scores[PAGE_TOKENS];
        uint32_t n_blocks = (keys_of_page(row, at) + INDEX_BLOCK_KEYS - 1) / INDEX_BLOCK_KEYS;
        score(scores, q, w, sequence_index_block(scan->sequence, op->layer, at),
              layout->mla[op->layer].index_block_bytes, n_blocks, op->n_heads, op->head_dim);
        add(scan, row, scores, scores, at);
    }
}

/* Has a page's keys fetched while those of the page before are scanned: pages lie apart, so that the hardware does not
 * see the next one coming. */
static void fetch_page(const struct scan *scan, uint32_t at)
{
    size_t block_bytes = scan->sequence->layout->mla[scan->op->layer].index_block_bytes;
    const char *keys = sequence_index_block(scan->sequence, scan->op->layer, at);
    for (size_t i = 0; i < PAGE_TOKENS / INDEX_BLOCK_KEYS * block_bytes; i += 64)
        __builtin_prefetch(keys + i, 0, 2);
}

/* The page at `at` for all rows that are scanned by bounds and reach it. Returns whether there was one. */
static bool scan_page(struct scan *scan, uint32_t at)
{
    const struct dsa_op *op = scan->op;
    const struct state_layout *layout = scan->sequence->layout;
    const struct kernels *kernels = scan->context->kernels;
    float bounds[2][ROWS_PER_TILE][PAGE_TOKENS], *lower[ROWS_PER_TILE], *upper[ROWS_PER_TILE];
    const void *queries[ROWS_PER_TILE];
    struct scan_row *rows[ROWS_PER_TILE];
    uint32_t n = 0, longest = 0;
    for (uint32_t r = 0; r < scan->n_rows; r++) {
        struct scan_row *row = &scan->rows[r];
        uint32_t n_keys = row->by_scores ? 0 : keys_of_page(row, at);
        if (n_keys == 0)
            continue;
        longest = n_keys > longest ? n_keys : longest;
        rows[n] = row;
        queries[n] = buffer_row(scan->context, op->query, row->row);
        lower[n] = bounds[0][n];
        upper[n] = bounds[1][n];
        n++;
    }
    if (n == 0)
        return false;
    if (keys_of_page(rows[0], at + PAGE_TOKENS) > 0)
        fetch_page(scan, at + PAGE_TOKENS);
    index_bounds_mxfp8_fn *kernel =
        layout->index_dtype == DTYPE_MXFP8 ? kernels->index_bounds_mxfp8 : kernels->index_bounds_bf16;
    kernel(lower, upper, queries, n, sequence_index_block(scan->sequence, op->layer, at),
           layout->mla[op->layer].index_block_bytes, (longest + INDEX_BLOCK_KEYS - 1) / INDEX_BLOCK_KEYS, op->n_heads,
           op->head_dim);
    for (uint32_t r = 0; r < n; r++)
        add(scan, rows[r], lower[r], upper[r], at);
    return true;
}

/* Narrows a last time and hands over. */
static void finish(const struct scan *scan, struct scan_row *row, uint32_t segment)
{
    const struct dsa_op *op = scan->op;
    struct kept *kept = &row->kept;
    bool fell_back = row->by_scores && op->scan == SCAN_BOUNDS;
    if (!row->by_scores) {
        narrow(kept, scan->spare, op->topk);
        fell_back = row->by_scores = kept->count > candidates_max(op->topk);
    }
    if (row->by_scores) {
        scan_scores(scan, row);
        narrow(kept, scan->spare, op->topk);
    }
    ((uint32_t *)(void *)buffer_row(scan->context, op->n_candidates, row->row))[segment] = (uint32_t)kept->count;
    struct kept out = candidates_of(scan->context, op, row->row, segment);
    memcpy(out.upper, kept->upper, kept->count * sizeof *kept->upper);
    memcpy(out.lower, kept->lower, kept->count * sizeof *kept->lower);
    step_count(scan->context, STEP_SCANS, 1);
    step_count(scan->context, STEP_SCANS_FELL_BACK, fell_back);
}

/* Rows of one sequence. */
static void scan_rows(struct scan *scan, uint32_t segment)
{
    uint32_t at = UINT32_MAX;
    for (uint32_t r = 0; r < scan->n_rows; r++)
        at = scan->rows[r].first < at ? scan->rows[r].first : at;
    for (; scan_page(scan, at); at += PAGE_TOKENS)
        ;
    for (uint32_t r = 0; r < scan->n_rows; r++)
        finish(scan, &scan->rows[r], segment);
}

static uint32_t rows_per_tile(const struct dsa_op *op)
{
    return op->n_segments == 1 ? ROWS_PER_TILE : 1;
}

/* Puts a row into the scan unless it needs none: up to topk keys all are chosen. */
static void take_row(struct scan *scan, uint32_t row, uint32_t segment)
{
    const struct dsa_op *op = scan->op;
    uint32_t n_keys = step_row_position(step_of(scan->context), row) + 1;
    uint64_t pages = (n_keys + PAGE_TOKENS - 1) / PAGE_TOKENS, *memory = (uint64_t *)(void *)scan->context->scratch;
    uint32_t end = (uint32_t)((segment + 1) * pages / op->n_segments) * PAGE_TOKENS;
    const struct index_query *query = NULL;
    if (n_keys <= op->topk)
        return;
    if (op->scan == SCAN_BOUNDS)
        query = (const struct index_query *)(const void *)buffer_row(scan->context, op->query, row);
    memory += (1 + 2 * scan->n_rows) * kept_max(op);
    scan->rows[scan->n_rows++] = (struct scan_row){.row = row,
                                                   .first = (uint32_t)(segment * pages / op->n_segments) * PAGE_TOKENS,
                                                   .end = end < n_keys ? end : n_keys,
                                                   .kept = {memory, memory + kept_max(op), 0},
                                                   .by_scores = !query || !(query->width < INFINITY)};
}

static void run_scan(const struct plan_context *context, const void *args, uint32_t tile)
{
    const struct dsa_op *op = args;
    const struct step *step = step_of(context);
    uint32_t segment = tile % op->n_segments, row = tile / op->n_segments * rows_per_tile(op);
    uint32_t end = row + rows_per_tile(op) < step->n_rows ? row + rows_per_tile(op) : step->n_rows;
    while (row < end) {
        const struct step_span *span = step_row_span(step, row);
        struct scan scan = {context, op, span->sequence, (uint64_t *)(void *)context->scratch, {{0}}, 0};
        for (; row < end && step_row_span(step, row) == span; row++)
            take_row(&scan, row, segment);
        if (scan.n_rows > 0)
            scan_rows(&scan, segment);
    }
}

static uint32_t tiles_scan(const struct plan_context *context, const void *args)
{
    const struct dsa_op *op = args;
    return (step_of(context)->n_rows + rows_per_tile(op) - 1) / rows_per_tile(op) * op->n_segments;
}

void op_dsa_scan(struct plan *plan, const struct dsa_op *op)
{
    struct dsa_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    plan_scratch(plan, (1 + 2 * rows_per_tile(op)) * kept_max(op) * sizeof(uint64_t));
    uint64_t reads = buffer_bit(op->q) | buffer_bit(op->w) | (uint64_t)1 << op->cache;
    if (op->scan == SCAN_BOUNDS)
        reads |= buffer_bit(op->query);
    plan_add(
        plan,
        (struct plan_node){.label = "index.scan", .stream = "index", .run = run_scan, .tiles = tiles_scan, .args = a},
        reads, buffer_bit(op->candidates) | buffer_bit(op->n_candidates));
}

/* ---- choice ---- */

/* One element of 16 side by side. */
static void copy_column(char *out, uint32_t to, const char *in, uint32_t from, size_t n, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        memcpy(out + (i * INDEX_BLOCK_KEYS + to) * bytes, in + (i * INDEX_BLOCK_KEYS + from) * bytes, bytes);
}

/* Replaces ranks of bounds by those of scores. block: room for one block of keys. */
static void score_ranks(const struct plan_context *context, const struct dsa_op *op, uint32_t row, uint64_t *ranks,
                        size_t n, char *block)
{
    const struct sequence *sequence = step_row_span(step_of(context), row)->sequence;
    enum dtype dtype = sequence->layout->index_dtype;
    size_t block_bytes = sequence->layout->mla[op->layer].index_block_bytes;
    size_t element_bytes = dtype == DTYPE_MXFP8 ? 1 : dtype_bytes(dtype, 1); /* scales are like codes */
    size_t elements = block_bytes / INDEX_BLOCK_KEYS / element_bytes;
    const float *q = buffer_row(context, op->q, row), *w = buffer_row(context, op->w, row);
    for (size_t first = 0; first < n; first += INDEX_BLOCK_KEYS) {
        uint32_t count = n - first < INDEX_BLOCK_KEYS ? (uint32_t)(n - first) : INDEX_BLOCK_KEYS;
        float scores[INDEX_BLOCK_KEYS];
        for (uint32_t i = 0; i < INDEX_BLOCK_KEYS; i++) { /* the last key again where there are fewer */
            uint32_t position = select_position(ranks[first + (i < count ? i : count - 1)]);
            copy_column(block, i, sequence_index_block(sequence, op->layer, position), position % INDEX_BLOCK_KEYS,
                        elements, element_bytes);
        }
        scores_kernel(context->kernels, dtype)(scores, q, w, block, block_bytes, 1, op->n_heads, op->head_dim);
        for (uint32_t i = 0; i < count; i++)
            ranks[first + i] = select_rank(scores[i], select_position(ranks[first + i]));
    }
    step_count(context, STEP_KEYS_RESCORED, n);
}

/* Brings ranks of the k best to the front of `kept->upper`, of more than k candidates. */
static void decide(const struct plan_context *context, const struct dsa_op *op, uint32_t row, struct kept *kept,
                   uint64_t *spare, char *block)
{
    size_t k = op->topk;
    narrow(kept, spare, k);
    if (kept->count == k)
        return;
    uint64_t next = UINT64_MAX; /* the k+1st largest upper bound */
    memcpy(spare, kept->upper, kept->count * sizeof *spare);
    if (kept->count > k + 1)
        next = select_largest(spare, kept->count, k + 1);
    for (size_t i = 0; kept->count == k + 1 && i < kept->count; i++)
        next = spare[i] < next ? spare[i] : next;
    size_t n_certain = 0;
    for (size_t i = 0; i < kept->count; i++)
        if (kept->lower[i] > next) {
            uint64_t upper = kept->upper[i], lower = kept->lower[i];
            kept->upper[i] = kept->upper[n_certain];
            kept->lower[i] = kept->lower[n_certain];
            kept->upper[n_certain] = upper;
            kept->lower[n_certain++] = lower;
        }
    CHECK(n_certain <= k);
    if (n_certain == k)
        return;
    score_ranks(context, op, row, kept->upper + n_certain, kept->count - n_certain, block);
    select_largest(kept->upper + n_certain, kept->count - n_certain, k - n_certain);
}

/* Scratch of a choice: candidates and a spare array, positions to sort, a block of keys. */
struct choose_scratch {
    struct kept kept;
    uint64_t *spare;
    uint32_t *positions;
    char *block;
};

static size_t joined_max(const struct dsa_op *op)
{
    return op->n_segments * candidates_max(op->topk);
}

static size_t block_bytes_max(const struct dsa_op *op)
{
    return INDEX_BLOCK_KEYS * op->head_dim * sizeof(float);
}

static size_t choose_scratch_bytes(const struct dsa_op *op)
{
    return 3 * arena_cost(joined_max(op) * sizeof(uint64_t)) + arena_cost(op->topk * sizeof(uint32_t)) +
           arena_cost(block_bytes_max(op));
}

static struct choose_scratch choose_scratch_of(const struct plan_context *context, const struct dsa_op *op)
{
    struct arena arena = {.start = context->scratch, .capacity_bytes = choose_scratch_bytes(op)};
    struct choose_scratch s = {0};
    s.kept.upper = arena_take(&arena, joined_max(op) * sizeof(uint64_t));
    s.kept.lower = arena_take(&arena, joined_max(op) * sizeof(uint64_t));
    s.spare = arena_take(&arena, joined_max(op) * sizeof(uint64_t));
    s.positions = arena_take(&arena, op->topk * sizeof(uint32_t));
    s.block = arena_take(&arena, block_bytes_max(op));
    return s;
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
        struct choose_scratch s = choose_scratch_of(context, op);
        for (uint32_t segment = 0; segment < op->n_segments; segment++) {
            struct kept part = candidates_of(context, op, row, segment);
            memcpy(s.kept.upper + s.kept.count, part.upper, part.count * sizeof *part.upper);
            memcpy(s.kept.lower + s.kept.count, part.lower, part.count * sizeof *part.lower);
            s.kept.count += part.count;
        }
        CHECK(s.kept.count >= op->topk);
        if (s.kept.count > op->topk)
            decide(context, op, row, &s.kept, s.spare, s.block);
        count = op->topk;
        select_positions(selected, s.positions, s.kept.upper, count);
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
    struct dsa_op *a = plan_args(plan, sizeof *a);
    *a = *op;
    plan_scratch(plan, choose_scratch_bytes(op));
    plan_add(plan,
             (struct plan_node){
                 .label = "index.choose", .stream = "index", .run = run_choose, .tiles = step_tiles_rows, .args = a},
             buffer_bit(op->candidates) | buffer_bit(op->n_candidates) | buffer_bit(op->q) | buffer_bit(op->w) |
                 (uint64_t)1 << op->cache,
             buffer_bit(op->selected) | buffer_bit(op->n_selected));
}
