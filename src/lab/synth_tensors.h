/* The tensors of a random checkpoint: names, shapes and value recipes in the published layout, cut into
 * files. Internal to synth.c. */
#ifndef DAY0_LAB_SYNTH_TENSORS_H
#define DAY0_LAB_SYNTH_TENSORS_H

#include "lab/synth_values.h"
#include "model/params.h"
#include "weights/safetensors_write.h"

struct synth_tensor {
    struct safetensors_spec spec; /* its name is owned by the list */
    struct values_recipe recipe;
    uint32_t file;
};

struct synth_tensors {
    struct synth_tensor *list; /* file after file, in the order of their bytes */
    size_t count, capacity;
    uint64_t bytes;
    uint32_t n_files;
    const char *prefix; /* of names; "language_model." or "" */
    bool packs_experts;
    uint32_t rates_length;
    bool flat_rates; /* A_log is [n], not [1, 1, n, 1] */
};

/* Whether the text of a config.json asks for MXFP4 experts. */
bool synth_packs_experts(const char *text, size_t bytes);

/* Sizes of the indexers of each layer, as the config says or as usual; `indexers` [n_layers] is zero before. */
void synth_indexers(struct indexer_params *indexers, const struct config *config);

/* Lists the tensors of a model and assigns files of about `file_bytes`. Owns the list until
 * synth_tensors_fini. */
NEEDS_CHECK enum status synth_tensors_init(struct synth_tensors *tensors, const struct config *config,
                                           bool packs_experts, uint64_t file_bytes, struct error *err);
void synth_tensors_fini(struct synth_tensors *tensors);

#endif
