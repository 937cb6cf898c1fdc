/* Kinds of faults that Attention Residuals invite: block borders off by one, the first layer, the output mix.
 *
 * The running sums that a model reports (TAP_SUM) and its weights are enough to compute in float64 what must enter
 * every layer and the head: compared with what it reports to have entered (TAP_MIXTURE) and with its logits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "synth_help.h"

enum { TOKENS = 21, LAYERS_MAX = 13, HIDDEN = 40, VOCABULARY = 33 };

static const double bound = 1e-6;

struct run {
    struct model *model;
    float logits[TOKENS][VOCABULARY];
    float *taps; /* [TOKENS][n_taps][HIDDEN] */
    uint32_t n_taps;
};

static void must(enum status status, const struct error *err)
{
    if (status != STATUS_OK)
        fail_msg("%s", err->text);
}

static struct run run_taps(const struct synth *synth, enum tap_kind kind, const int32_t *tokens)
{
    struct run run = {.n_taps = synth->n_layers - (kind == TAP_MIXTURE)};
    struct model_options options = exact_options(TOKENS);
    struct sequence sequence;
    struct error err;
    options.tap_kind = kind;
    options.n_taps = run.n_taps;
    for (uint32_t l = 0; l < run.n_taps; l++)
        options.tap_layers[l] = l;
    run.model = synth_open(synth, &options);
    run.taps = calloc((size_t)TOKENS * (run.n_taps + 1) * HIDDEN, sizeof *run.taps);
    must(model_sequence_init(run.model, &sequence, &err), &err);
    struct model_outputs outputs = {.logits = run.logits[0], .taps = run.taps};
    must(model_step(run.model, &(struct model_span){&sequence, tokens, TOKENS, 0}, 1, &outputs, &err), &err);
    sequence_fini(&sequence);
    return run;
}

static void close_run(struct run *run)
{
    model_close(run->model);
    free(run->taps);
}

static const float *tap(const struct run *run, uint32_t t, uint32_t layer)
{
    return run->taps + ((size_t)t * run->n_taps + layer) * HIDDEN;
}

