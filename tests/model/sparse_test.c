/* Kinds of faults that sparse attention invites: equal scores, contexts around top-k, long contexts in little
 * memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cpu/tiers.h"
#include "ops/dsa.h"
#include "synth_help.h"

static void must(enum status status, const struct error *err)
{
    if (status != STATUS_OK)
        fail_msg("%s", err->text);
}

/* ---- scan and choice alone: index keys straight into the cache, choices against a sort ---- */

enum { HEADS = 2, DIM = 32, ROWS = 3, NODES = 8 };

/* Exact small numbers, so that scores are the same in any order of sums: `levels` steps of 1/4 around 0. */
struct scan_case {
    uint32_t n_keys, topk, n_segments;
    uint32_t levels;  /* 1: everything 0, all scores equal */
    enum dtype dtype; /* of the keys */
    enum dsa_scan scan;
};

struct scan {
    struct scan_case c;
    float *keys; /* [n_keys][DIM] */
    float q[ROWS][HEADS][DIM], w[ROWS][HEADS];
    struct mla_slot slot;
    struct state_layout layout;
    struct pages pages;
    struct sequence sequence;
    struct plan plan;
    struct dsa_op op;
};

static float level(struct rng *rng, uint32_t levels)
{
    return levels == 1 ? 0.0f : ((float)rng_below(rng, levels) - (float)(levels / 2)) * 0.25f;
}

static void store(struct scan *s, uint32_t position, const float *key)
{
    char *block = sequence_index_block(&s->sequence, 0, position);
    uint32_t column = position % INDEX_BLOCK_KEYS;
    uint8_t codes[DIM], scale = 0;
    if (s->c.dtype == DTYPE_MXFP8) {
        scale = mx_quantize_fp8(codes, key, MX_FLOOR);
        ((uint8_t *)block)[DIM * INDEX_BLOCK_KEYS + column] = scale;
    }
    for (uint32_t d = 0; d < DIM; d++) {
        size_t at = d * INDEX_BLOCK_KEYS + column;
        if (s->c.dtype == DTYPE_F32)
            ((float *)(void *)block)[at] = key[d];
        else if (s->c.dtype == DTYPE_BF16)
            ((uint16_t *)(void *)block)[at] = bf16_from_f32(key[d]);
        else
            ((uint8_t *)block)[at] = codes[d];
    }
}

static void open_scan(struct scan *s, const struct scan_case *c)
{
    struct error err;
    struct rng rng = {c->n_keys + c->levels};
    *s = (struct scan){.c = *c, .slot = {.index_dim = DIM}};
    s->layout = (struct state_layout){
        .latent_dtype = DTYPE_BF16, .index_dtype = c->dtype, .latent_width = 1, .n_mla = 1, .mla = &s->slot};
    layout_complete(&s->layout);
    must(pages_init(&s->pages, s->layout.page_bytes, c->n_keys / PAGE_TOKENS + 1, &err), &err);
    must(sequence_init(&s->sequence, &s->layout, &s->pages, c->n_keys, &err), &err);
    must(sequence_reserve(&s->sequence, c->n_keys, &err), &err);
    s->keys = malloc((size_t)c->n_keys * DIM * sizeof(float));
    for (uint32_t p = 0; p < c->n_keys; p++) {
        for (uint32_t d = 0; d < DIM; d++)
            s->keys[(size_t)p * DIM + d] = level(&rng, c->levels);
        store(s, p, s->keys + (size_t)p * DIM);
    }
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < HEADS; h++) {
            s->w[r][h] = c->levels == 1 ? -1.0f : level(&rng, 9);
            for (int d = 0; d < DIM; d++)
                s->q[r][h][d] = level(&rng, 5);
        }
    must(plan_init(&s->plan, NODES, 1 << 14, &err), &err);
    s->op = (struct dsa_op){.n_heads = HEADS, .head_dim = DIM, .topk = c->topk, .n_segments = c->n_segments};
    s->op.q = plan_buffer(&s->plan, ROWS, HEADS * DIM);
    s->op.w = plan_buffer(&s->plan, ROWS, HEADS);
    s->op.scan = c->scan;
    s->op.candidates = plan_buffer(&s->plan, ROWS * c->n_segments, dsa_candidates_width(c->topk));
    s->op.n_candidates = plan_buffer(&s->plan, ROWS, c->n_segments);
    s->op.selected = plan_buffer(&s->plan, ROWS, c->topk);
    s->op.n_selected = plan_buffer(&s->plan, ROWS, 1);
    s->op.cache = plan_resource(&s->plan);
    s->op.query = plan_buffer(&s->plan, ROWS, dsa_query_width(HEADS, DIM));
    op_dsa_scan(&s->plan, &s->op);
    op_dsa_choose(&s->plan, &s->op);
    plan_seal(&s->plan);
}

