/* Random checkpoints of any shape in the family, in the published layout, written front to back without ever
 * holding a tensor: what tests, benches and experiments run on where the real weights cannot be had. */
#ifndef DAY0_LAB_SYNTH_H
#define DAY0_LAB_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct synth_options {
    const char *config_path; /* config.json of the shape */
    const char *directory;   /* made; must be absent or empty */
    const char *tokenizer;   /* directory to copy tiktoken.model and tokenizer_config.json from; NULL: none */
    bool tokenizer_optional; /* one that has more ids than the vocabulary is left out instead of refused */
    uint64_t seed;
    uint64_t shard_bytes; /* files end after about this much; UINT64_MAX: one file */
};

struct synth_result {
    size_t n_tensors;
    uint32_t n_files;
    uint64_t bytes; /* of the tensors */
    double seconds;
    bool has_tokenizer;
};

/* Does: writes under a temporary name beside `directory` and renames at the end, so that there is a whole
 * checkpoint or none. Values are scaled so that activations stay near 1 through all layers and gates, routers
 * and depth mixes are spread; every tensor depends on the seed and its name alone.
 * Fails: config not in the family, sizes that MXFP4 cannot hold, a directory that is not empty, a full disk.
 */
NEEDS_CHECK enum status synth_checkpoint(const struct synth_options *options, struct synth_result *result,
                                         struct error *err);

#endif
