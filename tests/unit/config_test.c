/* config.json: the published models, every default, every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "model/config.h"

static struct config config;

static void parse_golden(const char *name)
{
    struct error err = {0};
    char path[256], *text;
    size_t bytes;
    snprintf(path, sizeof path, "tests/golden/config/%s.json", name);
    if (file_read(path, 1 << 20, &text, &bytes, &err) != STATUS_OK ||
        config_parse(&config, text, bytes, NULL, &err) != STATUS_OK)
        fail_msg("%s (run from the root of the tree)", err.text);
    free(text);
}

static uint32_t count_kda(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < config.n_layers; i++)
        n += config.is_kda[i];
    return n;
}

static void expect_k3(void)
{
    assert_int_equal(config.vocab_size, 163840);
    assert_int_equal(config.hidden_size, 7168);
    assert_int_equal(config.n_layers, 93);
    assert_int_equal(config.n_heads, 96);
    assert_int_equal(config.intermediate_size, 33792);
    assert_true(config.rms_norm_eps == 1e-5f && config.latent_norm_eps == 1e-6f);
    assert_false(config.tie_word_embeddings);
    assert_int_equal(config.activation, ACTIVATION_SITU);
    assert_true(config.situ_beta == 4 && config.situ_linear_beta == 25);
    assert_int_equal(count_kda(), 69);
    assert_false(config.is_kda[3] || config.is_kda[91] || config.is_kda[92]);
    assert_true(config.is_kda[0] && config.is_kda[90]);
    assert_int_equal(config.kda_heads, 96);
    assert_int_equal(config.kda_head_dim, 128);
    assert_int_equal(config.conv_taps, 4);
    assert_true(config.full_rank_gate && config.bounded_decay && config.decay_bound == -5);
    assert_int_equal(config.q_lora_rank, 1536);
    assert_int_equal(config.kv_lora_rank, 512);
    assert_int_equal(config.qk_nope_head_dim, 128);
    assert_int_equal(config.qk_rope_head_dim, 64);
    assert_int_equal(config.v_head_dim, 128);
    assert_true(config.mla_output_gate);
    assert_int_equal(config.attn_res_block_size, 12);
    assert_int_equal(config.n_experts, 896);
    assert_int_equal(config.n_experts_per_token, 16);
    assert_int_equal(config.n_shared_experts, 2);
    assert_int_equal(config.moe_intermediate_size, 3072);
    assert_int_equal(config.latent_size, 3584);
    assert_true(config.latent_norm && config.renormalize && config.routed_scaling_factor == 1);
    assert_int_equal(config.router, ROUTER_SIGMOID);
    assert_int_equal(config.first_dense_layers, 1);
    assert_int_equal(config.n_expert_groups, 1);
    assert_int_equal(config.n_groups_used, 1);
    assert_true(!config_is_moe(&config, 0) && config_is_moe(&config, 1));
    assert_int_equal(config.bos_token, 163584);
    assert_int_equal(config.n_stop_tokens, 1);
    assert_int_equal(config.stop_tokens[0], 163586);
    assert_int_equal(config.n_unknown_keys, 0);
}

static void test_k3(void **state)
{
    (void)state;
    parse_golden("kimi-k3");
    expect_k3();
    assert_string_equal(config.architecture, "KimiK3ForConditionalGeneration");
    assert_int_equal(config.index_topk, 0);
    assert_false(config.index_layers_said);
}

static void test_k31(void **state)
{
    (void)state;
    parse_golden("kimi-k31");
    expect_k3();
    assert_string_equal(config.architecture, "KimiK31ForConditionalGeneration");
    assert_int_equal(config.index_topk, 2048);
    assert_int_equal(config.index_heads_said, 32);
    assert_int_equal(config.index_head_dim_said, 128);
    assert_true(config.index_layers_said);
    for (uint32_t i = 0; i < config.n_layers; i++)
        assert_int_equal(config.is_index_layer[i], !config.is_kda[i]);
}

static void test_linear(void **state)
{
    (void)state;
    parse_golden("kimi-linear-48b");
    assert_string_equal(config.architecture, "KimiLinearForCausalLM");
    assert_int_equal(config.hidden_size, 2304);
    assert_int_equal(config.n_layers, 27);
    assert_int_equal(count_kda(), 20);
    assert_int_equal(config.kda_heads, 32);
    assert_int_equal(config.activation, ACTIVATION_SILU);
    assert_false(config.full_rank_gate || config.bounded_decay || config.mla_output_gate || config.latent_norm);
    assert_int_equal(config.q_lora_rank, 0);
    assert_int_equal(config.latent_size, 0);
    assert_int_equal(config.attn_res_block_size, 0);
    assert_int_equal(config.n_experts, 256);
    assert_int_equal(config.n_experts_per_token, 8);
    assert_true(config.routed_scaling_factor == 2.446f);
    assert_int_equal(config.n_unknown_keys, 0);
}

/* ---- edits of one small config ---- */

