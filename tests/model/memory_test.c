/* The plan of memory that `day0 check` prints is kept: a run whose prompt fills the context, with all weights read,
 * takes no more than it says, in all and of memory of its own. */
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "terminal_help.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { CONTEXT = 1300, PROMPT_TOKENS_MIN = 1000 };

static char folder[64];

/* Some 150 MB: with the parts of Kimi K3.1, wide enough that the workspace counts. */
static const char larger_config[] =
    "{\"architectures\": [\"KimiK31ForConditionalGeneration\"], \"model_type\": \"kimi_k3\", \"text_config\": {"
    "\"model_type\": \"kimi_linear\", \"vocab_size\": 8192, \"hidden_size\": 768, \"num_hidden_layers\": 6, "
    "\"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"intermediate_size\": 2048, \"rms_norm_eps\": 1e-05, "
    "\"hidden_act\": \"situ\", \"activation_situ_beta\": 4.0, \"activation_situ_linear_beta\": 25.0, "
    "\"tie_word_embeddings\": false, \"linear_attn_config\": {\"kda_layers\": [1, 2, 4, 5], \"full_attn_layers\": "
    "[3, 6], \"num_heads\": 12, \"head_dim\": 64, \"short_conv_kernel_size\": 4, \"gate_lower_bound\": -5.0, "
    "\"use_full_rank_gate\": true}, \"q_lora_rank\": 256, \"kv_lora_rank\": 256, \"qk_nope_head_dim\": 64, "
    "\"qk_rope_head_dim\": 32, \"v_head_dim\": 64, \"mla_use_nope\": true, \"mla_use_output_gate\": true, "
    "\"attn_res_block_size\": 2, \"num_experts\": 32, \"num_experts_per_token\": 4, \"num_shared_experts\": 1, "
    "\"moe_intermediate_size\": 512, \"routed_expert_hidden_size\": 512, \"latent_moe_use_norm\": true, "
    "\"moe_router_activation_func\": \"sigmoid\", \"moe_renormalize\": true, \"routed_scaling_factor\": 2.5, "
    "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"num_expert_group\": 1, \"topk_group\": 1, "
    "\"bos_token_id\": "
    "0, \"eos_token_id\": 1, \"dtype\": \"bfloat16\", \"quantization_config\": {\"quant_method\": "
    "\"compressed-tensors\","
    " \"format\": \"mxfp4-pack-quantized\", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], "
    "\"input_activations\": null, \"weights\": {\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"group\", "
    "\"group_size\": 32, \"symmetric\": true, \"dynamic\": false}}}, \"ignore\": [\"re:.*self_attn.*\", "
    "\"re:.*shared_experts.*\", \"re:.*mlp.*\", \"lm_head\"]}, \"dsa_config\": {\"index_n_heads\": 8, "
    "\"index_head_dim\": 64, \"index_topk\": 128, \"dsa_layers\": [3, 6]}}}\n";