static void close_scan(struct scan *s)
{
    plan_fini(&s->plan);
    sequence_fini(&s->sequence);
    pages_fini(&s->pages);
    free(s->keys);
}

struct scored {
    float score;
    uint32_t position;
};

static int better_first(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->position < y->position ? -1 : 1;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The definition: sort all scores, keep the best. Gives the memory to the caller. */
static uint32_t *sorted_choice(const struct scan *s, int row, uint32_t n_keys, uint32_t *n)
{
    struct scored *all = malloc(n_keys * sizeof *all);
    for (uint32_t p = 0; p < n_keys; p++) {
        double score = 0;
        for (int h = 0; h < HEADS; h++) {
            double dot = 0;
            for (int d = 0; d < DIM; d++)
                dot += (double)s->q[row][h][d] * s->keys[(size_t)p * DIM + (size_t)d];
            score += s->w[row][h] * fmax(dot, 0);
        }
        all[p] = (struct scored){(float)score, p};
        assert_true((double)all[p].score == score); /* the numbers are exact, or the test compares noise */
    }
    qsort(all, n_keys, sizeof *all, better_first);
    *n = n_keys < s->c.topk ? n_keys : s->c.topk;
    uint32_t *chosen = malloc(*n * sizeof *chosen);
    for (uint32_t i = 0; i < *n; i++)
        chosen[i] = all[i].position;
    qsort(chosen, *n, sizeof *chosen, ascending);
    free(all);
    return chosen;
}

/* The last ROWS positions choose; every thread count, run mode and tier must choose as the sort does. */
static void check_scan(const struct scan_case *c, bool all_ways)
{
    struct scan s;
    struct error err;
    const char *tiers[8];
    size_t n_tiers = machine_tiers(tiers, 8);
    open_scan(&s, c);
    uint32_t rows = c->n_keys < ROWS ? c->n_keys : ROWS, first = c->n_keys - rows, n[ROWS], *want[ROWS];
    for (uint32_t r = 0; r < rows; r++)
        want[r] = sorted_choice(&s, (int)r, first + r + 1, &n[r]);
    uint32_t *selected = malloc(ROWS * c->topk * sizeof *selected), n_selected[ROWS];
    for (unsigned way = 0; way < (all_ways ? 6 * n_tiers : 2); way++) {
        struct kernels kernels;
        struct team *team;
        struct runner runner;
        unsigned tier;
        must(tiers_parse(all_ways ? tiers[way / 6] : NULL, &tier, &err), &err);
        kernels_select(&kernels, tier);
        must(team_open(&team, way % 3 + 1, &err), &err);
        must(runner_init(&runner, team, &kernels, way % 2 ? EXEC_EAGER : EXEC_GRAPH, NODES, s.plan.workspace_bytes,
                         s.plan.scratch_bytes, &err),
             &err);
        struct plan_context context = {.workspace = runner.workspace};
        for (uint32_t r = 0; r < rows; r++) {
            memcpy(buffer_row(&context, s.op.q, r), s.q[r], sizeof s.q[r]);
            memcpy(buffer_row(&context, s.op.w, r), s.w[r], sizeof s.w[r]);
            kernels.index_query_s16(buffer_row(&context, s.op.query, r), s.q[r][0], s.w[r], HEADS, DIM);
        }
        struct step_span span = {&s.sequence, 0, rows, first};
        uint32_t row_spans[ROWS] = {0};
        struct step step = {.n_rows = rows,
                            .n_spans = 1,
                            .spans = &span,
                            .row_spans = row_spans,
                            .selected = selected,
                            .n_selected = n_selected};
        runner_run(&runner, &s.plan, &step);
        for (uint32_t r = 0; r < rows; r++)
            if (n_selected[r] != n[r] || memcmp(selected + r * c->topk, want[r], n[r] * sizeof *selected) != 0)
                fail_msg("%u keys, top %u, %u segments, %u levels, %s, way %u: row %u chose otherwise than the sort",
                         c->n_keys, c->topk, c->n_segments, c->levels, dtype_name(c->dtype), way, r);
        runner_fini(&runner);
        team_close(team);
    }
    for (uint32_t r = 0; r < rows; r++)
        free(want[r]);
    free(selected);
    close_scan(&s);
}

/* All scores equal, or thousands of equal ones: the lowest positions win, always the same ones. */
static void equal_scores(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 63, 64, 65, 1000, 5003}, tops[] = {1, 2, 7, 16, 63, 64, 100, 2048};
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_MXFP8};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t t = 0; t < sizeof tops / sizeof *tops; t++)
            for (uint32_t levels = 1; levels <= 3; levels += 2) {
                enum dtype type = types[(l + t) % 3];
                struct scan_case c = {lengths[l], tops[t], (l + t) % 2 ? 8 : 1, levels, type, SCAN_SCORES};
                bool all_ways = lengths[l] == 1000 && (tops[t] == 64 || tops[t] == 7);
                check_scan(&c, all_ways);
                c.scan = SCAN_BOUNDS;
                if (type != DTYPE_F32)
                    check_scan(&c, all_ways);
            }
}

