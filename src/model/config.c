#include "model/config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/config_parts.h"
#include "model/config_reader.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* Keys that published configs carry and that change nothing here: positions are not rotated in this family
 * (mla_use_nope), the element type is each tensor's own, the rest is for training or for the vision part. */
static const char *const ignored_keys[] = {
    "_name_or_path",
    "attention_dropout",
    "auto_map",
    "chunk_size_feed_forward",
    "dtype",
    "head_dim",
    "id2label",
    "ignore_index",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "max_position_embeddings",
    "media_placeholder_token_id",
    "model_max_length",
    "model_type",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "vision_config",
};

enum field_kind { FIELD_COUNT, FIELD_NUMBER, FIELD_FLAG };

struct field {
    const char *key;
    enum field_kind kind;
    bool required;
    float min, max; /* exact: all limits are below 2^24 */
    size_t offset;
};

#define FIELD(key, kind, required, min, max, member)                                                                   \
    {                                                                                                                  \
        key, kind, required, min, max, offsetof(struct config, member)                                                 \
    }
#define COUNT(key, required, min, max, member) FIELD(key, FIELD_COUNT, required, min, max, member)
#define NUMBER(key, min, max, member) FIELD(key, FIELD_NUMBER, false, min, max, member)
#define FLAG(key, member) FIELD(key, FIELD_FLAG, false, 0, 1, member)

static const struct field text_fields[] = {
    COUNT("vocab_size", true, 1, CONFIG_WIDTH_MAX, vocab_size),
    COUNT("hidden_size", true, 1, CONFIG_WIDTH_MAX, hidden_size),
    COUNT("num_hidden_layers", true, 1, CONFIG_LAYERS_MAX, n_layers),
    COUNT("num_attention_heads", true, 1, CONFIG_WIDTH_MAX, n_heads),
    COUNT("intermediate_size", true, 1, CONFIG_WIDTH_MAX, intermediate_size),
    NUMBER("rms_norm_eps", 1e-12f, 1, rms_norm_eps),
    NUMBER("activation_situ_beta", 1e-6f, 1e6f, situ_beta),
    NUMBER("activation_situ_linear_beta", 0, 1e6f, situ_linear_beta),
    COUNT("q_lora_rank", false, 1, CONFIG_WIDTH_MAX, q_lora_rank),
    COUNT("kv_lora_rank", false, 1, CONFIG_WIDTH_MAX, kv_lora_rank),
    COUNT("qk_nope_head_dim", false, 1, CONFIG_WIDTH_MAX, qk_nope_head_dim),
    COUNT("qk_rope_head_dim", false, 0, CONFIG_WIDTH_MAX, qk_rope_head_dim),
    COUNT("v_head_dim", false, 1, CONFIG_WIDTH_MAX, v_head_dim),
    FLAG("mla_use_output_gate", mla_output_gate),
    COUNT("attn_res_block_size", false, 1, CONFIG_WIDTH_MAX, attn_res_block_size),
    COUNT("num_experts", false, 0, CONFIG_EXPERTS_MAX, n_experts),
    COUNT("num_shared_experts", false, 0, CONFIG_EXPERTS_MAX, n_shared_experts),
    COUNT("moe_intermediate_size", false, 1, CONFIG_WIDTH_MAX, moe_intermediate_size),
    COUNT("routed_expert_hidden_size", false, 1, CONFIG_WIDTH_MAX, latent_size),
    FLAG("latent_moe_use_norm", latent_norm),
    FLAG("moe_renormalize", renormalize),
    NUMBER("routed_scaling_factor", 1e-6f, 1e6f, routed_scaling_factor),
    COUNT("first_k_dense_replace", false, 0, CONFIG_LAYERS_MAX, first_dense_layers),
    COUNT("num_expert_group", false, 1, CONFIG_EXPERTS_MAX, n_expert_groups),
    COUNT("topk_group", false, 1, CONFIG_EXPERTS_MAX, n_groups_used),
};

