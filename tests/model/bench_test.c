/* day0 bench on small models: rows as asked for, numbers finite and positive, the documented keys, caches that are
 * filled as deep as said, a picture that is an SVG, an ablation with a row a switch. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lab/bench_ablate.h"
#include "lab/bench_plot.h"
#include "lab/bench_report.h"
#include "lab/bench_run.h"
#include "lab/bench_state.h"
#include "command_help.h"
#include "lab/commands.h"
#include "model_help.h"

#define GOLDEN_ROOT "tests/golden/model"

static const char *const cases[] = {GOLDEN_ROOT "/k31-small-s1", GOLDEN_ROOT "/k31-s1", GOLDEN_ROOT "/linear-s1",
                                    GOLDEN_ROOT "/k3-s1"};
enum { N_CASES = sizeof cases / sizeof *cases };

static bool sane(double value)
{
    return isfinite(value) && value > 0;
}

static void rows_are_as_asked_for(void **state)
{
    (void)state;
    for (int c = 0; c < N_CASES; c++) {
        struct bench_request request = {.directory = cases[c],
                                        .options = exact_options(0),
                                        .prefill = {{1, 300}, 2},
                                        .prefill_depths = {{0, 90}, 2},
                                        .depths = {{0, 100}, 2},
                                        .batches = {{1, 3}, 2},
                                        .repeat = 2,
                                        .seconds_min = 0.001};
        static struct bench_result result;
        struct error err;
        if (bench_run(&request, &result, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(result.n_rows, 8);
        assert_int_equal(result.n_threads, 2);
        assert_true(result.rates.gop_s[UNIT_F32] == 0 && result.rates.read.gb_s == 0); /* were not asked for */
        for (uint32_t i = 0; i < result.n_rows; i++) {
            const struct bench_row *row = &result.rows[i];
            assert_int_equal(row->decode, i >= 4);
            assert_int_equal(row->depth, i >= 6 ? 100 : i == 2 || i == 3 ? 90 : 0);
            assert_int_equal(row->batch, i == 5 || i == 7 ? 3 : 1);
            assert_true(row->batch_asked == row->batch && sane(row->ms));
            assert_true(row->tokens >= row->batch && sane(row->tokens_per_s) && sane(row->gb_per_token) &&
                        sane(row->gflop_per_token));
            assert_true(row->slowest <= row->tokens_per_s && row->tokens_per_s <= row->fastest);
        }
        assert_true(result.rows[1].gb_per_token < result.rows[0].gb_per_token); /* weights are shared */
        assert_true(result.rows[5].gb_per_token < result.rows[4].gb_per_token);
        assert_true(result.rows[6].gflop_per_token >= result.rows[4].gflop_per_token); /* attention grows */
        assert_true(result.rows[3].gflop_per_token >= result.rows[1].gflop_per_token);
    }
}

/* A rig takes fewer full sequences where the memory has no room for all, and says how many fit a row. */
static void batches_shrink_to_the_memory(void **state)
{
    (void)state;
    struct model_options options = exact_options(0);
    struct bench_needs needs = {20000, 1, 8};
    struct bench_rig rig;
    struct error err;
    assert_int_equal(bench_rig_open(&rig, GOLDEN_ROOT "/k3-s1", &options, needs, &err), STATUS_OK);
    uint64_t all = rig.model->budget.total_bytes, cache = rig.model->budget.cache_bytes;
    assert_int_equal(bench_rig_fits(&rig, 20000 - BENCH_STEPS_MAX, 8), 8);
    bench_rig_close(&rig);
    options.budget_bytes = all - cache / 2; /* half of the sequences */
    assert_int_equal(bench_rig_open(&rig, GOLDEN_ROOT "/k3-s1", &options, needs, &err), STATUS_OK);
    assert_true(rig.model->budget.total_bytes <= options.budget_bytes && rig.n_sequences == 8);
    assert_int_equal(bench_rig_fits(&rig, 20000 - BENCH_STEPS_MAX, 8), 4);
    assert_int_equal(bench_rig_fits(&rig, 100, 8), 8);
    double seconds;
    uint32_t steps = 2;
    assert_int_equal(bench_rig_fill(&rig, 20000 - BENCH_STEPS_MAX, 4, 0, &err), STATUS_OK);
    assert_int_equal(bench_rig_generate(&rig, 20000 - BENCH_STEPS_MAX, 4, &steps, 1, &seconds, &err), STATUS_OK);
    assert_int_equal(bench_rig_fill(&rig, 100, 8, 0, &err), STATUS_OK);
    steps = 2;
    assert_int_equal(bench_rig_generate(&rig, 100, 8, &steps, 1, &seconds, &err), STATUS_OK);
    bench_rig_close(&rig);
    options.budget_bytes = all - cache; /* not one */
    assert_int_equal(bench_rig_open(&rig, GOLDEN_ROOT "/k3-s1", &options, needs, &err), STATUS_MEMORY);
    print_message("%s\n", err.text);
    bench_rig_close(&rig);
}

