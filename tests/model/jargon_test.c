/* The bundled model on real text: its answers against float64, and its loss over the whole of eval.txt, with exact and
 * with default caches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cpu/tiers.h"
#include "model_help.h"

#define MODEL "models/jargon-k31"
#define ROOT "tests/golden/jargon/"

enum { PIECE = 256 };

struct tokens {
    int32_t *ids;
    uint32_t n;
};

static char *load(const char *name, size_t *bytes)
{
    char path[256], *data;
    struct error err;
    snprintf(path, sizeof path, ROOT "%s", name);
    if (file_read(path, 1 << 26, &data, bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return data;
}

static struct tokens load_tokens(const char *name)
{
    size_t bytes;
    char *text = load(name, &bytes);
    struct tokens t = {.ids = calloc(bytes, sizeof *t.ids)};
    for (char *save, *at = strtok_r(text, " \n", &save); at; at = strtok_r(NULL, " \n", &save))
        t.ids[t.n++] = atoi(at);
    free(text);
    return t;
}

/* The specification's mean loss for `n_tokens` tokens with the given caches. */
static double golden_nll(const char *cache, const char *li, uint32_t n_tokens)
{
    size_t bytes;
    char *text = load("nll.txt", &bytes);
    double found = NAN;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char c[16], l[16], rule[16];
        unsigned n, predictions;
        double nll;
        assert_int_equal(sscanf(line, "%15s %15s %15s %u %u %lf", c, l, rule, &n, &predictions, &nll), 6);
        if (strcmp(c, cache) == 0 && strcmp(l, li) == 0 && strcmp(rule, "floor") == 0 && n == n_tokens)
            found = nll;
    }
    free(text);
    assert_false(isnan(found));
    return found;
}

/* log p in float64 of float logits. */
static void log_softmax(double *out, const float *logits, uint32_t n)
{
    double peak = -INFINITY, total = 0;
    for (uint32_t i = 0; i < n; i++)
        peak = fmax(peak, logits[i]);
    for (uint32_t i = 0; i < n; i++)
        total += exp(logits[i] - peak);
    for (uint32_t i = 0; i < n; i++)
        out[i] = logits[i] - peak - log(total);
}

struct figures {
    double kl, worst_kl, rms, nll, nll_short; /* nll over all tokens, and over those with golden logits */
    uint32_t n_other_best;
};