/* 200,000 keys: the choice is exact and the buffers stay small. */
static void long_context_in_little_memory(void **state)
{
    (void)state;
    enum { KEYS = 200000, LIMIT = 64 << 20 };
    static const enum dtype types[] = {DTYPE_F32, DTYPE_MXFP8};
    for (size_t i = 0; i < 2; i++) {
        struct scan s;
        struct scan_case c = {KEYS, 2048, 8, 9, types[i], types[i] == DTYPE_F32 ? SCAN_SCORES : SCAN_BOUNDS};
        check_scan(&c, false);
        open_scan(&s, &(struct scan_case){1, c.topk, c.n_segments, 1, c.dtype, c.scan});
        assert_true(s.plan.workspace_bytes + s.plan.scratch_bytes < LIMIT);
        close_scan(&s);
    }
    /* A whole model: all plans, opened for that context. */
    struct synth synth = synth_default();
    struct model_options options = model_options_default();
    struct sequence sequence;
    struct error err;
    synth.index_topk = 2048;
    options.context_max = KEYS;
    options.n_threads = 2;
    struct model *model = synth_open(&synth, &options);
    size_t workspace = 0, scratch = model->runner.scratch_bytes;
    for (uint32_t p = 0; p < MODEL_BUCKETS; p++)
        workspace = model->plans[p].workspace_bytes > workspace ? model->plans[p].workspace_bytes : workspace;
    print_message("workspace %.1f MB, scratch %.1f MB for %d tokens, top %u\n", (double)workspace / 1e6,
                  (double)scratch / 1e6, KEYS, model->topk);
    assert_true(workspace + scratch * team_size(model->team) < LIMIT);
    /* A token behind so many: the cache is filled by hand, its index keys at random. */
    must(model_sequence_init(model, &sequence, &err), &err);
    must(sequence_reserve(&sequence, KEYS - 1, &err), &err);
    struct rng rng = {4};
    for (uint32_t p = 0; p < KEYS - 1; p += INDEX_BLOCK_KEYS) {
        uint16_t *keys = (uint16_t *)(void *)sequence_index_block(&sequence, 0, p);
        for (uint32_t k = 0; k < INDEX_BLOCK_KEYS * synth.index_dim; k++)
            keys[k] = bf16_from_f32((float)rng_uniform(&rng) - 0.5f);
    }
    sequence.length = KEYS - 1;
    float logits[33];
    must(model_step(model, &(struct model_span){&sequence, &(int32_t){3}, 1, 0}, 1,
                    &(struct model_outputs){.logits = logits}, &err),
         &err);
    for (int v = 0; v < 33; v++)
        assert_true(isfinite(logits[v]));
    sequence_fini(&sequence);
    model_close(model);
}

/* ---- in a model ---- */

struct choices {
    uint32_t topk, n_checked;
    bool lowest; /* all scores are equal: the first positions */
};

static void check_choice(void *context, uint32_t layer, uint32_t span, uint32_t position, const uint32_t *chosen,
                         uint32_t n_chosen)
{
    struct choices *choices = context;
    (void)layer;
    (void)span;
    assert_int_equal(n_chosen, position + 1 < choices->topk ? position + 1 : choices->topk);
    for (uint32_t i = 0; i < n_chosen; i++) {
        assert_true(chosen[i] <= position && (i == 0 || chosen[i] > chosen[i - 1]));
        assert_true(!choices->lowest || chosen[i] == i);
    }
    choices->n_checked++;
}

