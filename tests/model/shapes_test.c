/* Models of odd shapes: heads of sizes that fill no vector, few taps, odd ranks, all weight types. Each gives the
 * same bits on every tier, for any thread count and run mode, and however its prompt is cut. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "synth_help.h"

enum { SHAPES = 12, TOKENS = 70 };

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static struct synth random_shape(uint64_t seed)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const float bounds[] = {0.0f, -5.0f, -2.5f};
    struct rng rng = {seed};
    struct synth s = {.seed = seed, .weights = types[seed % 3], .packed_experts = seed % 4 == 0};
    s.vocabulary = between(&rng, 2, 70);
    s.hidden = between(&rng, 1, 50);
    s.inner = between(&rng, 1, 60);
    s.n_layers = between(&rng, 1, 5);
    s.full_layers = (uint32_t)rng_below(&rng, 1u << s.n_layers);
    s.kda_heads = between(&rng, 1, 4);
    s.kda_dim = between(&rng, 1, 40);
    s.conv_taps = between(&rng, 1, 4);
    s.decay_bound = bounds[rng_below(&rng, 3)];
    s.full_rank_gate = rng_below(&rng, 2);
    s.heads = between(&rng, 1, 4);
    s.kv_lora = between(&rng, 1, 40);
    s.nope = between(&rng, 1, 20);
    s.rope = between(&rng, 0, 9);
    s.v_dim = between(&rng, 1, 20);
    s.output_gate = rng_below(&rng, 2);
    s.q_lora = rng_below(&rng, 4) ? between(&rng, 1, 30) : 0;
    s.index_heads = between(&rng, 1, 4);
    s.index_dim = between(&rng, 1, 40);
    s.index_topk = s.q_lora && s.full_layers && rng_below(&rng, 4) ? between(&rng, 1, 40) : 0;
    s.block = (uint32_t)rng_below(&rng, 4);
    s.experts = rng_below(&rng, 5) ? between(&rng, 1, 9) : 0;
    s.chosen = s.experts ? between(&rng, 1, s.experts) : 0;
    s.shared = (uint32_t)rng_below(&rng, 3);
    s.expert_inner = s.packed_experts ? 32 * between(&rng, 1, 2) : between(&rng, 1, 40);
    s.latent = s.packed_experts ? 32 : (uint32_t)rng_below(&rng, 2) * between(&rng, 1, 40);
    s.tied = rng_below(&rng, 3) == 0;
    return s;
}

/* One shape of odd sizes throughout, then random ones. */
static struct synth shape(uint64_t i)
{
    struct synth s = synth_default();
    s.weights = DTYPE_F16;
    s.conv_taps = 2;
    return i == 0 ? s : random_shape(i);
}

static void same_bits_every_way(void **state)
{
    (void)state;
    static const uint32_t ones[] = {1}, mixed[] = {3, 17, 2, 30, 1, 16};
    const char *tiers[8];
    size_t n_tiers = machine_tiers(tiers, 8);
    for (uint64_t i = 0; i < (slow_tests() ? 200 : SHAPES); i++) {
        struct synth synth = shape(i);
        struct synth_directory directory = synth_write(&synth);
        int32_t tokens[TOKENS];
        synth_tokens(tokens, TOKENS, synth.vocabulary, i + 100);
        struct model_options options = exact_options(TOKENS);
        options.n_threads = 1;
        options.cpu = "ref";
        struct answers base = run_pieces(directory.path, &options, tokens, TOKENS, NULL, 0);
        for (size_t t = 0; t < base.n_logits; t++)
            if (!(base.logits[t] - base.logits[t] == 0.0f))
                fail_msg("shape %d: logit %zu is %g", (int)i, t, (double)base.logits[t]);
        for (size_t t = 0; t < n_tiers; t++)
            for (int way = 0; way < 3; way++) {
                char what[96];
                options.cpu = tiers[t];
                options.n_threads = (unsigned)way + 1;
                options.exec = way == 1 ? EXEC_EAGER : EXEC_GRAPH;
                struct model *model = open_or_fail(directory.path, &options);
                struct answers whole = feed_pieces(model, tokens, TOKENS, way == 2 ? mixed : NULL, way == 2 ? 6 : 0);
                snprintf(what, sizeof what, "shape %d, tier %s, %u threads", (int)i, tiers[t], options.n_threads);
                assert_same_bits(&whole, &base, what);
                answers_free(&whole);
                if (way == 0) {
                    struct answers single = feed_pieces(model, tokens, TOKENS, ones, 1);
                    assert_same_bits(&single, &base, what);
                    answers_free(&single);
                }
                model_close(model);
            }
        answers_free(&base);
        synth_remove(&directory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_every_way)};
    return cmocka_run_group_tests_name("shapes", tests, NULL, NULL);
}
