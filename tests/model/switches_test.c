/* The laws under every switch: each one alone, all off, and random pairs. A switch that is one of speed alone gives the
 * bits of the default; one that changes numbers keeps the laws among its own numbers. Another switch is another line
 * of the table: a key of policies (lab/policy.h) and its values. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "count_allocations.h"
#include "lab/policy.h"
#include "laws_help.h"

enum { OTHERS_MAX = 11, SEQUENCES = 3, SEQUENCE_TOKENS = 30, TEXT_TOKENS = 90, COMBINATIONS_MAX = 64 };

/* `off` is the technique switched off (NULL: the default is), `others` are the values that are not the default. What
 * this machine lacks is skipped. */
static const struct toggle {
    const char *key;
    bool changes_numbers;
    const char *off, *others[OTHERS_MAX];
} toggles[] = {
    {"exec", false, "eager", {"eager"}},
    {"streams", false, "off", {"off"}},
    {"threads", false, "1", {"1", "3"}},
    {"cpu", false, "ref", {"avx512", "avx2", "neon", "ref"}},
    {"act", true, "exact", {"exact", "int8", "int16", "f16"}},
    {"dense", true, NULL, {"mxfp8", "int8", "mxfp4"}},
    {"experts", true, NULL, {"mxfp4", "int8"}},
    {"pack", false, "off", {"off"}},
    {"without",
     false,
     "all",
     {"projections", "attn-res", "grouping", "sharing", "segments", "norms", "epilogue", "kda-region", "flash-kda",
      "early-start"}},
    {"kv", true, "f32", {"bf16", "f32"}},
    {"li", true, "f32", {"mxfp8", "f32"}},
    {"li-scale", true, "floor", {"ceil"}},
    {"sfa", true, "masked", {"masked"}},
    {"li-scan", false, "exact", {"exact"}},
};
enum { N_TOGGLES = sizeof toggles / sizeof *toggles };

static const char *const cases[] = {"k31-s1", "k3-s1", "linear-s1"};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The value of each toggle, NULL: the default. */
struct combination {
    const char *values[N_TOGGLES];
};

static uint32_t n_others(int toggle)
{
    uint32_t n = 0;
    while (n < OTHERS_MAX && toggles[toggle].others[n])
        n++;
    return n;
}

/* As a policy's text: all that is named, or only what changes numbers. */
static void write_text(char *out, size_t bytes, const struct combination *c, bool numbers_only)
{
    size_t used = 0;
    out[0] = 0;
    for (int t = 0; t < N_TOGGLES; t++)
        if (c->values[t] && (toggles[t].changes_numbers || !numbers_only))
            used +=
                (size_t)snprintf(out + used, bytes - used, "%s%s=%s", used ? "," : "", toggles[t].key, c->values[t]);
    assert_true(used < bytes);
}

/* The options of a combination; false if this machine cannot run it. */
static bool options_of(struct model_options *options, const char *directory, const char *text)
{
    struct model_options base = model_options_default();
    struct policy policy = {.options = base};
    struct model *model = NULL;
    struct error err;
    base.n_threads = 2;
    base.context_max = TEXT_TOKENS;
    base.reports_selected = true;
    policy.options = base;
    if (text[0] && policy_parse(&policy, text, &base, &err) != STATUS_OK) {
        if (!strstr(text, "cpu="))
            fail_msg("%s", err.text);
        return false;
    }
    *options = policy.options;
    enum status status = model_open(&model, directory, options, &err);
    model_close(model);
    if (status != STATUS_OK && status != STATUS_UNSUPPORTED)
        fail_msg("%s: %s", text, err.text);
    return status == STATUS_OK;
}

/* What the default of every switch of speed gives. */
struct reference {
    char text[POLICY_NAME_BYTES];
    struct answers whole, solo[SEQUENCES];
    uint64_t hash;
};