static const char small_text[] =
    "{\"architectures\":[\"KimiK31ForConditionalGeneration\"],\"text_config\":{"
    "\"vocab_size\":256,\"hidden_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"intermediate_size\":160,"
    "\"linear_attn_config\":{\"kda_layers\":[1,3],\"full_attn_layers\":[2,4],\"num_heads\":4,\"head_dim\":32,"
    "\"short_conv_kernel_size\":4},\"q_lora_rank\":64,"
    "\"dsa_config\":{\"index_n_heads\":4,\"index_head_dim\":32,\"index_topk\":16,\"dsa_layers\":[2,4]},"
    "\"num_experts\":8,\"num_experts_per_token\":2,\"moe_intermediate_size\":64,"
    "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp4-pack-quantized\","
    "\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"type\":\"float\",\"group_size\":32}}}}}}";

/* Parses the small config after edits: {"text_config": {"key": value, "gone": "DELETE"}} is laid over it,
 * object by object. */
static void overlay(json_t *base, json_t *edit)
{
    const char *key;
    json_t *value;
    json_object_foreach (edit, key, value) {
        const char *word = json_string_value(value);
        if (word && strcmp(word, "DELETE") == 0)
            json_object_del(base, key);
        else if (json_is_object(value) && json_is_object(json_object_get(base, key)))
            overlay(json_object_get(base, key), value);
        else
            json_object_set(base, key, value);
    }
}

static enum status parse_edited(const char *edit, bool flat, const struct config_options *options, struct error *err)
{
    json_t *root = json_loads(small_text, 0, NULL), *change = json_loads(edit, 0, NULL);
    assert_non_null(root);
    if (!change)
        fail_msg("the test's edit is not JSON: %s", edit);
    overlay(root, change);
    char *text = json_dumps(flat ? json_object_get(root, "text_config") : root, JSON_COMPACT);
    *err = (struct error){0};
    enum status status = config_parse(&config, text, strlen(text), options, err);
    free(text);
    json_decref(root);
    json_decref(change);
    return status;
}

static void parse_good(const char *edit)
{
    struct error err;
    if (parse_edited(edit, false, NULL, &err) != STATUS_OK)
        fail_msg("%s: %s", edit, err.text);
}

static void test_defaults(void **state)
{
    (void)state;
    struct error err;
    for (int flat = 0; flat < 2; flat++) {
        assert_int_equal(parse_edited("{}", flat, NULL, &err), STATUS_OK);
        assert_true(config.rms_norm_eps == 1e-5f && config.latent_norm_eps == 1e-6f &&
                    config.routed_scaling_factor == 1);
        assert_int_equal(config.kv_lora_rank, 512);
        assert_int_equal(config.qk_nope_head_dim, 128);
        assert_int_equal(config.qk_rope_head_dim, 64);
        assert_int_equal(config.v_head_dim, 128);
        assert_int_equal(config.activation, ACTIVATION_SILU);
        assert_int_equal(config.first_dense_layers, 1);
        assert_true(config.renormalize && !config.latent_norm && !config.bounded_decay && !config.full_rank_gate);
        assert_int_equal(config.bos_token, -1);
        assert_int_equal(config.n_stop_tokens, 0);
        assert_string_equal(config.architecture, flat ? "" : "KimiK31ForConditionalGeneration");
    }
}

static void test_null_is_absent(void **state)
{
    (void)state;
    parse_good("{\"text_config\":{\"rms_norm_eps\":null,\"num_experts\":null,\"attn_res_block_size\":null,\"eos_token_"
               "id\":null,"
               "\"quantization_config\":null,\"dsa_config\":null,\"linear_attn_config\":{\"gate_lower_bound\":null}}}");
    assert_true(config.rms_norm_eps == 1e-5f && !config.bounded_decay);
    assert_int_equal(config.n_experts, 0);
    assert_int_equal(config.index_topk, 0);
    assert_false(config_is_moe(&config, 3));
}

