/* The writer of safetensors files, random values, and random checkpoints of every architecture. */
#include "checkpoint_writer.h"

#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/file.h"
#include "lab/synth.h"
#include "lab/synth_values.h"
#include "model/report.h"
#include "tensor/dtype.h"
#include "tensor/mx.h"
#include "weights/safetensors_write.h"

#define CONFIGS "tests/golden/config"

static char folder[WRITER_PATH_BYTES], directory[WRITER_PATH_BYTES + 8];

static int setup(void **state)
{
    (void)state;
    writer_make_folder(folder);
    snprintf(directory, sizeof directory, "%s/model", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct stat info;
    if (stat(directory, &info) == 0)
        writer_remove_folder(directory);
    writer_remove_folder(folder);
    return 0;
}

static struct synth_options options_for(char path[PATH_BYTES_MAX], const char *config)
{
    assert_int_equal(file_join(path, CONFIGS, config, NULL), STATUS_OK);
    return (struct synth_options){.config_path = path, .directory = directory, .seed = 7, .shard_bytes = UINT64_MAX};
}

static struct synth_result synth(const struct synth_options *options)
{
    struct synth_result result;
    struct error err;
    if (synth_checkpoint(options, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return result;
}

/* ---- the writer ---- */

static void test_round_trip(void **state)
{
    (void)state;
    static const struct safetensors_spec specs[] = {
        {"model.a", {2, 3}, 2, STORED_F32},        {"model.scalar", {0}, 0, STORED_F32},
        {"model.b", {1, 5, 1, 2}, 4, STORED_BF16}, {"model.h", {4}, 1, STORED_F16},
        {"model.none", {0, 7}, 2, STORED_BF16},    {"model.c", {13}, 1, STORED_U8},
    };
    enum { N = sizeof specs / sizeof *specs };
    char path[PATH_BYTES_MAX];
    unsigned char data[28 + 20 + 8 + 13];
    struct safetensors_writer out;
    struct checkpoint *checkpoint;
    struct error err;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(37 * i + 1);
    assert_int_equal(file_join(path, folder, "model.safetensors", NULL), STATUS_OK);
    enum status status = safetensors_write_begin(&out, path, specs, N, &err);
    for (size_t at = 0; at < sizeof data && status == STATUS_OK; at += 23)
        status = safetensors_write_data(&out, data + at, sizeof data - at < 23 ? sizeof data - at : 23, &err);
    assert_int_equal(safetensors_write_end(&out, status, &err), STATUS_OK);
    assert_int_equal(checkpoint_open(&checkpoint, folder, &err), STATUS_OK);
    assert_int_equal(checkpoint_count(checkpoint), N);
    size_t at = 0;
    for (int i = 0; i < N; i++) {
        const struct tensor *tensor = checkpoint_find(checkpoint, specs[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->stored, specs[i].stored);
        assert_int_equal(tensor->rank, specs[i].rank);
        assert_memory_equal(tensor->shape, specs[i].shape, specs[i].rank * sizeof(uint64_t));
        assert_int_equal(tensor->bytes, safetensors_spec_bytes(&specs[i]));
        assert_memory_equal(tensor->data, data + at, tensor->bytes);
        at += tensor->bytes;
    }
    assert_int_equal(at, sizeof data);
    assert_int_equal((uintptr_t)checkpoint_find(checkpoint, "model.a")->data % 64, 0);
    checkpoint_close(checkpoint);
}

static void test_writer_failures(void **state)
{
    (void)state;
    struct safetensors_spec spec = {"a", {1}, 1, STORED_F32};
    struct safetensors_writer out;
    struct error err;
    enum status status = safetensors_write_begin(&out, "/nowhere/at/all", &spec, 1, &err);
    assert_int_equal(safetensors_write_end(&out, status, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    if (!file_exists("/dev/full"))
        return;
    status = safetensors_write_begin(&out, "/dev/full", &spec, 1, &err);
    assert_int_equal(safetensors_write_end(&out, status, &err), STATUS_IO);
}

/* ---- values ---- */

enum { DRAWS = 1 << 20 };

static void moments(const float *x, size_t n, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i], squares += (double)x[i] * x[i];
    *mean = sum / (double)n;
    *deviation = sqrt(squares / (double)n - *mean * *mean);
}

static void test_values(void **state)
{
    (void)state;
    struct values *values = malloc(sizeof *values);
    float *x = malloc(DRAWS * sizeof *x);
    uint16_t *halves = malloc(DRAWS * sizeof *halves);
    double mean, deviation;
    synth_values_init(values);
    synth_values_begin(values, &(struct values_recipe){VALUES_F32, -1.5f, 2, DRAWS - 3}, 1, "a");
    synth_values_take(values, x, DRAWS * sizeof *x);
    moments(x, DRAWS - 3, &mean, &deviation);
    assert_true(fabs(mean + 1.5) < 0.01 && fabs(deviation - 2) < 0.01);
    assert_true(x[DRAWS - 4] < 0 || x[DRAWS - 4] > 0);
    assert_true(x[DRAWS - 3] == 0 && x[DRAWS - 2] == 0 && x[DRAWS - 1] == 0);
    synth_values_begin(values, &(struct values_recipe){VALUES_BF16, 0, 0.02f, UINT64_MAX}, 1, "b");
    synth_values_take(values, halves, DRAWS * sizeof *halves);
    double beyond = 0;
    for (size_t i = 0; i < DRAWS; i++) {
        x[i] = f32_from_bf16(halves[i]);
        beyond += fabsf(x[i]) > 0.04f;
    }
    moments(x, DRAWS, &mean, &deviation);
    assert_true(fabs(mean) < 1e-4 && fabs(deviation - 0.02) < 1e-4);
    assert_true(fabs(beyond / DRAWS - 0.0455) < 0.002); /* as much as a normal distribution has past two deviations */
    free(halves);
    free(x);
    free(values);
}

/* Codes and scales together have the wanted deviation, for any size of it. */
static void test_packed_values(void **state)
{
    (void)state;
    static const float deviations[] = {1e-3f, 0.011f, 0.02f, 0.3f, 5};
    enum { BLOCKS = 1 << 15 };
    struct values *values = malloc(sizeof *values);
    uint8_t *codes = malloc(BLOCKS * MX_BLOCK / 2), *scales = malloc(BLOCKS);
    float *x = malloc((size_t)BLOCKS * MX_BLOCK * sizeof *x);
    synth_values_init(values);
    for (size_t d = 0; d < sizeof deviations / sizeof *deviations; d++) {
        double mean, deviation;
        synth_values_begin(values, &(struct values_recipe){VALUES_MXFP4_CODES, 0, deviations[d], UINT64_MAX}, 1,
                           "codes");
        synth_values_take(values, codes, BLOCKS * MX_BLOCK / 2);
        synth_values_begin(values, &(struct values_recipe){VALUES_MXFP4_SCALES, 0, deviations[d], UINT64_MAX}, 1,
                           "scales");
        synth_values_take(values, scales, BLOCKS);
        for (size_t b = 0; b < BLOCKS; b++)
            mx_dequantize_fp4(x + b * MX_BLOCK, codes + b * MX_BLOCK / 2, scales[b]);
        moments(x, (size_t)BLOCKS * MX_BLOCK, &mean, &deviation);
        assert_true(fabs(deviation / (double)deviations[d] - 1) < 0.05);
        assert_true(fabs(mean) < 0.02 * (double)deviations[d]);
    }
    free(x);
    free(scales);
    free(codes);
    free(values);
}

/* ---- checkpoints ---- */

static const char *const shapes[] = {"small-k3.json",     "small-k31.json",
                                     "small-linear.json", "small-k31-real-layers.json",
                                     "tiny-k31.json",     "tiny-linear.json"};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* The report finds nothing to say, and the plan of memory is the one that opening makes. */
static void check_report(const struct model *model)
{
    struct report *report;
    struct error err;
    if (report_open(&report, directory, &model->options, 1 << 30, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(report->runnable);
    assert_int_equal(report->n_faults, 0);
    assert_int_equal(report->n_unknown_tensors, 0);
    assert_int_equal(report->config.n_unknown_keys, 0);
    assert_int_equal(report->parameters_total, model->params.parameters_total);
    assert_int_equal(report->budget.weights_bytes, model->budget.weights_bytes);
    assert_int_equal(report->budget.cache_bytes, model->budget.cache_bytes);
    assert_int_equal(report->budget.state_bytes, model->budget.state_bytes);
    report_close(report);
}

/* Opens, feeds some tokens: logits are finite and neither vanish nor explode. */
static void run_it(const char *name, bool check)
{
    enum { TOKENS = 24 };
    struct model_options options = model_options_default();
    struct sequence sequence;
    struct model *model;
    struct error err;
    int32_t tokens[TOKENS];
    options.context_max = TOKENS;
    options.n_threads = 1;
    if (model_open(&model, directory, &options, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (check)
        check_report(model);
    uint32_t vocabulary = model->config.vocab_size;
    float *logits = calloc((size_t)TOKENS * vocabulary, sizeof *logits);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(7 * i % vocabulary);
    assert_int_equal(model_sequence_init(model, &sequence, &err), STATUS_OK);
    struct model_span span = {&sequence, tokens, TOKENS, 0};
    struct model_outputs outputs = {.logits = logits};
    assert_int_equal(model_step(model, &span, 1, &outputs, &err), STATUS_OK);
    double mean, deviation;
    moments(logits, (size_t)TOKENS * vocabulary, &mean, &deviation);
    print_message("%s: logits %.2f deviation\n", name, deviation);
    assert_true(deviation > 0.3 && deviation < 4); /* false for NaN */
    sequence_fini(&sequence);
    model_close(model);
    free(logits);
}

static void test_every_architecture(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX];
    for (int i = 0; i < N_SHAPES; i++) {
        struct synth_options options = options_for(path, shapes[i]);
        struct synth_result result = synth(&options);
        assert_int_equal(result.n_files, 1);
        assert_true(!result.has_tokenizer && result.n_tensors > 0);
        run_it(shapes[i], true);
        writer_remove_folder(directory);
    }
}

static bool same_tensors(const char *one, const char *other)
{
    struct checkpoint *a, *b;
    struct error err;
    assert_int_equal(checkpoint_open(&a, one, &err), STATUS_OK);
    assert_int_equal(checkpoint_open(&b, other, &err), STATUS_OK);
    bool same = checkpoint_count(a) == checkpoint_count(b);
    for (size_t i = 0; same && i < checkpoint_count(a); i++) {
        const struct tensor *x = checkpoint_at(a, i), *y = checkpoint_find(b, x->name);
        same = y && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
    }
    checkpoint_close(a);
    checkpoint_close(b);
    return same;
}

/* Shards change the files and not one value; another seed changes the values. */
static void test_shards_and_seeds(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX], other[WRITER_PATH_BYTES + 16];
    struct synth_options options = options_for(path, "small-k31.json");
    synth(&options);
    snprintf(other, sizeof other, "%s-2/", directory);
    options.directory = other;
    options.shard_bytes = 1000000;
    struct synth_result result = synth(&options);
    assert_true(result.n_files > 1);
    assert_true(same_tensors(directory, other));
    writer_remove_folder(other);
    options.seed++;
    synth(&options);
    assert_false(same_tensors(directory, other));
    writer_remove_folder(other);
}

static const struct tensor *find(const struct checkpoint *checkpoint, const char *name)
{
    const struct tensor *tensor = checkpoint_find(checkpoint, name);
    if (!tensor)
        fail_msg("no tensor %s", name);
    return tensor;
}

/* Element types, shapes and special values are those of the published models. */
static void test_published_layout(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX], *text;
    size_t bytes;
    struct checkpoint *checkpoint;
    struct error err;
    struct synth_options options = options_for(path, "small-k31.json");
    synth(&options);
    assert_int_equal(file_join(path, directory, "model.safetensors", NULL), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 28, &text, &bytes, NULL), STATUS_OK);
    assert_non_null(strstr(text + 8, "\"language_model.model.layers.0.self_attn.A_log\""));
    assert_non_null(strstr(text + 8, "\"language_model.lm_head.weight\""));
    free(text);
    assert_int_equal(checkpoint_open(&checkpoint, directory, &err), STATUS_OK);
    const struct tensor *rates = find(checkpoint, "model.layers.0.self_attn.A_log");
    assert_true(rates->stored == STORED_F32 && rates->rank == 1 && rates->shape[0] == 128);
    for (int i = 0; i < 128; i++)
        assert_int_equal(((const float *)rates->data)[i] != 0, i < 4);
    assert_int_equal(find(checkpoint, "model.layers.0.self_attn.q_conv1d.weight")->stored, STORED_F32);
    assert_int_equal(find(checkpoint, "model.layers.0.self_attn.q_conv1d.weight")->rank, 3);
    assert_int_equal(find(checkpoint, "model.layers.0.self_attn.dt_bias")->stored, STORED_F32);
    assert_int_equal(find(checkpoint, "model.layers.0.self_attn.o_norm.weight")->stored, STORED_F32);
    assert_int_equal(find(checkpoint, "model.layers.1.block_sparse_moe.gate.e_score_correction_bias")->stored,
                     STORED_F32);
    assert_int_equal(find(checkpoint, "model.layers.1.block_sparse_moe.experts.7.w2.weight_packed")->stored, STORED_U8);
    assert_int_equal(find(checkpoint, "model.layers.1.block_sparse_moe.shared_experts.up_proj.weight")->stored,
                     STORED_BF16);
    assert_int_equal(find(checkpoint, "model.layers.3.self_attn.indexer.k_norm.bias")->stored, STORED_BF16);
    assert_int_equal(find(checkpoint, "model.output_attn_res_proj.weight")->shape[0], 1);
    checkpoint_close(checkpoint);
    writer_remove_folder(directory);
    options = options_for(path, "small-linear.json");
    synth(&options);
    assert_int_equal(checkpoint_open(&checkpoint, directory, &err), STATUS_OK);
    assert_int_equal(find(checkpoint, "model.layers.0.self_attn.A_log")->rank, 4);
    assert_int_equal(find(checkpoint, "model.layers.1.block_sparse_moe.experts.7.w2.weight")->stored, STORED_BF16);
    checkpoint_close(checkpoint);
}

static void test_tokenizer(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX];
    struct error err;
    struct synth_result result;
    struct synth_options options = options_for(path, "small-linear.json");
    options.tokenizer = "models/jargon-k31";
    result = synth(&options);
    assert_true(result.has_tokenizer);
    writer_remove_folder(directory);
    options = options_for(path, "tiny-linear.json");
    options.tokenizer = "models/jargon-k31";
    assert_int_equal(synth_checkpoint(&options, &result, &err), STATUS_ARGUMENT);
    assert_non_null(strstr(err.text, "vocab_size 40"));
    options.tokenizer_optional = true;
    result = synth(&options);
    assert_false(result.has_tokenizer);
}

static void assert_refused(const struct synth_options *options, enum status status, const char *sentence)
{
    struct synth_result result;
    struct error err;
    assert_int_equal(synth_checkpoint(options, &result, &err), status);
    if (!strstr(err.text, sentence))
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

/* What is refused leaves nothing behind; what was there stays. */
static void test_refusals(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX], bad[PATH_BYTES_MAX];
    struct stat info;
    struct synth_options options = options_for(path, "tiny-k31.json");
    writer_file(folder, "config.json", "{}", 2);
    snprintf(bad, sizeof bad, "%s/config.json", folder);
    options.directory = folder;
    assert_refused(&options, STATUS_ARGUMENT, "empty directory");
    options = options_for(path, "tiny-k31.json");
    options.config_path = bad;
    assert_refused(&options, STATUS_UNSUPPORTED, "linear_attn_config");
    options.config_path = "/nowhere/config.json";
    assert_refused(&options, STATUS_NOT_FOUND, "/nowhere/config.json");
    options = options_for(path, "tiny-k31.json");
    options.directory = "/nowhere/model";
    assert_refused(&options, STATUS_IO, "/nowhere/model");
    options = options_for(path, "tiny-k31.json");
    options.tokenizer = "/nowhere";
    assert_refused(&options, STATUS_NOT_FOUND, "/nowhere");
    assert_int_not_equal(stat(directory, &info), 0);
    assert_int_equal(mkdir(directory, 0777), 0); /* an empty one is filled */
    options = options_for(path, "tiny-k31.json");
    synth(&options);
    run_it("into an empty directory", false);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),       TEST(test_writer_failures),    TEST(test_values),
        TEST(test_packed_values),    TEST(test_every_architecture), TEST(test_shards_and_seeds),
        TEST(test_published_layout), TEST(test_tokenizer),          TEST(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
