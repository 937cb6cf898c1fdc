#include "synth_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"

struct synth synth_default(void)
{
    return (struct synth){.seed = 1,
                          .weights = DTYPE_BF16,
                          .vocabulary = 33,
                          .hidden = 40,
                          .n_layers = 3,
                          .inner = 56,
                          .full_layers = 1u << 1,
                          .kda_heads = 3,
                          .kda_dim = 24,
                          .conv_taps = 4,
                          .decay_bound = -5.0f,
                          .full_rank_gate = true,
                          .heads = 3,
                          .q_lora = 24,
                          .kv_lora = 20,
                          .nope = 16,
                          .rope = 6,
                          .v_dim = 12,
                          .output_gate = true,
                          .index_heads = 2,
                          .index_dim = 32,
                          .index_topk = 16,
                          .block = 2,
                          .experts = 5,
                          .chosen = 3,
                          .shared = 1,
                          .expert_inner = 24,
                          .latent = 28};
}

/* ---- tensors: the header's entries and the data, each growing in memory ---- */

struct writer {
    const struct synth *synth;
    char *header, *data, prefix[64];
    size_t header_bytes, data_bytes;
    FILE *header_out, *data_out;
    long at;
};

static uint64_t seed_of(const struct synth *synth, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u ^ (synth->seed * 0x9e3779b97f4a7c15u);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* About normal: mean 0, deviation 1. */
static float noise(struct rng *rng)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += rng_uniform(rng);
    return (float)sum;
}

/* Toward zero, and small numbers to zero: any binary16 numbers will do. */
static uint16_t f16_below(float value)
{
    uint32_t bits = f32_bits(value), sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 255;
    if (exponent < 113)
        return (uint16_t)sign;
    return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static void entry(struct writer *w, const char *name, const char *type, const char *shape, long end)
{
    fprintf(w->header_out, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%ld,%ld]}", w->at ? "," : "",
            w->prefix, name, type, shape, w->at, end);
    w->at = end;
    for (; w->at % 4; w->at++) /* the next tensor may be float32 */
        fputc(0, w->data_out);
}

/* A tensor [rows][columns] of `center` + `spread` * noise; columns 0: [rows]. */
static void tensor(struct writer *w, const char *name, enum dtype dtype, uint32_t rows, uint32_t columns, float center,
                   float spread)
{
    char full[160], shape[48];
    snprintf(full, sizeof full, "%s%s", w->prefix, name);
    struct rng rng = {seed_of(w->synth, full)};
    size_t n = (size_t)rows * (columns ? columns : 1);
    for (size_t i = 0; i < n; i++) {
        float value = center + spread * noise(&rng);
        uint16_t half = dtype == DTYPE_BF16 ? bf16_from_f32(value) : f16_below(value);
        fwrite(dtype == DTYPE_F32 ? (const void *)&value : &half, dtype_bytes(dtype, 1), 1, w->data_out);
    }
    snprintf(shape, sizeof shape, columns ? "%u,%u" : "%u", rows, columns);
    entry(w, name,
          dtype == DTYPE_F32    ? "F32"
          : dtype == DTYPE_BF16 ? "BF16"
                                : "F16",
          shape, w->at + (long)dtype_bytes(dtype, n));
}

static void vector(struct writer *w, const char *name, uint32_t n, float center, float spread)
{
    tensor(w, name, DTYPE_F32, n, 0, center, spread);
}

/* A matrix whose outputs keep the scale of its inputs, `gain` times. */
static void matrix(struct writer *w, const char *name, uint32_t rows, uint32_t columns, float gain)
{
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    tensor(w, full, w->synth->weights, rows, columns, 0.0f, gain / sqrtf((float)columns));
}

static void packed(struct writer *w, const char *name, uint32_t rows, uint32_t columns)
{
    char full[160], shape[48];
    snprintf(full, sizeof full, "%s%s", w->prefix, name);
    struct rng rng = {seed_of(w->synth, full)};
    size_t blocks = (size_t)rows * (columns / MX_BLOCK);
    uint8_t *scales = malloc(blocks);
    for (size_t b = 0; b < blocks; b++) {
        float x[MX_BLOCK];
        uint8_t codes[MX_BLOCK / 2];
        for (int i = 0; i < MX_BLOCK; i++)
            x[i] = 1.2f * noise(&rng) / sqrtf((float)columns);
        scales[b] = mx_quantize_fp4(codes, x, MX_FLOOR);
        fwrite(codes, sizeof codes, 1, w->data_out);
    }
    fwrite(scales, blocks, 1, w->data_out);
    free(scales);
    snprintf(full, sizeof full, "%s.weight_packed", name);
    snprintf(shape, sizeof shape, "%u,%u", rows, columns / 2);
    entry(w, full, "U8", shape, w->at + (long)rows * (columns / 2));
    snprintf(full, sizeof full, "%s.weight_scale", name);
    snprintf(shape, sizeof shape, "%u,%u", rows, columns / MX_BLOCK);
    entry(w, full, "U8", shape, w->at + (long)blocks);
}

