#include "lab/model_flags.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/cache_folder.h"
#include "lab/commands.h"
#include "lab/progress.h"

const char model_flags_help[] =
    "Model:\n"
    "  -m, --model DIR       checkpoint directory (default: the bundled model, or $DAY0_MODEL)\n"
    "      --accept-unknown  run although config.json has keys that may change the meaning\n"
    "Computation:\n"
    "      --act exact|int8|int16|f16  arithmetic of activations and weights: float32 (default on AArch64); MXFP4\n"
    "                        weights in INT8; that and BF16 weights in INT16 (default); or in FP16\n"
    "      --kv int16|bf16|f32  element type of the latent cache; int16 is attended to in integers (default, but on\n"
    "                        AArch64: bf16)\n"
    "      --dense mxfp8|int8|mxfp4  attention and FFN projections are converted at load (default: as stored)\n"
    "      --experts mxfp4|int8  so are routed experts\n"
    "      --no-pack         weights stay in rows as they are stored (default: panels of those that meet INT8 or\n"
    "                        INT16, made at the first start and kept in a file, where the weights fit in memory)\n"
    "      --no-cache        no file is made or used for that; converted weights are in memory alone\n"
    "      --li bf16|mxfp8|f32  rounding of index queries and keys (default bf16)\n"
    "      --li-scale floor|ceil  scale rule of MXFP8 (default floor)\n"
    "      --li-scan bounds|exact  which index scores are computed exactly: those that 16-bit bounds leave open\n"
    "                        (default), or all; the choices are the same\n"
    "      --threads N       threads (default: one a core)\n"
    "      --cpu TIER        strongest instruction tier: ref, avx2, avx512, avx512fp16, neon (default: the best; or\n"
    "                        $DAY0_CPU)\n"
    "      --exec graph|eager  one parallel region a step, or a barrier after each node (default graph)\n"
    "      --streams on|off  in a graph run, overlap what is independent, or go node by node (default on)\n"
    "      --without LIST    leave techniques out, to measure them: projections, attn-res, grouping, sharing, "
    "segments,\n"
    "                        norms, epilogue, kda-region, flash-kda, early-start, or all\n"
    "                        (docs/PERFORMANCE.md); the numbers are the same\n";

struct model_flags model_flags_default(void)
{
    struct model_flags flags = {lab_default_model(), model_options_default()};
    flags.options.cpu = getenv("DAY0_CPU");
    flags.options.watch = progress_watch();
    flags.options.cache_folder = cache_folder_path();
    return flags;
}

enum status flag_number(const char *name, const char *value, double low, double high, double *out, struct error *err)
{
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    if (end == value || *end != 0 || errno != 0 || !(number >= low && number <= high))
        return error_set(err, STATUS_ARGUMENT, "--%s takes a number from %g to %g, not '%s'", name, low, high, value);
    *out = number;
    return STATUS_OK;
}

enum status flag_count(const char *name, const char *value, uint32_t low, uint32_t high, uint32_t *out,
                       struct error *err)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (end == value || *end != 0 || errno != 0 || value[0] == '-' || number < low || number > high)
        return error_set(err, STATUS_ARGUMENT, "--%s takes a whole number from %u to %u, not '%s'", name, low, high,
                         value);
    *out = (uint32_t)number;
    return STATUS_OK;
}

/* One of the words of a flag, by its place. */
static enum status choose(const char *name, const char *value, const char *const *words, int n, int *out,
                          struct error *err)
{
    for (int i = 0; i < n; i++)
        if (strcmp(value, words[i]) == 0)
            return *out = i, STATUS_OK;
    char list[64] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0       ? ""
                                 : i == n - 1 ? " or "
                                              : ", ",
                                 words[i]);
    return error_set(err, STATUS_ARGUMENT, "--%s takes %s, not '%s'", name, list, value);
}

/* The values of flags, and what they stand for. */
static const char *const kvs[] = {"int16", "bf16", "f32"}, *const lis[] = {"bf16", "mxfp8", "f32"},
                         *const rules[] = {"floor", "ceil"}, *const execs[] = {"graph", "eager"},
                         *const scans[] = {"bounds", "exact"}, *const sfas[] = {"gather", "masked"},
                         *const switches[] = {"off", "on"}, *const denses[] = {"mxfp8", "int8", "mxfp4"},
                         *const experts[] = {"mxfp4", "int8"};
static const enum dtype kv_types[] = {DTYPE_INT16, DTYPE_BF16, DTYPE_F32},
                        li_types[] = {DTYPE_BF16, DTYPE_MXFP8, DTYPE_F32},
                        dense_types[] = {DTYPE_MXFP8, DTYPE_INT8, DTYPE_MXFP4},
                        expert_types[] = {DTYPE_MXFP4, DTYPE_INT8};

enum status model_flags_take(struct model_flags *flags, int option, const char *value, bool *known, struct error *err)
{
    struct model_options *o = &flags->options;
    int chosen = 0;
    *known = true;
    switch (option) {
    case 'm':
        flags->directory = value;
        return STATUS_OK;
    case FLAG_ACT:
        TRY(choose("act", value, act_names, ACT_COUNT, &chosen, err));
        o->act = (enum act)chosen;
        return STATUS_OK;
    case FLAG_KV:
        TRY(choose("kv", value, kvs, 3, &chosen, err));
        o->latent_dtype = kv_types[chosen];
        return STATUS_OK;
    case FLAG_LI:
        TRY(choose("li", value, lis, 3, &chosen, err));
        o->index_dtype = li_types[chosen];
        return STATUS_OK;
    case FLAG_LI_SCALE:
        TRY(choose("li-scale", value, rules, 2, &chosen, err));
        o->index_rule = chosen ? MX_CEIL : MX_FLOOR;
        return STATUS_OK;
    case FLAG_DENSE:
        TRY(choose("dense", value, denses, 3, &chosen, err));
        o->weights.dense = dense_types[chosen];
        return STATUS_OK;
    case FLAG_EXPERTS:
        TRY(choose("experts", value, experts, 2, &chosen, err));
        o->weights.experts = expert_types[chosen];
        return STATUS_OK;
    case FLAG_NO_CACHE:
        o->cache_folder = NULL;
        return STATUS_OK;
    case FLAG_PACK:
        TRY(choose("pack", value, switches, 2, &chosen, err));
        o->pack = chosen;
        return STATUS_OK;
    case FLAG_NO_PACK:
        o->pack = false;
        return STATUS_OK;
    case FLAG_LI_SCAN:
        TRY(choose("li-scan", value, scans, 2, &chosen, err));
        o->index_scan = (enum dsa_scan)chosen;
        return STATUS_OK;
    case FLAG_SFA:
        TRY(choose("sfa", value, sfas, 2, &chosen, err));
        o->masked = chosen;
        return STATUS_OK;
    case FLAG_THREADS:
        return flag_count("threads", value, 1, TEAM_THREADS_MAX, &o->n_threads, err);
    case FLAG_CPU:
        o->cpu = value;
        return STATUS_OK;
    case FLAG_EXEC:
        TRY(choose("exec", value, execs, 2, &chosen, err));
        o->exec = chosen ? EXEC_EAGER : EXEC_GRAPH;
        return STATUS_OK;
    case FLAG_STREAMS:
        TRY(choose("streams", value, switches, 2, &chosen, err));
        o->streams = chosen;
        return STATUS_OK;
    case FLAG_WITHOUT:
        return techniques_parse(&o->without, value, err);
    case FLAG_ACCEPT_UNKNOWN:
        o->config.accept_unknown = true;
        return STATUS_OK;
    default:
        *known = false;
        return STATUS_OK;
    }
}
