#include "lab/bench_predict.h"

#include <stdlib.h>

#include "base/file.h"
#include "lab/synth_tensors.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

static enum status pass(void *context, const struct wanted *wanted, struct error *err)
{
    (void)context, (void)wanted, (void)err;
    return STATUS_OK;
}

/* The walk gives every matrix as BF16. */
static void pack_experts(struct model *model)
{
    static const uint8_t some_scales[1];
    for (uint32_t l = 0; l < model->config.n_layers; l++) {
        struct expert *experts = (struct expert *)model->params.layers[l].moe.experts;
        for (uint32_t e = 0; experts && e < model->config.n_experts; e++) {
            struct matrix *matrices[] = {&experts[e].gate, &experts[e].up, &experts[e].down};
            for (int i = 0; i < 3; i++) {
                matrices[i]->dtype = DTYPE_MXFP4;
                matrices[i]->scales = some_scales; /* never read */
            }
        }
    }
}

static enum status make(struct model *model, const char *text, size_t bytes, struct error *err)
{
    struct indexer_params *indexers;
    TRY(config_parse(&model->config, text, bytes, &model->options.config, err));
    TRY(memory_take(&indexers, model->config.n_layers, sizeof *indexers, "the indexers", err));
    synth_indexers(indexers, &model->config);
    enum status status = params_walk(&model->params, &model->config, indexers, pass, NULL, err);
    free(indexers);
    if (status != STATUS_OK)
        return status;
    if (synth_packs_experts(text, bytes))
        pack_experts(model);
    return model_prepare(model, err);
}

enum status bench_predict_model(struct model **out, const char *config_path, const struct model_options *options,
                                struct error *err)
{
    char *text;
    size_t bytes;
    *out = NULL;
    TRY(file_read(config_path, CONFIG_BYTES_MAX, &text, &bytes, err));
    enum status status = memory_take(out, 1, sizeof **out, "the shapes of a model", err);
    if (status == STATUS_OK) {
        (*out)->options = *options;
        status = make(*out, text, bytes, err);
        if (status != STATUS_OK) {
            model_close(*out);
            *out = NULL;
            status = error_prefix(err, "%s", config_path);
        }
    }
    free(text);
    return status;
}
