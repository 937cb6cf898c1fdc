/* What a step must move and compute: counted by hand, against `day0 check`, by unit, and without weights. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/bench_cost.h"
#include "lab/bench_predict.h"
#include "model/report.h"
#include "model_help.h"

#define GOLDEN_ROOT "tests/golden/model"

static const char *const cases[] = {GOLDEN_ROOT "/k31-small-s1", GOLDEN_ROOT "/k31-s1", GOLDEN_ROOT "/linear-s1",
                                    GOLDEN_ROOT "/k3-s1"};
enum { N_CASES = sizeof cases / sizeof *cases };

/* What a head, a second sequence and a deeper context add to a step. */
static void costs_can_be_counted(void **state)
{
    (void)state;
    for (int c = 0; c < N_CASES; c++) {
        struct model_options options = exact_options(1000);
        struct model *model = open_or_fail(cases[c], &options);
        const struct config *config = &model->config;
        struct bench_cost none = bench_cost_step(model, (struct bench_shape){1, 1, 0, 0}),
                          head = bench_cost_step(model, (struct bench_shape){1, 1, 0, 1});
        double weights = (double)config->vocab_size * config->hidden_size;
        assert_true(bench_cost_flops(&head) - bench_cost_flops(&none) == 2 * weights);
        assert_true(head.bytes - none.bytes ==
                    (double)config->vocab_size * (double)matrix_row_bytes(&model->params.lm_head));
        /* One row meets each weight once at most; attention and recurrence are less than that in these
         * models. */
        assert_true(bench_cost_flops(&head) > 2 * weights &&
                    bench_cost_flops(&head) < 4 * (double)model->params.parameters_total);
        struct bench_cost two = bench_cost_step(model, (struct bench_shape){2, 1, 0, 2});
        assert_true(fabs(bench_cost_flops(&two) - 2 * bench_cost_flops(&head)) < 1e-9 * bench_cost_flops(&two) &&
                    two.bytes < 2 * head.bytes && two.bytes > head.bytes);
        /* Depth adds latents of the attended positions, and of an indexer the keys that are scanned. */
        uint32_t topk = model->n_index_layers ? model->topk : 1000, depth = 900;
        struct bench_cost deep = bench_cost_step(model, (struct bench_shape){1, 1, depth, 1});
        double attended = topk < depth + 1 ? topk : depth + 1, bytes = 0;
        for (uint32_t m = 0; m < model->layout.n_mla; m++) {
            const struct mla_slot *slot = &model->layout.mla[m];
            bool sparse = slot->index_dim > 0;
            bytes += ((sparse ? attended : depth + 1) - 1) * (double)model->layout.latent_row_bytes;
            bytes += sparse && topk < depth + 1 ? (depth + 1) * 4.0 * slot->index_dim : 0;
        }
        assert_true(fabs(deep.bytes - head.bytes - bytes) < 1);
        struct bench_cost prompt = bench_cost_prompt(model, 0, MODEL_ROWS_MAX),
                          step = bench_cost_step(model, (struct bench_shape){1, MODEL_ROWS_MAX, 0, 1});
        assert_true(prompt.bytes == step.bytes && bench_cost_flops(&prompt) == bench_cost_flops(&step));
        model_close(model);
    }
}