/* Every code of MXFP8 keys is a number; scores would hide those that are not. */
static void keys_are_numbers(const struct sequence *sequence)
{
    for (uint32_t m = 0; m < sequence->layout->n_mla; m++)
        for (uint32_t position = 0; position < sequence->length; position += INDEX_BLOCK_KEYS) {
            const char *block = sequence_index_block(sequence, m, position);
            for (size_t i = 0; i < (size_t)INDEX_BLOCK_KEYS * sequence->layout->mla[m].index_dim; i++)
                assert_true((block[i] & 0x7f) != 0x7f);
        }
}

/* A filled sequence is as long as it says, goes on with finite logits, and can be shortened and go on
 * again. */
static void synthetic_depth_is_usable(void **state)
{
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_MXFP8},
                            latents[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT16};
    for (int c = 0; c < N_CASES; c++)
        for (int t = 0; t < 3; t++) {
            struct model_options options = exact_options(400);
            options.index_dtype = types[t];
            options.latent_dtype = latents[t];
            struct model *model;
            struct sequence sequence;
            struct error err;
            enum status status = model_open(&model, cases[c], &options, &err);
            if (status == STATUS_UNSUPPORTED && types[t] == DTYPE_MXFP8)
                continue; /* index heads that are not a multiple of 32 */
            assert_int_equal(status, STATUS_OK);
            assert_int_equal(model_sequence_init(model, &sequence, &err), STATUS_OK);
            struct rng rng = {7};
            assert_int_equal(bench_state_fill(&sequence, 401, &rng, &err), STATUS_ARGUMENT);
            assert_int_equal(sequence.length, 0);
            float *logits = calloc(2 * model->config.vocab_size, sizeof *logits);
            for (uint32_t depth = 0; depth <= 390; depth += 130) {
                assert_int_equal(bench_state_fill(&sequence, depth, &rng, &err), STATUS_OK);
                if (types[t] == DTYPE_MXFP8)
                    keys_are_numbers(&sequence);
                for (int again = 0; again < 2; again++) {
                    assert_int_equal(sequence.length, depth);
                    const int32_t tokens[2] = {1, 2};
                    struct model_span span = {&sequence, tokens, 2, 0};
                    struct model_outputs outputs = {.logits = logits};
                    assert_int_equal(model_step(model, &span, 1, &outputs, &err), STATUS_OK);
                    for (uint32_t i = 0; i < 2 * model->config.vocab_size; i++)
                        assert_true(isfinite(logits[i]));
                    assert_int_equal(sequence.length, depth + 2);
                    bench_state_shorten(&sequence, depth);
                }
            }
            free(logits);
            sequence_fini(&sequence);
            model_close(model);
        }
}

static int command(const char *line, char **output)
{
    return command_run(lab_bench, "bench", line, output);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void json_has_the_documented_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"tokens_per_s", "gb_per_token", "bandwidth_fraction", "gflop_per_token",
                                       "arithmetic_fraction"};
    char *output;
    assert_int_equal(
        command("-m " GOLDEN_ROOT "/k31-s1 --prefill 8 --decode 0,80 --batch 2 --repeat 1 --json", &output), LAB_OK);
    json_error_t at;
    json_t *report = json_loads(output, 0, &at);
    assert_non_null(report);
    const json_t *machine = json_object_get(report, "machine"), *rows = json_object_get(report, "rows");
    assert_true(sane(number(machine, "read_gb_s")) && sane(number(machine, "f32_gflop_s")));
    assert_int_equal(json_array_size(rows), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_int_equal(json_object_size(row), 17);
        assert_string_equal(json_string_value(json_object_get(row, "work")), i == 0 ? "prefill" : "decode");
        assert_true(number(row, "tokens") > 0 && number(row, "threads") > 0);
        assert_true(number(row, "depth") == (i == 2 ? 80 : 0) && number(row, "batch") == (i == 0 ? 1 : 2));
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            assert_true(sane(number(row, keys[k])));
    }
    json_decref(report);
    free(output);
    assert_int_equal(command("-m " GOLDEN_ROOT "/k31-s1 --prefill 8 --decode none --repeat 1 --csv", &output), LAB_OK);
    assert_true(strncmp(output, "work,tokens,depth,batch,threads,tokens_per_s,", 45) == 0);
    assert_non_null(strstr(output, "\nprefill,8,0,1,"));
    free(output);
}

/* Reads a small XML file as strictly as XML is: tags nest, attributes are quoted, nothing reserved stands in text.
 * Gives how many elements of a name there are. */
