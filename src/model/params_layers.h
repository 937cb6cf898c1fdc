/* Binding one layer. Internal to params.c. */
#ifndef DAY0_MODEL_PARAMS_LAYERS_H
#define DAY0_MODEL_PARAMS_LAYERS_H

#include "model/bind.h"
#include "model/params.h"

/* Binds layer `index` but for its depth queries. `experts` [n_experts] is the layer's part of
 * params->experts, or NULL. */
NEEDS_CHECK enum status params_bind_layer(struct layer_params *layer, struct expert *experts,
                                          const struct config *config, uint32_t index, struct binder *binder,
                                          struct error *err);

#endif