/* What one token reads is what `day0 check` says, which counts tensors: matrices are in the cost, vectors are not. */
static void costs_agree_with_check(void **state)
{
    (void)state;
    for (int c = 0; c < N_CASES; c++) {
        struct model_options options = exact_options(1000);
        struct model *model = open_or_fail(cases[c], &options);
        struct report *report;
        struct error err;
        assert_int_equal(report_open(&report, cases[c], &options, 0, &err), STATUS_OK);
        double vectors = 0, state_bytes = 0, cache_bytes = 0;
        for (size_t t = 0; t < checkpoint_count(report->checkpoint); t++) {
            const struct tensor *tensor = checkpoint_at(report->checkpoint, t);
            bool vector = tensor->rank == 1 || tensor->shape[0] == 1 || strstr(tensor->name, "_conv1d.");
            vectors += vector ? (double)tensor->bytes : 0;
        }
        struct bench_cost parts[PART_COUNT], step;
        bench_cost_parts(parts, model, (struct bench_shape){1, 1, 0, 1});
        step = bench_cost_step(model, (struct bench_shape){1, 1, 0, 1});
        state_bytes = 2.0 * (double)(report->kda_state_bytes + report->conv_state_bytes);
        cache_bytes = 2.0 * (double)report->latent_bytes_per_token + (double)report->index_bytes_per_token;
        print_message("%s: a step moves %.0f bytes: weights %llu less vectors %.0f, states %.0f, caches %.0f\n",
                      cases[c], step.bytes, (unsigned long long)report->active_bytes_per_token, vectors, state_bytes,
                      cache_bytes);
        assert_true(fabs(step.bytes - ((double)report->active_bytes_per_token - vectors + state_bytes + cache_bytes)) <
                    1e-6 * step.bytes);
        assert_true(step.weight_bytes == (double)report->active_bytes_per_token - vectors);
        double sum = 0;
        for (int part = 0; part < PART_COUNT; part++) {
            assert_true(parts[part].bytes > 0 && (part == PART_ENDS || bench_cost_flops(&parts[part]) > 0));
            sum += parts[part].bytes;
        }
        assert_true(fabs(sum - step.bytes) < 1e-9 * sum);
        report_close(report);
        model_close(model);
    }
}

