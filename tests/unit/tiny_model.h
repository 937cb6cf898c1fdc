/* Tiny models of each architecture, tensor by tensor, for the tests of the binding. build() fills `writer` and
 * `config`; every value is known from its tensor's place in the list (value_of). */
#ifndef DAY0_TESTS_UNIT_TINY_MODEL_H
#define DAY0_TESTS_UNIT_TINY_MODEL_H

#include "checkpoint_writer.h"

#include <stdbool.h>

#include "model/config.h"
#include "tensor/dtype.h"
#include "tensor/mx.h"

static struct writer writer;
static struct config config;

enum {
    HIDDEN = 32,
    HEADS = 2,
    KEY = 16,
    TAPS = 4,
    NOPE = 8,
    ROPE = 4,
    VALUE = 8,
    QUERY_RANK = 24,
    RANK = 16,
    INDEX_HEADS = 3,
    INDEX_DIM = 8,
    EXPERTS = 4,
    INNER = 64,
    LATENT = 32,
    DENSE = 40,
    VOCABULARY = 10
};

/* Layers: KDA with a dense FFN, full attention with experts. */
static const struct config k31 = {
    .vocab_size = VOCABULARY,
    .hidden_size = HIDDEN,
    .n_layers = 2,
    .n_heads = HEADS,
    .intermediate_size = DENSE,
    .is_kda = {true, false},
    .kda_heads = HEADS,
    .kda_head_dim = KEY,
    .conv_taps = TAPS,
    .full_rank_gate = true,
    .q_lora_rank = QUERY_RANK,
    .kv_lora_rank = RANK,
    .qk_nope_head_dim = NOPE,
    .qk_rope_head_dim = ROPE,
    .v_head_dim = VALUE,
    .mla_output_gate = true,
    .index_topk = 16,
    .index_heads_said = INDEX_HEADS,
    .index_head_dim_said = INDEX_DIM,
    .index_layers_said = true,
    .is_index_layer = {false, true},
    .attn_res_block_size = 2,
    .n_experts = EXPERTS,
    .n_experts_per_token = 2,
    .n_shared_experts = 2,
    .moe_intermediate_size = INNER,
    .latent_size = LATENT,
    .latent_norm = true,
    .first_dense_layers = 1,
};

struct style {
    const char *prefix; /* of every name; the head's loses its inner "model." */
    const char *matrix, *vector;
    bool packed, flat_convolution, dotted_queries;
};

static const struct style published = {"language_model.model.", "BF16", "F32", true, false, false};

static uint16_t half_bits(float value) /* of the values used here, all normal or zero */
{
    uint32_t bits = f32_bits(value);
    return (uint16_t)(value == 0 ? 0
                                 : (bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff));
}

/* Value i of tensor `seed`: a multiple of 1/8 below 1, exact in every type. */
static float value_of(uint32_t seed, size_t i)
{
    return (float)((int)((i * 7 + seed * 5) % 13) - 6) / 8;
}

static void fill(struct writer_tensor *tensor, uint32_t seed)
{
    for (size_t i = 0; i < tensor->bytes / writer_width(tensor->dtype); i++) {
        float value = value_of(seed, i);
        uint16_t narrow = strcmp(tensor->dtype, "BF16") == 0 ? bf16_from_f32(value) : half_bits(value);
        if (strcmp(tensor->dtype, "F32") == 0)
            memcpy(tensor->data + 4 * i, &value, 4);
        else if (strcmp(tensor->dtype, "U8") == 0)
            tensor->data[i] = (unsigned char)(i * 31 + seed);
        else if (writer_width(tensor->dtype) == 2)
            memcpy(tensor->data + 2 * i, &narrow, 2);
    }
    for (size_t i = 0; strstr(tensor->name, "weight_scale") && i < tensor->bytes; i++)
        tensor->data[i] %= E8M0_NAN;
}

