#include "exec/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cpu/machine.h"
#include "exec/rates.h"

/* The number in a cache file that another version of this file wrote may mean something else. */
enum { PROBE_VERSION = 1, CACHE_FILE_BYTES_MAX = 4096 };

static const uint64_t buffer_usual = 1ull << 30, buffer_least = 64ull << 20;
enum { CACHE_FACTOR = 4 };

/* ---- measuring ---- */

/* A quarter of what is free is taken at most: the probe must not push anything out. */
static uint64_t choose_size(bool *small)
{
    uint64_t wanted = CACHE_FACTOR * machine_cache_bytes(), memory = machine_memory_bytes(NULL);
    if (wanted < buffer_usual)
        wanted = buffer_usual;
    *small = wanted > memory / 4;
    if (*small)
        wanted = memory / 4 > buffer_least ? memory / 4 : buffer_least;
    return wanted;
}

static enum status measure(struct probe *probe, struct team *team, struct error *err)
{
    probe->buffer_bytes = choose_size(&probe->small_buffer);
    probe->bandwidth_gb_s = rates_read_gb_s(team, probe->buffer_bytes);
    if (probe->bandwidth_gb_s == 0)
        return error_set(err, STATUS_MEMORY, "cannot reserve %.0f MB to measure the bandwidth; free memory",
                         (double)probe->buffer_bytes / 1e6);
    return STATUS_OK;
}

/* ---- the cache ---- */

static bool cache_path(char out[PATH_BYTES_MAX], unsigned n_threads, bool make)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[PATH_BYTES_MAX], name[MACHINE_NAME_BYTES];
    int length;
    if (base && base[0] == '/')
        length = snprintf(folder, sizeof folder, "%s", base);
    else if (home && home[0] == '/')
        length = snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return false;
    if (length >= (int)sizeof folder - 8)
        return false;
    if (make)
        mkdir(folder, 0777);
    memcpy(folder + length, "/day0", 6);
    if (make && mkdir(folder, 0777) != 0 && errno != EEXIST)
        return false;
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
    return snprintf(out, size, "day0 bandwidth %d\n%s\n%u threads\n", PROBE_VERSION, name, n_threads);
}

static bool is_believable(double gb_s)
{
    return gb_s >= 0.01 && gb_s <= 1e5; /* false for NaN */
}

/* "17.25 GB/s over 1073741824 bytes\nend\n" after the head; anything else is as good as no file. */
static bool read_cache(struct probe *probe, unsigned n_threads)
{
    char path[PATH_BYTES_MAX], head[2 * MACHINE_NAME_BYTES], *text;
    size_t size;
    unsigned long long bytes;
    int used = 0;
    if (!cache_path(path, n_threads, false) || file_read(path, CACHE_FILE_BYTES_MAX, &text, &size, NULL) != STATUS_OK)
        return false;
    int length = print_head(head, sizeof head, n_threads);
    bool good = size > (size_t)length && memcmp(text, head, (size_t)length) == 0 &&
                sscanf(text + length, "%lf GB/s over %llu bytes\nend%n", &probe->bandwidth_gb_s, &bytes, &used) == 2 &&
                used > 0 && is_believable(probe->bandwidth_gb_s);
    free(text);
    probe->buffer_bytes = good ? bytes : 0;
    return good;
}

static void write_cache(const struct probe *probe, unsigned n_threads)
{
    char path[PATH_BYTES_MAX], text[3 * MACHINE_NAME_BYTES];
    if (!cache_path(path, n_threads, true))
        return;
    int length = print_head(text, sizeof text, n_threads);
    length += snprintf(text + length, sizeof text - (size_t)length, "%.2f GB/s over %llu bytes\nend\n",
                       probe->bandwidth_gb_s, (unsigned long long)probe->buffer_bytes);
    if (file_write(path, text, (size_t)length, NULL) != STATUS_OK)
        return; /* the next run measures again */
}

enum status probe_bandwidth(struct probe *probe, struct team *team, struct error *err)
{
    const char *given = getenv("DAY0_BANDWIDTH_GB_S");
    *probe = (struct probe){0};
    if (given && *given) {
        char *end;
        probe->bandwidth_gb_s = strtod(given, &end);
        if (*end != 0 || !is_believable(probe->bandwidth_gb_s))
            return error_set(err, STATUS_ARGUMENT, "DAY0_BANDWIDTH_GB_S: expected a number of GB/s, found '%.40s'", given);
        return STATUS_OK;
    }
    probe->cached = read_cache(probe, team_size(team));
    if (probe->cached)
        return STATUS_OK;
    TRY(measure(probe, team, err));
    if (!probe->small_buffer)
        write_cache(probe, team_size(team));
    return STATUS_OK;
}