/* Feeds all tokens; compares the first n_golden rows of logits with the golden ones. */
static struct figures measure(const struct model_options *options, const struct tokens *tokens, const float *golden,
                              uint32_t n_golden)
{
    struct figures f = {0};
    struct model *model = open_or_fail(MODEL, options);
    struct sequence sequence;
    struct error err;
    uint32_t N = model->config.vocab_size;
    float *logits = malloc((size_t)PIECE * N * sizeof *logits);
    double *got = malloc(N * sizeof *got), *want = malloc(N * sizeof *want), errors = 0, squares = 0;
    if (model_sequence_init(model, &sequence, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t t = 0; t < tokens->n; t++) {
        if (t % PIECE == 0) {
            uint32_t n = tokens->n - t < PIECE ? tokens->n - t : PIECE;
            struct model_span span = {&sequence, tokens->ids + t, n, 0};
            if (model_step(model, &span, 1, &(struct model_outputs){.logits = logits}, &err) != STATUS_OK)
                fail_msg("%s", err.text);
        }
        const float *row = logits + (size_t)(t % PIECE) * N;
        log_softmax(got, row, N);
        if (t + 1 < tokens->n)
            f.nll -= got[tokens->ids[t + 1]];
        if (t + 1 < n_golden)
            f.nll_short -= got[tokens->ids[t + 1]];
        if (t >= n_golden)
            continue;
        double kl = 0;
        uint32_t best_got = 0, best_want = 0;
        log_softmax(want, golden + (size_t)t * N, N);
        for (uint32_t i = 0; i < N; i++) {
            double w = golden[(size_t)t * N + i], e = row[i] - w;
            kl += exp(want[i]) * (want[i] - got[i]);
            errors += e * e;
            squares += w * w;
            best_got = got[i] > got[best_got] ? i : best_got;
            best_want = want[i] > want[best_want] ? i : best_want;
        }
        f.kl += kl / n_golden;
        f.worst_kl = fmax(f.worst_kl, kl);
        f.n_other_best += best_got != best_want;
    }
    f.rms = sqrt(errors / squares);
    f.nll /= tokens->n - 1;
    f.nll_short /= n_golden - 1;
    sequence_fini(&sequence);
    model_close(model);
    free(logits);
    free(got);
    free(want);
    return f;
}

/* `name`: the rounding of both caches in the specification that the run is compared with. INT16 is none of them: it is
 * nearer to no rounding at all than BF16 is. */
static struct figures check(enum dtype latents, enum dtype keys, const char *name, enum act act, double kl_max)
{
    struct tokens all = load_tokens("eval_tokens.txt"), first = load_tokens("tokens.txt");
    size_t bytes;
    float *golden = (float *)(void *)load("logits.f32", &bytes);
    assert_true(first.n == 512 && bytes == (size_t)first.n * 2048 * sizeof(float));
    assert_memory_equal(all.ids, first.ids, first.n * sizeof *first.ids);
    struct model_options options = exact_options(all.n);
    options.latent_dtype = latents;
    options.index_dtype = keys;
    options.act = act;
    struct figures f = measure(&options, &all, golden, first.n);
    double want = golden_nll(name, name, all.n), want_short = golden_nll(name, name, first.n);
    print_message(
        "caches %s and %s, --act %s: KL mean %.3g, worst %.3g; relative RMS %.3g; other best token %u of %u; NLL %.6f, "
        "specification %.6f; first %u: %.6f, %.6f\n",
        dtype_name(latents), dtype_name(keys), act_name(act), f.kl, f.worst_kl, f.rms, f.n_other_best, first.n, f.nll,
        want, first.n, f.nll_short, want_short);
    assert_true(f.kl <= kl_max);
    assert_true(fabs(f.nll / want - 1) <= 1e-3);
    assert_true(fabs(f.nll_short / want_short - 1) <= 1e-3);
    assert_true(fabs(f.nll / golden_nll("f32", "f32", all.n) - 1) <= 1e-3);
    free(all.ids);
    free(first.ids);
    free(golden);
    return f;
}

static void default_caches(void **state)
{
    (void)state;
    struct model_options options = model_options_default();
    assert_true(options.latent_dtype == LATENT_DEFAULT && options.index_dtype == DTYPE_BF16);
    struct figures half = check(DTYPE_BF16, DTYPE_BF16, "bf16", ACT_EXACT, 1e-3);
    struct figures integers = check(DTYPE_INT16, DTYPE_BF16, "bf16", ACT_EXACT, 1e-3);
    assert_true(integers.kl <= half.kl * 1.1);
}

/* The bound that a policy must keep to be more than a curiosity. */
static void narrow_policies(void **state)
{
    (void)state;
    for (enum act act = ACT_INT8; act < ACT_COUNT; act++) {
        unsigned tiers;
        if (tiers_parse(act_tier(act), &tiers, NULL) == STATUS_OK)
            (void)check(LATENT_DEFAULT, DTYPE_BF16, "bf16", act, 1e-3);
        else
            print_message("--act %s: this machine has no tier %s\n", act_name(act), act_tier(act));
    }
}

static void exact_caches(void **state)
{
    (void)state;
    struct figures f = check(DTYPE_F32, DTYPE_F32, "f32", ACT_EXACT, 1e-9);
    assert_true(f.rms <= 1e-5);
    assert_int_equal(f.n_other_best, 0);
    /* What INT16 alone costs. */
    f = check(DTYPE_INT16, DTYPE_F32, "f32", ACT_EXACT, 1e-8);
    assert_int_equal(f.n_other_best, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(default_caches), cmocka_unit_test(exact_caches),
                                       cmocka_unit_test(narrow_policies)};
    return cmocka_run_group_tests_name("jargon", tests, NULL, NULL);
}
