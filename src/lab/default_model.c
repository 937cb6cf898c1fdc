#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "lab/commands.h"

/* Beside the command, or above it, as in the source tree and where it is installed (bin, share). */
static const char bundled[] = "models/jargon-k31";
static const char *const places[] = {"", "share/day0/"};

const char *lab_default_model(void)
{
    static char path[PATH_BYTES_MAX];
    const char *named = getenv("DAY0_MODEL");
    if (named && *named)
        return named;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    for (char *slash; (slash = strrchr(path, '/')); *slash = 0)
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            size_t room = sizeof path - (size_t)(slash + 1 - path);
            int written = snprintf(slash + 1, room, "%s%s/config.json", places[i], bundled);
            if (written < (int)room && file_exists(path)) {
                *strrchr(path, '/') = 0;
                return path;
            }
        }
    return bundled;
}