static void test_spellings(void **state)
{
    (void)state;
    static const char *const topk[] = {"index_topk", "topk", "top_k", "sparse_topk"};
    static const char *const layers[] = {"dsa_layers", "index_layers", "layers", "full_attn_layers"};
    char edit[512];
    for (int i = 0; i < 4; i++) {
        snprintf(edit, sizeof edit,
                 "{\"text_config\":{\"dsa_config\":{\"index_topk\":\"DELETE\",\"dsa_layers\":\"DELETE\","
                 "\"%s\":99,\"%s\":[4]}}}",
                 topk[i], layers[i]);
        parse_good(edit);
        assert_int_equal(config.index_topk, 99);
        assert_true(config.is_index_layer[3] && !config.is_index_layer[1]);
        snprintf(edit, sizeof edit, "{\"text_config\":{\"dsa_config\":\"DELETE\",\"%s\":98}}", topk[i]);
        parse_good(edit);
        assert_int_equal(config.index_topk, 98);
        assert_false(config.index_layers_said);
        assert_int_equal(config.n_unknown_keys, 0);
    }
    parse_good("{\"text_config\":{\"dsa_config\":{\"n_heads\":4,\"num_heads\":4,\"head_dim\":32}}}");
    parse_good("{\"text_config\":{\"num_experts_per_token\":\"DELETE\",\"num_experts_per_tok\":3}}");
    assert_int_equal(config.n_experts_per_token, 3);
    parse_good("{\"text_config\":{\"quantization_config\":\"DELETE\"},\"quantization_config\":{\"quant_method\":"
               "\"compressed-tensors\"}}");
}

static void test_tokens(void **state)
{
    (void)state;
    parse_good(
        "{\"eos_token_id\":[7,8],\"bos_token_id\":3,\"text_config\":{\"eos_token_id\":[8,9,9],\"bos_token_id\":2}}");
    assert_int_equal(config.bos_token, 3);
    assert_int_equal(config.n_stop_tokens, 4 - 1);
    assert_int_equal(config.stop_tokens[0], 8);
    assert_int_equal(config.stop_tokens[2], 7);
    parse_good("{\"text_config\":{\"eos_token_id\":[1,2,3,4,5,6,7,8],\"bos_token_id\":2}}");
    assert_int_equal(config.n_stop_tokens, CONFIG_STOP_TOKENS_MAX);
    assert_int_equal(config.bos_token, 2);
    parse_good("{\"tie_word_embeddings\":true}");
    assert_true(config.tie_word_embeddings);
}

struct refusal {
    const char *edit;
    enum status status;
    const char *words[4];
};

#define TEXT(edit) "{\"text_config\":{" edit "}}"
#define LINEAR(edit) TEXT("\"linear_attn_config\":{" edit "}")
#define DSA(edit) TEXT("\"dsa_config\":{" edit "}")
#define GROUP(edit) TEXT("\"quantization_config\":{\"config_groups\":{\"group_0\":{" edit "}}}")

