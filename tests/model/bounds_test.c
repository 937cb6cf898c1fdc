/* Law 6 of scans by bounds: whatever queries and keys are, a scan by bounds chooses what the exact scores choose. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cpu/tiers.h"
#include "ops/dsa.h"
#include "ops/select.h"
#include "synth_help.h"

enum { HEADS = 5, DIM = 64, ROWS = 11, NODES = 8, KEYS_MAX = 3000 };

/* What is unusual about the numbers. */
enum kind {
    PLAIN,
    FEW_DIFFERENT_KEYS,
    ZERO_KEYS,
    ZERO_QUERIES,
    NEGATIVE_WEIGHTS,
    ONE_HUGE_CHANNEL,
    ONE_HUGE_QUERY,
    NAN_IN_A_QUERY,
    NAN_IN_A_WEIGHT,
    INFINITE_WEIGHT,
    HUGE_KEYS,
    TINY_NUMBERS,
    RISING_SCORES,
    NEARLY_EQUAL_KEYS,
    KINDS,
};

struct scan_case {
    enum kind kind;
    enum dtype dtype;
    uint32_t n_keys, topk, n_rows, n_segments;
    uint64_t seed;
};

struct scan {
    struct scan_case c;
    float q[ROWS][HEADS * DIM], w[ROWS][HEADS];
    struct mla_slot slot;
    struct state_layout layout;
    struct pages pages;
    struct sequence sequence;
    struct plan plan;
    struct dsa_op op;
    _Atomic uint64_t counters[STEP_COUNTERS];
};

static void must(enum status status, const struct error *err)
{
    if (status != STATUS_OK)
        fail_msg("%s", err->text);
}

static float normal(struct rng *rng)
{
    double u = rng_uniform(rng), v = rng_uniform(rng);
    return (float)(sqrt(-2 * log(u + 1e-300)) * cos(6.283185307 * v));
}

static void store(struct scan *s, uint32_t position, const float *key)
{
    char *block = sequence_index_block(&s->sequence, 0, position);
    uint32_t column = position % INDEX_BLOCK_KEYS;
    for (uint32_t d = 0; d < DIM; d++)
        if (s->c.dtype == DTYPE_BF16)
            ((uint16_t *)(void *)block)[d * INDEX_BLOCK_KEYS + column] = bf16_from_f32(key[d]);
    for (uint32_t g = 0; s->c.dtype == DTYPE_MXFP8 && g < DIM / MX_BLOCK; g++) {
        uint8_t codes[MX_BLOCK];
        ((uint8_t *)block)[(DIM + g) * INDEX_BLOCK_KEYS + column] =
            mx_quantize_fp8(codes, key + g * MX_BLOCK, MX_FLOOR);
        for (uint32_t i = 0; i < MX_BLOCK; i++)
            ((uint8_t *)block)[(g * MX_BLOCK + i) * INDEX_BLOCK_KEYS + column] = codes[i];
    }
}

static void make_key(const struct scan *s, float *key, uint32_t position, struct rng *rng)
{
    struct rng same = {s->c.kind == FEW_DIFFERENT_KEYS ? s->c.seed + position % 7 : s->c.seed};
    bool repeats = s->c.kind == FEW_DIFFERENT_KEYS || s->c.kind == RISING_SCORES || s->c.kind == NEARLY_EQUAL_KEYS;
    for (uint32_t d = 0; d < DIM; d++) {
        key[d] = normal(repeats ? &same : rng);
        switch (s->c.kind) {
        case ZERO_KEYS:
            key[d] = 0;
            break;
        case ONE_HUGE_CHANNEL:
            key[d] *= d == 17 ? 1000.0f : 1.0f;
            break;
        case HUGE_KEYS:
            key[d] = ldexpf(key[d], position % 5 == 0 ? 110 : 0);
            break;
        case TINY_NUMBERS:
            key[d] = ldexpf(key[d], -(int)(position % 3) * 40 - 20);
            break;
        case RISING_SCORES:
            key[d] *= 1.0f + (float)position / 64;
            break;
        case NEARLY_EQUAL_KEYS:
            key[d] *= rng_below(rng, DIM) == 0 ? 1.01f : 1.0f;
            break;
        default:
            break;
        }
    }
}

static void make_query(struct scan *s, uint32_t row, struct rng *rng)
{
    float *q = s->q[row], *w = s->w[row];
    enum kind kind = s->c.kind;
    for (uint32_t i = 0; i < HEADS * DIM; i++) {
        q[i] = kind == ZERO_QUERIES ? 0 : kind == TINY_NUMBERS ? ldexpf(normal(rng), -70) : normal(rng);
        if (kind == ONE_HUGE_CHANNEL && i % DIM == 17)
            q[i] = normal(rng) * 1e-3f;
    }
    for (uint32_t h = 0; h < HEADS; h++)
        w[h] = kind == NEGATIVE_WEIGHTS ? -fabsf(normal(rng)) : normal(rng);
    if (kind == ONE_HUGE_QUERY)
        q[rng_below(rng, HEADS * DIM)] = row % 2 ? 1e30f : 1e5f;
    if (kind == NAN_IN_A_QUERY && row % 2)
        q[rng_below(rng, HEADS * DIM)] = NAN;
    if (kind == NAN_IN_A_WEIGHT && row % 2)
        w[rng_below(rng, HEADS)] = NAN;
    if (kind == INFINITE_WEIGHT && row % 2)
        w[rng_below(rng, HEADS)] = INFINITY;
}

