#include "lab/policy.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cpu/tiers.h"
#include "lab/model_flags.h"

static const struct {
    const char *name;
    int flag;
} keys[] = {{"act", FLAG_ACT},           {"cpu", FLAG_CPU},        {"dense", FLAG_DENSE},
            {"exec", FLAG_EXEC},         {"kv", FLAG_KV},          {"experts", FLAG_EXPERTS},
            {"li-scale", FLAG_LI_SCALE}, {"li", FLAG_LI},          {"li-scan", FLAG_LI_SCAN},
            {"pack", FLAG_PACK},         {"sfa", FLAG_SFA},        {"streams", FLAG_STREAMS},
            {"threads", FLAG_THREADS},   {"without", FLAG_WITHOUT}};
enum { N_KEYS = sizeof keys / sizeof *keys };

static enum status no_such_key(const char *pair, struct error *err)
{
    char names[128];
    int used = 0;
    for (int k = 0; k < N_KEYS; k++)
        used += snprintf(names + used, sizeof names - (size_t)used, "%s%s", k ? ", " : "", keys[k].name);
    return error_set(err, STATUS_ARGUMENT, "'%s' is not KEY=VALUE with a key of %s", pair, names);
}

/* Takes "key=value", which it cuts in two. */
static enum status take(struct model_flags *flags, char *pair, unsigned *seen, struct error *err)
{
    char *value = strchr(pair, '=');
    if (value)
        *value++ = 0;
    int k = 0;
    while (k < N_KEYS && strcmp(pair, keys[k].name) != 0)
        k++;
    if (!value || k == N_KEYS)
        return no_such_key(pair, err);
    if (*seen & 1u << k)
        return error_set(err, STATUS_ARGUMENT, "%s is named twice", pair);
    *seen |= 1u << k;
    bool known;
    TRY(model_flags_take(flags, keys[k].flag, value, &known, err));
    if (keys[k].flag != FLAG_CPU)
        return STATUS_OK;
    /* The pair does not outlive the call: keep the tier's own name. */
    unsigned tiers;
    TRY(tiers_parse(value, &tiers, err));
    flags->options.cpu = tiers_name(tiers);
    return STATUS_OK;
}

enum status policy_parse(struct policy *policy, const char *text, const struct model_options *base, struct error *err)
{
    char pairs[POLICY_NAME_BYTES];
    if ((size_t)snprintf(pairs, sizeof pairs, "%s", text) >= sizeof pairs)
        return error_set(err, STATUS_ARGUMENT, "policy '%.40s...': at most %d characters", text, POLICY_NAME_BYTES - 1);
    memcpy(policy->name, pairs, sizeof pairs);
    struct model_flags flags = {NULL, *base};
    unsigned seen = 0;
    enum status status = STATUS_OK;
    for (char *at = pairs, *next; at && status == STATUS_OK; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        status = take(&flags, at, &seen, err);
    }
    if (status != STATUS_OK)
        return error_prefix(err, "policy '%s'", policy->name);
    policy->options = flags.options;
    return STATUS_OK;
}

void policy_of(struct policy *policy, const struct model_options *options)
{
    int used = 0;
    char *name = policy->name;
    policy->options = *options;
    if (options->act != ACT_EXACT)
        used += snprintf(name + used, sizeof policy->name, "act=%s,", act_name(options->act));
    if (options->weights.dense != DTYPE_AS_STORED)
        used +=
            snprintf(name + used, sizeof policy->name - (size_t)used, "dense=%s,", dtype_name(options->weights.dense));
    if (options->weights.experts != DTYPE_AS_STORED)
        used += snprintf(name + used, sizeof policy->name - (size_t)used, "experts=%s,",
                         dtype_name(options->weights.experts));
    snprintf(name + used, sizeof policy->name - (size_t)used, "kv=%s,li=%s%s", dtype_name(options->latent_dtype),
             dtype_name(options->index_dtype),
             options->index_dtype != DTYPE_MXFP8 ? ""
             : options->index_rule == MX_FLOOR   ? ",li-scale=floor"
                                                 : ",li-scale=ceil");
}
