/* The flags that every command with a model shares: which model, and how its steps are computed. */
#ifndef DAY0_LAB_MODEL_FLAGS_H
#define DAY0_LAB_MODEL_FLAGS_H

#include <getopt.h>

#include "model/model.h"

struct model_flags {
    const char *directory;
    struct model_options options;
};

/* Values of the long options, above every character. */
enum {
    FLAG_ACT = 1000,
    FLAG_KV,
    FLAG_LI,
    FLAG_LI_SCALE,
    FLAG_DENSE,
    FLAG_EXPERTS,
    FLAG_NO_CACHE,
    FLAG_PACK, /* of policies alone: "on" or "off" */
    FLAG_NO_PACK,
    FLAG_SFA, /* of policies alone: "gather" or "masked" */
    FLAG_LI_SCAN,
    FLAG_THREADS,
    FLAG_CPU,
    FLAG_EXEC,
    FLAG_STREAMS,
    FLAG_WITHOUT,
    FLAG_ACCEPT_UNKNOWN,
    FLAG_LAST, /* a command's own long options start here */
};

/* Entries for a command's table of long options; `-m` goes into its short ones. */
#define MODEL_FLAGS                                                                                                    \
    {"model", required_argument, NULL, 'm'}, {"act", required_argument, NULL, FLAG_ACT},                               \
        {"kv", required_argument, NULL, FLAG_KV}, {"li", required_argument, NULL, FLAG_LI},                            \
        {"li-scale", required_argument, NULL, FLAG_LI_SCALE}, {"li-scan", required_argument, NULL, FLAG_LI_SCAN},      \
        {"threads", required_argument, NULL, FLAG_THREADS}, {"cpu", required_argument, NULL, FLAG_CPU},                \
        {"exec", required_argument, NULL, FLAG_EXEC}, {"dense", required_argument, NULL, FLAG_DENSE},                  \
        {"experts", required_argument, NULL, FLAG_EXPERTS}, {"no-cache", no_argument, NULL, FLAG_NO_CACHE},            \
        {"streams", required_argument, NULL, FLAG_STREAMS}, {"no-pack", no_argument, NULL, FLAG_NO_PACK},              \
        {"without", required_argument, NULL, FLAG_WITHOUT},                                                            \
    {                                                                                                                  \
        "accept-unknown", no_argument, NULL, FLAG_ACCEPT_UNKNOWN                                                       \
    }

/* What --help says of them. */
extern const char model_flags_help[];

struct model_flags model_flags_default(void);

/* Takes one option as getopt_long gave it. *known is false if it is none of the shared ones. */
NEEDS_CHECK enum status model_flags_take(struct model_flags *flags, int option, const char *value, bool *known,
                                         struct error *err);

/* A whole number in [low, high], for an option's value. */
NEEDS_CHECK enum status flag_number(const char *name, const char *value, double low, double high, double *out,
                                    struct error *err);
NEEDS_CHECK enum status flag_count(const char *name, const char *value, uint32_t low, uint32_t high, uint32_t *out,
                                   struct error *err);

#endif
