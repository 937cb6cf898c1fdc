/* The two objects of a config that say which layer attends how. Internal to config.c. */
#ifndef DAY0_MODEL_CONFIG_ATTENTION_H
#define DAY0_MODEL_CONFIG_ATTENTION_H

#include "model/config_reader.h"

/* linear_attn_config: the KDA layers, their sizes and gates. Needs config->n_layers. */
NEEDS_CHECK enum status config_read_linear_attention(struct config *config, struct config_reader *linear,
                                                     struct error *err);

/* dsa_config (`dsa`, whose object is NULL where there is none) and the indexer's keys that may stand flat in `text`.
 * Needs config->is_kda. Published spellings inside dsa_config are not certain, so several are read, and must agree. */
NEEDS_CHECK enum status config_read_indexer(struct config *config, struct config_reader *dsa, struct config_reader *text,
                                            struct error *err);

#endif