/* What an absent key means; the same as in spec/. */
static const struct config defaults = {
    .rms_norm_eps = 1e-5f,
    .latent_norm_eps = 1e-6f,
    .situ_beta = 1,
    .kv_lora_rank = 512,
    .qk_nope_head_dim = 128,
    .qk_rope_head_dim = 64,
    .v_head_dim = 128,
    .latent_norm = true,
    .renormalize = true,
    .routed_scaling_factor = 1,
    .first_dense_layers = 1,
    .n_expert_groups = 1,
    .n_groups_used = 1,
    .bos_token = -1,
};

/* The objects of one config.json. In a flat one `text` is the whole file and `top` is empty. */
struct sections {
    struct config_reader top, text, linear, dsa;
};

static enum status read_fields(struct config *config, struct config_reader *text, struct error *err)
{
    for (size_t i = 0; i < sizeof text_fields / sizeof *text_fields; i++) {
        const struct field *field = &text_fields[i];
        void *place = (char *)config + field->offset;
        if (field->required)
            TRY(config_reader_require(text, field->key, err));
        switch (field->kind) {
        case FIELD_COUNT:
            TRY(config_reader_count(text, field->key, (uint32_t)field->min, (uint32_t)field->max, place, err));
            break;
        case FIELD_NUMBER:
            TRY(config_reader_number(text, field->key, field->min, field->max, place, err));
            break;
        case FIELD_FLAG:
            TRY(config_reader_flag(text, field->key, place, err));
            break;
        }
    }
    return STATUS_OK;
}

/* ---- what is not in the family ---- */

/* A survey only notes the name of a foreign operator, with the config's word for it if there is one. */
static enum status note_foreign(struct config *config, const char *operator, const char * word)
{
    if (config->n_foreign < CONFIG_FOREIGN_MAX)
        snprintf(config->foreign[config->n_foreign++], CONFIG_KEY_BYTES, "%s%s%.30s", operator, word ? "." : "",
                 word ? word : "");
    return STATUS_OK;
}

static enum status foreign_key(struct config *config, struct config_reader *reader, const char *key,
                               const char *operator, const char * expected, struct error *err)
{
    return config->surveyed ? note_foreign(config, operator, NULL)
                            : config_reader_refuse(reader, key, STATUS_UNSUPPORTED, expected, err);
}

static enum status read_word(struct config *config, struct config_reader *reader, const char *key, const char *operator,
                             const char * const * words, uint32_t n_words, uint32_t *out, struct error *err)
{
    enum status status = config_reader_word(reader, key, words, n_words, out, err);
    if (status == STATUS_UNSUPPORTED && config->surveyed)
        return note_foreign(config, operator, json_string_value(config_reader_get(reader, key)));
    return status;
}

static enum status read_quantization(struct config *config, struct config_reader *reader, struct error *err)
{
    enum status status = config_check_quantization(reader, err);
    if (status != STATUS_UNSUPPORTED || !config->surveyed)
        return status;
    json_t *section = config_reader_get(reader, "quantization_config");
    const char *method = json_string_value(json_object_get(section, "quant_method"));
    const char *format = json_string_value(json_object_get(section, "format"));
    return note_foreign(config, "quantization", format ? format : method);
}

