/* The operators that a config asks for, by name, and whether day0 has them. */
#ifndef DAY0_MODEL_OPERATORS_H
#define DAY0_MODEL_OPERATORS_H

#include "model/config.h"

enum { OPERATORS_MAX = 32 + CONFIG_FOREIGN_MAX };

struct operator
{
    const char *name; /* constant, or borrowed from the config */
    bool have;
};

/* What the tensors say beyond the config. */
struct operator_hints {
    bool has_indexers, has_mxfp4;
};

/* Fills `out` [OPERATORS_MAX] in the order of a layer; gives how many there are. */
uint32_t operators_list(struct operator* out, const struct config *config, struct operator_hints hints);

#endif