static void add(const struct style *style, const char *dtype, uint32_t rank, uint64_t a, uint64_t b, uint64_t c,
                const char *format, ...)
{
    char tail[120], name[200];
    va_list args;
    va_start(args, format);
    vsnprintf(tail, sizeof tail, format, args);
    va_end(args);
    snprintf(name, sizeof name, "%s%s", style->prefix, tail);
    struct writer_tensor *tensor = writer_add(&writer, name, dtype, rank, a, b, c, 1);
    fill(tensor, (uint32_t)writer.count);
}

static void add_matrix(const struct style *style, uint64_t rows, uint64_t columns, const char *format, ...)
{
    char tail[120];
    va_list args;
    va_start(args, format);
    vsnprintf(tail, sizeof tail, format, args);
    va_end(args);
    bool expert = strstr(tail, "experts") || strstr(tail, ".mlp.");
    if (!style->packed || !expert || columns % 32) {
        add(style, style->matrix, 2, rows, columns, 0, "%s.weight", tail);
        return;
    }
    add(style, "U8", 2, rows, columns / 2, 0, "%s.weight_packed", tail);
    add(style, "U8", 2, rows, columns / 32, 0, "%s.weight_scale", tail);
}

static void add_kda(const struct style *style, uint32_t layer)
{
    char p[40];
    snprintf(p, sizeof p, "layers.%u.self_attn", layer);
    for (const char *name = "qkv"; *name; name++) {
        add_matrix(style, HEADS * KEY, HIDDEN, "%s.%c_proj", p, *name);
        if (style->flat_convolution)
            add(style, style->vector, 2, HEADS * KEY, TAPS, 0, "%s.%c_conv1d.weight", p, *name);
        else
            add(style, style->vector, 3, HEADS * KEY, 1, TAPS, "%s.%c_conv1d.weight", p, *name);
    }
    add_matrix(style, KEY, HIDDEN, "%s.f_a_proj", p);
    add_matrix(style, HEADS * KEY, KEY, "%s.f_b_proj", p);
    add_matrix(style, HEADS, HIDDEN, "%s.b_proj", p);
    if (config.full_rank_gate) {
        add_matrix(style, HEADS * KEY, HIDDEN, "%s.g_proj", p);
        add(style, "F32", 1, HEADS + 6, 0, 0, "%s.A_log", p); /* padded, as published */
    } else {
        add_matrix(style, KEY, HIDDEN, "%s.g_a_proj", p);
        add_matrix(style, HEADS * KEY, KEY, "%s.g_b_proj", p);
        add(style, "F32", 4, 1, 1, HEADS, "%s.A_log", p);
    }
    add(style, style->vector, 1, HEADS * KEY, 0, 0, "%s.dt_bias", p);
    add(style, style->vector, 1, KEY, 0, 0, "%s.o_norm.weight", p);
    add_matrix(style, HIDDEN, HEADS * KEY, "%s.o_proj", p);
}

static void add_mla(const struct style *style, uint32_t layer)
{
    char p[40];
    snprintf(p, sizeof p, "layers.%u.self_attn", layer);
    if (config.q_lora_rank) {
        add_matrix(style, QUERY_RANK, HIDDEN, "%s.q_a_proj", p);
        add(style, style->vector, 1, QUERY_RANK, 0, 0, "%s.q_a_layernorm.weight", p);
        add_matrix(style, HEADS * (NOPE + ROPE), QUERY_RANK, "%s.q_b_proj", p);
    } else {
        add_matrix(style, HEADS * (NOPE + ROPE), HIDDEN, "%s.q_proj", p);
    }
    add_matrix(style, RANK + ROPE, HIDDEN, "%s.kv_a_proj_with_mqa", p);
    add(style, style->vector, 1, RANK, 0, 0, "%s.kv_a_layernorm.weight", p);
    add_matrix(style, HEADS * (NOPE + VALUE), RANK, "%s.kv_b_proj", p);
    if (config.mla_output_gate)
        add_matrix(style, HEADS * VALUE, HIDDEN, "%s.g_proj", p);
    add_matrix(style, HIDDEN, HEADS * VALUE, "%s.o_proj", p);
    if (!config.index_topk)
        return;
    add_matrix(style, INDEX_HEADS * INDEX_DIM, QUERY_RANK, "%s.indexer.wq_b", p);
    add_matrix(style, INDEX_DIM, HIDDEN, "%s.indexer.wk", p);
    add_matrix(style, INDEX_HEADS, HIDDEN, "%s.indexer.weights_proj", p);
    add(style, style->vector, 1, INDEX_DIM, 0, 0, "%s.indexer.k_norm.weight", p);
    add(style, style->vector, 1, INDEX_DIM, 0, 0, "%s.indexer.k_norm.bias", p);
}