static int count_elements(const char *text, const char *name)
{
    const char *open[16];
    int depth = 0, count = 0;
    assert_true(strncmp(text, "<?xml version=\"1.0\"", 19) == 0);
    for (const char *at = strchr(text, '>') + 1; *at; at++) {
        if (*at == '&')
            assert_true(strncmp(at, "&amp;", 5) == 0 || strncmp(at, "&lt;", 4) == 0);
        if (*at != '<')
            continue;
        const char *end = strchr(at, '>'), *word = at[1] == '/' ? at + 2 : at + 1;
        assert_non_null(end);
        size_t length = strcspn(word, " />");
        int quotes = 0;
        for (const char *c = at; c < end; c++) {
            quotes += *c == '"';
            assert_true(c == at || *c != '<');
            assert_true(*c != '=' || c[1] == '"');
        }
        assert_int_equal(quotes % 2, 0);
        if (at[1] == '/') {
            assert_true(depth > 0 && strncmp(open[depth - 1], word, length) == 0);
            depth--;
        } else {
            count += strlen(name) == length && strncmp(word, name, length) == 0;
            if (end[-1] != '/') {
                assert_true(depth < 16);
                open[depth++] = word;
            }
        }
        at = end;
    }
    assert_int_equal(depth, 0);
    return count;
}

