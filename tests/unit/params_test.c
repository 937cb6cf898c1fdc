/* Parameters: tiny models of each architecture bound whole, then one fault at a time. */
#include "tiny_model.h"

#include <math.h>

#include "model/params.h"

static char folder[WRITER_PATH_BYTES];

static int make_folder(void **state)
{
    (void)state;
    writer_make_folder(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    writer_fini(&writer);
    writer_remove_folder(folder);
    return 0;
}

/* ---- binding ---- */

static enum status bind_saved(struct params *params, struct checkpoint **checkpoint, struct error *err)
{
    *err = (struct error){0};
    if (checkpoint_open(checkpoint, folder, err) != STATUS_OK)
        fail_msg("%s", err->text);
    return params_init(params, &config, *checkpoint, (struct weight_types){DTYPE_AS_STORED, DTYPE_AS_STORED},
                       PACK_NOTHING, err);
}

static void bind_good(struct params *params, struct checkpoint **checkpoint)
{
    struct error err;
    writer_save(&writer, folder, "model.safetensors", 0, 1);
    if (bind_saved(params, checkpoint, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static uint32_t seed_of(const char *ending)
{
    for (uint32_t i = 0; i < writer.count; i++) {
        size_t name = strlen(writer.tensors[i].name), tail = strlen(ending);
        if (name >= tail && strcmp(writer.tensors[i].name + name - tail, ending) == 0)
            return i + 1;
    }
    fail_msg("the tiny model has no %s", ending);
    return 0;
}

static void expect_matrix(const struct checkpoint *checkpoint, const struct matrix *matrix, const char *name,
                          uint32_t rows, uint32_t columns, enum dtype dtype)
{
    char full[200];
    assert_int_equal(matrix->rows, rows);
    assert_int_equal(matrix->columns, columns);
    assert_int_equal(matrix->dtype, dtype);
    snprintf(full, sizeof full, "%s.weight%s", name, dtype == DTYPE_MXFP4 ? "_packed" : "");
    assert_non_null(checkpoint_find(checkpoint, full));
    assert_ptr_equal(matrix->data, checkpoint_find(checkpoint, full)->data);
    snprintf(full, sizeof full, "%s.weight_scale", name);
    const struct tensor *scales = checkpoint_find(checkpoint, full);
    assert_ptr_equal(matrix->scales, scales ? scales->data : NULL);
}

static void expect_vector(const float *values, const char *ending, size_t n)
{
    uint32_t seed = seed_of(ending);
    for (size_t i = 0; i < n; i++)
        assert_true(values[i] == value_of(seed, i));
}

static void expect_convolution(const float *values, const char *ending)
{
    uint32_t seed = seed_of(ending);
    for (size_t c = 0; c < HEADS * KEY; c++)
        for (size_t t = 0; t < TAPS; t++)
            assert_true(values[t * HEADS * KEY + c] == value_of(seed, c * TAPS + t));
}

static void expect_query(const struct params *params, uint32_t row, const char *query, const char *norm)
{
    const float *values = (const float *)params->depth_queries.data + row * HIDDEN;
    for (size_t i = 0; i < HIDDEN; i++)
        assert_true(values[i] == value_of(seed_of(query), i) * value_of(seed_of(norm), i));
}

static void expect_kda(const struct checkpoint *checkpoint, const struct kda_params *kda, enum dtype dtype)
{
    expect_matrix(checkpoint, &kda->k_proj, "model.layers.0.self_attn.k_proj", HEADS * KEY, HIDDEN, dtype);
    expect_matrix(checkpoint, &kda->f_a_proj, "model.layers.0.self_attn.f_a_proj", KEY, HIDDEN, dtype);
    expect_matrix(checkpoint, &kda->f_b_proj, "model.layers.0.self_attn.f_b_proj", HEADS * KEY, KEY, dtype);
    expect_matrix(checkpoint, &kda->b_proj, "model.layers.0.self_attn.b_proj", HEADS, HIDDEN, dtype);
    expect_matrix(checkpoint, &kda->o_proj, "model.layers.0.self_attn.o_proj", HIDDEN, HEADS * KEY, dtype);
    expect_convolution(kda->conv_q, "layers.0.self_attn.q_conv1d.weight");
    expect_convolution(kda->conv_k, "layers.0.self_attn.k_conv1d.weight");
    expect_convolution(kda->conv_v, "layers.0.self_attn.v_conv1d.weight");
    expect_vector(kda->dt_bias, "layers.0.self_attn.dt_bias", HEADS * KEY);
    expect_vector(kda->o_norm, "layers.0.self_attn.o_norm.weight", KEY);
    for (size_t i = 0; i < HEADS; i++)
        assert_true(kda->rate[i] == expf(value_of(seed_of("layers.0.self_attn.A_log"), i)));
    if (config.full_rank_gate) {
        expect_matrix(checkpoint, &kda->g_proj, "model.layers.0.self_attn.g_proj", HEADS * KEY, HIDDEN, dtype);
        assert_int_equal(kda->g_a_proj.rows, 0);
    } else {
        expect_matrix(checkpoint, &kda->g_a_proj, "model.layers.0.self_attn.g_a_proj", KEY, HIDDEN, dtype);
        expect_matrix(checkpoint, &kda->g_b_proj, "model.layers.0.self_attn.g_b_proj", HEADS * KEY, KEY, dtype);
        assert_int_equal(kda->g_proj.rows, 0);
    }
}

static void expect_k31(const struct checkpoint *checkpoint, const struct params *params, enum dtype dtype,
                       enum dtype expert)
{
    const struct layer_params *first = &params->layers[0], *second = &params->layers[1];
    const struct mla_params *mla = &second->mla;
    expect_matrix(checkpoint, &params->embed_tokens, "model.embed_tokens", VOCABULARY, HIDDEN, dtype);
    expect_matrix(checkpoint, &params->lm_head, "lm_head", VOCABULARY, HIDDEN, dtype);
    expect_vector(params->final_norm, ".norm.weight" + 1, HIDDEN);
    expect_vector(first->input_norm, "layers.0.input_layernorm.weight", HIDDEN);
    expect_vector(second->post_attention_norm, "layers.1.post_attention_layernorm.weight", HIDDEN);
    expect_kda(checkpoint, &first->kda, dtype);
    expect_matrix(checkpoint, &first->ffn.gate_proj, "model.layers.0.mlp.gate_proj", DENSE, HIDDEN, expert);
    expect_matrix(checkpoint, &first->ffn.down_proj, "model.layers.0.mlp.down_proj", HIDDEN, DENSE, dtype);
    expect_matrix(checkpoint, &mla->q_a_proj, "model.layers.1.self_attn.q_a_proj", QUERY_RANK, HIDDEN, dtype);
    expect_matrix(checkpoint, &mla->q_b_proj, "model.layers.1.self_attn.q_b_proj", HEADS * (NOPE + ROPE), QUERY_RANK,
                  dtype);
    expect_matrix(checkpoint, &mla->kv_a_proj, "model.layers.1.self_attn.kv_a_proj_with_mqa", RANK + ROPE, HIDDEN,
                  dtype);
    expect_matrix(checkpoint, &mla->kv_b_proj, "model.layers.1.self_attn.kv_b_proj", HEADS * (NOPE + VALUE), RANK,
                  dtype);
    expect_matrix(checkpoint, &mla->g_proj, "model.layers.1.self_attn.g_proj", HEADS * VALUE, HIDDEN, dtype);
    expect_vector(mla->q_a_norm, "layers.1.self_attn.q_a_layernorm.weight", QUERY_RANK);
    expect_vector(mla->kv_a_norm, "layers.1.self_attn.kv_a_layernorm.weight", RANK);
    assert_int_equal(mla->indexer.n_heads, INDEX_HEADS);
    assert_int_equal(mla->indexer.head_dim, INDEX_DIM);
    expect_matrix(checkpoint, &mla->indexer.wq_b, "model.layers.1.self_attn.indexer.wq_b", INDEX_HEADS * INDEX_DIM,
                  QUERY_RANK, dtype);
    expect_matrix(checkpoint, &mla->indexer.wk, "model.layers.1.self_attn.indexer.wk", INDEX_DIM, HIDDEN, dtype);
    expect_vector(mla->indexer.k_norm_weight, "layers.1.self_attn.indexer.k_norm.weight", INDEX_DIM);
    expect_vector(mla->indexer.k_norm_bias, "layers.1.self_attn.indexer.k_norm.bias", INDEX_DIM);
    expect_matrix(checkpoint, &second->moe.gate, "model.layers.1.block_sparse_moe.gate", EXPERTS, HIDDEN, dtype);
    expect_vector(second->moe.bias, "layers.1.block_sparse_moe.gate.e_score_correction_bias", EXPERTS);
    expect_vector(second->moe.latent_norm, "layers.1.block_sparse_moe.routed_expert_norm.weight", LATENT);
    expect_matrix(checkpoint, &second->moe.latent_down, "model.layers.1.block_sparse_moe.routed_expert_down_proj",
                  LATENT, HIDDEN, dtype);
    expect_matrix(checkpoint, &second->moe.latent_up, "model.layers.1.block_sparse_moe.routed_expert_up_proj", HIDDEN,
                  LATENT, dtype);
    expect_matrix(checkpoint, &second->moe.experts[3].gate, "model.layers.1.block_sparse_moe.experts.3.w1", INNER,
                  LATENT, expert);
    expect_matrix(checkpoint, &second->moe.experts[3].up, "model.layers.1.block_sparse_moe.experts.3.w3", INNER, LATENT,
                  expert);
    expect_matrix(checkpoint, &second->moe.experts[0].down, "model.layers.1.block_sparse_moe.experts.0.w2", LATENT,
                  INNER, expert);
    expect_matrix(checkpoint, &second->moe.shared.up_proj, "model.layers.1.block_sparse_moe.shared_experts.up_proj",
                  2 * INNER, HIDDEN, expert);
    expect_matrix(checkpoint, &second->moe.shared.down_proj, "model.layers.1.block_sparse_moe.shared_experts.down_proj",
                  HIDDEN, 2 * INNER, expert);
}

/* Every element of the tiny model, counted from the tensors: codes twice their bytes, without scales, padding. */
static uint64_t elements_stored(void)
{
    uint64_t total = 0;
    for (size_t i = 0; i < writer.count; i++) {
        const struct writer_tensor *tensor = &writer.tensors[i];
        if (strstr(tensor->name, "A_log"))
            total += HEADS;
        else if (strstr(tensor->name, "weight_packed"))
            total += 2 * tensor->bytes;
        else if (!strstr(tensor->name, "weight_scale"))
            total += tensor->bytes / writer_width(tensor->dtype);
    }
    return total;
}

static void test_k31(void **state)
{
    (void)state;
    struct params params;
    struct checkpoint *checkpoint;
    build(&k31, &published);
    bind_good(&params, &checkpoint);
    expect_k31(checkpoint, &params, DTYPE_BF16, DTYPE_MXFP4);
    assert_int_equal(params.depth_queries.rows, 5);
    assert_int_equal(params.depth_queries.columns, HIDDEN);
    assert_int_equal(params.depth_queries.dtype, DTYPE_F32);
    expect_query(&params, 0, "layers.0.self_attention_res_proj.weight", "layers.0.self_attention_res_norm.weight");
    expect_query(&params, 1, "layers.0.mlp_res_proj.weight", "layers.0.mlp_res_norm.weight");
    expect_query(&params, 2, "layers.1.self_attention_res_proj.weight", "layers.1.self_attention_res_norm.weight");
    expect_query(&params, 4, "output_attn_res_proj.weight", "output_attn_res_norm.weight");
    assert_true(params.parameters_total == elements_stored());
    params_fini(&params);
    params_fini(&params);
    checkpoint_close(checkpoint);
}

static void test_types_and_prefixes(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "BF16", "F16"};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const char *const prefixes[] = {"language_model.model.", "model.language_model.", "model.", ""};
    for (int t = 0; t < 3; t++) {
        for (int p = 0; p < 4; p++) {
            const struct style style = {prefixes[p], types[t], types[t], (p & 1) == 0, p == 2, p == 3};
            struct params params;
            struct checkpoint *checkpoint;
            build(&k31, &style);
            bind_good(&params, &checkpoint);
            expect_k31(checkpoint, &params, dtypes[t], style.packed ? DTYPE_MXFP4 : dtypes[t]);
            assert_true(params.parameters_total == elements_stored());
            params_fini(&params);
            checkpoint_close(checkpoint);
        }
    }
}

static void test_linear(void **state)
{
    (void)state;
    struct config linear = k31;
    const struct style style = {"model.", "BF16", "BF16", false, false, false};
    struct params params;
    struct checkpoint *checkpoint;
    linear.full_rank_gate = linear.mla_output_gate = linear.latent_norm = linear.index_layers_said = false;
    linear.q_lora_rank = linear.attn_res_block_size = linear.latent_size = linear.index_topk = 0;
    linear.index_heads_said = linear.index_head_dim_said = 0;
    linear.n_shared_experts = 1;
    linear.tie_word_embeddings = true;
    build(&linear, &style);
    bind_good(&params, &checkpoint);
    expect_kda(checkpoint, &params.layers[0].kda, DTYPE_BF16);
    const struct layer_params *second = &params.layers[1];
    expect_matrix(checkpoint, &second->mla.q_proj, "model.layers.1.self_attn.q_proj", HEADS * (NOPE + ROPE), HIDDEN,
                  DTYPE_BF16);
    assert_int_equal(second->mla.q_a_proj.rows + second->mla.g_proj.rows + second->mla.indexer.n_heads, 0);
    expect_matrix(checkpoint, &second->moe.experts[2].down, "model.layers.1.block_sparse_moe.experts.2.w2", HIDDEN,
                  INNER, DTYPE_BF16);
    assert_int_equal(second->moe.latent_down.rows, 0);
    assert_null(second->moe.latent_norm);
    assert_int_equal(params.depth_queries.rows, 0);
    assert_ptr_equal(params.lm_head.data, params.embed_tokens.data);
    assert_true(params.parameters_total == elements_stored());
    params_fini(&params);
    checkpoint_close(checkpoint);
}

static void test_indexer_follows_tensors(void **state)
{
    (void)state;
    struct config quiet = k31; /* only top-k is said */
    struct params params;
    struct checkpoint *checkpoint;
    quiet.index_layers_said = quiet.is_index_layer[1] = false;
    quiet.index_heads_said = quiet.index_head_dim_said = 0;
    build(&quiet, &published);
    bind_good(&params, &checkpoint);
    assert_int_equal(params.layers[1].mla.indexer.n_heads, INDEX_HEADS);
    assert_int_equal(params.layers[1].mla.indexer.head_dim, INDEX_DIM);
    params_fini(&params);
    checkpoint_close(checkpoint);
}

static void test_shards_and_extra_tensors(void **state)
{
    (void)state;
    struct params params;
    struct checkpoint *checkpoint;
    struct error err;
    build(&k31, &published);
    add(&published, "I8", 1, 5, 0, 0, "layers.7.nobody.knows.this");
    add(&published, "BF16", 1, 5, 0, 0, "layers.0.self_attn.indexer.k_norm.weight");
    writer_add(&writer, "vision_tower.patch", "F16", 4, 1, 2, 3, 4);
    writer_save_shards(&writer, folder, 5);
    if (bind_saved(&params, &checkpoint, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    expect_k31(checkpoint, &params, DTYPE_BF16, DTYPE_MXFP4);
    assert_int_equal(checkpoint_skipped(checkpoint), 1);
    params_fini(&params);
    checkpoint_close(checkpoint);
}

/* A value that is no number is for the run to find, not for the loader: vectors pass as they are. */
static void test_nan_vector_passes(void **state)
{
    (void)state;
    struct params params;
    struct checkpoint *checkpoint;
    float nan_value = NAN;
    build(&k31, &published);
    memcpy(writer.tensors[seed_of("layers.0.input_layernorm.weight") - 1].data, &nan_value, 4);
    bind_good(&params, &checkpoint);
    assert_true(isnan(params.layers[0].input_norm[0]));
    params_fini(&params);
    checkpoint_close(checkpoint);
}

/* ---- faults ---- */

static void expect_refused(enum status wanted, const char *const *words)
{
    struct params params;
    struct checkpoint *checkpoint;
    struct error err;
    writer_save(&writer, folder, "model.safetensors", 0, 1);
    enum status status = bind_saved(&params, &checkpoint, &err);
    if (status != wanted)
        fail_msg("status %d instead of %d: \"%s\" (wanted \"%s\"...)", status, wanted, err.text, words[0]);
    writer_expect_words(&err, words);
    assert_null(params.arena.start);
    checkpoint_close(checkpoint);
}

static void test_each_tensor_is_needed(void **state)
{
    (void)state;
    build(&k31, &published);
    for (size_t i = 0; i < writer.count; i++) {
        struct writer_tensor *tensor = &writer.tensors[i];
        char name[200];
        memcpy(name, tensor->name, sizeof name);
        snprintf(tensor->name, sizeof tensor->name, "layers.0.away.%zu", i);
        /* The sentence names the tensor; where codes are gone, the plain matrix that would do as well. */
        char *packed = strstr(name, "_packed");
        if (packed)
            *packed = 0;
        const char *canonical = strstr(name, "lm_head") ? "lm_head.weight" : name + strlen("language_model.");
        expect_refused(STATUS_NOT_FOUND,
                       (const char *const[]){canonical, "expected", "found no tensor of that name", NULL});
        if (packed)
            *packed = '_';
        memcpy(tensor->name, name, sizeof name);
    }
}

static void test_each_shape_and_type_is_checked(void **state)
{
    (void)state;
    build(&k31, &published);
    for (size_t i = 0; i < writer.count; i++) {
        struct writer_tensor *tensor = &writer.tensors[i], before = *tensor;
        const char *canonical =
            strstr(before.name, "lm_head") ? "lm_head.weight" : before.name + strlen("language_model.");
        char found[64];
        uint32_t axis = before.rank - 1;
        if (strstr(before.name, "A_log"))
            tensor->shape[0] = HEADS - 1; /* more is allowed */
        else
            tensor->shape[axis] = before.shape[axis] + 1;
        tensor->bytes = writer_width(before.dtype);
        for (uint32_t k = 0; k < before.rank; k++)
            tensor->bytes *= tensor->shape[k];
        tensor->data = calloc(1, tensor->bytes + 1);
        snprintf(found, sizeof found, "found %s [%llu", before.dtype, (unsigned long long)tensor->shape[0]);
        expect_refused(STATUS_FORMAT,
                       (const char *const[]){"model.safetensors: tensor ", canonical, "expected ", found, NULL});
        free(tensor->data);
        *tensor = before;
        strcpy(tensor->dtype, "I8");
        tensor->bytes = before.bytes / writer_width(before.dtype);
        expect_refused(STATUS_FORMAT,
                       (const char *const[]){"model.safetensors: tensor ", canonical, "expected ", "found I8 [", NULL});
        *tensor = before;
    }
}

static void test_nan_scale(void **state)
{
    (void)state;
    build(&k31, &published);
    struct writer_tensor *scales = &writer.tensors[seed_of("experts.2.w2.weight_scale") - 1];
    scales->data[2 * 5 + 1] = E8M0_NAN; /* two blocks a row */
    expect_refused(STATUS_FORMAT, (const char *const[]){"model.safetensors",
                                                        "model.layers.1.block_sparse_moe.experts.2.w2.weight_scale",
                                                        "0 to 254", "255", "row 5, block 1", NULL});
}

static void test_packed_and_plain(void **state)
{
    (void)state;
    build(&k31, &published);
    add(&published, "BF16", 2, INNER, LATENT, 0, "layers.1.block_sparse_moe.experts.2.w3.weight");
    expect_refused(STATUS_FORMAT,
                   (const char *const[]){"experts.2.w3.weight_packed", "experts.2.w3.weight", "found both", NULL});
}

static void test_columns_in_blocks(void **state)
{
    (void)state;
    struct config narrow = k31;
    narrow.intermediate_size = 48; /* down_proj cannot be packed */
    build(&narrow, &published);
    for (size_t i = 0; i < writer.count; i++)
        if (strstr(writer.tensors[i].name, ".mlp."))
            snprintf(writer.tensors[i].name, sizeof writer.tensors[i].name, "layers.0.away.%zu", i);
    add(&published, "BF16", 2, 48, HIDDEN, 0, "layers.0.mlp.gate_proj.weight");
    add(&published, "BF16", 2, 48, HIDDEN, 0, "layers.0.mlp.up_proj.weight");
    add(&published, "U8", 2, HIDDEN, 24, 0, "layers.0.mlp.down_proj.weight_packed");
    add(&published, "U8", 2, HIDDEN, 1, 0, "layers.0.mlp.down_proj.weight_scale");
    expect_refused(STATUS_FORMAT,
                   (const char *const[]){"mlp.down_proj.weight_packed", "columns in blocks of 32", NULL});
}

/* The config is changed after the tensors were made. */
static void test_config_against_indexer(void **state)
{
    (void)state;
    build(&k31, &published);
    config.index_topk = 0;
    config.index_layers_said = false;
    expect_refused(STATUS_FORMAT,
                   (const char *const[]){"model.safetensors", "weights_proj", "index_topk", "found none", NULL});
    config = k31;
    config.index_heads_said = 5;
    expect_refused(STATUS_FORMAT, (const char *const[]){"indexer.weights_proj.weight", "5 rows", "found 3", NULL});
    config = k31;
    config.index_head_dim_said = 16;
    expect_refused(STATUS_FORMAT, (const char *const[]){"indexer.wk.weight", "16 rows", "found 8", NULL});
    config = k31;
    config.is_index_layer[1] = false;
    expect_refused(STATUS_FORMAT,
                   (const char *const[]){"model.layers.1.self_attn.indexer", "no indexer", "layer 2", NULL});
    struct config without = k31;
    without.index_topk = 0;
    build(&without, &published);
    config = k31;
    expect_refused(STATUS_NOT_FOUND, (const char *const[]){"model.layers.1.self_attn.indexer.weights_proj",
                                                           "dsa_config names the layer", NULL});
    config.index_layers_said = false;
    expect_refused(STATUS_NOT_FOUND, (const char *const[]){"indexer tensors", "index_topk 16", "found none", NULL});
}

static void test_indexer_needs_low_rank_query(void **state)
{
    (void)state;
    struct config full = k31;
    full.q_lora_rank = 0;
    build(&full, &published);
    expect_refused(STATUS_UNSUPPORTED, (const char *const[]){"indexer", "q_lora_rank", "found none", NULL});
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_k31),
        IN_FOLDER(test_types_and_prefixes),
        IN_FOLDER(test_linear),
        IN_FOLDER(test_indexer_follows_tensors),
        IN_FOLDER(test_shards_and_extra_tensors),
        IN_FOLDER(test_nan_vector_passes),
        IN_FOLDER(test_each_tensor_is_needed),
        IN_FOLDER(test_each_shape_and_type_is_checked),
        IN_FOLDER(test_nan_scale),
        IN_FOLDER(test_packed_and_plain),
        IN_FOLDER(test_columns_in_blocks),
        IN_FOLDER(test_config_against_indexer),
        IN_FOLDER(test_indexer_needs_low_rank_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