static void add_moe(const struct style *style, uint32_t layer)
{
    char p[40];
    uint32_t width = config.latent_size ? LATENT : HIDDEN;
    snprintf(p, sizeof p, "layers.%u.block_sparse_moe", layer);
    add_matrix(style, EXPERTS, HIDDEN, "%s.gate", p);
    add(style, "F32", 1, EXPERTS, 0, 0, "%s.gate.e_score_correction_bias", p);
    if (config.latent_size) {
        add_matrix(style, LATENT, HIDDEN, "%s.routed_expert_down_proj", p);
        add(style, style->vector, 1, LATENT, 0, 0, "%s.routed_expert_norm.weight", p);
        add_matrix(style, HIDDEN, LATENT, "%s.routed_expert_up_proj", p);
    }
    for (uint32_t e = 0; e < EXPERTS; e++) {
        add_matrix(style, INNER, width, "%s.experts.%u.w1", p, e);
        add_matrix(style, width, INNER, "%s.experts.%u.w2", p, e);
        add_matrix(style, INNER, width, "%s.experts.%u.w3", p, e);
    }
    add_matrix(style, INNER * config.n_shared_experts, HIDDEN, "%s.shared_experts.gate_proj", p);
    add_matrix(style, INNER * config.n_shared_experts, HIDDEN, "%s.shared_experts.up_proj", p);
    add_matrix(style, HIDDEN, INNER * config.n_shared_experts, "%s.shared_experts.down_proj", p);
}

static void add_depth_query(const struct style *style, const char *name)
{
    add(style, style->matrix, 2, 1, HIDDEN, 0, "%s%s", name, style->dotted_queries ? ".proj_weight" : "_proj.weight");
    add(style, style->vector, 1, HIDDEN, 0, 0, "%s%s", name, style->dotted_queries ? ".norm_weight" : "_norm.weight");
}

static void build(const struct config *wanted, const struct style *style)
{
    writer_fini(&writer);
    config = *wanted;
    add_matrix(style, VOCABULARY, HIDDEN, "embed_tokens");
    add(style, style->vector, 1, HIDDEN, 0, 0, "norm.weight");
    if (!config.tie_word_embeddings) {
        struct style head = *style;
        head.prefix = strcmp(style->prefix, "language_model.model.") == 0 ? "language_model."
                      : strcmp(style->prefix, "model.") == 0              ? ""
                                                                          : style->prefix;
        add_matrix(&head, VOCABULARY, HIDDEN, "lm_head");
    }
    for (uint32_t i = 0; i < config.n_layers; i++) {
        char name[60];
        add(style, style->vector, 1, HIDDEN, 0, 0, "layers.%u.input_layernorm.weight", i);
        add(style, style->vector, 1, HIDDEN, 0, 0, "layers.%u.post_attention_layernorm.weight", i);
        if (config.is_kda[i])
            add_kda(style, i);
        else
            add_mla(style, i);
        if (config_is_moe(&config, i)) {
            add_moe(style, i);
        } else {
            add_matrix(style, DENSE, HIDDEN, "layers.%u.mlp.gate_proj", i);
            add_matrix(style, DENSE, HIDDEN, "layers.%u.mlp.up_proj", i);
            add_matrix(style, HIDDEN, DENSE, "layers.%u.mlp.down_proj", i);
        }
        for (int slot = 0; config.attn_res_block_size && slot < 2; slot++) {
            snprintf(name, sizeof name, "layers.%u.%s_res", i, slot ? "mlp" : "self_attention");
            add_depth_query(style, name);
        }
    }
    if (config.attn_res_block_size)
        add_depth_query(style, "output_attn_res");
}

#endif
