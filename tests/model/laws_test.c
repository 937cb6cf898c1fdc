/* The laws of docs/ARCHITECTURE.md that hold bit for bit: what else is in a step, how a prompt is cut, how many
 * threads and in which way a plan runs change nothing; a selection is exact; a step allocates nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "count_allocations.h"
#include "cpu/tiers.h"
#include "laws_help.h"
#include "ops/select.h"

static const char *const cases[] = {"k31-s1", "k3-s1", "linear-s1"};
enum { N_CASES = sizeof cases / sizeof *cases, SEQUENCES = 5, SEQUENCE_TOKENS = 120 };

/* The precision policy of a test: how activations meet weights, and what weights are converted to; and the type of
 * latents. */
struct law_policy {
    enum act act;
    struct weight_types weights;
    enum dtype latents;
};

/* Options for exact comparison under the policy of a test: its state, NULL for exact. Skips what this machine lacks the
 * arithmetic for. */
static struct model_options policy_options(void **state, uint32_t context_max)
{
    struct model_options options = exact_options(context_max);
    unsigned tiers;
    if (*state) {
        const struct law_policy *policy = *state;
        options.act = policy->act;
        options.weights = policy->weights;
        options.latent_dtype = policy->latents;
    }
    if (tiers_parse(act_tier(options.act), &tiers, NULL) != STATUS_OK) {
        print_message("--act %s: this machine has no tier %s\n", act_name(options.act), act_tier(options.act));
        skip();
    }
    return options;
}

/* ------------------------------------------------------------------------------------------------ allocations */

static void law_9_a_step_allocates_nothing(void **state)
{
    if (!COUNTS_ALLOCATIONS) {
        print_message("allocations are the sanitizer's in this build\n");
        skip();
    }
    void *volatile probe = malloc(1); /* the counter must count */
    free(probe);
    assert_true(allocations > 0);
    for (int c = 0; c < N_CASES; c++) {
        struct golden g = golden_load(cases[c], 300);
        struct model_options options = policy_options(state, g.n_tokens);
        assert_int_equal(laws_allocations(&g, &options, &allocations), 0);
        golden_free(&g);
    }
}

/* ---------------------------------------------------------------------------------------- batches and mixed steps */

static void law_2_neighbours_change_nothing(void **state)
{
    (void)policy_options(state, 1); /* skips before anything is owned */
    for (int c = 0; c < N_CASES; c++) {
        struct golden g = golden_load(cases[c], 300);
        struct answers solo[SEQUENCES];
        size_t count = (size_t)SEQUENCE_TOKENS * g.vocabulary;
        float *mixed[SEQUENCES];
        struct model_options options = policy_options(state, SEQUENCE_TOKENS);
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            solo[s] = run_pieces(g.directory, &options, laws_tokens(&g, s), SEQUENCE_TOKENS, NULL, 0);
            mixed[s] = malloc(count * sizeof(float));
        }
        for (uint64_t seed = 1; seed <= (slow_tests() ? 40 : 6); seed++) {
            options.n_threads = 1 + seed % 3;
            options.exec = seed % 2 ? EXEC_GRAPH : EXEC_EAGER;
            laws_run_mixed(&g, &options, SEQUENCES, SEQUENCE_TOKENS, seed, mixed);
            for (uint32_t s = 0; s < SEQUENCES; s++)
                if (memcmp(mixed[s], solo[s].logits, count * sizeof(float)) != 0)
                    fail_msg("%s: sequence %u among others differs from itself alone (seed %d, %u threads)", cases[c],
                             s, (int)seed, options.n_threads);
        }
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            free(mixed[s]);
            answers_free(&solo[s]);
        }
        golden_free(&g);
    }
}

/* --------------------------------------------------------------------------------------------------------- splits */