/* The reference of a case for the same numbers; made once. */
static const struct reference *reference_for(const struct golden *g, int which, const struct combination *c)
{
    static struct reference kept[N_CASES][COMBINATIONS_MAX];
    static uint32_t n_kept[N_CASES];
    char text[POLICY_NAME_BYTES];
    write_text(text, sizeof text, c, true);
    for (uint32_t i = 0; i < n_kept[which]; i++)
        if (strcmp(kept[which][i].text, text) == 0)
            return &kept[which][i];
    assert_true(n_kept[which] < COMBINATIONS_MAX);
    struct reference *r = &kept[which][n_kept[which]++];
    struct model_options options;
    assert_true(options_of(&options, g->directory, text));
    strcpy(r->text, text);
    r->whole = run_pieces(g->directory, &options, g->tokens, g->n_tokens, NULL, 0);
    for (uint32_t s = 0; s < SEQUENCES; s++)
        r->solo[s] = run_pieces(g->directory, &options, laws_tokens(g, s), SEQUENCE_TOKENS, NULL, 0);
    options.rewinds = true;
    r->hash = laws_hash_after(g, &options, 0);
    return r;
}

static void check_neighbours(const struct golden *g, const struct model_options *options, const struct reference *r,
                             const char *text, uint64_t seed)
{
    float *mixed[SEQUENCES];
    for (uint32_t s = 0; s < SEQUENCES; s++)
        mixed[s] = malloc(r->solo[s].n_logits * sizeof(float));
    laws_run_mixed(g, options, SEQUENCES, SEQUENCE_TOKENS, seed, mixed);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        if (memcmp(mixed[s], r->solo[s].logits, r->solo[s].n_logits * sizeof(float)) != 0)
            fail_msg("%s, %s: sequence %u among others differs from itself alone (seed %d)", g->directory, text, s,
                     (int)seed);
        free(mixed[s]);
    }
}

static void check_rewind(const struct golden *g, const struct model_options *base, const struct reference *r,
                         const char *text, uint64_t seed)
{
    struct model_options options = *base;
    options.rewinds = true;
    float *logits = malloc(r->whole.n_logits * sizeof(float));
    struct model *model = open_or_fail(g->directory, &options);
    laws_feed_with_detours(model, g, seed, logits);
    model_close(model);
    if (memcmp(logits, r->whole.logits, r->whole.n_logits * sizeof(float)) != 0)
        fail_msg("%s, %s: detours of seed %d leave a trace", g->directory, text, (int)seed);
    free(logits);
    if (laws_hash_after(g, &options, seed) != r->hash)
        fail_msg("%s, %s: pieces of seed %d leave another state than the whole prompt", g->directory, text, (int)seed);
}

/* Laws 1 to 4 and 9 of one combination; false if this machine cannot run it. */
static bool check_combination(const struct combination *c, int which, uint64_t seed)
{
    struct golden g = golden_load(cases[which], TEXT_TOKENS);
    struct model_options options;
    char text[POLICY_NAME_BYTES];
    write_text(text, sizeof text, c, false);
    bool can = options_of(&options, g.directory, text);
    if (can) {
        static const uint32_t pieces[] = {1, 30, 7};
        const struct reference *r = reference_for(&g, which, c);
        struct answers got = run_pieces(g.directory, &options, g.tokens, g.n_tokens, pieces, seed % 4);
        assert_same_bits(&got, &r->whole, text);
        answers_free(&got);
        check_neighbours(&g, &options, r, text, seed);
        check_rewind(&g, &options, r, text, seed);
        if (COUNTS_ALLOCATIONS && laws_allocations(&g, &options, &allocations) != 0)
            fail_msg("%s: a step allocates", text);
    }
    golden_free(&g);
    return can;
}

static void each_switch_alone(void **state)
{
    (void)state;
    int n = 0, n_skipped = 0;
    for (int t = 0; t < N_TOGGLES; t++)
        for (uint32_t v = 0; v < n_others(t); v++)
            for (int which = 0; which < (slow_tests() ? N_CASES : 1); which++) {
                struct combination c = {0};
                c.values[t] = toggles[t].others[v];
                if (check_combination(&c, which, 1 + v))
                    n++;
                else
                    print_message("skipped: %s=%s cannot run here\n", toggles[t].key, toggles[t].others[v]),
                        n_skipped++;
            }
    print_message("%d switched, %d skipped\n", n, n_skipped);
    assert_true(n > N_TOGGLES);
}

