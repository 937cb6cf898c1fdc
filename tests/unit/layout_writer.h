/* The published models at their true sizes as sparse files: real headers, real shard index, no data. Names
 * and shapes are written down here once more, from the published lists, so that the engine's own list has
 * something to be compared with. */
#ifndef DAY0_TESTS_UNIT_LAYOUT_WRITER_H
#define DAY0_TESTS_UNIT_LAYOUT_WRITER_H

#include "checkpoint_writer.h"

#include <stdbool.h>

enum layout_model { LAYOUT_LINEAR_48B, LAYOUT_K3, LAYOUT_K31 };

struct layout {
    const char *folder, *prefix;
    uint32_t n_files, file;
    FILE *header, *index;
    char *header_text;
    size_t header_bytes;
    uint64_t offset; /* in the file's data */
    size_t n_tensors;
    const char *leave_out; /* a tensor that is not written, or NULL */
    const char *shorten;   /* one whose first axis is one short, or NULL */
};

static inline void layout_file_name(char *out, size_t size, const struct layout *l)
{
    snprintf(out, size, "model-%05u-of-%06u.safetensors", l->file + 1, l->n_files);
}

static inline void layout_begin_file(struct layout *l)
{
    l->header = open_memstream(&l->header_text, &l->header_bytes);
    l->offset = 0;
    fputs("{", l->header);
}

static inline void layout_end_file(struct layout *l)
{
    char path[2 * WRITER_PATH_BYTES], name[80];
    fputs("}", l->header);
    fclose(l->header);
    layout_file_name(name, sizeof name, l);
    snprintf(path, sizeof path, "%s/%s", l->folder, name);
    size_t padded = (l->header_bytes + 7) / 8 * 8;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int i = 0; i < 8; i++)
        fputc((int)(padded >> 8 * i & 255), out);
    fwrite(l->header_text, 1, l->header_bytes, out);
    fprintf(out, "%*s", (int)(padded - l->header_bytes), "");
    assert_int_equal(fflush(out), 0);
    assert_int_equal(ftruncate(fileno(out), (off_t)(8 + padded + l->offset)), 0);
    assert_int_equal(fclose(out), 0);
    free(l->header_text);
    l->file++;
}

/* `place` is put before the name: "model.layers.3.self_attn.". Axes end with 0. */
static inline void layout_add(struct layout *l, const char *place, const char *name, const char *dtype, uint64_t a,
                              uint64_t b, uint64_t c)
{
    char file[80], full[200];
    snprintf(full, sizeof full, "%s%s%s", l->prefix, place, name);
    if (l->leave_out && strcmp(full, l->leave_out) == 0)
        return;
    if (l->shorten && strcmp(full, l->shorten) == 0)
        a--;
    uint64_t width = strcmp(dtype, "F32") == 0 ? 4 : strcmp(dtype, "BF16") == 0 ? 2 : 1;
    uint64_t bytes = width * a * (b ? b : 1) * (c ? c : 1);
    fprintf(l->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu", l->offset ? "," : "", full, dtype,
            (unsigned long long)a);
    if (b)
        fprintf(l->header, ",%llu", (unsigned long long)b);
    if (c)
        fprintf(l->header, ",%llu", (unsigned long long)c);
    fprintf(l->header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)l->offset,
            (unsigned long long)(l->offset + bytes));
    l->offset += bytes;
    layout_file_name(file, sizeof file, l);
    fprintf(l->index, "%s\n\"%s\":\"%s\"", l->n_tensors ? "," : "", full, file);
    l->n_tensors++;
}