static void write_or_fail(const char *name, const char *text)
{
    char path[128];
    struct error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_write(path, text, strlen(text), &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/day0_memory_XXXXXX");
    assert_non_null(mkdtemp(folder));
    setenv("DAY0_BANDWIDTH_GB_S", "10", 1);
    char *text = calloc(1, 1 << 14);
    for (size_t i = 0, used = 0; used < 2400; i++)
        used += (size_t)sprintf(text + used, "%s%zu ", i % 3 ? "word" : "Hacker, ", i * 7919 % 1000);
    write_or_fail("prompt", text);
    write_or_fail("config.json", larger_config);
    free(text);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Starts the command with its output in files of the folder. */
static pid_t start(const char *const *words)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char out[128], err[128];
        snprintf(out, sizeof out, "%s/out", folder);
        snprintf(err, sizeof err, "%s/err", folder);
        if (!freopen(out, "w", stdout) || !freopen(err, "w", stderr))
            _exit(126);
        execv(terminal_day0(), (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return child;
}

static char *read_back(const char *name)
{
    char path[128], *text;
    size_t bytes;
    struct error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_read(path, 1 << 20, &text, &bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return text;
}

static void fail_with_sentence(const char *what, int outcome)
{
    char *text = read_back("err");
    fail_msg("%s ended with %d: %s", what, outcome, text);
}

/* The plan for one session of `context` tokens. */
static void planned(const char *model, uint32_t context, double *total, double *weights)
{
    char tokens[16];
    int outcome;
    snprintf(tokens, sizeof tokens, "%u", context);
    const char *words[] = {"day0", "check", model, "--json", "--threads", "2", "--ctx", tokens, NULL};
    pid_t child = start(words);
    assert_int_equal(waitpid(child, &outcome, 0), child);
    if (outcome != 0)
        fail_with_sentence("check", outcome);
    char *text = read_back("out");
    json_t *report = json_loads(text, 0, NULL), *plan = json_object_get(report, "plan");
    *total = json_number_value(json_object_get(plan, "total_bytes"));
    *weights = json_number_value(json_object_get(plan, "weights_bytes"));
    assert_true(*total > *weights && *weights > 0);
    json_decref(report);
    free(text);
}

/* Memory of its own that a process has now, 0 once it is gone. */
static double own_bytes(pid_t child)
{
    char path[64], line[128];
    double kilobytes = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)child);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "RssAnon:", 8) == 0)
            kilobytes = strtod(line + 8, NULL);
    if (file)
        fclose(file);
    return 1024 * kilobytes;
}

static void run_is_within_its_plan(const char *model)
{
    static const double tolerance = 1.05;
    char prompt[128], context[16];
    struct rusage use;
    int outcome;
    double total, weights, own = 0;
    snprintf(prompt, sizeof prompt, "%s/prompt", folder);
    snprintf(context, sizeof context, "%d", CONTEXT);
    planned(model, CONTEXT, &total, &weights);
    const char *words[] = {"day0", "run", "-m",     model, "--raw",     "-f", prompt,    "--ctx",     context,
                           "-n",   "2",   "--temp", "0",   "--threads", "2",  "--stats", "--preload", NULL};
    pid_t child = start(words), ended;
    while ((ended = wait4(child, &outcome, WNOHANG, &use)) == 0) {
        double now = own_bytes(child);
        own = now > own ? now : own;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    assert_int_equal(ended, child);
    if (outcome != 0)
        fail_with_sentence("run", outcome);
    char *said = read_back("err"), *computed = strstr(said, "prompt: ");
    assert_non_null(computed);
    long n_tokens = strtol(computed + strlen("prompt: "), NULL, 10);
    double peak = 1024.0 * (double)use.ru_maxrss;
    print_message("%s: %ld tokens; peak %.1f MB of %.1f, own memory %.1f MB of %.1f\n", model, n_tokens, 1e-6 * peak,
                  1e-6 * total, 1e-6 * own, 1e-6 * (total - weights));
    assert_true(n_tokens > PROMPT_TOKENS_MIN && n_tokens < CONTEXT);
    if (!SANITIZED) {
        assert_true(peak <= tolerance * total);
        assert_true(own <= tolerance * (total - weights));
        assert_true(own > 0 && peak > 0.5 * total); /* so what was measured is what was planned */
    }
    free(said);
}

static void the_bundled_model(void **state)
{
    (void)state;
    run_is_within_its_plan("models/jargon-k31");
}

static void a_larger_model(void **state)
{
    (void)state;
    char config[128], directory[128];
    int outcome;
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(directory, sizeof directory, "%s/model", folder);
    const char *words[] = {"day0", "synth", "--config", config, directory, NULL};
    pid_t child = start(words);
    assert_int_equal(waitpid(child, &outcome, 0), child);
    if (outcome != 0)
        fail_with_sentence("synth", outcome);
    run_is_within_its_plan(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_model),
        cmocka_unit_test(a_larger_model),
    };
    return cmocka_run_group_tests_name("memory", tests, make_folder, remove_folder);
}