/* Values that are read only to refuse what is not in the family. */
static enum status refuse_foreign(struct config *config, struct config_reader *text, struct error *err)
{
    static const char *const topk_methods[] = {"noaux_tc"};
    bool nope = true, grouped = true;
    uint32_t frequency = 1, key_heads = config->n_heads, method = 0;
    TRY(config_reader_flag(text, "mla_use_nope", &nope, err));
    if (!nope)
        TRY(foreign_key(config, text, "mla_use_nope", "mla.rotary",
                        "true (attention without rotary positions is all this family has)", err));
    TRY(config_reader_count(text, "moe_layer_freq", 0, UINT32_MAX, &frequency, err));
    if (frequency != 1)
        TRY(foreign_key(config, text, "moe_layer_freq", "moe.layer_frequency", "1", err));
    TRY(read_word(config, text, "topk_method", "moe.topk_method", topk_methods, 1, &method, err));
    TRY(config_reader_count(text, "num_key_value_heads", 0, UINT32_MAX, &key_heads, err));
    if (key_heads != config->n_heads)
        TRY(foreign_key(config, text, "num_key_value_heads", "mla.grouped_heads", "the same as num_attention_heads",
                        err));
    TRY(config_reader_flag(text, "use_grouped_topk", &grouped, err));
    if (!grouped && config->n_expert_groups > 1)
        TRY(foreign_key(config, text, "use_grouped_topk", "moe.ungrouped_topk", "true, as num_expert_group is above 1",
                        err));
    return STATUS_OK;
}

static enum status read_functions(struct config *config, struct config_reader *text, struct error *err)
{
    static const char *const activations[] = {[ACTIVATION_SILU] = "silu", [ACTIVATION_SITU] = "situ"};
    static const char *const routers[] = {[ROUTER_SIGMOID] = "sigmoid", [ROUTER_SOFTMAX] = "softmax"};
    uint32_t activation = ACTIVATION_SILU, router = ROUTER_SIGMOID;
    TRY(read_word(config, text, "hidden_act", "activation", activations, 2, &activation, err));
    TRY(read_word(config, text, "moe_router_activation_func", "moe.router", routers, 2, &router, err));
    config->activation = activation;
    config->router = router;
    return STATUS_OK;
}

static enum status check_experts(struct config *config, struct config_reader *text, struct error *err)
{
    static const char *const per_token[] = {"num_experts_per_token", "num_experts_per_tok", NULL};
    TRY(config_reader_aliases(text, per_token, 1, CONFIG_EXPERTS_MAX, &config->n_experts_per_token, err));
    config->latent_norm = config->latent_norm && config->latent_size > 0;
    if (!config->n_experts)
        return STATUS_OK;
    if (!config->n_experts_per_token)
        return error_set(err, STATUS_FORMAT, "%snum_experts_per_token: expected a value, found none", text->path);
    TRY(config_reader_require(text, "moe_intermediate_size", err));
    if (config->n_groups_used > config->n_expert_groups)
        return error_set(err, STATUS_FORMAT, "%stopk_group: expected at most num_expert_group %u, found %u", text->path,
                         config->n_expert_groups, config->n_groups_used);
    if (config->n_experts % config->n_expert_groups)
        return error_set(err, STATUS_FORMAT, "%snum_expert_group: expected a divisor of num_experts %u, found %u",
                         text->path, config->n_experts, config->n_expert_groups);
    uint32_t available = config->n_experts / config->n_expert_groups * config->n_groups_used;
    if (config->n_experts_per_token > available)
        return error_set(err, STATUS_FORMAT,
                         "%snum_experts_per_token: expected at most %u, the experts of topk_group groups, "
                         "found %u",
                         text->path, available, config->n_experts_per_token);
    return STATUS_OK;
}

/* Rows of the widest projections: single sizes are in range, their products must be, too. */
static enum status check_widths(const struct config *config, const char *path, struct error *err)
{
    const struct {
        const char *what;
        uint64_t width;
    } widths[] = {
        {"linear_attn_config.num_heads * head_dim", (uint64_t)config->kda_heads * config->kda_head_dim},
        {"num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
         (uint64_t)config->n_heads * (config->qk_nope_head_dim + config->qk_rope_head_dim)},
        {"num_attention_heads * (qk_nope_head_dim + v_head_dim)",
         (uint64_t)config->n_heads * (config->qk_nope_head_dim + config->v_head_dim)},
        {"kv_lora_rank + qk_rope_head_dim", (uint64_t)config->kv_lora_rank + config->qk_rope_head_dim},
        {"moe_intermediate_size * num_shared_experts",
         (uint64_t)config->moe_intermediate_size * config->n_shared_experts},
    };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i].width > CONFIG_WIDTH_MAX)
            return error_set(err, STATUS_FORMAT, "%s%s: expected at most %d, found %llu", path, widths[i].what,
                             CONFIG_WIDTH_MAX, (unsigned long long)widths[i].width);
    return STATUS_OK;
}

