/* A model that exists as a config.json alone: its costs can be counted (bench_cost.h), nothing can be run. */
#ifndef DAY0_LAB_BENCH_PREDICT_H
#define DAY0_LAB_BENCH_PREDICT_H

#include "model/model.h"

/* Does: makes the shapes of all parameters, in BF16, with routed experts in MXFP4 where the config asks for it, and the
 * layout of caches and states; no data. Owns *out until model_close. Fails: no config of the family. */
NEEDS_CHECK enum status bench_predict_model(struct model **out, const char *config_path,
                                            const struct model_options *options, struct error *err);

#endif
