/* Random checkpoints of any shape of the family, written to a temporary directory.
 *
 * A tensor's values depend on the seed, its name and its shape alone: two descriptions that differ in one part have the
 * same weights everywhere else. */
#ifndef DAY0_TESTS_SYNTH_HELP_H
#define DAY0_TESTS_SYNTH_HELP_H

#include "model_help.h"

struct synth {
    uint64_t seed;
    enum dtype weights;  /* of the matrices: F32, BF16 or F16 */
    bool packed_experts; /* MXFP4 experts; their widths are then multiples of 32 */
    uint32_t vocabulary, hidden, n_layers, inner;
    uint32_t full_layers; /* bit l: layer l has full attention, the others KDA */
    uint32_t kda_heads, kda_dim, conv_taps;
    float decay_bound; /* negative: the bounded form; 0: the softplus form */
    float decay_bias;  /* added to every dt_bias */
    bool full_rank_gate;
    uint32_t heads, q_lora, kv_lora, nope, rope, v_dim; /* q_lora 0: a plain q_proj */
    bool output_gate;
    uint32_t index_heads, index_dim, index_topk; /* topk 0: no indexer */
    bool blind_index;                            /* index weights zero: every score is 0 */
    uint32_t block;                              /* layers a block of Attention Residuals; 0: plain residuals */
    uint32_t experts, chosen, shared, expert_inner, latent; /* experts 0: dense FFNs */
    bool tied;
};

/* A small K3.1 model: 3 layers (the second full), 3 heads of 24, hidden 40, top-k 16, blocks of 2, 5 experts. */
struct synth synth_default(void);

struct synth_directory {
    char path[64];
};

/* Writes config.json and model.safetensors, or fails the test. */
struct synth_directory synth_write(const struct synth *synth);
void synth_remove(const struct synth_directory *directory);

/* Opens a model of the description; the files are removed right away, the mapping stays. */
struct model *synth_open(const struct synth *synth, const struct model_options *options);

/* Random ids below the vocabulary. */
void synth_tokens(int32_t *tokens, uint32_t n, uint32_t vocabulary, uint64_t seed);

#endif