static void law_3_pieces_leave_the_same_state(void **state)
{
    (void)policy_options(state, 1);
    static const enum dtype latents[] = {DTYPE_F32, DTYPE_BF16, DTYPE_BF16, DTYPE_INT16},
                            keys[] = {DTYPE_F32, DTYPE_BF16, DTYPE_MXFP8, DTYPE_BF16};
    for (int c = 0; c < N_CASES; c++)
        for (int t = 0; t < 4; t++) {
            struct golden g = golden_load(cases[c], 300);
            struct model_options options = policy_options(state, g.n_tokens);
            options.latent_dtype = latents[t];
            options.index_dtype = keys[t];
            options.rewinds = true;
            uint64_t whole = laws_hash_after(&g, &options, 0);
            for (uint64_t seed = 1; seed <= (slow_tests() ? 30 : 4); seed++) {
                options.n_threads = 1 + seed % 3;
                options.exec = seed % 2 ? EXEC_GRAPH : EXEC_EAGER;
                if (laws_hash_after(&g, &options, seed) != whole)
                    fail_msg("%s: pieces of seed %d leave another state than the whole prompt", cases[c], (int)seed);
            }
            golden_free(&g);
        }
}

/* Contexts of 16, 17 and 18 chunks of keys, where attention's segments grow from one chunk to two: rows grouped into
 * tiles, one at a time and a few at a time, with keys split over threads, all sum in the same order. */
static void law_3_long_contexts(void **state)
{
    enum { TOKENS = 17 * 256 + 80, FROM = 16 * 256 - 40 };
    static const uint32_t few[] = {FROM, 1, 3, 2, 1, 30, 4, 1, 1, 200, 1, 56, 1, 1, 2, 4, 16, 5};
    static const uint32_t other[] = {FROM - 7, 64, 1, 100, 255, 3};
    struct golden g = golden_load("k3-s1", 80);
    struct model_options options = policy_options(state, TOKENS);
    int32_t *tokens = malloc(TOKENS * sizeof *tokens);
    struct rng rng = {4096};
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)rng_below(&rng, g.vocabulary);
    struct answers whole = run_pieces(g.directory, &options, tokens, TOKENS, NULL, 0);
    options.n_threads = 2;
    struct answers one = run_pieces(g.directory, &options, tokens, TOKENS, few, sizeof few / sizeof *few);
    assert_same_bits(&one, &whole, "single tokens around 4096 keys");
    options.n_threads = 3;
    struct answers two = run_pieces(g.directory, &options, tokens, TOKENS, other, sizeof other / sizeof *other);
    assert_same_bits(&two, &whole, "pieces around 4096 keys");
    answers_free(&one);
    answers_free(&two);
    answers_free(&whole);
    free(tokens);
    golden_free(&g);
}

/* --------------------------------------------------------------------------------------------------------- rewind */

static void law_4_rewound_tokens_leave_no_trace(void **state)
{
    (void)policy_options(state, 1); /* skips before anything is owned */
    for (int c = 0; c < N_CASES; c++) {
        struct golden g = golden_load(cases[c], 200);
        struct model_options options = policy_options(state, g.n_tokens);
        struct answers plain = run_pieces(g.directory, &options, g.tokens, g.n_tokens, NULL, 0);
        options.rewinds = true;
        float *logits = malloc(plain.n_logits * sizeof(float));
        for (uint64_t seed = 1; seed <= (slow_tests() ? 60 : 8); seed++) {
            options.n_threads = 1 + seed % 2;
            struct model *model = open_or_fail(g.directory, &options);
            laws_feed_with_detours(model, &g, seed, logits);
            model_close(model);
            if (memcmp(logits, plain.logits, plain.n_logits * sizeof(float)) != 0)
                fail_msg("%s: with detours of seed %d the logits are not those of the plain run", cases[c], (int)seed);
        }
        free(logits);
        answers_free(&plain);
        golden_free(&g);
    }
}