static void all_off(void **state)
{
    (void)state;
    struct combination c;
    for (int t = 0; t < N_TOGGLES; t++)
        c.values[t] = toggles[t].off;
    for (int which = 0; which < N_CASES; which++)
        assert_true(check_combination(&c, which, 3));
}

static void random_pairs(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    struct rng rng = {given && *given ? strtoull(given, NULL, 10) : 1};
    int wanted = slow_tests() ? 100 : 20, n = 0, n_skipped = 0;
    print_message("seed %llu (SEED)\n", (unsigned long long)rng.state);
    for (int turn = 0; n < wanted && turn < 20 * wanted; turn++) {
        struct combination c = {0};
        int a = (int)rng_below(&rng, N_TOGGLES), b = (int)rng_below(&rng, N_TOGGLES - 1);
        b += b >= a;
        c.values[a] = toggles[a].others[rng_below(&rng, n_others(a))];
        c.values[b] = toggles[b].others[rng_below(&rng, n_others(b))];
        char text[POLICY_NAME_BYTES];
        write_text(text, sizeof text, &c, false);
        bool can = check_combination(&c, n % N_CASES, 1 + (uint64_t)turn);
        print_message("%s: %s\n", text, can ? cases[n % N_CASES] : "skipped, cannot run here");
        *(can ? &n : &n_skipped) += 1;
    }
    print_message("%d pairs, %d skipped\n", n, n_skipped);
    assert_int_equal(n, wanted);
}

/* The most queries and tokens that kernels were called with. */
static _Atomic size_t most_queries, most_tokens, most_kda_tokens;
static _Atomic bool saw_mask;
static attend_f32_fn *attend;
static linear_f32_fn *linear;
static kda_f32_fn *kda;

static void raise_to(_Atomic size_t *most, size_t n)
{
    for (size_t seen = *most; n > seen && !atomic_compare_exchange_weak(most, &seen, n);)
        ;
}

static void watched_attend(float *acc, float *peak, float *total, float *scores, const float *q,
                           const void *const *rows, const float *mask, size_t n_heads, size_t n_rows, size_t width,
                           size_t latent)
{
    raise_to(&most_queries, n_heads);
    if (mask)
        saw_mask = true;
    attend(acc, peak, total, scores, q, rows, mask, n_heads, n_rows, width, latent);
}

static void watched_linear(float *const *y, const float *const *x, const struct matrix *w, size_t n_tokens)
{
    raise_to(&most_tokens, n_tokens);
    linear(y, x, w, n_tokens);
}

static void watched_kda(float *o, float *u, float *S, const float *q, const float *k, const float *v,
                        const float *decay, const float *beta, size_t n_tokens, size_t stride, size_t K, size_t V)
{
    raise_to(&most_kda_tokens, n_tokens);
    kda(o, u, S, q, k, v, decay, beta, n_tokens, stride, K, V);
}

/* Feeds a text with the kernels of attention, experts and KDA watched. */
static void feed_watched(struct model *model, const struct golden *g)
{
    most_queries = most_tokens = most_kda_tokens = 0;
    attend = model->kernels.attend_f32;
    linear = model->kernels.linear_mxfp4;
    kda = model->kernels.kda_f32;
    model->kernels.attend_f32 = watched_attend;
    model->kernels.linear_mxfp4 = watched_linear;
    model->kernels.kda_f32 = watched_kda;
    struct answers answers = feed_pieces(model, g->tokens, g->n_tokens, NULL, 0);
    answers_free(&answers);
}