/* ---- tokens and names: these stand in text_config, beside it, or in both ---- */

static enum status add_stop_token(struct config *config, const struct config_reader *reader, const json_t *value,
                                  struct error *err)
{
    json_int_t token = json_integer_value(value);
    if (!json_is_integer(value) || token < 0 || token >= config->vocab_size)
        return config_reader_refuse(reader, "eos_token_id", STATUS_FORMAT, "token ids below vocab_size", err);
    for (uint32_t i = 0; i < config->n_stop_tokens; i++)
        if (config->stop_tokens[i] == token)
            return STATUS_OK;
    if (config->n_stop_tokens == CONFIG_STOP_TOKENS_MAX)
        return config_reader_refuse(reader, "eos_token_id", STATUS_FORMAT, "at most 8 different token ids", err);
    config->stop_tokens[config->n_stop_tokens++] = (int32_t)token;
    return STATUS_OK;
}

static enum status read_tokens(struct config *config, struct config_reader *reader, struct error *err)
{
    uint32_t bos = (uint32_t)config->bos_token;
    TRY(config_reader_count(reader, "bos_token_id", 0, config->vocab_size - 1, &bos, err));
    config->bos_token = (int32_t)bos;
    json_t *eos = config_reader_get(reader, "eos_token_id");
    if (!json_is_array(eos))
        return eos ? add_stop_token(config, reader, eos, err) : STATUS_OK;
    for (size_t i = 0; i < json_array_size(eos); i++)
        TRY(add_stop_token(config, reader, json_array_get(eos, i), err));
    return STATUS_OK;
}

static enum status read_tied(struct config *config, struct sections *sections, struct error *err)
{
    bool above = false;
    TRY(config_reader_flag(&sections->top, "tie_word_embeddings", &above, err));
    config->tie_word_embeddings = above;
    TRY(config_reader_flag(&sections->text, "tie_word_embeddings", &config->tie_word_embeddings, err));
    if (config_reader_get(&sections->top, "tie_word_embeddings") && above != config->tie_word_embeddings)
        return config_reader_refuse(&sections->top, "tie_word_embeddings", STATUS_FORMAT, "the same as in text_config",
                                    err);
    return STATUS_OK;
}

static enum status read_architecture(struct config *config, struct config_reader *reader, struct error *err)
{
    json_t *list = config_reader_get(reader, "architectures");
    if (!list)
        return STATUS_OK;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name || strlen(name) >= CONFIG_KEY_BYTES)
        return config_reader_refuse(reader, "architectures", STATUS_FORMAT, "a list with a name of at most 63 bytes",
                                    err);
    memset(config->architecture, 0, sizeof config->architecture);
    memcpy(config->architecture, name, strlen(name));
    return STATUS_OK;
}

/* ---- the whole ---- */

static enum status open_sections(struct sections *sections, json_t *root, struct error *err)
{
    json_t *text = json_object_get(root, "text_config"), *linear, *dsa;
    bool nested = text && !json_is_null(text);
    TRY(config_reader_init(&sections->top, nested ? root : NULL, "", err));
    if (nested)
        TRY(config_reader_object(&sections->top, "text_config", &text, err));
    TRY(config_reader_init(&sections->text, nested ? text : root, nested ? "text_config." : "", err));
    config_reader_get(&sections->text, "text_config");
    TRY(config_reader_object(&sections->text, "linear_attn_config", &linear, err));
    if (!linear)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%slinear_attn_config: expected the config of a Kimi Linear, Kimi K3 or Kimi "
                         "K3.1 model, found none",
                         sections->text.path);
    TRY(config_reader_init(&sections->linear, linear,
                           nested ? "text_config.linear_attn_config." : "linear_attn_config.", err));
    TRY(config_reader_object(&sections->text, "dsa_config", &dsa, err));
    return config_reader_init(&sections->dsa, dsa, nested ? "text_config.dsa_config." : "dsa_config.", err);
}