static void ffn(struct writer *w, uint32_t inner)
{
    matrix(w, "gate_proj", inner, w->synth->hidden, 1.2f);
    matrix(w, "up_proj", inner, w->synth->hidden, 1.2f);
    matrix(w, "down_proj", w->synth->hidden, inner, 1.2f);
}

static void kda(struct writer *w)
{
    const struct synth *s = w->synth;
    uint32_t inner = s->kda_heads * s->kda_dim;
    matrix(w, "q_proj", inner, s->hidden, 1.2f);
    matrix(w, "k_proj", inner, s->hidden, 1.2f);
    matrix(w, "v_proj", inner, s->hidden, 1.2f);
    tensor(w, "q_conv1d.weight", DTYPE_F32, inner, s->conv_taps, 0.1f, 0.5f);
    tensor(w, "k_conv1d.weight", DTYPE_F32, inner, s->conv_taps, 0.1f, 0.5f);
    tensor(w, "v_conv1d.weight", DTYPE_F32, inner, s->conv_taps, 0.1f, 0.5f);
    matrix(w, "f_a_proj", s->kda_dim, s->hidden, 1.2f);
    matrix(w, "f_b_proj", inner, s->kda_dim, 1.2f);
    matrix(w, "b_proj", s->kda_heads, s->hidden, 1.2f);
    if (s->full_rank_gate) {
        matrix(w, "g_proj", inner, s->hidden, 1.2f);
    } else {
        matrix(w, "g_a_proj", s->kda_dim, s->hidden, 1.2f);
        matrix(w, "g_b_proj", inner, s->kda_dim, 1.2f);
    }
    vector(w, "A_log", s->kda_heads, 0.0f, 0.5f);
    vector(w, "dt_bias", inner, s->decay_bias - 1.5f, 1.0f);
    vector(w, "o_norm.weight", s->kda_dim, 1.0f, 0.2f);
    matrix(w, "o_proj", s->hidden, inner, 1.2f);
}

static void indexer(struct writer *w)
{
    const struct synth *s = w->synth;
    matrix(w, "indexer.wq_b", s->index_heads * s->index_dim, s->q_lora, 1.2f);
    matrix(w, "indexer.wk", s->index_dim, s->hidden, 1.2f);
    matrix(w, "indexer.weights_proj", s->index_heads, s->hidden, s->blind_index ? 0.0f : 1.2f);
    vector(w, "indexer.k_norm.weight", s->index_dim, 1.0f, 0.2f);
    vector(w, "indexer.k_norm.bias", s->index_dim, 0.0f, 0.1f);
}

static void mla(struct writer *w)
{
    const struct synth *s = w->synth;
    uint32_t query = s->heads * (s->nope + s->rope);
    if (s->q_lora) {
        matrix(w, "q_a_proj", s->q_lora, s->hidden, 1.2f);
        vector(w, "q_a_layernorm.weight", s->q_lora, 1.0f, 0.2f);
        matrix(w, "q_b_proj", query, s->q_lora, 1.2f);
    } else {
        matrix(w, "q_proj", query, s->hidden, 1.2f);
    }
    matrix(w, "kv_a_proj_with_mqa", s->kv_lora + s->rope, s->hidden, 1.2f);
    vector(w, "kv_a_layernorm.weight", s->kv_lora, 1.0f, 0.2f);
    matrix(w, "kv_b_proj", s->heads * (s->nope + s->v_dim), s->kv_lora, 1.2f);
    if (s->output_gate)
        matrix(w, "g_proj", s->heads * s->v_dim, s->hidden, 1.2f);
    matrix(w, "o_proj", s->hidden, s->heads * s->v_dim, 1.2f);
    if (s->index_topk)
        indexer(w);
}