static void open_scan(struct scan *s, const struct scan_case *c)
{
    struct error err;
    struct rng rng = {c->seed};
    memset(s, 0, sizeof *s);
    s->c = *c;
    s->slot.index_dim = DIM;
    s->layout = (struct state_layout){
        .latent_dtype = DTYPE_BF16, .index_dtype = c->dtype, .latent_width = 1, .n_mla = 1, .mla = &s->slot};
    layout_complete(&s->layout);
    must(pages_init(&s->pages, s->layout.page_bytes, c->n_keys / PAGE_TOKENS + 1, &err), &err);
    must(sequence_init(&s->sequence, &s->layout, &s->pages, c->n_keys, &err), &err);
    must(sequence_reserve(&s->sequence, c->n_keys, &err), &err);
    for (uint32_t p = 0; p < c->n_keys; p++) {
        float key[DIM];
        make_key(s, key, p, &rng);
        store(s, p, key);
    }
    for (uint32_t r = 0; r < c->n_rows; r++)
        make_query(s, r, &rng);
    must(plan_init(&s->plan, NODES, 1 << 14, &err), &err);
    s->op = (struct dsa_op){
        .n_heads = HEADS, .head_dim = DIM, .topk = c->topk, .n_segments = c->n_segments, .scan = SCAN_BOUNDS};
    s->op.q = plan_buffer(&s->plan, ROWS, HEADS * DIM);
    s->op.w = plan_buffer(&s->plan, ROWS, HEADS);
    s->op.query = plan_buffer(&s->plan, ROWS, dsa_query_width(HEADS, DIM));
    s->op.candidates = plan_buffer(&s->plan, ROWS * c->n_segments, dsa_candidates_width(c->topk));
    s->op.n_candidates = plan_buffer(&s->plan, ROWS, c->n_segments);
    s->op.selected = plan_buffer(&s->plan, ROWS, c->topk);
    s->op.n_selected = plan_buffer(&s->plan, ROWS, 1);
    s->op.cache = plan_resource(&s->plan);
    op_dsa_scan(&s->plan, &s->op);
    op_dsa_choose(&s->plan, &s->op);
    plan_seal(&s->plan);
}

static void close_scan(struct scan *s)
{
    plan_fini(&s->plan);
    sequence_fini(&s->sequence);
    pages_fini(&s->pages);
}

static int larger_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* By definition: the exact kernel's score of every key, sorted. */
static uint32_t definition(const struct scan *s, uint32_t row, uint32_t n_keys, uint32_t *chosen)
{
    static uint64_t ranks[KEYS_MAX];
    struct kernels kernels;
    struct error err;
    unsigned tiers;
    must(tiers_parse(NULL, &tiers, &err), &err);
    kernels_select(&kernels, tiers);
    for (uint32_t at = 0; at < n_keys; at += INDEX_BLOCK_KEYS) {
        float scores[INDEX_BLOCK_KEYS];
        (s->c.dtype == DTYPE_BF16 ? kernels.index_scores_bf16 : kernels.index_scores_mxfp8)(
            scores, s->q[row], s->w[row], sequence_index_block(&s->sequence, 0, at), s->slot.index_block_bytes, 1,
            HEADS, DIM);
        for (uint32_t i = 0; i < INDEX_BLOCK_KEYS && at + i < n_keys; i++)
            ranks[at + i] = select_rank(scores[i], at + i);
    }
    qsort(ranks, n_keys, sizeof *ranks, larger_first);
    uint32_t n = n_keys < s->c.topk ? n_keys : s->c.topk;
    for (uint32_t i = 0; i < n; i++)
        chosen[i] = select_position(ranks[i]);
    qsort(chosen, n, sizeof *chosen, ascending);
    return n;
}

static void run_way(struct scan *s, const char *tier, unsigned threads, enum exec_mode mode, uint32_t *selected,
                    uint32_t *n_selected)
{
    struct kernels kernels;
    struct team *team;
    struct runner runner;
    struct error err;
    unsigned tiers;
    uint32_t n_rows = s->c.n_rows, row_spans[ROWS] = {0};
    must(tiers_parse(tier, &tiers, &err), &err);
    kernels_select(&kernels, tiers);
    must(team_open(&team, threads, &err), &err);
    must(runner_init(&runner, team, &kernels, mode, NODES, s->plan.workspace_bytes, s->plan.scratch_bytes, &err), &err);
    struct plan_context context = {.workspace = runner.workspace};
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(buffer_row(&context, s->op.q, r), s->q[r], sizeof s->q[r]);
        memcpy(buffer_row(&context, s->op.w, r), s->w[r], sizeof s->w[r]);
        kernels.index_query_s16(buffer_row(&context, s->op.query, r), s->q[r], s->w[r], HEADS, DIM);
    }
    struct step_span span = {&s->sequence, 0, n_rows, s->c.n_keys - n_rows};
    struct step step = {.n_rows = n_rows,
                        .n_spans = 1,
                        .spans = &span,
                        .row_spans = row_spans,
                        .selected = selected,
                        .n_selected = n_selected,
                        .counters = s->counters};
    runner_run(&runner, &s->plan, &step);
    runner_fini(&runner);
    team_close(team);
}

