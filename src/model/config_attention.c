#include "model/config_parts.h"

#include <string.h>

enum { INDEX_HEADS_MAX = 1024, INDEX_TOPK_MAX = 1 << 24 };

/* Every layer is in exactly one of the two lists. */
static enum status read_layer_kinds(struct config *config, struct config_reader *linear, struct error *err)
{
    bool is_full[CONFIG_LAYERS_MAX] = {false}, present;
    memset(config->is_kda, 0, sizeof config->is_kda);
    TRY(config_reader_require(linear, "kda_layers", err));
    TRY(config_reader_require(linear, "full_attn_layers", err));
    TRY(config_reader_layers(linear, "kda_layers", config->n_layers, config->is_kda, &present, err));
    TRY(config_reader_layers(linear, "full_attn_layers", config->n_layers, is_full, &present, err));
    for (uint32_t i = 0; i < config->n_layers; i++)
        if (config->is_kda[i] == is_full[i])
            return error_set(err, STATUS_FORMAT,
                             "%skda_layers, full_attn_layers: expected layer %u in one of them, found it in %s",
                             linear->path, i + 1, is_full[i] ? "both" : "neither");
    return STATUS_OK;
}

enum status config_read_linear_attention(struct config *config, struct config_reader *linear, struct error *err)
{
    static const char *const required[] = {"num_heads", "head_dim", "short_conv_kernel_size"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        TRY(config_reader_require(linear, required[i], err));
    TRY(config_reader_count(linear, "num_heads", 1, CONFIG_WIDTH_MAX, &config->kda_heads, err));
    TRY(config_reader_count(linear, "head_dim", 1, CONFIG_HEAD_DIM_MAX, &config->kda_head_dim, err));
    TRY(config_reader_count(linear, "short_conv_kernel_size", 1, CONFIG_CONV_TAPS_MAX, &config->conv_taps, err));
    TRY(config_reader_flag(linear, "use_full_rank_gate", &config->full_rank_gate, err));
    config->bounded_decay = config_reader_get(linear, "gate_lower_bound") != NULL;
    TRY(config_reader_number(linear, "gate_lower_bound", -1e4f, -1e-4f, &config->decay_bound, err));
    return read_layer_kinds(config, linear, err);
}

/* Reads the layer list under any of its spellings; those that are present must agree. */
static enum status read_index_layers(struct config *config, struct config_reader *dsa, struct error *err)
{
    static const char *const keys[] = {"dsa_layers", "index_layers", "layers", "full_attn_layers"};
    const char *first = NULL;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        bool marks[CONFIG_LAYERS_MAX] = {false}, present;
        TRY(config_reader_layers(dsa, keys[k], config->n_layers, marks, &present, err));
        if (!present)
            continue;
        if (first && memcmp(marks, config->is_index_layer, sizeof marks) != 0)
            return error_set(err, STATUS_FORMAT, "%s%s: expected the same layers as in %s, found others", dsa->path,
                             keys[k], first);
        for (uint32_t i = 0; i < config->n_layers; i++)
            if (marks[i] && config->is_kda[i])
                return error_set(err, STATUS_FORMAT,
                                 "%s%s: expected full-attention layers, found %u, which linear_attn_config has as KDA",
                                 dsa->path, keys[k], i + 1);
        memcpy(config->is_index_layer, marks, sizeof marks);
        config->index_layers_said = true;
        first = keys[k];
    }
    return STATUS_OK;
}

/* A count that may stand in dsa_config and flat in text_config. */
static enum status read_either(struct config_reader *dsa, struct config_reader *text, const char *const *dsa_keys,
                               const char *const *text_keys, uint32_t max, uint32_t *out, struct error *err)
{
    uint32_t flat = 0;
    TRY(config_reader_aliases(dsa, dsa_keys, 1, max, out, err));
    TRY(config_reader_aliases(text, text_keys, 1, max, &flat, err));
    if (*out && flat && *out != flat)
        return error_set(err, STATUS_FORMAT, "%s%s: expected %u, as in %s, found %u", text->path, text_keys[0], *out,
                         dsa->path, flat);
    if (flat)
        *out = flat;
    return STATUS_OK;
}

enum status config_read_indexer(struct config *config, struct config_reader *dsa, struct config_reader *text,
                                struct error *err)
{
    static const char *const topk[] = {"index_topk", "topk", "top_k", "sparse_topk", NULL};
    static const char *const heads[] = {"index_n_heads", "n_heads", "num_heads", NULL};
    static const char *const dims[] = {"index_head_dim", "head_dim", NULL};
    static const char *const flat_heads[] = {"index_n_heads", NULL}, *const flat_dims[] = {"index_head_dim", NULL};
    TRY(read_either(dsa, text, topk, topk, INDEX_TOPK_MAX, &config->index_topk, err));
    TRY(read_either(dsa, text, heads, flat_heads, INDEX_HEADS_MAX, &config->index_heads_said, err));
    TRY(read_either(dsa, text, dims, flat_dims, CONFIG_HEAD_DIM_MAX, &config->index_head_dim_said, err));
    TRY(read_index_layers(config, dsa, err));
    bool says_something = config->index_heads_said || config->index_head_dim_said || config->index_layers_said;
    if ((dsa->object || says_something) && !config->index_topk)
        return error_set(err, STATUS_FORMAT,
                         "%sindex_topk: expected how many positions the indexer selects (also read: topk, "
                         "top_k, sparse_topk), found none",
                         dsa->path);
    return STATUS_OK;
}