static void expert_matrix(struct writer *w, const char *name, uint32_t rows, uint32_t columns)
{
    if (w->synth->packed_experts)
        packed(w, name, rows, columns);
    else
        matrix(w, name, rows, columns, 1.2f);
}

static void moe(struct writer *w, uint32_t layer)
{
    const struct synth *s = w->synth;
    uint32_t width = s->latent ? s->latent : s->hidden;
    matrix(w, "gate", s->experts, s->hidden, 1.5f);
    vector(w, "gate.e_score_correction_bias", s->experts, 0.0f, 0.05f);
    if (s->latent) {
        matrix(w, "routed_expert_down_proj", width, s->hidden, 1.2f);
        matrix(w, "routed_expert_up_proj", s->hidden, width, 1.2f);
        vector(w, "routed_expert_norm.weight", width, 1.0f, 0.2f);
    }
    for (uint32_t e = 0; e < s->experts; e++) {
        snprintf(w->prefix, sizeof w->prefix, "model.layers.%u.block_sparse_moe.experts.%u.", layer, e);
        expert_matrix(w, "w1", s->expert_inner, width);
        expert_matrix(w, "w3", s->expert_inner, width);
        expert_matrix(w, "w2", width, s->expert_inner);
    }
    snprintf(w->prefix, sizeof w->prefix, "model.layers.%u.block_sparse_moe.shared_experts.", layer);
    if (s->shared)
        ffn(w, s->expert_inner * s->shared);
}

static void depth_mix(struct writer *w, const char *name)
{
    const struct synth *s = w->synth;
    char full[64];
    if (!s->block)
        return;
    snprintf(full, sizeof full, "%s_norm.weight", name);
    vector(w, full, s->hidden, 1.0f, 0.2f);
    snprintf(full, sizeof full, "%s_proj.weight", name);
    tensor(w, full, DTYPE_F32, 1, s->hidden, 0.0f, 2.0f / sqrtf((float)s->hidden));
}

static void all_tensors(struct writer *w)
{
    const struct synth *s = w->synth;
    snprintf(w->prefix, sizeof w->prefix, "model.");
    matrix(w, "embed_tokens", s->vocabulary, s->hidden, sqrtf((float)s->hidden));
    vector(w, "norm.weight", s->hidden, 1.0f, 0.2f);
    depth_mix(w, "output_attn_res");
    for (uint32_t l = 0; l < s->n_layers; l++) {
        snprintf(w->prefix, sizeof w->prefix, "model.layers.%u.", l);
        vector(w, "input_layernorm.weight", s->hidden, 1.0f, 0.2f);
        vector(w, "post_attention_layernorm.weight", s->hidden, 1.0f, 0.2f);
        depth_mix(w, "self_attention_res");
        depth_mix(w, "mlp_res");
        snprintf(w->prefix, sizeof w->prefix, "model.layers.%u.self_attn.", l);
        s->full_layers >> l & 1 ? mla(w) : kda(w);
        bool sparse = s->experts > 0 && l > 0;
        snprintf(w->prefix, sizeof w->prefix, "model.layers.%u.%s.", l, sparse ? "block_sparse_moe" : "mlp");
        sparse ? moe(w, l) : ffn(w, s->inner);
    }
    w->prefix[0] = 0;
    if (!s->tied)
        matrix(w, "lm_head", s->vocabulary, s->hidden, 1.2f);
}

static void file_or_fail(const char *directory, const char *name, const char *head, size_t head_bytes, const char *body,
                         size_t body_bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(head, 1, head_bytes, out) != head_bytes || fwrite(body, 1, body_bytes, out) != body_bytes ||
        fclose(out) != 0)
        fail_msg("cannot write %s", path);
}

static void write_tensors(const struct synth *synth, const char *directory)
{
    struct writer w = {.synth = synth};
    w.header_out = open_memstream(&w.header, &w.header_bytes);
    w.data_out = open_memstream(&w.data, &w.data_bytes);
    uint64_t bytes = 0;
    fwrite(&bytes, sizeof bytes, 1, w.header_out); /* filled below; the format is little-endian, as are our machines */
    fputc('{', w.header_out);
    all_tensors(&w);
    fputc('}', w.header_out);
    for (fflush(w.header_out); w.header_bytes % 8; fflush(w.header_out))
        fputc(' ', w.header_out);
    fclose(w.header_out);
    fclose(w.data_out);
    bytes = w.header_bytes - sizeof bytes;
    memcpy(w.header, &bytes, sizeof bytes);
    assert_int_equal(w.at, w.data_bytes);
    file_or_fail(directory, "model.safetensors", w.header, w.header_bytes, w.data, w.data_bytes);
    free(w.header);
    free(w.data);
}