static const struct refusal refusals[] = {
    /* types */
    {TEXT("\"hidden_size\":\"96\""),
     STATUS_FORMAT,
     {"text_config.hidden_size", "a whole number from 1 to 1048576", "\"96\""}},
    {TEXT("\"hidden_size\":96.0"), STATUS_FORMAT, {"hidden_size", "a whole number", "96.0"}},
    {TEXT("\"hidden_size\":true"), STATUS_FORMAT, {"hidden_size", "a whole number", "true"}},
    {TEXT("\"hidden_size\":[96]"), STATUS_FORMAT, {"hidden_size", "a whole number", "[96]"}},
    {TEXT("\"rms_norm_eps\":\"1e-5\""), STATUS_FORMAT, {"rms_norm_eps", "a number", "\"1e-5\""}},
    {TEXT("\"mla_use_output_gate\":1"), STATUS_FORMAT, {"mla_use_output_gate", "true or false", "found 1"}},
    {TEXT("\"hidden_act\":3"), STATUS_FORMAT, {"hidden_act", "\"silu\" or \"situ\"", "found 3"}},
    {TEXT("\"linear_attn_config\":[]"), STATUS_FORMAT, {"linear_attn_config", "an object", "[]"}},
    {TEXT("\"dsa_config\":5"), STATUS_FORMAT, {"dsa_config", "an object", "5"}},
    {"{\"text_config\":5}", STATUS_FORMAT, {"text_config", "an object", "5"}},
    {"{\"architectures\":\"Kimi\"}", STATUS_FORMAT, {"architectures", "a list"}},
    {"{\"architectures\":[]}", STATUS_FORMAT, {"architectures", "a list"}},
    /* missing */
    {TEXT("\"hidden_size\":\"DELETE\""), STATUS_FORMAT, {"text_config.hidden_size", "expected a value", "found none"}},
    {TEXT("\"vocab_size\":null"), STATUS_FORMAT, {"vocab_size", "found none"}},
    {TEXT("\"linear_attn_config\":\"DELETE\""),
     STATUS_UNSUPPORTED,
     {"linear_attn_config", "Kimi Linear", "found none"}},
    {LINEAR("\"head_dim\":null"), STATUS_FORMAT, {"linear_attn_config.head_dim", "found none"}},
    {LINEAR("\"kda_layers\":null"), STATUS_FORMAT, {"kda_layers", "found none"}},
    {TEXT("\"num_experts_per_token\":null"), STATUS_FORMAT, {"num_experts_per_token", "found none"}},
    {TEXT("\"moe_intermediate_size\":null"), STATUS_FORMAT, {"moe_intermediate_size", "found none"}},
    {DSA("\"index_topk\":null"), STATUS_FORMAT, {"dsa_config.index_topk", "sparse_topk", "found none"}},
    /* ranges */
    {TEXT("\"num_hidden_layers\":0"), STATUS_FORMAT, {"num_hidden_layers", "from 1 to 512", "found 0"}},
    {TEXT("\"num_hidden_layers\":-1"), STATUS_FORMAT, {"num_hidden_layers", "found -1"}},
    {TEXT("\"num_hidden_layers\":513"), STATUS_FORMAT, {"num_hidden_layers", "513"}},
    {TEXT("\"hidden_size\":4294967297"), STATUS_FORMAT, {"hidden_size", "4294967297"}},
    {TEXT("\"rms_norm_eps\":0"), STATUS_FORMAT, {"rms_norm_eps", "found 0"}},
    {TEXT("\"rms_norm_eps\":-1e-5"), STATUS_FORMAT, {"rms_norm_eps", "found -1"}},
    {TEXT("\"routed_scaling_factor\":1e300"), STATUS_FORMAT, {"routed_scaling_factor", "1e300"}},
    {LINEAR("\"head_dim\":512"), STATUS_FORMAT, {"head_dim", "from 1 to 256", "512"}},
    {LINEAR("\"short_conv_kernel_size\":9"), STATUS_FORMAT, {"short_conv_kernel_size", "from 1 to 8", "9"}},
    {LINEAR("\"gate_lower_bound\":5.0"), STATUS_FORMAT, {"gate_lower_bound", "5.0"}},
    {LINEAR("\"gate_lower_bound\":0"), STATUS_FORMAT, {"gate_lower_bound", "found 0"}},
    {LINEAR("\"num_heads\":1048576"), STATUS_FORMAT, {"num_heads * head_dim", "at most 1048576"}},
    {TEXT("\"v_head_dim\":1048576"), STATUS_FORMAT, {"qk_nope_head_dim + v_head_dim", "at most"}},
    {TEXT("\"num_experts\":4097"), STATUS_FORMAT, {"num_experts", "4096", "4097"}},
    {TEXT("\"num_experts_per_token\":9"), STATUS_FORMAT, {"num_experts_per_token", "at most 8", "9"}},
    {TEXT("\"num_expert_group\":3"), STATUS_FORMAT, {"num_expert_group", "divisor of num_experts 8", "3"}},
    {TEXT("\"topk_group\":2"), STATUS_FORMAT, {"topk_group", "at most num_expert_group 1", "2"}},
    {TEXT("\"num_expert_group\":8,\"topk_group\":1"), STATUS_FORMAT, {"num_experts_per_token", "at most 1", "2"}},
    {TEXT("\"num_experts_per_tok\":3"), STATUS_FORMAT, {"num_experts_per_tok", "expected 2", "found 3"}},
    {TEXT("\"eos_token_id\":256"), STATUS_FORMAT, {"text_config.eos_token_id", "below vocab_size", "256"}},
    {TEXT("\"eos_token_id\":[1,\"2\"]"), STATUS_FORMAT, {"eos_token_id", "[1,\"2\"]"}},
    {TEXT("\"eos_token_id\":[0,1,2,3,4,5,6,7,8]"), STATUS_FORMAT, {"eos_token_id", "at most 8"}},
    {"{\"bos_token_id\":-3}", STATUS_FORMAT, {"bos_token_id", "-3"}},
    {"{\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":false}}",
     STATUS_FORMAT,
     {"tie_word_embeddings", "the same as in text_config"}},
    /* layer lists */
    {LINEAR("\"kda_layers\":[1,2,3]"), STATUS_FORMAT, {"layer 2", "both"}},
    {LINEAR("\"kda_layers\":[1]"), STATUS_FORMAT, {"layer 3", "neither"}},
    {LINEAR("\"kda_layers\":[0,1,3]"), STATUS_FORMAT, {"kda_layers", "from 1 to 4", "found 0"}},
    {LINEAR("\"full_attn_layers\":[2,4,5]"), STATUS_FORMAT, {"full_attn_layers", "from 1 to 4", "found 5"}},
    {LINEAR("\"full_attn_layers\":[2,4,4]"), STATUS_FORMAT, {"full_attn_layers", "layer 4 twice"}},
    {LINEAR("\"kda_layers\":[1,\"3\"]"), STATUS_FORMAT, {"kda_layers", "\"3\""}},
    {LINEAR("\"kda_layers\":3"), STATUS_FORMAT, {"kda_layers", "a list of layers"}},
    /* the indexer */
    {DSA("\"topk\":17"), STATUS_FORMAT, {"dsa_config.topk", "expected 16, as in index_topk", "found 17"}},
    {DSA("\"n_heads\":5"), STATUS_FORMAT, {"n_heads", "expected 4", "found 5"}},
    {DSA("\"head_dim\":64"), STATUS_FORMAT, {"head_dim", "expected 32", "found 64"}},
    {DSA("\"index_head_dim\":257"), STATUS_FORMAT, {"index_head_dim", "from 1 to 256"}},
    {DSA("\"layers\":[2]"), STATUS_FORMAT, {"dsa_config.layers", "the same layers as in dsa_layers"}},
    {DSA("\"dsa_layers\":[1,2]"), STATUS_FORMAT, {"dsa_layers", "full-attention layers", "found 1"}},
    {DSA("\"dsa_layers\":[2,9]"), STATUS_FORMAT, {"dsa_layers", "found 9"}},
    {TEXT("\"index_topk\":8"), STATUS_FORMAT, {"text_config.index_topk", "expected 16", "found 8"}},
    {TEXT("\"dsa_config\":\"DELETE\",\"index_n_heads\":8"), STATUS_FORMAT, {"index_topk", "found none"}},
    /* not in the family */
    {TEXT("\"hidden_act\":\"gelu\""), STATUS_UNSUPPORTED, {"hidden_act", "\"silu\" or \"situ\"", "\"gelu\""}},
    {TEXT("\"moe_router_activation_func\":\"relu\""), STATUS_UNSUPPORTED, {"moe_router_activation_func", "\"relu\""}},
    {TEXT("\"mla_use_nope\":false"), STATUS_UNSUPPORTED, {"mla_use_nope", "true", "found false"}},
    {TEXT("\"moe_layer_freq\":2"), STATUS_UNSUPPORTED, {"moe_layer_freq", "expected 1", "found 2"}},
    {TEXT("\"topk_method\":\"greedy\""), STATUS_UNSUPPORTED, {"topk_method", "\"noaux_tc\"", "\"greedy\""}},
    {TEXT("\"num_key_value_heads\":2"), STATUS_UNSUPPORTED, {"num_key_value_heads", "found 2"}},
    {TEXT("\"use_grouped_topk\":false,\"num_expert_group\":2,\"topk_group\":1"),
     STATUS_UNSUPPORTED,
     {"use_grouped_topk", "false"}},
    {TEXT("\"quantization_config\":{\"quant_method\":\"fp8\"}"),
     STATUS_UNSUPPORTED,
     {"quantization_config.quant_method", "\"fp8\""}},
    {TEXT("\"quantization_config\":{\"quant_method\":null}"), STATUS_FORMAT, {"quant_method", "found none"}},
    {TEXT("\"quantization_config\":{\"format\":\"int-quantized\"}"),
     STATUS_UNSUPPORTED,
     {"format", "\"int-quantized\""}},
    {"{\"quantization_config\":{\"quant_method\":\"gptq\"}}",
     STATUS_UNSUPPORTED,
     {"quantization_config.quant_method", "\"gptq\""}},
    {GROUP("\"format\":\"nvfp4-pack-quantized\""), STATUS_UNSUPPORTED, {"group_0.format", "nvfp4"}},
    {GROUP("\"weights\":{\"group_size\":16}"),
     STATUS_FORMAT,
     {"group_0.weights.group_size", "expected 32", "found 16"}},
    {GROUP("\"weights\":{\"num_bits\":8}"), STATUS_FORMAT, {"group_0.weights.num_bits", "expected 4", "found 8"}},
    {GROUP("\"weights\":{\"type\":\"int\"}"), STATUS_UNSUPPORTED, {"group_0.weights.type", "\"int\""}},
    {GROUP("\"weights\":[]"), STATUS_FORMAT, {"group_0.weights", "an object"}},
    {TEXT("\"quantization_config\":{\"config_groups\":{\"group_1\":7}}"), STATUS_FORMAT, {"group_1", "an object", "7"}},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct error err;
        enum status status = parse_edited(refusals[i].edit, false, NULL, &err);
        if (status != refusals[i].status)
            fail_msg("%s: status %d: %s", refusals[i].edit, status, err.text);
        for (const char *const *word = refusals[i].words; *word; word++)
            if (!strstr(err.text, *word))
                fail_msg("%s: \"%s\" does not say \"%s\"", refusals[i].edit, err.text, *word);
    }
}

