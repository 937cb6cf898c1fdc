/* Times of the parts of a step on small models: they add up to the step, each part that a model has is there, and a
 * model predicts itself. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/bench_layers.h"
#include "model_help.h"

#define GOLDEN_ROOT "tests/golden/model"

static const char *const cases[] = {GOLDEN_ROOT "/k31-s1", GOLDEN_ROOT "/linear-s1", GOLDEN_ROOT "/k3-s1"};
enum { N_CASES = sizeof cases / sizeof *cases };

static bool sane(double value)
{
    return isfinite(value) && value > 0;
}

static void check_work(const struct layers_work *w, const struct config *config)
{
    uint32_t n_attention = w->parts[PART_KDA].n_layers + w->parts[PART_MLA].n_layers;
    uint32_t n_ffn = w->parts[PART_DENSE].n_layers + w->parts[PART_MOE].n_layers;
    double share = 0;
    assert_true(n_attention == config->n_layers && n_ffn == config->n_layers && w->parts[PART_ENDS].n_layers == 1);
    assert_int_equal(w->parts[LAYERS_BETWEEN].n_layers, config->n_layers);
    for (uint32_t p = 0; p < LAYERS_PARTS; p++) {
        const struct layers_part *part = &w->parts[p];
        if (part->n_layers == 0)
            continue;
        assert_true(sane(part->ms) && sane(part->share));
        assert_true(p == LAYERS_BETWEEN || (sane(part->megabytes) && sane(part->read_ms) && part->compute_ms >= 0));
        assert_true(fabs(part->ms * part->n_layers - part->share * w->ms) < 1e-6 * w->ms);
        share += part->share;
    }
    assert_true(share > 0.4 && share < 1.7); /* medians of noisy shares do not quite add up to 1 */
}

static struct layers_result *measure(const char *directory, const char *config_path)
{
    static struct layers_result result;
    struct bench_request bench = {.directory = directory,
                                  .options = exact_options(0),
                                  .prefill = {{20}, 1},
                                  .prefill_depths = {{3}, 1},
                                  .depths = {{70}, 1},
                                  .batches = {{1, 2}, 2},
                                  .repeat = 3,
                                  .seconds_min = 0.001};
    struct layers_request request = {&bench, config_path, {5, 50}, 2, 0.01, {.read.gb_s = 10, .gop_s = {100}}};
    struct error err;
    if (bench_layers_run(&request, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return &result;
}

static void parts_make_the_step(void **state)
{
    (void)state;
    for (int c = 0; c < N_CASES; c++) {
        struct model_options options = exact_options(100);
        struct model *model = open_or_fail(cases[c], &options);
        const struct layers_result *result = measure(cases[c], NULL);
        assert_true(result->n_works == 3 && result->n_predictions == 0);
        for (uint32_t i = 0; i < result->n_works; i++) {
            const struct layers_work *w = &result->works[i];
            assert_true(w->decode == (i > 0) && w->tokens == (i ? 1 : 20) && w->depth == (i ? 70 : 3) &&
                        w->batch == (i == 2 ? 2 : 1));
            check_work(w, &model->config);
        }
        model_close(model);
    }
}

/* At this machine's bandwidth a model is predicted to take what its parts took; ten times the bandwidth is ten times as
 * fast; what day0 check says stands above all. */
static void a_model_predicts_itself(void **state)
{
    (void)state;
    for (int c = 0; c < N_CASES; c++) {
        char path[256];
        snprintf(path, sizeof path, "%s/config.json", cases[c]);
        const struct layers_result *result = measure(cases[c], path);
        assert_int_equal(result->n_predictions, 2 * 2);
        for (uint32_t i = 0; i < 4; i++) {
            const struct layers_prediction *p = &result->predictions[i];
            const struct layers_work *w = &result->works[1 + i / 2];
            double ms = 0, want;
            for (uint32_t part = 0; part < LAYERS_PARTS; part++)
                ms += w->parts[part].ms * w->parts[part].n_layers;
            want = 1e3 * w->batch / ms * p->bandwidth_gb_s / result->rates.read.gb_s;
            assert_true(p->depth == 70 && p->batch == w->batch && p->bandwidth_gb_s == (i % 2 ? 50 : 5));
            assert_true(fabs(p->tokens_per_s - want) < 1e-6 * want);
            assert_true(p->tokens_per_s > 0 && p->limit_tokens_per_s < w->batch * p->check_tokens_per_s);
        }
    }
}

static void json_has_parts_and_predictions(void **state)
{
    (void)state;
    const struct layers_result *result = measure(cases[0], GOLDEN_ROOT "/k31-s1/config.json");
    struct bench_request bench = {.directory = cases[0]};
    struct layers_request request = {.bench = &bench, .config_path = "config"};
    char *text;
    size_t size;
    json_error_t at;
    struct error err;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(bench_layers_json(out, &request, result, &err), STATUS_OK);
    fclose(out);
    json_t *report = json_loads(text, 0, &at), *layers = json_object_get(report, "layers");
    assert_int_equal(json_array_size(layers), 3);
    assert_int_equal(json_array_size(json_object_get(json_array_get(layers, 0), "parts")), LAYERS_PARTS);
    assert_int_equal(json_array_size(json_object_get(report, "predictions")), 4);
    json_decref(report);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_make_the_step), cmocka_unit_test(a_model_predicts_itself),
                                       cmocka_unit_test(json_has_parts_and_predictions)};
    return cmocka_run_group_tests_name("bench layers", tests, NULL, NULL);
}