/* A plan without a technique is another plan: it has other nodes, or kernels are called for one query or token. */
static void techniques_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int nodes; /* more (1) or fewer (-1) than with it; 0: the same nodes cut otherwise */
    } list[] = {{"projections", 1}, {"attn-res", -1}, {"segments", -1},  {"sharing", 0},   {"grouping", 0},
                {"norms", 1},       {"epilogue", 1},  {"kda-region", 1}, {"flash-kda", 0}, {"early-start", 0}};
    struct golden g = golden_load("k31-s1", TEXT_TOKENS);
    struct model_options options = exact_options(TEXT_TOKENS);
    struct model *with = open_or_fail(g.directory, &options);
    feed_watched(with, &g);
    assert_true(most_queries > 1 && most_tokens > 1 && most_kda_tokens > 1);
    uint32_t n_ahead = 0;
    for (uint32_t n = 0; n < with->plans[0].n_nodes; n++)
        n_ahead += with->plans[0].nodes[n].ahead != NULL;
    assert_true(n_ahead > 10);
    unsigned all = 0;
    struct error err;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_int_equal(techniques_parse(&options.without, list[i].name, &err), STATUS_OK);
        all |= options.without;
        struct model *model = open_or_fail(g.directory, &options);
        feed_watched(model, &g);
        assert_int_equal(most_queries == 1, options.without == 1u << TECHNIQUE_SHARING);
        assert_int_equal(most_tokens == 1, options.without == 1u << TECHNIQUE_GROUPING);
        assert_int_equal(most_kda_tokens == 1, options.without == 1u << TECHNIQUE_FLASH_KDA);
        assert_int_equal(model->runner.early_start, options.without != 1u << TECHNIQUE_EARLY_START);
        int more = (int)model->plans[0].n_nodes - (int)with->plans[0].n_nodes;
        assert_int_equal((more > 0) - (more < 0), list[i].nodes);
        model_close(model);
    }
    assert_int_equal(all, (1u << TECHNIQUE_COUNT) - 1);
    assert_int_equal(techniques_parse(&all, "sharing,grouping+sharing", &err), STATUS_OK);
    assert_int_equal(all, 1u << TECHNIQUE_SHARING | 1u << TECHNIQUE_GROUPING);
    assert_int_equal(techniques_parse(&all, "all", &err), STATUS_OK);
    assert_int_equal(all, (1u << TECHNIQUE_COUNT) - 1);
    static const char *const wrong[] = {"al", "sharing,allx", "share", "sharing,", ",sharing", "sharing grouping", "+"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(techniques_parse(&all, wrong[i], &err), STATUS_ARGUMENT);
    model_close(with);
    golden_free(&g);
}

/* Masking the unselected positions is the same attention as leaving them out, but for roundings. */
static void masked_is_gathered(void **state)
{
    (void)state;
    struct golden g = golden_load("k31-s1", TEXT_TOKENS);
    struct model_options options = exact_options(TEXT_TOKENS);
    struct answers answers[2];
    for (int masked = 0; masked < 2; masked++) {
        options.masked = masked;
        struct model *model = open_or_fail(g.directory, &options);
        attend = model->kernels.attend_f32;
        model->kernels.attend_f32 = watched_attend;
        saw_mask = false;
        answers[masked] = feed_pieces(model, g.tokens, g.n_tokens, NULL, 0);
        assert_int_equal(saw_mask, masked);
        model_close(model);
    }
    double difference = 0, size = 0;
    assert_int_equal(answers[0].n_logits, answers[1].n_logits);
    for (size_t i = 0; i < answers[0].n_logits; i++) {
        double d = (double)answers[1].logits[i] - answers[0].logits[i];
        difference += d * d;
        size += (double)answers[0].logits[i] * answers[0].logits[i];
    }
    print_message("masked against gathered: relative RMS %.2g\n", sqrt(difference / size));
    assert_true(difference > 0 && difference <= 1e-10 * size);
    answers_free(&answers[0]);
    answers_free(&answers[1]);
    golden_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_switch_alone),  cmocka_unit_test(all_off),
        cmocka_unit_test(random_pairs),       cmocka_unit_test(techniques_are_left_out),
        cmocka_unit_test(masked_is_gathered),
    };
    return cmocka_run_group_tests_name("switches", tests, NULL, NULL);
}
