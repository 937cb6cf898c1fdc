/* A progress bar on standard error: only on a terminal, only once something takes longer than two seconds. */
#ifndef DAY0_LAB_PROGRESS_H
#define DAY0_LAB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/watch.h"

struct progress {
    const char *what;
    uint64_t total;
    double started, shown; /* seconds */
    bool visible, terminal;
};

struct progress progress_begin(const char *what, uint64_t total);
void progress_set(struct progress *progress, uint64_t done);
void progress_end(struct progress *progress);

/* Bars and notices for what opening a model does, one piece of work after the other; for one thread. */
struct watch progress_watch(void);

/* An output file under a temporary name (PATH_BYTES_MAX bytes), which output_close renames to `path` if `status` is ok
 * and removes otherwise: never half a file. What is no regular file (a pipe, a device) is written in place. */
NEEDS_CHECK enum status output_open(FILE **out, char *temporary, const char *path, struct error *err);
NEEDS_CHECK enum status output_close(FILE *out, const char *temporary, const char *path, enum status status,
                                     struct error *err);

#endif