static void close_sections(struct sections *sections)
{
    config_reader_fini(&sections->top);
    config_reader_fini(&sections->text);
    config_reader_fini(&sections->linear);
    config_reader_fini(&sections->dsa);
}

static enum status read_sections(struct config *config, struct sections *sections, struct error *err)
{
    struct config_reader *const both[] = {&sections->text, &sections->top};
    TRY(read_fields(config, &sections->text, err));
    TRY(read_functions(config, &sections->text, err));
    TRY(refuse_foreign(config, &sections->text, err));
    TRY(check_experts(config, &sections->text, err));
    TRY(config_read_linear_attention(config, &sections->linear, err));
    TRY(config_read_indexer(config, &sections->dsa, &sections->text, err));
    TRY(check_widths(config, sections->text.path, err));
    TRY(read_tied(config, sections, err));
    /* What stands beside text_config was written for the whole model, so it has the last word. */
    for (int i = 0; i < 2; i++) {
        TRY(read_tokens(config, both[i], err));
        TRY(read_architecture(config, both[i], err));
        TRY(read_quantization(config, both[i], err));
        for (size_t k = 0; k < sizeof ignored_keys / sizeof *ignored_keys; k++)
            config_reader_get(both[i], ignored_keys[k]);
    }
    return STATUS_OK;
}

/* Lists the unknown keys, those that may change the meaning first. */
static enum status judge_unknown(struct config *config, const struct sections *sections,
                                 const struct config_options *options, struct error *err)
{
    config_reader_unknown(&sections->dsa, config);
    config_reader_unknown(&sections->linear, config);
    config->n_doubtful_keys = config->n_unknown_keys;
    if (config->n_unknown_keys && !config->surveyed && !(options && options->accept_unknown))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: expected a key that day0 knows, as this one may change what the model "
                         "computes; --accept-unknown runs without it",
                         config->unknown_keys[0]);
    config_reader_unknown(&sections->text, config);
    config_reader_unknown(&sections->top, config);
    return STATUS_OK;
}

enum status config_parse(struct config *config, const char *text, size_t bytes, const struct config_options *options,
                         struct error *err)
{
    struct sections sections = {0};
    json_error_t where;
    *config = defaults;
    config->surveyed = options && options->survey;
    if (options && options->latent_norm_eps > 0)
        config->latent_norm_eps = options->latent_norm_eps;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return error_set(err, STATUS_FORMAT, "line %d: expected JSON: %s", where.line, where.text);
    enum status status = STATUS_OK;
    if (!json_is_object(root))
        status = error_set(err, STATUS_FORMAT, "expected an object of keys, found another value");
    if (status == STATUS_OK)
        status = open_sections(&sections, root, err);
    if (status == STATUS_OK)
        status = read_sections(config, &sections, err);
    if (status == STATUS_OK)
        status = judge_unknown(config, &sections, options, err);
    close_sections(&sections);
    json_decref(root);
    return status;
}

enum status config_load(struct config *config, const char *directory, const struct config_options *options,
                        struct error *err)
{
    char path[PATH_BYTES_MAX], *text;
    size_t bytes;
    TRY(file_join(path, directory, "config.json", err));
    TRY(file_read(path, CONFIG_BYTES_MAX, &text, &bytes, err));
    enum status status = config_parse(config, text, bytes, options, err);
    free(text);
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, "%s", path);
}