static inline void layout_kda(struct layout *l, const char *p, uint64_t hidden, uint64_t heads, bool k3)
{
    uint64_t inner = 128 * heads;
    layout_add(l, p, "q_conv1d.weight", "F32", inner, 1, 4);
    layout_add(l, p, "k_conv1d.weight", "F32", inner, 1, 4);
    layout_add(l, p, "v_conv1d.weight", "F32", inner, 1, 4);
    layout_add(l, p, "A_log", "F32", k3 ? 128 : 1, k3 ? 0 : 1, k3 ? 0 : heads);
    layout_add(l, p, "dt_bias", "F32", inner, 0, 0);
    layout_add(l, p, "o_norm.weight", k3 ? "F32" : "BF16", 128, 0, 0);
    layout_add(l, p, "q_proj.weight", "BF16", inner, hidden, 0);
    layout_add(l, p, "k_proj.weight", "BF16", inner, hidden, 0);
    layout_add(l, p, "v_proj.weight", "BF16", inner, hidden, 0);
    layout_add(l, p, "f_a_proj.weight", "BF16", 128, hidden, 0);
    layout_add(l, p, "f_b_proj.weight", "BF16", inner, 128, 0);
    layout_add(l, p, "b_proj.weight", "BF16", heads, hidden, 0);
    if (k3) {
        layout_add(l, p, "g_proj.weight", "BF16", inner, hidden, 0);
    } else {
        layout_add(l, p, "g_a_proj.weight", "BF16", 128, hidden, 0);
        layout_add(l, p, "g_b_proj.weight", "BF16", inner, 128, 0);
    }
    layout_add(l, p, "o_proj.weight", "BF16", hidden, inner, 0);
}

static inline void layout_mla(struct layout *l, const char *p, uint64_t hidden, uint64_t heads, enum layout_model model)
{
    if (model == LAYOUT_LINEAR_48B) {
        layout_add(l, p, "q_proj.weight", "BF16", 192 * heads, hidden, 0);
    } else {
        layout_add(l, p, "q_a_proj.weight", "BF16", 1536, hidden, 0);
        layout_add(l, p, "q_a_layernorm.weight", "BF16", 1536, 0, 0);
        layout_add(l, p, "q_b_proj.weight", "BF16", 192 * heads, 1536, 0);
        layout_add(l, p, "g_proj.weight", "BF16", 128 * heads, hidden, 0);
    }
    layout_add(l, p, "kv_a_proj_with_mqa.weight", "BF16", 576, hidden, 0);
    layout_add(l, p, "kv_a_layernorm.weight", "BF16", 512, 0, 0);
    layout_add(l, p, "kv_b_proj.weight", "BF16", 256 * heads, 512, 0);
    layout_add(l, p, "o_proj.weight", "BF16", hidden, 128 * heads, 0);
    if (model == LAYOUT_K31) {
        layout_add(l, p, "indexer.wq_b.weight", "BF16", 32 * 128, 1536, 0);
        layout_add(l, p, "indexer.wk.weight", "BF16", 128, hidden, 0);
        layout_add(l, p, "indexer.weights_proj.weight", "BF16", 32, hidden, 0);
        layout_add(l, p, "indexer.k_norm.weight", "BF16", 128, 0, 0);
        layout_add(l, p, "indexer.k_norm.bias", "BF16", 128, 0, 0);
    }
}

static inline void layout_experts(struct layout *l, const char *p, uint64_t count, uint64_t width, uint64_t inner,
                                  bool packed)
{
    static const char *const names[] = {"w1", "w2", "w3"};
    for (uint64_t e = 0; e < count; e++)
        for (int w = 0; w < 3; w++) {
            char name[60];
            uint64_t rows = w == 1 ? width : inner, columns = w == 1 ? inner : width;
            snprintf(name, sizeof name, "experts.%llu.%s.weight%s", (unsigned long long)e, names[w],
                     packed ? "_packed" : "");
            layout_add(l, p, name, packed ? "U8" : "BF16", rows, packed ? columns / 2 : columns, 0);
            snprintf(name, sizeof name, "experts.%llu.%s.weight_scale", (unsigned long long)e, names[w]);
            if (packed)
                layout_add(l, p, name, "U8", rows, columns / 32, 0);
        }
}