static void plot_is_an_svg(void **state)
{
    (void)state;
    static struct bench_result result;
    struct bench_request request = {.directory = "a <model> & more"};
    result = (struct bench_result){.n_threads = 2, .tier = "avx2"};
    for (uint32_t i = 0; i < 7; i++) /* decode at three depths with two batches, and a prompt without floors */
        result.rows[result.n_rows++] = (struct bench_row){.decode = i < 6,
                                                          .tokens = 100,
                                                          .depth = i < 6 ? i / 2 * 40000 : 0,
                                                          .batch = 1 + i % 2,
                                                          .batch_asked = 1 + i % 2,
                                                          .tokens_per_s = 20.0 + i,
                                                          .ms = 50,
                                                          .read_ms = i < 6 ? 25 : 0};
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bench_plot_print(out, &request, &result);
    fclose(out);
    assert_int_equal(count_elements(text, "polyline"), 6); /* speeds and limits of three series */
    assert_int_equal(count_elements(text, "circle"), 7 + 3);
    assert_non_null(strstr(text, "a &lt;model> &amp; more"));
    assert_non_null(strstr(text, "decode, batch 2"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
}

/* Every switch against the default: measured, or a reason; what opens no model is not the end. */
static void ablation_has_a_row_a_switch(void **state)
{
    (void)state;
    struct ablate_result *result = malloc(sizeof *result);
    for (int c = 1; c < N_CASES; c++) {
        struct bench_request request = {.directory = cases[c],
                                        .options = exact_options(0),
                                        .prefill = {{8}, 1},
                                        .prefill_depths = {{0}, 1},
                                        .depths = {{70}, 1},
                                        .batches = {{2}, 1},
                                        .repeat = 2,
                                        .seconds_min = 0.002};
        struct error err;
        bool has_index = strstr(cases[c], "k31") != NULL, bf16_experts = strstr(cases[c], "linear") != NULL;
        unsigned measured = 0;
        request.options.latent_dtype = DTYPE_F32;
        if (bench_ablate_run(&request, result, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_true(result->n_rows >= 18 && result->n_rows % 2 == 0);
        for (uint32_t i = 0; i < result->n_rows; i++) {
            const struct ablate_row *row = &result->rows[i];
            assert_int_equal(row->decode, i % 2);
            assert_true(row->tokens == (row->decode ? 1 : 8) && row->depth == (row->decode ? 70 : 0));
            if (strcmp(row->policy, "kv=f32") == 0)
                assert_string_equal(row->skipped, "is the default");
            if (strncmp(row->policy, "li=", 3) == 0 && !has_index)
                assert_string_equal(row->skipped, "the model has no index layers");
            if (strncmp(row->policy, "experts=", 8) == 0 && !bf16_experts)
                assert_string_equal(row->skipped, "the model has no BF16 experts");
            if (strcmp(row->policy, "exec=eager") == 0 || strcmp(row->policy, "threads=1") == 0)
                assert_string_equal(row->skipped, "");
            if (*row->skipped)
                continue;
            measured++;
            assert_true(sane(row->ratio_low) && row->ratio_low <= row->ratio && row->ratio <= row->ratio_high &&
                        sane(row->ratio_high) && sane(row->tokens_per_s) && sane(row->base_tokens_per_s));
        }
        assert_true(measured >= 4);
        char *text;
        size_t size;
        json_error_t at;
        FILE *out = open_memstream(&text, &size);
        assert_int_equal(bench_ablate_json(out, &request, result, &err), STATUS_OK);
        fclose(out);
        json_t *report = json_loads(text, 0, &at), *rows = json_object_get(report, "ablation");
        assert_int_equal(json_array_size(rows), result->n_rows);
        assert_int_equal(json_object_size(json_array_get(rows, 0)), 12);
        json_decref(report);
        free(text);
    }
    free(result);
}

static uint64_t address_space(void)
{
    unsigned long long pages = 0;
    FILE *in = fopen("/proc/self/statm", "r");
    assert_non_null(in);
    assert_int_equal(fscanf(in, "%llu", &pages), 1);
    fclose(in);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Where only one of the two models fits, each makes way for the other. */
static void ablation_takes_turns_in_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("the address space is the sanitizer's in this build\n");
    skip();
#endif
    struct ablate_result *result = malloc(sizeof *result);
    struct bench_request request = {.directory = GOLDEN_ROOT "/k3-s1",
                                    .options = exact_options(0),
                                    .depths = {{60000}, 1},
                                    .batches = {{1}, 1},
                                    .repeat = 1,
                                    .seconds_min = 0.001};
    struct bench_rig rig;
    struct error err;
    struct rlimit before, low;
    assert_int_equal(bench_rig_open(&rig, request.directory, &request.options, (struct bench_needs){60064, 1, 1}, &err),
                     STATUS_OK);
    uint64_t total = rig.model->budget.total_bytes;
    bench_rig_close(&rig);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    low = before;
    low.rlim_cur = address_space() + total * 7 / 4;
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    enum status status = bench_ablate_run(&request, result, &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < result->n_rows; i++)
        if (strcmp(result->rows[i].policy, "exec=eager") == 0)
            assert_string_equal(result->rows[i].skipped, "");
    free(result);
}

static void wrong_calls(void **state)
{
    (void)state;
    static const char *const wrong[] = {"--prefill 0",
                                        "--prefill 8,",
                                        "--prefill x",
                                        "--decode -1",
                                        "--batch 0",
                                        "--batch 100000",
                                        "--repeat 0",
                                        "--json --csv",
                                        "stray",
                                        "--prefill none --decode none",
                                        "--batch none",
                                        "--prefill 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
                                        "--depth none",
                                        "--ablate --plot x.svg",
                                        "--probe --plot x.svg",
                                        "--probe --csv",
                                        "--ablate --layers",
                                        "--ablate --decode 1,2,3,4,5,6,7,8,9 --batch 1,2",
                                        "--layers --decode 1,2,3,4,5,6,7,8 --batch 1,2",
                                        "--bandwidth 5",
                                        "--layers --predict x --bandwidth a",
                                        "--no-such-flag"};
    char *output;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        print_message("bench %s\n", wrong[i]);
        assert_int_equal(command(wrong[i], &output), LAB_USAGE);
        free(output);
    }
    assert_int_equal(command("-m no-such-model", &output), LAB_FAILED);
    free(output);
    assert_int_equal(command("--plot /no-such-folder/x.svg", &output), LAB_FAILED); /* before anything is measured */
    free(output);
    assert_int_equal(command("--help", &output), LAB_OK);
    assert_non_null(strstr(output, "--prefill"));
    free(output);
}

/* --ablate=POLICY measures that alone, and takes none that cannot be read. */
static void ablation_of_one_policy(void **state)
{
    (void)state;
    struct ablate_result *result = malloc(sizeof *result);
    struct bench_request request = {.directory = cases[1],
                                    .options = exact_options(0),
                                    .depths = {{70, 80}, 2},
                                    .batches = {{1}, 1},
                                    .repeat = 1,
                                    .policy = "exec=eager,threads=1",
                                    .seconds_min = 0.002};
    struct error err;
    if (bench_ablate_run(&request, result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(result->n_rows, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(result->rows[i].policy, request.policy);
        assert_string_equal(result->rows[i].skipped, "");
        assert_true(sane(result->rows[i].ratio));
    }
    request.policy = "kv=f64";
    assert_int_equal(bench_ablate_run(&request, result, &err), STATUS_ARGUMENT);
    assert_non_null(strstr(err.text, "f64"));
    free(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_shrink_to_the_memory),
        cmocka_unit_test(synthetic_depth_is_usable),
        cmocka_unit_test(rows_are_as_asked_for),
        cmocka_unit_test(json_has_the_documented_keys),
        cmocka_unit_test(plot_is_an_svg),
        cmocka_unit_test(ablation_has_a_row_a_switch),
        cmocka_unit_test(ablation_of_one_policy),
        cmocka_unit_test(ablation_takes_turns_in_memory),
        cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
