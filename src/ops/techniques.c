#include "ops/techniques.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const names[TECHNIQUE_COUNT] = {
    [TECHNIQUE_PROJECTIONS] = "projections",
    [TECHNIQUE_ATTN_RES] = "attn-res",
    [TECHNIQUE_GROUPING] = "grouping",
    [TECHNIQUE_SHARING] = "sharing",
    [TECHNIQUE_SEGMENTS] = "segments",
    [TECHNIQUE_EARLY_START] = "early-start",
    [TECHNIQUE_NORMS] = "norms",
    [TECHNIQUE_EPILOGUE] = "epilogue",
    [TECHNIQUE_KDA_REGION] = "kda-region",
    [TECHNIQUE_FLASH_KDA] = "flash-kda",
};

/* The technique whose name is the n characters at `name`; TECHNIQUE_COUNT if there is none. */
static int find(const char *name, size_t n)
{
    int t = 0;
    while (t < TECHNIQUE_COUNT && (strlen(names[t]) != n || strncmp(name, names[t], n) != 0))
        t++;
    return t;
}

static enum status no_such(const char *text, struct error *err)
{
    char list[128];
    int used = 0;
    for (int t = 0; t < TECHNIQUE_COUNT; t++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", t ? ", " : "", names[t]);
    return error_set(err, STATUS_ARGUMENT, "--without takes all, or any of %s, not '%s'", list, text);
}

enum status techniques_parse(unsigned *set, const char *text, struct error *err)
{
    *set = 0;
    if (!text || !*text)
        return STATUS_OK;
    for (const char *at = text;;) {
        size_t n = strcspn(at, ",+");
        int t = find(at, n);
        bool all = n == strlen("all") && strncmp(at, "all", n) == 0;
        if (t == TECHNIQUE_COUNT && !all)
            return no_such(text, err);
        *set |= all ? (1u << TECHNIQUE_COUNT) - 1 : 1u << t;
        if (at[n] == 0)
            return STATUS_OK;
        at += n + 1;
    }
}
