#include "lab/cache_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool cache_folder(char out[PATH_BYTES_MAX])
{
    static const char *const places[][2] = {{"DAY0_CACHE", ""}, {"XDG_CACHE_HOME", "/day0"}, {"HOME", "/.cache/day0"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *base = getenv(places[i][0]);
        if (!base || base[0] != '/')
            continue;
        if (snprintf(out, PATH_BYTES_MAX, "%s%s", base, places[i][1]) >= PATH_BYTES_MAX)
            return false;
        /* Each folder on the way; whoever writes there will find out what could not be made. */
        for (char *at = strchr(out + 1, '/'); at; at = strchr(at + 1, '/')) {
            *at = 0;
            (void)mkdir(out, 0777);
            *at = '/';
        }
        (void)mkdir(out, 0777);
        return true;
    }
    return false;
}

const char *cache_folder_path(void)
{
    static char path[PATH_BYTES_MAX];
    return cache_folder(path) ? path : NULL;
}