static void logits_are_those_of_the_chosen_rows(void **state)
{
    (void)state;
    struct golden g = golden_load(cases[0], 300);
    struct model_options options = exact_options(g.n_tokens);
    struct answers all = run_pieces(g.directory, &options, g.tokens, g.n_tokens, NULL, 0);
    struct model *model = open_or_fail(g.directory, &options);
    float *some = malloc(all.n_logits * sizeof(float));
    struct error err;
    static const uint32_t firsts[] = {0, 1, 255, 256, 257, 299};
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        struct sequence sequence;
        assert_int_equal(model_sequence_init(model, &sequence, &err), STATUS_OK);
        struct model_span span = {&sequence, g.tokens, g.n_tokens, firsts[i]};
        struct model_outputs outputs = {.logits = some};
        assert_int_equal(model_step(model, &span, 1, &outputs, &err), STATUS_OK);
        assert_memory_equal(some, all.logits + (size_t)firsts[i] * g.vocabulary,
                            (size_t)(g.n_tokens - firsts[i]) * g.vocabulary * sizeof(float));
        sequence_fini(&sequence);
    }
    free(some);
    model_close(model);
    answers_free(&all);
    golden_free(&g);
}

/* ------------------------------------------------------------------------------------------------------ selection */

static int larger_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* A score's place in the order of law 6, by comparison of floats: higher score first, then the lower position. */
static bool better(float a, uint32_t a_position, float b, uint32_t b_position)
{
    return a > b || (a == b && a_position < b_position);
}

static void law_6_selection_is_exact(void **state)
{
    (void)state;
    struct kernels kernels;
    kernels_select(&kernels, 1);
    struct rng rng = {6};
    enum { N_MAX = 3000 };
    static float scores[N_MAX];
    static uint64_t ranks[N_MAX], sorted[N_MAX];
    static uint32_t positions[N_MAX], scratch[N_MAX];
    for (int round = 0; round < 400; round++) {
        size_t n = 2 + rng_below(&rng, N_MAX - 2), k = 1 + rng_below(&rng, n - 1);
        uint64_t distinct = 1 + rng_below(&rng, round % 2 ? 5 : 100000);
        uint32_t first = (uint32_t)rng_below(&rng, 1u << 30);
        for (size_t i = 0; i < n; i++)
            scores[i] = ((float)rng_below(&rng, distinct) - (float)distinct / 2) * 0.37f + 0.0f;
        assert_int_equal(kernels.index_filter(ranks, scores, n, first, 0), n);
        memcpy(sorted, ranks, n * sizeof *ranks);
        qsort(sorted, n, sizeof *sorted, larger_first);
        for (size_t i = 1; i < n; i++) {
            uint32_t a = 0xffffffffu - (uint32_t)sorted[i - 1], b = 0xffffffffu - (uint32_t)sorted[i];
            assert_true(better(scores[a - first], a, scores[b - first], b));
        }
        assert_int_equal(select_largest(ranks, n, k), sorted[k - 1]);
        select_positions(positions, scratch, ranks, k);
        for (size_t i = 1; i < k; i++)
            assert_true(positions[i - 1] < positions[i]);
        qsort(ranks, k, sizeof *ranks, larger_first);
        assert_memory_equal(ranks, sorted, k * sizeof *ranks);
    }
}

static void policies_are_the_same_on_every_tier(void **state)
{
    /* Kimi Linear has BF16 experts, the others MXFP4 ones. */
    const struct law_policy *policy = *state;
    (void)policy_options(state, 1); /* skips before anything is owned */
    struct golden g = golden_load(cases[policy->weights.experts == DTYPE_AS_STORED ? 0 : 2], 200);
    struct model_options options = policy_options(state, g.n_tokens);
    struct answers first = {0};
    const char *tiers[8];
    size_t n_tiers = machine_tiers(tiers, 8), n_runs = 0;
    for (size_t i = 0; i < n_tiers; i++) {
        struct model *model;
        struct error err;
        options.cpu = tiers[i];
        enum status status = model_open(&model, g.directory, &options, &err);
        if (status == STATUS_OK && options.weights.dense != DTYPE_AS_STORED)
            assert_true(model->params.conversion.n_records > 0);
        model_close(model);
        if (status != STATUS_OK) { /* refused by name */
            assert_int_equal(status, STATUS_UNSUPPORTED);
            assert_non_null(strstr(err.text, act_tier(options.act)));
            continue;
        }
        struct answers answers = run_pieces(g.directory, &options, g.tokens, g.n_tokens, NULL, 0);
        if (n_runs++ == 0) {
            first = answers;
            continue;
        }
        assert_same_bits(&answers, &first, tiers[i]);
        answers_free(&answers);
    }
    assert_true(n_runs > 0);
    answers_free(&first);
    golden_free(&g);
}