/* out = softmax over candidates of query . c / rms(c), times the candidates. */
static void mix(double *out, const float *const *candidates, uint32_t n, const float *query, double eps)
{
    double scores[LAYERS_MAX + 2], peak = -INFINITY, total = 0;
    for (uint32_t i = 0; i < n; i++) {
        double dot = 0, squares = 0;
        for (int d = 0; d < HIDDEN; d++) {
            dot += (double)query[d] * candidates[i][d];
            squares += (double)candidates[i][d] * candidates[i][d];
        }
        scores[i] = dot / sqrt(squares / HIDDEN + eps);
        peak = fmax(peak, scores[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        total += scores[i] = exp(scores[i] - peak);
    for (int d = 0; d < HIDDEN; d++) {
        out[d] = 0;
        for (uint32_t i = 0; i < n; i++)
            out[d] += scores[i] / total * candidates[i][d];
    }
}

static void assert_near(const double *want, const float *got, int n, const char *what)
{
    double squares = 0, errors = 0;
    for (int i = 0; i < n; i++) {
        squares += want[i] * want[i];
        errors += (got[i] - want[i]) * (got[i] - want[i]);
    }
    if (!(sqrt(errors) <= bound * sqrt(squares)))
        fail_msg("%s: relative error %g", what, sqrt(errors / squares));
}

/* Final norm and head, in float64. */
static void head(double *logits, const struct model *model, const double *h)
{
    double x[HIDDEN], squares = 0;
    const float *w = model->params.lm_head.data;
    for (int d = 0; d < HIDDEN; d++)
        squares += h[d] * h[d];
    for (int d = 0; d < HIDDEN; d++)
        x[d] = h[d] / sqrt(squares / HIDDEN + (double)model->config.rms_norm_eps) * model->params.final_norm[d];
    for (int v = 0; v < VOCABULARY; v++) {
        logits[v] = 0;
        for (int d = 0; d < HIDDEN; d++)
            logits[v] += x[d] * w[v * HIDDEN + d];
    }
}

static void check_depth(uint32_t n_layers, uint32_t block)
{
    struct synth synth = synth_default();
    int32_t tokens[TOKENS];
    synth.n_layers = n_layers;
    synth.full_layers = 0x1492 & ((1u << n_layers) - 1);
    synth.index_topk = synth.full_layers ? 8 : 0;
    synth.block = block;
    synth.weights = DTYPE_F32;
    synth_tokens(tokens, TOKENS, VOCABULARY, 8);
    struct run sums = run_taps(&synth, TAP_SUM, tokens), mixtures = run_taps(&synth, TAP_MIXTURE, tokens);
    const struct model *model = sums.model;
    const float *queries = model->params.depth_queries.data, *embedding = model->params.embed_tokens.data;
    assert_memory_equal(sums.logits, mixtures.logits, sizeof sums.logits);
    for (uint32_t t = 0; t < TOKENS; t++) {
        const float *candidates[LAYERS_MAX + 2];
        uint32_t n_closed = 0;
        double want[HIDDEN], logits[VOCABULARY];
        char what[96];
        for (uint32_t l = 0; l <= n_layers; l++) {
            /* What enters layer l, or the head: the closed blocks and the open sum. */
            candidates[n_closed] = l == 0 ? embedding + (size_t)tokens[t] * HIDDEN : tap(&sums, t, l - 1);
            mix(want, candidates, n_closed + 1, queries + 2 * (size_t)l * HIDDEN, (double)model->config.rms_norm_eps);
            snprintf(what, sizeof what, "%u layers in blocks of %u, token %u, into layer %u", n_layers, block, t, l);
            if (l > 0 && l < n_layers)
                assert_near(want, tap(&mixtures, t, l - 1), HIDDEN, what);
            n_closed += l % block == 0; /* the open sum is closed by the layer that starts a block */
        }
        head(logits, model, want);
        assert_near(logits, sums.logits[t], VOCABULARY, what);
    }
    close_run(&sums);
    close_run(&mixtures);
}

static void block_borders(void **state)
{
    (void)state;
    static const uint32_t depths[] = {1, 2, 3, 4, 5, 7, 12, 13}, blocks[] = {1, 2, 3, 4, 5, 12};
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
            check_depth(depths[d], blocks[b]);
}

/* ---- against the specification's taps ---- */

static void compare_golden(const char *name)
{
    struct golden g = golden_load(name, 300);
    struct model_options options = exact_options(g.n_tokens);
    struct sequence sequence;
    struct error err;
    char path[PATH_BYTES_MAX], *text, *data;
    size_t bytes;
    must(file_join(path, g.directory, "taps.txt", &err), &err);
    must(file_read(path, 1000, &text, &bytes, &err), &err);
    options.tap_kind = strncmp(text, "mixture", 7) == 0 ? TAP_MIXTURE : TAP_SUM;
    for (char *at = strchr(text, ' '), *end; at && *at; at = end) {
        unsigned long layer = strtoul(at, &end, 10);
        if (end == at)
            break;
        options.tap_layers[options.n_taps++] = (uint32_t)layer;
    }
    free(text);
    must(file_join(path, g.directory, "taps.f32", &err), &err);
    must(file_read(path, 1 << 24, &data, &bytes, &err), &err);
    const float *want = (const float *)(const void *)data;
    struct model *model = open_or_fail(g.directory, &options);
    size_t width = (size_t)options.n_taps * model->config.hidden_size, n = g.n_tokens * width;
    assert_true(options.n_taps == 3 && bytes == n * sizeof(float));
    float *got = calloc(n, sizeof *got), *logits = malloc((size_t)g.n_tokens * g.vocabulary * sizeof *logits);
    must(model_sequence_init(model, &sequence, &err), &err);
    /* Logits of the last token only: the taps are of all rows all the same. In two pieces, the second across a
     * bucket. */
    for (uint32_t first = 0; first < g.n_tokens;) {
        uint32_t part = first == 0 ? 33 : g.n_tokens - first;
        struct model_span span = {&sequence, g.tokens + first, part, part - 1};
        must(model_step(model, &span, 1, &(struct model_outputs){.logits = logits, .taps = got + first * width}, &err),
             &err);
        first += part;
    }
    double squares = 0, errors = 0;
    for (size_t i = 0; i < n; i++) {
        squares += (double)want[i] * want[i];
        errors += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    }
    print_message("%s: taps, relative RMS %.2g\n", name, sqrt(errors / squares));
    assert_true(sqrt(errors / squares) <= 1e-5);
    sequence_fini(&sequence);
    model_close(model);
    free(got);
    free(logits);
    free(data);
    golden_free(&g);
}

static void taps_equal_specification(void **state)
{
    (void)state;
    compare_golden("k31-s1"); /* mixtures */
    compare_golden("k3-s1");  /* sums */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(block_borders), cmocka_unit_test(taps_equal_specification)};
    return cmocka_run_group_tests_name("residual", tests, NULL, NULL);
}