static void test_unknown_keys(void **state)
{
    (void)state;
    struct error err;
    const struct config_options accept = {.accept_unknown = true, .latent_norm_eps = 1e-5f};
    parse_good("{\"strange\":1,\"text_config\":{\"odd\":{},\"rope_theta\":5}}");
    assert_int_equal(config.n_unknown_keys, 2);
    assert_string_equal(config.unknown_keys[0], "text_config.odd");
    assert_string_equal(config.unknown_keys[1], "strange");
    static const char *const inside[] = {DSA("\"hadamard\":true"), LINEAR("\"hadamard\":true")};
    static const char *const names[] = {"text_config.dsa_config.hadamard", "text_config.linear_attn_config.hadamard"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(parse_edited(inside[i], false, NULL, &err), STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.text, names[i]));
        assert_non_null(strstr(err.text, "--accept-unknown"));
        assert_int_equal(parse_edited(inside[i], false, &accept, &err), STATUS_OK);
        assert_int_equal(config.n_unknown_keys, 1);
        assert_string_equal(config.unknown_keys[0], names[i]);
    }
    assert_true(config.latent_norm_eps == 1e-5f);
    assert_int_equal(parse_edited(DSA("\"hadamard\":true"), true, NULL, &err), STATUS_UNSUPPORTED);
    assert_int_equal(strncmp(err.text, "dsa_config.hadamard", 19), 0);
}

