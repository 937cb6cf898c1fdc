/* The report on checkpoints of the published sizes (sparse files, headers only) and on small ones with
 * faults. */
#include "layout_writer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "model/report.h"

#define CONFIGS "tests/golden/config"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* 576 values in two bytes each, and the unit of a row of integers. */
enum { LATENT_ROW_BYTES = LATENT_DEFAULT == DTYPE_INT16 ? 1152 + 16 : 1152 };

static char folder[WRITER_PATH_BYTES];

static int setup(void **state)
{
    (void)state;
    writer_make_folder(folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    writer_remove_folder(folder);
    return 0;
}

/* Copies a config; `from` is replaced by `to` everywhere, if given. It must be there. */
static void put_config(const char *name, const char *from, const char *to)
{
    char path[PATH_BYTES_MAX], *text, *changed = NULL;
    size_t bytes, changed_bytes;
    assert_int_equal(file_join(path, CONFIGS, name, NULL), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 20, &text, &bytes, NULL), STATUS_OK);
    FILE *out = open_memstream(&changed, &changed_bytes);
    size_t n = 0;
    for (char *at = text, *hit;; at = hit + strlen(from), n++) {
        hit = from ? strstr(at, from) : NULL;
        fwrite(at, 1, hit ? (size_t)(hit - at) : strlen(at), out);
        if (!hit)
            break;
        fputs(to, out);
    }
    fclose(out);
    assert_true(!from || n > 0);
    writer_file(folder, "config.json", changed, changed_bytes);
    free(changed);
    free(text);
}

