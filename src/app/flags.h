/* Flags that run and chat share: the engine's options and the sampling settings. */
#ifndef DAY0_APP_FLAGS_H
#define DAY0_APP_FLAGS_H

#include <getopt.h>

#include "day0.h"

struct app_flags {
    day0_options options;
    /* Negative: as the model says, or for the seed, another one each time. */
    double temperature, top_p, min_p;
    int64_t top_k, seed;
    uint32_t n_tokens;
    bool think, stats;
};

enum {
    APP_FLAG_FIRST = 2000, /* values of long options without a letter */
    APP_FLAG_LAST = 2100,  /* a command's own start here */
    APP_INTERRUPTED = 130, /* the exit status after Ctrl-C */
};

extern const char app_flags_help[];

struct app_flags app_flags_default(void);

/* A command's own long options and the shared ones in one table. */
void app_flags_join(struct option *out, size_t out_max, const struct option *own, size_t n_own);

/* Takes one option as getopt_long gave it. DAY0_NOT_FOUND: it is none of the shared ones. */
DAY0_CHECKED day0_status app_flags_take(struct app_flags *flags, int option, const char *value, day0_error *error);

/* The sampling settings for an open engine; draws a seed if none was asked for. */
day0_sampling app_flags_sampling(struct app_flags *flags, const day0_engine *engine);

/* Opens the engine, with progress on a terminal; prints the memory plan if statistics are wanted. */
DAY0_CHECKED day0_status app_flags_open(const struct app_flags *flags, day0_engine **engine, day0_error *error);

/* Prints `day0 COMMAND: sentence`; gives the exit status back, or APP_INTERRUPTED if that is what happened. */
int app_fail(const char *command, const day0_error *error, int exit_status);

/* Ctrl-C: from app_interrupts_catch on it only sets a mark; a second one within the same wait ends the program. */
void app_interrupts_catch(void);
bool app_interrupted(void);
void app_interrupts_clear(void);

#endif
