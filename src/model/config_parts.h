/* The objects inside a config that have rules of their own. Internal to config.c. */
#ifndef DAY0_MODEL_CONFIG_PARTS_H
#define DAY0_MODEL_CONFIG_PARTS_H

#include "model/config_reader.h"

/* linear_attn_config: the KDA layers, their sizes and gates. Needs config->n_layers. */
NEEDS_CHECK enum status config_read_linear_attention(struct config *config, struct config_reader *linear,
                                                     struct error *err);

/* dsa_config (`dsa`, whose object is NULL where there is none) and the indexer's keys that may stand flat in
 * `text`. Needs config->is_kda. Published spellings inside dsa_config are not certain, so several are read,
 * and must agree. */
NEEDS_CHECK enum status config_read_indexer(struct config *config, struct config_reader *dsa,
                                            struct config_reader *text, struct error *err);

/* quantization_config in `parent`: the method is checked, the rest is left alone, since which tensors are
 * packed is seen in the tensors. The list of exceptions (`ignore`) of the published models does not name all
 * that are stored unpacked. */
NEEDS_CHECK enum status config_check_quantization(struct config_reader *parent, struct error *err);

#endif