static void layer_list(FILE *out, const char *key, const struct synth *s, bool full)
{
    const char *comma = "";
    fprintf(out, "\"%s\":[", key);
    for (uint32_t l = 0; l < s->n_layers; l++)
        if ((s->full_layers >> l & 1) == full) {
            fprintf(out, "%s%u", comma, l + 1);
            comma = ",";
        }
    fprintf(out, "]");
}

static void write_config(const struct synth *s, const char *directory)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fprintf(out,
            "{\"architectures\":[\"KimiLinearForCausalLM\"],\"vocab_size\":%u,\"hidden_size\":%u,"
            "\"num_hidden_layers\":%u,\"intermediate_size\":%u,\"tie_word_embeddings\":%s,",
            s->vocabulary, s->hidden, s->n_layers, s->inner, s->tied ? "true" : "false");
    fprintf(out,
            "\"num_attention_heads\":%u,\"kv_lora_rank\":%u,\"qk_nope_head_dim\":%u,\"qk_rope_head_dim\":%u,"
            "\"v_head_dim\":%u,\"mla_use_nope\":true,\"mla_use_output_gate\":%s,",
            s->heads, s->kv_lora, s->nope, s->rope, s->v_dim, s->output_gate ? "true" : "false");
    fprintf(out, s->block ? "\"hidden_act\":\"situ\",\"activation_situ_beta\":4.0,\"activation_situ_linear_beta\":25.0,"
                          : "\"hidden_act\":\"silu\",");
    if (s->q_lora)
        fprintf(out, "\"q_lora_rank\":%u,", s->q_lora);
    if (s->block)
        fprintf(out, "\"attn_res_block_size\":%u,", s->block);
    if (s->experts)
        fprintf(out,
                "\"num_experts\":%u,\"num_experts_per_token\":%u,\"num_shared_experts\":%u,"
                "\"moe_intermediate_size\":%u,\"routed_scaling_factor\":1.5,",
                s->experts, s->chosen, s->shared, s->expert_inner);
    if (s->latent)
        fprintf(out, "\"routed_expert_hidden_size\":%u,", s->latent);
    if (s->index_topk) {
        fprintf(out, "\"dsa_config\":{\"index_n_heads\":%u,\"index_head_dim\":%u,\"index_topk\":%u,", s->index_heads,
                s->index_dim, s->index_topk);
        layer_list(out, "dsa_layers", s, true);
        fprintf(out, "},");
    }
    fprintf(out,
            "\"linear_attn_config\":{\"num_heads\":%u,\"head_dim\":%u,\"short_conv_kernel_size\":%u,"
            "\"use_full_rank_gate\":%s,",
            s->kda_heads, s->kda_dim, s->conv_taps, s->full_rank_gate ? "true" : "false");
    if (s->decay_bound < 0)
        fprintf(out, "\"gate_lower_bound\":%.9g,", (double)s->decay_bound);
    layer_list(out, "kda_layers", s, false);
    fputc(',', out);
    layer_list(out, "full_attn_layers", s, true);
    fprintf(out, "}}");
    fclose(out);
    file_or_fail(directory, "config.json", text, bytes, "", 0);
    free(text);
}

struct synth_directory synth_write(const struct synth *synth)
{
    struct synth_directory directory;
    const char *place = getenv("TMPDIR");
    snprintf(directory.path, sizeof directory.path, "%.32s/day0_synth_XXXXXX", place && *place ? place : "/tmp");
    if (!mkdtemp(directory.path))
        fail_msg("cannot make a directory like %s", directory.path);
    write_config(synth, directory.path);
    write_tensors(synth, directory.path);
    return directory;
}

void synth_remove(const struct synth_directory *directory)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory->path, names[i]);
        unlink(path);
    }
    rmdir(directory->path);
}

struct model *synth_open(const struct synth *synth, const struct model_options *options)
{
    struct synth_directory directory = synth_write(synth);
    struct model *model = NULL;
    struct error err;
    enum status status = model_open(&model, directory.path, options, &err);
    synth_remove(&directory);
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
    return model;
}

void synth_tokens(int32_t *tokens, uint32_t n, uint32_t vocabulary, uint64_t seed)
{
    struct rng rng = {seed};
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(&rng, vocabulary);
}