/* Every row has exactly its valid, distinct positions; with a blind indexer the first ones. */
static void exactly_k_positions(void **state)
{
    (void)state;
    enum { N = 2100 };
    static int32_t tokens[N];
    for (unsigned way = 0; way < 3; way++) {
        struct synth synth = synth_default();
        struct error err;
        struct sequence sequence;
        synth.blind_index = way > 0;
        synth.full_layers = 6;
        struct model_options options = model_options_default();
        options.context_max = N;
        options.reports_selected = true;
        options.n_threads = way + 1;
        options.exec = way == 2 ? EXEC_EAGER : EXEC_GRAPH;
        struct model *model = synth_open(&synth, &options);
        struct choices choices = {.topk = synth.index_topk, .lowest = synth.blind_index};
        struct model_outputs outputs = {.selected = check_choice, .selected_context = &choices};
        synth_tokens(tokens, N, synth.vocabulary, 5);
        must(model_sequence_init(model, &sequence, &err), &err);
        must(model_step(model, &(struct model_span){&sequence, tokens, N, N}, 1, &outputs, &err), &err);
        assert_int_equal(choices.n_checked, 2 * N);
        sequence_fini(&sequence);
        model_close(model);
    }
}

static struct answers answers_of(const struct synth *synth, const int32_t *tokens, uint32_t n, bool exact)
{
    static const uint32_t mixed[] = {50, 1, 1, 7, 200};
    struct model_options options = exact_options(n);
    if (!exact)
        options.latent_dtype = options.index_dtype = DTYPE_BF16;
    struct model *model = synth_open(synth, &options);
    struct answers answers = feed_pieces(model, tokens, n, mixed, exact ? 0 : 5);
    model_close(model);
    return answers;
}

/* Up to k tokens, and for any length where k is larger, the answers are those of a model without an indexer. */
static void dense_up_to_k(void **state)
{
    (void)state;
    enum { N = 700 };
    static int32_t tokens[N];
    for (int exact = 0; exact < 2; exact++) {
        struct synth dense = synth_default();
        dense.full_layers = 6;
        dense.index_topk = 0;
        synth_tokens(tokens, N, dense.vocabulary, 6);
        struct answers want = answers_of(&dense, tokens, N, exact);
        static const uint32_t tops[] = {16, 100, 256, 300, N, 1 << 20};
        for (size_t i = 0; i < sizeof tops / sizeof *tops; i++) {
            struct synth sparse = dense;
            sparse.index_topk = tops[i];
            struct answers got = answers_of(&sparse, tokens, N, exact);
            size_t equal = (size_t)(tops[i] < N ? tops[i] : N) * dense.vocabulary;
            if (memcmp(got.logits, want.logits, equal * sizeof(float)) != 0)
                fail_msg("top %u is not dense up to there", tops[i]);
            if (tops[i] < N)
                assert_memory_not_equal(got.logits + equal, want.logits + equal,
                                        (want.n_logits - equal) * sizeof(float));
            answers_free(&got);
        }
        answers_free(&want);
    }
}

/* Contexts of k - 1, k, k + 1, 2 k tokens as whole prompts: the same answers as a long prompt's first tokens. */
static void around_k(void **state)
{
    (void)state;
    enum { K = 48 };
    int32_t tokens[2 * K + 1];
    struct synth synth = synth_default();
    synth.index_topk = K;
    synth_tokens(tokens, 2 * K + 1, synth.vocabulary, 7);
    struct answers all = answers_of(&synth, tokens, 2 * K + 1, true);
    static const uint32_t lengths[] = {K - 1, K, K + 1, 2 * K};
    for (size_t i = 0; i < 4; i++) {
        struct answers some =
            answers_of(&synth, tokens, lengths[i], true); /* context_max is the length: k may exceed it */
        if (memcmp(some.logits, all.logits, some.n_logits * sizeof(float)) != 0)
            fail_msg("a prompt of %u tokens with top %d answers otherwise than a longer one", lengths[i], K);
        for (size_t t = 0; t < some.n_logits; t++)
            assert_true(isfinite(some.logits[t]));
        answers_free(&some);
    }
    answers_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_scores),  cmocka_unit_test(long_context_in_little_memory),
        cmocka_unit_test(dense_up_to_k), cmocka_unit_test(exactly_k_positions),
        cmocka_unit_test(around_k),
    };
    return cmocka_run_group_tests_name("sparse", tests, NULL, NULL);
}
