/* A policy: how a model's numbers are computed, in one string, "kv=f32,li=mxfp8,li-scale=ceil".
 *
 * Its keys are the names of the shared model flags (model_flags.h): act, cpu, dense, exec, experts, kv, li, li-scale,
 * li-scan, streams, threads, without ('+' between names); and pack, on or off. What a policy does not name is as the
 * command line's flags say. */
#ifndef DAY0_LAB_POLICY_H
#define DAY0_LAB_POLICY_H

#include "model/model.h"

enum {
    POLICY_NAME_BYTES = 192,
    POLICIES_MAX = 16, /* side by side in one run */
};

struct policy {
    char name[POLICY_NAME_BYTES]; /* as it was given */
    struct model_options options;
};

/* Reads `text` over `base`. Fails with STATUS_ARGUMENT: an unknown key or value, a key named twice, no
 * key, a tier that this machine lacks. The policy borrows nothing from `text`, and what `base` borrows. */
NEEDS_CHECK enum status policy_parse(struct policy *policy, const char *text, const struct model_options *base,
                                     struct error *err);

/* The policy of options, under a name that says its bounded choices: "kv=bf16,li=bf16". */
void policy_of(struct policy *policy, const struct model_options *options);

#endif
