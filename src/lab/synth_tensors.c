#include "lab/synth_tensors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "weights/safetensors.h"

enum {
    NAME_BYTES = 320,
    INDEX_HEADS = 32, /* where the config names an indexer without its size */
    INDEX_HEAD_DIM = 128,
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static enum status add(struct synth_tensors *tensors, const struct wanted *wanted, const char *suffix,
                       struct safetensors_spec spec, struct values_recipe recipe, struct error *err)
{
    char name[NAME_BYTES];
    if (tensors->count == tensors->capacity) {
        size_t capacity = tensors->capacity ? 2 * tensors->capacity : 1024;
        struct synth_tensor *larger = realloc(tensors->list, capacity * sizeof *larger);
        if (!larger)
            return error_set(err, STATUS_MEMORY, "cannot allocate the list of %zu tensors", capacity);
        tensors->list = larger;
        tensors->capacity = capacity;
    }
    snprintf(name, sizeof name, "%s%s%s%s", tensors->prefix, wanted->prefix, wanted->name, suffix);
    spec.name = strdup(name);
    if (!spec.name)
        return error_set(err, STATUS_MEMORY, "cannot allocate the names of the tensors");
    tensors->list[tensors->count++] = (struct synth_tensor){spec, recipe, 0};
    tensors->bytes += safetensors_spec_bytes(&spec);
    return STATUS_OK;
}

static enum status add_plain(struct synth_tensors *tensors, const struct wanted *wanted, const char *suffix,
                             struct safetensors_spec shape, enum stored stored, float mean, float deviation,
                             struct error *err)
{
    struct values_recipe recipe = {stored == STORED_F32 ? VALUES_F32 : VALUES_BF16, mean, deviation, UINT64_MAX};
    shape.stored = stored;
    return add(tensors, wanted, suffix, shape, recipe, err);
}

static enum status add_matrix(struct synth_tensors *tensors, const struct wanted *wanted, struct error *err)
{
    uint64_t rows = wanted->rows, columns = wanted->columns;
    bool embedding = strcmp(wanted->name, "embed_tokens") == 0, router = strcmp(wanted->name, "gate") == 0;
    float deviation = embedding ? 1 : (router ? 1.5f : 1.2f) / sqrtf((float)columns);
    if (!tensors->packs_experts || !strstr(wanted->prefix, ".experts.")) {
        struct safetensors_spec shape = {.shape = {rows, columns}, .rank = 2};
        return add_plain(tensors, wanted, ".weight", shape, STORED_BF16, 0, deviation, err);
    }
    if (columns % MX_BLOCK)
        return error_set(err, STATUS_ARGUMENT,
                         "quantization_config asks for MXFP4 experts, whose rows come in blocks of %d; "
                         "%s%s has rows of %llu",
                         MX_BLOCK, wanted->prefix, wanted->name, (unsigned long long)columns);
    struct safetensors_spec codes = {.shape = {rows, columns / 2}, .rank = 2, .stored = STORED_U8};
    struct safetensors_spec scales = {.shape = {rows, columns / MX_BLOCK}, .rank = 2, .stored = STORED_U8};
    TRY(add(tensors, wanted, ".weight_packed", codes,
            (struct values_recipe){VALUES_MXFP4_CODES, 0, deviation, UINT64_MAX}, err));
    return add(tensors, wanted, ".weight_scale", scales,
               (struct values_recipe){VALUES_MXFP4_SCALES, 0, deviation, UINT64_MAX}, err);
}

static enum status add_vector(struct synth_tensors *tensors, const struct wanted *wanted, struct error *err)
{
    struct safetensors_spec shape = {.shape = {wanted->rows}, .rank = 1};
    if (ends_with(wanted->name, "dt_bias"))
        return add_plain(tensors, wanted, "", shape, STORED_F32, -1.5f, 1, err);
    if (ends_with(wanted->name, "e_score_correction_bias"))
        return add_plain(tensors, wanted, "", shape, STORED_F32, 0, 0.05f, err);
    if (ends_with(wanted->name, "o_norm.weight"))
        return add_plain(tensors, wanted, "", shape, STORED_F32, 1, 0.2f, err);
    if (ends_with(wanted->name, ".bias"))
        return add_plain(tensors, wanted, "", shape, STORED_BF16, 0, 0.1f, err);
    return add_plain(tensors, wanted, "", shape, STORED_BF16, 1, 0.2f, err);
}

/* A_log: Kimi Linear stores [1, 1, heads, 1], Kimi K3 a vector of 128 whose tail past the heads is zero. */
static enum status add_rates(struct synth_tensors *tensors, const struct wanted *wanted, struct error *err)
{
    struct safetensors_spec shape = {.shape = {1, 1, wanted->rows, 1}, .rank = 4, .stored = STORED_F32};
    if (tensors->flat_rates) {
        uint64_t length = wanted->rows > tensors->rates_length ? wanted->rows : tensors->rates_length;
        shape = (struct safetensors_spec){.shape = {length}, .rank = 1, .stored = STORED_F32};
    }
    return add(tensors, wanted, "", shape, (struct values_recipe){VALUES_F32, 0, 0.5f, wanted->rows}, err);
}

static enum status see(void *context, const struct wanted *wanted, struct error *err)
{
    struct synth_tensors *tensors = context;
    struct safetensors_spec filter = {.shape = {wanted->rows, 1, wanted->columns}, .rank = 3};
    struct safetensors_spec row = {.shape = {1, wanted->rows}, .rank = 2},
                            vector = {.shape = {wanted->rows}, .rank = 1};
    switch (wanted->kind) {
    case WANTED_MATRIX:
    case WANTED_PLAIN_MATRIX:
        return add_matrix(tensors, wanted, err);
    case WANTED_VECTOR:
        return add_vector(tensors, wanted, err);
    case WANTED_RATES:
        return add_rates(tensors, wanted, err);
    case WANTED_CONVOLUTION:
        return add_plain(tensors, wanted, "", filter, STORED_F32, 0, 0.5f, err);
    case WANTED_DEPTH_QUERY:
        TRY(add_plain(tensors, wanted, "_norm.weight", vector, STORED_BF16, 1, 0.2f, err));
        return add_plain(tensors, wanted, "_proj.weight", row, STORED_BF16, 0, 2 / sqrtf((float)wanted->rows), err);
    }
    return STATUS_OK;
}

/* ---- files ---- */

static void assign_files(struct synth_tensors *tensors, uint64_t file_bytes)
{
    uint64_t in_file = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        uint64_t bytes = safetensors_spec_bytes(&tensors->list[i].spec);
        if (in_file > 0 && bytes > file_bytes - in_file) {
            tensors->n_files++;
            in_file = 0;
        }
        tensors->list[i].file = tensors->n_files;
        in_file = bytes > UINT64_MAX - in_file ? UINT64_MAX : in_file + bytes;
        in_file = in_file > file_bytes ? file_bytes : in_file;
    }
    tensors->n_files++;
}