static inline void layout_layer(struct layout *l, enum layout_model model, uint32_t layer)
{
    bool k3 = model != LAYOUT_LINEAR_48B;
    uint64_t hidden = k3 ? 7168 : 2304, heads = k3 ? 96 : 32, shared = k3 ? 6144 : 1024;
    bool full = layer % 4 == 3 || layer == (k3 ? 92 : 26);
    char p[60], part[80];
    snprintf(p, sizeof p, "model.layers.%u.", layer);
    snprintf(part, sizeof part, "%sself_attn.", p);
    full ? layout_mla(l, part, hidden, heads, model) : layout_kda(l, part, hidden, heads, k3);
    layout_add(l, p, "input_layernorm.weight", "BF16", hidden, 0, 0);
    layout_add(l, p, "post_attention_layernorm.weight", "BF16", hidden, 0, 0);
    if (k3) {
        layout_add(l, p, "self_attention_res_norm.weight", "BF16", hidden, 0, 0);
        layout_add(l, p, "self_attention_res_proj.weight", "BF16", 1, hidden, 0);
        layout_add(l, p, "mlp_res_norm.weight", "BF16", hidden, 0, 0);
        layout_add(l, p, "mlp_res_proj.weight", "BF16", 1, hidden, 0);
    }
    snprintf(part, sizeof part, "%s%s", p, layer ? "block_sparse_moe." : "mlp.");
    if (layer == 0) {
        uint64_t inner = k3 ? 33792 : 9216;
        layout_add(l, part, "gate_proj.weight", "BF16", inner, hidden, 0);
        layout_add(l, part, "up_proj.weight", "BF16", inner, hidden, 0);
        layout_add(l, part, "down_proj.weight", "BF16", hidden, inner, 0);
        return;
    }
    layout_add(l, part, "gate.e_score_correction_bias", "F32", k3 ? 896 : 256, 0, 0);
    layout_add(l, part, "gate.weight", "BF16", k3 ? 896 : 256, hidden, 0);
    layout_add(l, part, "shared_experts.gate_proj.weight", "BF16", shared, hidden, 0);
    layout_add(l, part, "shared_experts.up_proj.weight", "BF16", shared, hidden, 0);
    layout_add(l, part, "shared_experts.down_proj.weight", "BF16", hidden, shared, 0);
    if (k3) {
        layout_add(l, part, "routed_expert_down_proj.weight", "BF16", 3584, hidden, 0);
        layout_add(l, part, "routed_expert_norm.weight", "BF16", 3584, 0, 0);
        layout_add(l, part, "routed_expert_up_proj.weight", "BF16", hidden, 3584, 0);
    }
    layout_experts(l, part, k3 ? 896 : 256, k3 ? 3584 : hidden, k3 ? 3072 : 1024, k3);
}

/* The last text shard and, for Kimi K3, two with the vision part. */
static inline void layout_rest(struct layout *l, bool k3)
{
    uint64_t hidden = k3 ? 7168 : 2304;
    layout_begin_file(l);
    layout_add(l, "", "model.embed_tokens.weight", "BF16", 163840, hidden, 0);
    layout_add(l, "", "lm_head.weight", "BF16", 163840, hidden, 0);
    layout_add(l, "", "model.norm.weight", "BF16", hidden, 0, 0);
    if (k3) {
        layout_add(l, "", "model.output_attn_res_norm.weight", "BF16", hidden, 0, 0);
        layout_add(l, "", "model.output_attn_res_proj.weight", "BF16", 1, hidden, 0);
    }
    layout_end_file(l);
    l->prefix = "";
    for (int part = 0; k3 && part < 2; part++) {
        layout_begin_file(l);
        for (int i = 0; i < 84; i++) {
            char name[80];
            snprintf(name, sizeof name, part && i > 80 ? "mm_projector.%d.weight" : "vision_tower.blocks.%d.weight",
                     84 * part + i);
            layout_add(l, "", name, "BF16", 1024, 1024, 0);
        }
        layout_end_file(l);
    }
}

/* Writes a whole layout without config.json; gives the number of tensors, the vision part included. */
static inline size_t layout_write(const char *folder, enum layout_model model, const char *leave_out,
                                  const char *shorten)
{
    bool k3 = model != LAYOUT_LINEAR_48B;
    uint32_t n_layers = k3 ? 93 : 27;
    char path[2 * WRITER_PATH_BYTES];
    struct layout l = {.folder = folder,
                       .prefix = k3 ? "language_model." : "",
                       .n_files = n_layers + (k3 ? 3 : 1),
                       .leave_out = leave_out,
                       .shorten = shorten};
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    l.index = fopen(path, "wb");
    assert_non_null(l.index);
    fputs("{\"metadata\":{},\"weight_map\":{", l.index);
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        layout_begin_file(&l);
        layout_layer(&l, model, layer);
        layout_end_file(&l);
    }
    layout_rest(&l, k3);
    fputs("}}\n", l.index);
    assert_int_equal(fclose(l.index), 0);
    return l.n_tensors;
}

#endif
