#include "exec/bandwidth.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "cpu/machine.h"
#include "cpu/units.h"

static const uint64_t buffer_usual = 1ull << 30, buffer_least = 64ull << 20;
static const double fill_seconds_max = 3.0, read_seconds_max = 1.0;
/* The buffer is streamed in windows, again and again, and the fastest one counts: on a machine with other
 * work short windows are more often left alone, and between two readings of one window lies the whole buffer.
 */
enum { CACHE_FACTOR = 4, WINDOWS = 16, READS_MAX = 20 * WINDOWS };

struct pass {
    char *buffer; /* of this window */
    size_t bytes; /* of a window */
    unsigned n_threads;
    struct sum {
        uint64_t value;
        char padding[56];
    } sums[TEAM_THREADS_MAX]; /* so that the reads are not optimized away */
};

static void part_of(const struct pass *pass, unsigned worker, size_t *first, size_t *end)
{
    size_t share = pass->bytes / pass->n_threads / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    *first = share * worker;
    *end = worker + 1 == pass->n_threads ? pass->bytes : *first + share;
}

/* First touch by the worker that will read it; not zero, as the system may map all zero pages to one. */
static void fill_part(void *context, unsigned worker)
{
    const struct pass *pass = context;
    size_t first, end;
    part_of(pass, worker, &first, &end);
    memset(pass->buffer + first, (int)worker + 1, end - first);
}

static void read_part(void *context, unsigned worker)
{
    struct pass *pass = context;
    size_t first, end;
    part_of(pass, worker, &first, &end);
    pass->sums[worker].value += units_read(pass->buffer + first, end - first);
}

/* A quarter of what is free is taken at most: the probe must not push anything out. */
static uint64_t choose_window(uint64_t memory, bool *small)
{
    uint64_t wanted = CACHE_FACTOR * machine_cache_bytes();
    if (wanted < buffer_usual)
        wanted = buffer_usual;
    *small = memory > 0 && wanted > memory / 4;
    if (*small)
        wanted = memory / 4 > buffer_least ? memory / 4 : buffer_least;
    return wanted / WINDOWS / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

/* Touches window after window; gives how many there was time for. */
static unsigned fill_windows(struct pass *pass, struct team *team, char *buffer)
{
    double started = clock_seconds();
    unsigned n = 0;
    do {
        pass->buffer = buffer + n * pass->bytes;
        team_run(team, fill_part, pass);
        n++;
    } while (n < WINDOWS && clock_seconds() - started < fill_seconds_max);
    return n;
}

static double best_seconds(struct pass *pass, struct team *team, char *buffer, unsigned n_windows)
{
    double started = clock_seconds(), best = 1e30;
    CHECK(n_windows > 0);
    for (unsigned i = 0; i < READS_MAX && (i < n_windows || clock_seconds() - started < read_seconds_max); i++) {
        pass->buffer = buffer + i % n_windows * pass->bytes;
        double before = clock_seconds();
        team_run(team, read_part, pass);
        double seconds = clock_seconds() - before;
        best = seconds < best ? seconds : best;
    }
    return best;
}

enum status bandwidth_measure(struct bandwidth *out, struct team *team, uint64_t memory_bytes, struct error *err)
{
    *out = (struct bandwidth){0};
    struct arena arena;
    struct pass *pass;
    uint64_t window_bytes = choose_window(memory_bytes, &out->small_buffer);
    TRY(memory_take(&pass, 1, sizeof *pass, "the bandwidth probe", err));
    enum status status = arena_init(&arena, WINDOWS * window_bytes, "the bandwidth probe", err);
    if (status == STATUS_OK) {
        char *buffer = arena_take(&arena, WINDOWS * window_bytes);
        pass->bytes = window_bytes;
        pass->n_threads = team_size(team);
        unsigned n_windows = fill_windows(pass, team, buffer);
        out->gb_s = (double)window_bytes / 1e9 / best_seconds(pass, team, buffer, n_windows);
        out->buffer_bytes = n_windows * window_bytes;
        out->small_buffer = out->small_buffer || n_windows < WINDOWS;
        arena_fini(&arena);
    }
    free(pass);
    return status;
}