static void test_unknown_keys_are_limited(void **state)
{
    (void)state;
    char edit[16384] = "{\"text_config\":{";
    for (int i = 0; i < 2 * CONFIG_KEYS_MAX; i++)
        snprintf(edit + strlen(edit), sizeof edit - strlen(edit),
                 "\"a_very_long_key_that_goes_on_and_on_and_on_and_on_and_on_%d\":1,", i);
    strcat(edit, "\"z\":1}}");
    parse_good(edit);
    assert_int_equal(config.n_unknown_keys, CONFIG_KEYS_MAX);
    assert_int_equal(strlen(config.unknown_keys[0]), CONFIG_KEY_BYTES - 1);
    assert_non_null(strstr(config.unknown_keys[0], "..."));
}

static void test_not_json(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{", "[]", "7", "{\"a\":1,\"a\":2}", "{\"hidden_size\":NaN}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct error err = {0};
        assert_int_equal(config_parse(&config, texts[i], strlen(texts[i]), NULL, &err), STATUS_FORMAT);
        assert_non_null(strstr(err.text, "expected"));
    }
}

static void test_damage(void **state)
{
    (void)state;
    struct rng rng = {11};
    for (int round = 0; round < 5000; round++) {
        size_t n = sizeof small_text - 1;
        char *copy = malloc(n);
        struct error err = {0};
        memcpy(copy, small_text, n);
        for (uint64_t flips = 1 + rng_below(&rng, 3); flips; flips--)
            copy[rng_below(&rng, n)] = "0123456789-\"{}[]:,ax"[rng_below(&rng, 20)];
        if (config_parse(&config, copy, n, NULL, &err) != STATUS_OK)
            assert_true(err.text[0] != 0);
        free(copy);
    }
}

static void test_load(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(config_load(&config, "/nonexistent", NULL, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_k3),
        cmocka_unit_test(test_k31),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_unknown_keys_are_limited),
        cmocka_unit_test(test_not_json),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
