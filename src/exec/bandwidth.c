#include "exec/bandwidth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "cpu/machine.h"

/* The number in a cache file that another version of this file wrote may mean something else. */
enum { BANDWIDTH_VERSION = 1, CACHE_FILE_BYTES_MAX = 4096 };

static const uint64_t buffer_usual = 1ull << 30, buffer_least = 64ull << 20;
static const double fill_seconds_max = 1.2, read_seconds_max = 0.6;
/* The buffer is streamed in windows, again and again, and the fastest one counts: on a machine with other
 * work short windows are more often left alone, and between two readings of one window lies the whole buffer.
 */
enum { STREAMS = 8, CACHE_FACTOR = 4, WINDOWS = 16, READS_MAX = 20 * WINDOWS };

/* ---- measuring ---- */

typedef uint64_t vector __attribute__((vector_size(32)));

struct pass {
    const vector *buffer; /* of this window */
    size_t n_vectors;     /* of a window */
    unsigned n_threads;
    struct sum {
        uint64_t value;
        char padding[56];
    } sums[TEAM_THREADS_MAX]; /* so that the reads are not optimized away */
};

static void part_of(const struct pass *pass, unsigned worker, size_t *first, size_t *end)
{
    *first = pass->n_vectors / pass->n_threads * worker;
    *end = worker + 1 == pass->n_threads ? pass->n_vectors : *first + pass->n_vectors / pass->n_threads;
}

/* First touch by the worker that will read it; not zero, as the system may map all zero pages to one. */
static void fill_part(void *context, unsigned worker)
{
    const struct pass *pass = context;
    size_t first, end;
    part_of(pass, worker, &first, &end);
    memset((void *)(pass->buffer + first), (int)worker + 1, (end - first) * sizeof(vector));
}

static void read_part(void *context, unsigned worker)
{
    struct pass *pass = context;
    size_t first, end;
    part_of(pass, worker, &first, &end);
    /* Several places in turn, as the kernels read several rows: one stream alone is slower. */
    vector sums[STREAMS] = {{0}}, sum = {0};
    size_t n = (end - first) / STREAMS;
    for (size_t i = first; i < first + n; i++)
        for (size_t k = 0; k < STREAMS; k++)
            sums[k] += pass->buffer[i + k * n];
    for (size_t i = first + n * STREAMS; i < end; i++)
        sum += pass->buffer[i];
    for (size_t k = 0; k < STREAMS; k++)
        sum += sums[k];
    pass->sums[worker].value += sum[0] + sum[1] + sum[2] + sum[3];
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
    return wanted / WINDOWS / sizeof(vector) * sizeof(vector);
}

/* Touches window after window; gives how many there was time for. */
static unsigned fill_windows(struct pass *pass, struct team *team, const vector *buffer)
{
    double started = clock_seconds();
    unsigned n = 0;
    do {
        pass->buffer = buffer + n * pass->n_vectors;
        team_run(team, fill_part, pass);
        n++;
    } while (n < WINDOWS && clock_seconds() - started < fill_seconds_max);
    return n;
}

static double best_seconds(struct pass *pass, struct team *team, const vector *buffer, unsigned n_windows)
{
    double started = clock_seconds(), best = 1e30;
    CHECK(n_windows > 0);
    for (unsigned i = 0; i < READS_MAX && (i < n_windows || clock_seconds() - started < read_seconds_max); i++) {
        pass->buffer = buffer + i % n_windows * pass->n_vectors;
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
        const vector *buffer = arena_take(&arena, WINDOWS * window_bytes);
        pass->n_vectors = window_bytes / sizeof(vector);
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

/* ---- the cache ---- */

static bool cache_path(char out[PATH_BYTES_MAX], const char *folder, unsigned n_threads)
{
    char name[MACHINE_NAME_BYTES];
    machine_name(name);
    for (char *at = name; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *at))
            *at = '_';
    return snprintf(out, PATH_BYTES_MAX, "%s/bandwidth-%s-%u-threads", folder, name, n_threads) < PATH_BYTES_MAX;
}

/* "day0 bandwidth 1\nPROCESSOR\nTHREADS threads\n": what a file must begin with to be believed. */
static int print_head(char *out, size_t size, unsigned n_threads)
{
    char name[MACHINE_NAME_BYTES];
    machine_name(name);
    return snprintf(out, size, "day0 bandwidth %d\n%s\n%u threads\n", BANDWIDTH_VERSION, name, n_threads);
}

/* "17.25 GB/s over 1073741824 bytes\nend\n" after the head; anything else is as good as no file. */
static bool read_cache(struct bandwidth *out, const char *folder, unsigned n_threads)
{
    static const char between[] = " GB/s over ", after[] = " bytes\nend\n";
    char path[PATH_BYTES_MAX], head[2 * MACHINE_NAME_BYTES], *text, *at;
    size_t size;
    if (!cache_path(path, folder, n_threads) || file_read(path, CACHE_FILE_BYTES_MAX, &text, &size, NULL) != STATUS_OK)
        return false;
    size_t length = (size_t)print_head(head, sizeof head, n_threads);
    bool good = size > length && memcmp(text, head, length) == 0;
    double gb_s = good ? strtod(text + length, &at) : 0;
    good = good && bandwidth_believable(gb_s) && strncmp(at, between, sizeof between - 1) == 0;
    uint64_t bytes = good ? strtoull(at + sizeof between - 1, &at, 10) : 0;
    good = good && bytes > 0 && strcmp(at, after) == 0;
    free(text);
    if (good)
        *out = (struct bandwidth){.gb_s = gb_s, .buffer_bytes = bytes};
    return good;
}

static void write_cache(const struct bandwidth *out, const char *folder, unsigned n_threads)
{
    char path[PATH_BYTES_MAX], text[3 * MACHINE_NAME_BYTES];
    if (!cache_path(path, folder, n_threads) || (mkdir(folder, 0777) != 0 && errno != EEXIST))
        return;
    int length = print_head(text, sizeof text, n_threads);
    length += snprintf(text + length, sizeof text - (size_t)length, "%.2f GB/s over %llu bytes\nend\n", out->gb_s,
                       (unsigned long long)out->buffer_bytes);
    if (file_write(path, text, (size_t)length, NULL) != STATUS_OK)
        return; /* the next run measures again */
}

bool bandwidth_believable(double gb_s)
{
    return gb_s >= 0.01 && gb_s <= 1e5; /* false for NaN */
}

enum status bandwidth_get(struct bandwidth *out, struct team *team, const char *folder, uint64_t memory_bytes,
                          struct error *err)
{
    *out = (struct bandwidth){0};
    out->cached = folder && read_cache(out, folder, team_size(team));
    if (out->cached)
        return STATUS_OK;
    TRY(bandwidth_measure(out, team, memory_bytes, err));
    if (folder && !out->small_buffer)
        write_cache(out, folder, team_size(team));
    return STATUS_OK;
}