static void check_case(const struct scan_case *c, bool all_tiers)
{
    static struct scan s;
    const char *tiers[8] = {NULL};
    size_t n_tiers = all_tiers ? machine_tiers(tiers, 8) : 1;
    uint32_t *want = malloc(ROWS * c->topk * sizeof *want), *got = malloc(ROWS * c->topk * sizeof *got);
    uint32_t n_want[ROWS], n_got[ROWS];
    open_scan(&s, c);
    for (uint32_t r = 0; r < c->n_rows; r++)
        n_want[r] = definition(&s, r, c->n_keys - c->n_rows + r + 1, want + r * c->topk);
    for (size_t way = 0; way < 2 * n_tiers; way++) {
        run_way(&s, tiers[way / 2], (unsigned)(way % 2 + 1), way % 2 ? EXEC_EAGER : EXEC_GRAPH, got, n_got);
        for (uint32_t r = 0; r < c->n_rows; r++)
            if (n_got[r] != n_want[r] || memcmp(got + r * c->topk, want + r * c->topk, n_want[r] * sizeof *got) != 0)
                fail_msg("kind %d, %s, %u keys, top %u, %u segments, seed %llu, way %zu: row %u differs", c->kind,
                         dtype_name(c->dtype), c->n_keys, c->topk, c->n_segments, (unsigned long long)c->seed, way, r);
    }
    if (c->kind == PLAIN && c->n_keys > c->topk) { /* bounds decide nearly all: what is slow must not go unnoticed */
        assert_int_equal(s.counters[STEP_SCANS_FELL_BACK], 0);
        assert_true(s.counters[STEP_KEYS_RESCORED] <= s.counters[STEP_SCANS] * (c->topk / 4 + 8));
    }
    if (c->kind == ZERO_KEYS && c->n_segments == 1 && c->n_keys > 2 * c->topk + 1000)
        assert_true(s.counters[STEP_SCANS_FELL_BACK] > 0);
    free(want);
    free(got);
    close_scan(&s);
}

static void every_kind(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_MXFP8};
    const uint64_t n_seeds = getenv("DAY0_SLOW") ? 40 : 3;
    for (uint64_t seed = 1; seed <= n_seeds; seed++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int t = 0; t < 2; t++)
                for (int segments = 0; segments < 2; segments++) {
                    struct scan_case c = {(enum kind)kind,
                                          types[t],
                                          2500 + 64 * (uint32_t)seed + (uint32_t)kind,
                                          seed % 2 ? 100 : 17,
                                          segments ? 2 : ROWS,
                                          segments ? 8 : 1,
                                          seed};
                    check_case(&c, seed == 1 && t == segments);
                }
}

/* Contexts of k - 1, k, k + 1, 3 k and around pages. */
static void every_size(void **state)
{
    (void)state;
    enum { K = 200 };
    static const uint32_t sizes[] = {K - 1, K, K + 1, K + 5, 255, 256, 257, 3 * K, KEYS_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t segments = 1; segments <= 8; segments += 7)
            for (int kind = PLAIN; kind <= FEW_DIFFERENT_KEYS; kind++) {
                enum dtype dtype = (i + segments) % 2 ? DTYPE_MXFP8 : DTYPE_BF16;
                check_case(&(struct scan_case){(enum kind)kind, dtype, sizes[i], K, ROWS, segments, 5 + i}, false);
            }
}

/* A whole model answers with the same bits, and has scanned by bounds. */
static void same_answers(void **state)
{
    (void)state;
    enum { N = 700 };
    static int32_t tokens[N];
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_MXFP8};
    static const uint32_t pieces[] = {200, 1, 1, 7, 50};
    struct synth synth = synth_default();
    synth.full_layers = 6;
    synth.index_dim = 32;
    synth_tokens(tokens, N, synth.vocabulary, 8);
    for (int t = 0; t < 2; t++) {
        struct answers answers[2];
        for (int exact = 0; exact < 2; exact++) {
            struct model_options options = exact_options(N);
            options.index_dtype = types[t];
            options.index_scan = exact ? SCAN_SCORES : SCAN_BOUNDS;
            options.n_threads = 2;
            struct model *model = synth_open(&synth, &options);
            answers[exact] = feed_pieces(model, tokens, N, pieces, 5);
            assert_true(model->counters[STEP_SCANS] > N);
            assert_true(exact == (model->counters[STEP_KEYS_RESCORED] == 0));
            model_close(model);
        }
        assert_memory_equal(answers[0].logits, answers[1].logits, answers[0].n_logits * sizeof(float));
        answers_free(&answers[0]);
        answers_free(&answers[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind), cmocka_unit_test(every_size),
                                       cmocka_unit_test(same_answers)};
    return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
