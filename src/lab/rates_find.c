#include "lab/rates_find.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cpu/machine.h"
#include "cpu/tiers.h"
#include "exec/probe.h"
#include "lab/cache_folder.h"

/* *out is left alone if the variable is not set. */
static enum status from_environment(const char *name, double *out, bool *given, struct error *err)
{
    const char *text = getenv(name);
    char *end;
    *given = text && *text;
    if (!*given)
        return STATUS_OK;
    double value = strtod(text, &end);
    if (*end != 0 || !rates_believable(value))
        return error_set(err, STATUS_ARGUMENT, "%s: expected a number of 1e9 a second, found '%.40s'", name, text);
    *out = value;
    return STATUS_OK;
}

void rates_print(FILE *out, const struct rates *rates)
{
    static const char *const what[UNIT_COUNT] = {"GFLOP/s in float32", "GOP/s in INT16", "GOP/s in INT8",
                                                 "GFLOP/s in FP16"};
    fprintf(out, "reads %.1f GB/s, computes ", rates->read.gb_s);
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        if (rates->gop_s[unit] > 0)
            fprintf(out, "%s%.0f %s", unit ? ", " : "", rates->gop_s[unit], what[unit]);
}

static enum status measure_and_keep(struct rates *out, struct team *team, unsigned tiers, struct error *err)
{
    char folder[PATH_BYTES_MAX];
    bool has_folder = cache_folder(folder);
    TRY(rates_measure(out, team, tiers, machine_memory_bytes(NULL), err));
    bool kept = has_folder && rates_write(out, folder, team_size(team), tiers);
    fprintf(stderr, "day0: with %u threads and %s this machine ", team_size(team), tiers_name(tiers));
    rates_print(stderr, out);
    fprintf(stderr, "; measured over %.2f GB%s%s\n", (double)out->read.buffer_bytes / 1e9,
            kept ? ", kept in " : ", not kept", kept ? folder : "");
    return STATUS_OK;
}

enum status rates_find(struct rates *out, struct team *team, unsigned tiers, enum rates_from from, struct error *err)
{
    static const char *const names[UNIT_COUNT] = {"DAY0_F32_GFLOP_S", "DAY0_INT16_GOP_S", "DAY0_INT8_GOP_S",
                                                  "DAY0_F16_GFLOP_S"};
    char folder[PATH_BYTES_MAX];
    double read = 0;
    bool reads_given, given;
    TRY(from_environment("DAY0_BANDWIDTH_GB_S", &read, &reads_given, err));
    if (reads_given) { /* the rest is measured in a moment */
        *out = (struct rates){.read.gb_s = read, .source = RATES_GIVEN};
        for (int unit = 0; unit < UNIT_COUNT; unit++)
            out->gop_s[unit] = probe_unit(team, (enum unit)unit, tiers);
    } else if (from == RATES_FROM_RUN) {
        TRY(rates_measure(out, team, tiers, machine_memory_bytes(NULL), err));
    } else if (from == RATES_FROM_PROBE || !cache_folder(folder) || !rates_read(out, folder, team_size(team), tiers)) {
        TRY(measure_and_keep(out, team, tiers, err));
    }
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        if (out->gop_s[unit] > 0)
            TRY(from_environment(names[unit], &out->gop_s[unit], &given, err));
    return STATUS_OK;
}