int main(void)
{
    static struct law_policy int8 = {ACT_INT8, {DTYPE_AS_STORED, DTYPE_AS_STORED}, DTYPE_F32},
                             f16 = {ACT_F16, {DTYPE_AS_STORED, DTYPE_AS_STORED}, DTYPE_F32},
                             dense8 = {ACT_EXACT, {DTYPE_MXFP8, DTYPE_INT8}, DTYPE_F32},
                             dense4 = {ACT_EXACT, {DTYPE_MXFP4, DTYPE_MXFP4}, DTYPE_F32},
                             all_int8 = {ACT_INT8, {DTYPE_INT8, DTYPE_INT8}, DTYPE_F32},
                             int16 = {ACT_INT16, {DTYPE_AS_STORED, DTYPE_AS_STORED}, DTYPE_INT16};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(law_2_neighbours_change_nothing),
        cmocka_unit_test(law_3_pieces_leave_the_same_state),
        cmocka_unit_test(law_3_long_contexts),
        cmocka_unit_test(law_4_rewound_tokens_leave_no_trace),
        cmocka_unit_test(logits_are_those_of_the_chosen_rows),
        cmocka_unit_test(law_6_selection_is_exact),
        cmocka_unit_test(law_9_a_step_allocates_nothing),
        {"law 2, --act int16 --kv int16", law_2_neighbours_change_nothing, NULL, NULL, &int16},
        {"law 3, --act int16 --kv int16, long contexts", law_3_long_contexts, NULL, NULL, &int16},
        {"law 4, --act int16 --kv int16", law_4_rewound_tokens_leave_no_trace, NULL, NULL, &int16},
        {"tiers, --act int16 --kv int16", policies_are_the_same_on_every_tier, NULL, NULL, &int16},
        {"law 2, --act int8", law_2_neighbours_change_nothing, NULL, NULL, &int8},
        {"law 2, --act f16", law_2_neighbours_change_nothing, NULL, NULL, &f16},
        {"law 3, --act f16", law_3_pieces_leave_the_same_state, NULL, NULL, &f16},
        {"law 4, --act f16", law_4_rewound_tokens_leave_no_trace, NULL, NULL, &f16},
        {"law 9, --act f16", law_9_a_step_allocates_nothing, NULL, NULL, &f16},
        {"law 2, --act int8 --dense int8 --experts int8", law_2_neighbours_change_nothing, NULL, NULL, &all_int8},
        {"law 3, --act int8 --dense int8 --experts int8", law_3_pieces_leave_the_same_state, NULL, NULL, &all_int8},
        {"law 3, --dense mxfp8 --experts int8", law_3_pieces_leave_the_same_state, NULL, NULL, &dense8},
        {"law 3, --dense mxfp4 --experts mxfp4", law_3_pieces_leave_the_same_state, NULL, NULL, &dense4},
        {"law 4, --act int8 --dense int8 --experts int8", law_4_rewound_tokens_leave_no_trace, NULL, NULL, &all_int8},
        {"law 9, --dense mxfp8 --experts int8", law_9_a_step_allocates_nothing, NULL, NULL, &dense8},
        {"tiers, --dense mxfp8 --experts int8", policies_are_the_same_on_every_tier, NULL, NULL, &dense8},
        {"tiers, --dense mxfp4 --experts mxfp4", policies_are_the_same_on_every_tier, NULL, NULL, &dense4},
        {"tiers, --act int8 --dense int8 --experts int8", policies_are_the_same_on_every_tier, NULL, NULL, &all_int8},
        {"tiers, --act int8", policies_are_the_same_on_every_tier, NULL, NULL, &int8},
        {"tiers, --act f16", policies_are_the_same_on_every_tier, NULL, NULL, &f16},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
