/* What a long piece of work tells its caller while it goes on. Callbacks come from the thread that started the work;
 * each may be NULL. */
#ifndef DAY0_BASE_WATCH_H
#define DAY0_BASE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct watch {
    /* done of total units; nonzero stops the work. */
    int (*progress)(void *context, const char *what, uint64_t done, uint64_t total);
    /* A sentence worth knowing: something was not as it should be, and the work goes on all the same. */
    void (*notice)(void *context, const char *sentence);
    void *context;
};

/* True if the work shall stop. */
static inline bool watch_progress(const struct watch *watch, const char *what, uint64_t done, uint64_t total)
{
    return watch->progress && watch->progress(watch->context, what, done, total) != 0;
}

static inline void watch_notice(const struct watch *watch, const char *sentence)
{
    if (watch->notice)
        watch->notice(watch->context, sentence);
}

#endif
