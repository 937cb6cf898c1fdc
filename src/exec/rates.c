#include "exec/rates.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cpu/machine.h"
#include "cpu/tiers.h"
#include "exec/probe.h"

/* The numbers in a file that another version of this one wrote may mean something else. */
enum { RATES_VERSION = 1, RATES_FILE_BYTES_MAX = 4096 };

enum status rates_measure(struct rates *out, struct team *team, unsigned tiers, uint64_t memory_bytes,
                          struct error *err)
{
    *out = (struct rates){.source = RATES_MEASURED};
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        out->gop_s[unit] = probe_unit(team, (enum unit)unit, tiers);
    return bandwidth_measure(&out->read, team, memory_bytes, err);
}

static bool path_of(char out[PATH_BYTES_MAX], const char *folder, unsigned n_threads, unsigned tiers)
{
    char machine[MACHINE_NAME_BYTES], name[MACHINE_NAME_BYTES];
    machine_name(machine);
    file_safe_name(name, sizeof name, machine);
    return snprintf(out, PATH_BYTES_MAX, "%s/rates-%s-%u-threads-%s", folder, name, n_threads, tiers_name(tiers)) <
           PATH_BYTES_MAX;
}

/* What a file must begin with to be believed. */
static int print_head(char *out, size_t size, unsigned n_threads, unsigned tiers)
{
    char name[MACHINE_NAME_BYTES];
    machine_name(name);
    return snprintf(out, size, "day0 rates %d\n%s\n%u threads, %s\n", RATES_VERSION, name, n_threads,
                    tiers_name(tiers));
}

/* A number that can be a rate, or 0 if that is allowed, and the text after it. */
static bool take(const char **at, const char *after, bool zero, double *out)
{
    char *end;
    *out = strtod(*at, &end);
    if (end == *at || strncmp(end, after, strlen(after)) != 0)
        return false;
    *at = end + strlen(after);
    return rates_believable(*out) || (zero && *out == 0);
}

/* "17.25 GB/s over 1073741824 bytes\n", then a line "340.1 f32\n" a unit and "end\n". */
static bool parse(struct rates *out, const char *at)
{
    double bytes;
    char *end;
    if (!take(&at, " GB/s over ", false, &out->read.gb_s))
        return false;
    bytes = strtod(at, &end);
    if (!(bytes >= 1 && bytes < 1e15) || strncmp(end, " bytes\n", 7) != 0)
        return false;
    out->read.buffer_bytes = (uint64_t)bytes;
    at = end + 7;
    for (int unit = 0; unit < UNIT_COUNT; unit++) {
        char after[16];
        snprintf(after, sizeof after, " %s\n", units_name((enum unit)unit));
        if (!take(&at, after, unit != UNIT_F32, &out->gop_s[unit]))
            return false;
    }
    return strcmp(at, "end\n") == 0;
}

bool rates_read(struct rates *out, const char *folder, unsigned n_threads, unsigned tiers)
{
    char path[PATH_BYTES_MAX], head[2 * MACHINE_NAME_BYTES], *text;
    size_t size;
    *out = (struct rates){.source = RATES_KEPT};
    if (!folder || !path_of(path, folder, n_threads, tiers) ||
        file_read(path, RATES_FILE_BYTES_MAX, &text, &size, NULL) != STATUS_OK)
        return false;
    size_t length = (size_t)print_head(head, sizeof head, n_threads, tiers);
    bool good = size > length && memcmp(text, head, length) == 0 && parse(out, text + length);
    free(text);
    return good;
}

bool rates_write(const struct rates *rates, const char *folder, unsigned n_threads, unsigned tiers)
{
    char path[PATH_BYTES_MAX], text[4 * MACHINE_NAME_BYTES];
    if (!folder || rates->read.small_buffer || !path_of(path, folder, n_threads, tiers) ||
        (mkdir(folder, 0777) != 0 && errno != EEXIST))
        return false;
    size_t length = (size_t)print_head(text, sizeof text, n_threads, tiers);
    length += (size_t)snprintf(text + length, sizeof text - length, "%.2f GB/s over %llu bytes\n", rates->read.gb_s,
                               (unsigned long long)rates->read.buffer_bytes);
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%.1f %s\n", rates->gop_s[unit],
                                   units_name((enum unit)unit));
    length += (size_t)snprintf(text + length, sizeof text - length, "end\n");
    return file_write(path, text, length, NULL) == STATUS_OK;
}

bool rates_believable(double value)
{
    return value >= 0.01 && value <= 1e6; /* false for NaN */
}