/* A config alone gives the costs that its checkpoint does. */
static void costs_need_no_checkpoint(void **state)
{
    (void)state;
    for (int c = 0; c < N_CASES; c++) {
        struct model_options options = exact_options(1000);
        struct model *model = open_or_fail(cases[c], &options), *shapes;
        char path[256];
        struct error err;
        snprintf(path, sizeof path, "%s/config.json", cases[c]);
        if (bench_predict_model(&shapes, path, &options, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        struct bench_cost want[PART_COUNT], got[PART_COUNT];
        bench_cost_parts(want, model, (struct bench_shape){2, 5, 900, 1});
        bench_cost_parts(got, shapes, (struct bench_shape){2, 5, 900, 1});
        for (int part = 0; part < PART_COUNT; part++)
            assert_true(got[part].bytes == want[part].bytes &&
                        bench_cost_flops(&got[part]) == bench_cost_flops(&want[part]));
        model_close(shapes);
        model_close(model);
    }
    struct model *none;
    struct model_options options = exact_options(1000);
    struct error err;
    assert_int_equal(bench_predict_model(&none, "no-such-config.json", &options, &err), STATUS_NOT_FOUND);
    assert_null(none);
}

/* The shapes that speed is quoted on. The full model reads 137 GB a token, of 104 billion parameters. */
static void shapes_have_costs(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        double weight_bytes;
    } shapes[] = {{"models/shapes/k3-slice.json", 0.724e9},
                  {"models/shapes/k31-slice.json", 0.738e9},
                  {"models/shapes/linear-slice.json", 1.072e9},
                  {"models/shapes/k31-real-layers.json", 2.72e9},
                  {"models/shapes/k31-pro.json", 137.3e9}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct model_options options = exact_options(4096);
        struct model *model;
        struct error err;
        if (bench_predict_model(&model, shapes[i].path, &options, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        struct bench_cost token = bench_cost_step(model, (struct bench_shape){1, 1, 0, 1});
        print_message("%s: %.4g GB of weights a token\n", shapes[i].path, 1e-9 * token.weight_bytes);
        assert_true(fabs(token.weight_bytes - shapes[i].weight_bytes) < 0.01 * shapes[i].weight_bytes);
        model_close(model);
    }
}

/* Products go to the unit that the policy gives them to, and a floor is counted by that unit's rate. */
static void costs_know_their_units(void **state)
{
    (void)state;
    struct model_options options = exact_options(1000);
    struct model *model = open_or_fail(GOLDEN_ROOT "/k31-s1", &options);
    struct bench_shape shape = {1, 64, 0, 1};
    struct bench_cost exact = bench_cost_step(model, shape);
    model->options.act = ACT_INT8; /* of the cost alone */
    struct bench_cost int8 = bench_cost_step(model, shape);
    model->options.act = ACT_INT16;
    struct bench_cost int16 = bench_cost_step(model, shape);
    model->options.act = ACT_F16;
    struct bench_cost half = bench_cost_step(model, shape);
    model->options.act = ACT_EXACT;
    double experts = 0;
    for (uint32_t l = 0; l < model->config.n_layers; l++)
        if (config_is_moe(&model->config, l))
            experts += 2.0 * 3 * model->config.moe_intermediate_size * model->config.latent_size * 64 *
                       model->config.n_experts_per_token;
    assert_true(exact.flops[UNIT_INT8] == 0 && exact.flops[UNIT_F16] == 0);
    assert_true(int8.flops[UNIT_INT8] == experts && int8.flops[UNIT_F32] == exact.flops[UNIT_F32] - experts);
    assert_true(half.flops[UNIT_INT8] == experts && half.flops[UNIT_F16] > 0);
    /* What meets halves there, the BF16 weights but for the exact ones, meets 16-bit integers here. */
    assert_true(int8.flops[UNIT_INT16] == half.flops[UNIT_INT16]);
    assert_true(int16.flops[UNIT_INT8] == experts && int16.flops[UNIT_F16] == 0 &&
                int16.flops[UNIT_INT16] == int8.flops[UNIT_INT16] + half.flops[UNIT_F16]);
    assert_true(fabs(bench_cost_flops(&half) - bench_cost_flops(&exact)) < 1e-9 * bench_cost_flops(&exact));
    struct rates rates = {.read.gb_s = 2, .gop_s = {[UNIT_F32] = 10, [UNIT_INT8] = 40}};
    struct bench_floors floors = bench_cost_floors(&int8, &rates);
    assert_true(fabs(floors.read_s - int8.bytes / 2e9) < 1e-12);
    assert_true(fabs(floors.compute_s - (int8.flops[UNIT_F32] / 1e10 + int8.flops[UNIT_INT8] / 4e10)) < 1e-12);
    floors = bench_cost_floors(&half, &rates); /* no such unit: as float32 */
    assert_true(floors.compute_s > half.flops[UNIT_F16] / 1e10);
    model_close(model);
}

/* A scan of index keys is INT16 arithmetic where it goes by bounds, float32 where it scores every key. */
static void scans_know_their_unit(void **state)
{
    (void)state;
    static const struct {
        enum dtype keys;
        enum dsa_scan scan;
        enum unit unit;
    } cases_of[] = {
        {DTYPE_BF16, SCAN_BOUNDS, UNIT_INT16}, {DTYPE_BF16, SCAN_SCORES, UNIT_F32}, {DTYPE_F32, SCAN_BOUNDS, UNIT_F32}};
    for (size_t i = 0; i < sizeof cases_of / sizeof *cases_of; i++) {
        struct model_options options = exact_options(1000);
        options.index_dtype = cases_of[i].keys;
        options.index_scan = cases_of[i].scan;
        struct model *model = open_or_fail(GOLDEN_ROOT "/k31-s1", &options);
        struct bench_cost deep = bench_cost_step(model, (struct bench_shape){1, 1, 899, 1}),
                          deeper = bench_cost_step(model, (struct bench_shape){1, 1, 900, 1});
        double a_key = 0;
        for (uint32_t l = 0; l < model->config.n_layers; l++)
            if (!model->config.is_kda[l] && model->params.layers[l].mla.indexer.n_heads > 0)
                a_key +=
                    2.0 * model->params.layers[l].mla.indexer.n_heads * model->params.layers[l].mla.indexer.head_dim;
        assert_true(model->topk < 899 && a_key > 0);
        for (int unit = 0; unit < UNIT_COUNT; unit++)
            assert_true(deeper.flops[unit] - deep.flops[unit] == (unit == (int)cases_of[i].unit ? a_key : 0));
        model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_can_be_counted),     cmocka_unit_test(costs_agree_with_check),
        cmocka_unit_test(costs_need_no_checkpoint), cmocka_unit_test(shapes_have_costs),
        cmocka_unit_test(costs_know_their_units),   cmocka_unit_test(scans_know_their_unit)};
    return cmocka_run_group_tests_name("bench cost", tests, NULL, NULL);
}