/* Within a file larger elements come first, else the order stays. */
static enum status order_files(struct synth_tensors *tensors, struct error *err)
{
    struct synth_tensor *sorted;
    size_t n = 0;
    TRY(memory_take(&sorted, tensors->count, sizeof *sorted, "the list of tensors", err));
    for (size_t first = 0, end; first < tensors->count; first = end) {
        for (end = first; end < tensors->count && tensors->list[end].file == tensors->list[first].file;)
            end++;
        for (uint32_t width = 4; width > 0; width /= 2)
            for (size_t i = first; i < end; i++)
                if (stored_bytes(tensors->list[i].spec.stored) == width)
                    sorted[n++] = tensors->list[i];
    }
    free(tensors->list);
    tensors->list = sorted;
    tensors->capacity = tensors->count;
    return STATUS_OK;
}

bool synth_packs_experts(const char *text, size_t bytes)
{
    json_t *root = json_loadb(text, bytes, 0, NULL);
    json_t *inner = json_object_get(root, "text_config");
    bool asks = json_is_object(json_object_get(root, "quantization_config")) ||
                json_is_object(json_object_get(inner, "quantization_config"));
    json_decref(root);
    return asks;
}

void synth_indexers(struct indexer_params *indexers, const struct config *config)
{
    for (uint32_t i = 0; i < config->n_layers; i++) {
        if (!config->index_topk || config->is_kda[i] || (config->index_layers_said && !config->is_index_layer[i]))
            continue;
        indexers[i].n_heads = config->index_heads_said ? config->index_heads_said : INDEX_HEADS;
        indexers[i].head_dim = config->index_head_dim_said ? config->index_head_dim_said : INDEX_HEAD_DIM;
    }
}

static enum status list_tensors(struct synth_tensors *tensors, const struct config *config, struct error *err)
{
    struct indexer_params *indexers;
    struct params params;
    TRY(memory_take(&indexers, config->n_layers, sizeof *indexers, "the indexers", err));
    synth_indexers(indexers, config);
    enum status status = params_walk(&params, config, indexers, see, tensors, err);
    if (status == STATUS_OK)
        params_fini(&params);
    free(indexers);
    return status;
}

enum status synth_tensors_init(struct synth_tensors *tensors, const struct config *config, bool packs_experts,
                               uint64_t file_bytes, struct error *err)
{
    enum { K3_RATES_LENGTH = 128 };
    bool k3 = strncmp(config->architecture, "KimiK3", 6) == 0;
    *tensors = (struct synth_tensors){.prefix = k3 ? "language_model." : "",
                                      .packs_experts = packs_experts,
                                      .flat_rates = k3,
                                      .rates_length = K3_RATES_LENGTH};
    enum status status = list_tensors(tensors, config, err);
    assign_files(tensors, file_bytes);
    if (status == STATUS_OK)
        status = order_files(tensors, err);
    if (status != STATUS_OK)
        synth_tensors_fini(tensors);
    return status;
}

void synth_tensors_fini(struct synth_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        free((char *)tensors->list[i].spec.name);
    free(tensors->list);
    *tensors = (struct synth_tensors){0};
}
