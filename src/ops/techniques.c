#include "ops/techniques.h"

#include <string.h>

static const char *const names[TECHNIQUE_COUNT] = {
    [TECHNIQUE_PROJECTIONS] = "projections", [TECHNIQUE_ATTN_RES] = "attn-res", [TECHNIQUE_GROUPING] = "grouping",
    [TECHNIQUE_SHARING] = "sharing",         [TECHNIQUE_SEGMENTS] = "segments",
};

/* The technique whose name is the n characters at `name`; TECHNIQUE_COUNT if there is none. */
static int find(const char *name, size_t n)
{
    int t = 0;
    while (t < TECHNIQUE_COUNT && (strlen(names[t]) != n || strncmp(name, names[t], n) != 0))
        t++;
    return t;
}

enum status techniques_parse(unsigned *set, const char *text, struct error *err)
{
    *set = 0;
    if (!text || !*text)
        return STATUS_OK;
    for (const char *at = text;;) {
        size_t n = strcspn(at, ",+");
        int t = find(at, n);
        if (t == TECHNIQUE_COUNT)
            return error_set(err, STATUS_ARGUMENT,
                             "--without takes projections, attn-res, grouping, sharing and segments, or a list of "
                             "them, not '%s'",
                             text);
        *set |= 1u << t;
        if (at[n] == 0)
            return STATUS_OK;
        at += n + 1;
    }
}