static struct report *open_report(const struct model_options *options)
{
    struct report *report;
    struct error err;
    if (report_open(&report, folder, options, 2000000000000, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return report;
}

static struct report *open_default(void)
{
    struct model_options options = model_options_default();
    options.n_threads = 1;
    return open_report(&options);
}

static bool has_operator(const struct report *report, const char *name, bool have)
{
    for (uint32_t i = 0; i < report->n_operators; i++)
        if (strcmp(report->operators[i].name, name) == 0)
            return report->operators[i].have == have;
    return false;
}

static void assert_near(double got, double want, double relative)
{
    if (!(got >= want * (1 - relative) && got <= want * (1 + relative)))
        fail_msg("%.6g, expected %.6g", got, want);
}

/* Runs the report in a process of its own and holds it to the time and memory that are promised. */
static void assert_fast(const char *name)
{
    struct rusage use;
    int outcome;
    double started = clock_seconds();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct report *report = open_default();
        report_close(report);
        _exit(0);
    }
    assert_int_equal(wait4(child, &outcome, 0, &use), child);
    assert_true(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
    double processor = (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
                       1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    print_message("%s: %.2f s, of the processor %.2f s, %.0f MB resident\n", name, clock_seconds() - started, processor,
                  (double)use.ru_maxrss / 1e3);
    if (!SANITIZED) {
        assert_true(processor < 2);
        assert_true(use.ru_maxrss < 500000);
    }
}

static void assert_clean(const struct report *report)
{
    for (size_t i = 0; i < report->n_faults; i++)
        print_message("%s: expected %s, found %s\n", report->faults[i].name, report->faults[i].expected,
                      report->faults[i].found);
    assert_int_equal(report->n_faults, 0);
    assert_int_equal(report->n_unknown_tensors, 0);
    assert_int_equal(report->config.n_doubtful_keys, 0);
    assert_true(report->runnable);
}

/* Prompts of any length go through in bounded memory: beside weights and caches, 256 MB at the published sizes, with
 * the forms of every policy and two threads. */
static void assert_workspace(const char *name, double limit_mb)
{
    for (int act = 0; act < ACT_COUNT; act++) {
        struct model_options options = model_options_default();
        options.n_threads = 2;
        options.context_max = 1 << 17;
        options.act = (enum act)act;
        struct report *report = open_report(&options);
        const struct budget *b = &report->budget;
        double mb = 1e-6 * (double)(b->workspace_bytes - b->widened_bytes - b->program_bytes);
        print_message("%s, --act %s: workspace %.1f MB, beside %.1f MB of widened weights and %.1f MB of program\n",
                      name, act_name(options.act), mb, 1e-6 * (double)b->widened_bytes,
                      1e-6 * (double)b->program_bytes);
        assert_true(mb > 1 && mb < limit_mb);
        report_close(report);
    }
}

static void test_k31(void **state)
{
    (void)state;
    put_config("kimi-k31.json", NULL, NULL);
    assert_int_equal(layout_write(folder, LAYOUT_K31, NULL, NULL), 497172 + 168);
    struct report *report = open_default();
    assert_clean(report);
    assert_string_equal(report->config.architecture, "KimiK31ForConditionalGeneration");
    assert_int_equal(report->n_tensors, 497172);
    const double indexers = 24.0 * 2 * (4096 * 1536 + 160 * 7168 + 256);
    assert_near((double)report->resident_bytes - indexers, 113.5e9, 0.001);
    assert_near((double)report->expert_bytes, 1446.5e9, 0.0001);
    assert_int_equal(report->expert_bytes, 92ull * 896 * 17547264);
    assert_near((double)report->parameters_active, 105e9, 0.01);
    assert_near((double)report->parameters_total, 2.78e12, 0.01);
    assert_int_equal(report->kda_state_bytes, 69 * 96 * 128 * 128 * 4);
    assert_int_equal(report->conv_state_bytes, 69 * (REWIND_TOKENS + 4) * 3 * 12288 * 4);
    assert_int_equal(report->latent_bytes_per_token, 24 * LATENT_ROW_BYTES);
    assert_int_equal(report->index_bytes_per_token, 24 * 128 * 2);
    uint64_t embedding = 2ull * 163840 * 7168, row = 2 * 7168;
    assert_int_equal(report->active_bytes_per_token,
                     report->resident_bytes - embedding + row + report->expert_bytes / 896 * 16);
    assert_true(has_operator(report, "dsa.indexer", true) && has_operator(report, "moe.mxfp4", true));
    assert_true(has_operator(report, "attn_res", true) && has_operator(report, "kda.bounded_decay", true));
    assert_near((double)report->budget.weights_bytes, (double)(report->resident_bytes + report->expert_bytes), 0.001);
    assert_true(report->budget.fits && report->budget.context_that_fits >= 1 << 20);
    report_close(report);
    assert_fast("Kimi K3.1 Pro");
    assert_workspace("Kimi K3.1 Pro", 256);
}

static void test_k3(void **state)
{
    (void)state;
    put_config("kimi-k3.json", NULL, NULL);
    assert_int_equal(layout_write(folder, LAYOUT_K3, NULL, NULL), 497220);
    struct report *report = open_default();
    assert_clean(report);
    assert_int_equal(report->n_tensors, 497052);
    assert_near((double)report->resident_bytes, 113.5e9, 0.001);
    assert_int_equal(report->index_bytes_per_token, 0);
    assert_false(has_operator(report, "dsa.indexer", true));
    report_close(report);
    assert_fast("Kimi K3");
    assert_workspace("Kimi K3", 256);
}

static void test_linear(void **state)
{
    (void)state;
    put_config("kimi-linear-48b.json", NULL, NULL);
    layout_write(folder, LAYOUT_LINEAR_48B, NULL, NULL);
    struct report *report = open_default();
    assert_clean(report);
    assert_near((double)report->parameters_total, 49e9, 0.02);
    assert_near((double)report->parameters_active, 3.4e9, 0.1);
    assert_int_equal(report->kda_state_bytes, 20 * 32 * 128 * 128 * 4);
    assert_int_equal(report->latent_bytes_per_token, 7 * LATENT_ROW_BYTES);
    assert_true(has_operator(report, "kda.softplus_decay", true) && has_operator(report, "residual.plain", true));
    assert_true(has_operator(report, "mla.full_rank_query", true) && has_operator(report, "activation.silu", true));
    report_close(report);
    assert_fast("Kimi Linear 48B");
    assert_workspace("Kimi Linear 48B", 128);
}

/* Cache types change what a token costs. */
static void test_cache_types(void **state)
{
    (void)state;
    struct model_options options = model_options_default();
    options.n_threads = 1;
    options.latent_dtype = DTYPE_F32;
    options.index_dtype = DTYPE_MXFP8;
    put_config("kimi-k31.json", NULL, NULL);
    layout_write(folder, LAYOUT_K31, NULL, NULL);
    struct report *report = open_report(&options);
    assert_int_equal(report->latent_bytes_per_token, 24 * 576 * 4);
    assert_int_equal(report->index_bytes_per_token, 24 * (128 + 4));
    report_close(report);
}

/* All faults are listed, with what was expected and found, and what the model does not have. */
static void test_faults(void **state)
{
    (void)state;
    put_config("kimi-linear-48b.json", "\"num_hidden_layers\": 27", "\"num_hidden_layers\": 27, \"some_new_key\": 1");
    layout_write(folder, LAYOUT_LINEAR_48B, "model.layers.5.block_sparse_moe.experts.200.w2.weight",
                 "model.layers.3.self_attn.kv_b_proj.weight");
    struct report *report = open_default();
    assert_false(report->runnable);
    assert_int_equal(report->n_faults, 2);
    assert_int_equal(report->n_missing, 1);
    const struct report_fault *wrong = &report->faults[0], *missing = &report->faults[1];
    assert_string_equal(wrong->name, "model.layers.3.self_attn.kv_b_proj.weight");
    assert_string_equal(wrong->file, "model-00004-of-000028.safetensors");
    assert_string_equal(wrong->expected, "F32, BF16 or F16 [8192, 512]");
    assert_string_equal(wrong->found, "BF16 [8191, 512]");
    assert_string_equal(missing->name, "model.layers.5.block_sparse_moe.experts.200.w2.weight");
    assert_null(missing->file);
    assert_int_equal(report->config.n_unknown_keys, 1);
    assert_int_equal(report->config.n_doubtful_keys, 0);
    report_close(report);
}

static void test_unknown_tensors(void **state)
{
    (void)state;
    put_config("kimi-linear-48b.json", "\"use_grouped_topk\": true", "\"mla_use_output_gate\": true");
    layout_write(folder, LAYOUT_LINEAR_48B, NULL, NULL);
    struct report *report = open_default();
    assert_int_equal(report->n_missing, 7); /* the gates */
    assert_int_equal(report->n_unknown_tensors, 0);
    report_close(report);
    put_config("kimi-linear-48b.json", "\"num_shared_experts\": 1", "\"num_shared_experts\": 0");
    report = open_default();
    assert_int_equal(report->n_unknown_tensors, 26 * 3);
    assert_string_equal(report->unknown_tensors[0], "model.layers.1.block_sparse_moe.shared_experts.down_proj.weight");
    assert_true(report->runnable);
    report_close(report);
}

/* What the config asks for outside of the family is named; the report does not stop there. */
static void test_foreign(void **state)
{
    static const struct {
        const char *from, *to, *operator, * replaced;
    } cases[] = {
        {"\"mla_use_nope\": true", "\"mla_use_nope\": false", "mla.rotary", "mla.nope"},
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "activation.gelu", "activation.silu"},
        {"\"sigmoid\"", "\"tanh\"", "moe.router.tanh", "moe.sigmoid_router"},
        {"\"num_key_value_heads\": 32", "\"num_key_value_heads\": 8", "mla.grouped_heads", NULL},
        {"\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2", "moe.layer_frequency", NULL},
        {"\"moe_layer_freq\": 1", "\"quantization_config\": {\"quant_method\": \"fp8\"}", "quantization.fp8", NULL},
    };
    (void)state;
    layout_write(folder, LAYOUT_LINEAR_48B, NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_config("kimi-linear-48b.json", cases[i].from, cases[i].to);
        struct report *report = open_default();
        assert_true(has_operator(report, cases[i].operator, false));
        assert_false(cases[i].replaced && has_operator(report, cases[i].replaced, true));
        assert_false(report->runnable);
        assert_int_equal(report->n_faults, 0);
        report_close(report);
    }
}

/* A key in linear_attn_config may change the meaning: not runnable, unless the user accepts it. */
static void test_doubtful_key(void **state)
{
    struct model_options options = model_options_default();
    (void)state;
    put_config("kimi-linear-48b.json", "\"short_conv_kernel_size\"", "\"gate_twist\": 3, \"short_conv_kernel_size\"");
    layout_write(folder, LAYOUT_LINEAR_48B, NULL, NULL);
    struct report *report = open_default();
    assert_false(report->runnable);
    assert_int_equal(report->config.n_doubtful_keys, 1);
    assert_string_equal(report->config.unknown_keys[0], "linear_attn_config.gate_twist");
    report_close(report);
    options.config.accept_unknown = true;
    report = open_report(&options);
    assert_true(report->runnable);
    report_close(report);
}

/* A budget that holds the weights and no more gives no context; a little more gives some. */
static void test_budget(void **state)
{
    (void)state;
    struct report *report;
    struct model_options options = model_options_default();
    options.n_threads = 1;
    put_config("kimi-linear-48b.json", NULL, NULL);
    layout_write(folder, LAYOUT_LINEAR_48B, NULL, NULL);
    struct report *whole = open_default();
    uint64_t weights = whole->budget.weights_bytes, total = whole->budget.total_bytes;
    assert_int_equal(report_open(&report, folder, &options, weights, NULL), STATUS_OK);
    assert_false(report->budget.fits);
    assert_int_equal(report->budget.context_that_fits, 0);
    report_close(report);
    assert_int_equal(report_open(&report, folder, &options, total, NULL), STATUS_OK);
    assert_true(report->budget.fits);
    assert_in_range(report->budget.context_that_fits, 4096, 4096 + PAGE_TOKENS);
    report_close(report);
    report_close(whole);
}

static void test_refusals(void **state)
{
    (void)state;
    struct model_options options = model_options_default();
    struct report *report;
    struct error err;
    assert_int_equal(report_open(&report, folder, &options, 0, &err), STATUS_NOT_FOUND);
    assert_null(report);
    put_config("kimi-linear-48b.json", NULL, NULL);
    assert_int_equal(report_open(&report, folder, &options, 0, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "model.safetensors"));
    writer_header(folder, "model.safetensors", "{\"a\":", 0);
    assert_int_equal(report_open(&report, folder, &options, 0, &err), STATUS_FORMAT);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_k31),    TEST(test_k3),       TEST(test_linear),          TEST(test_cache_types),
        TEST(test_faults), TEST(test_foreign),  TEST(test_unknown_tensors), TEST(test_doubtful_key),
        TEST(test_budget), TEST(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
