#include "lab/progress.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

static const double patience_seconds = 2.0, refresh_seconds = 0.2;
enum { BAR_WIDTH = 30 };

struct progress progress_begin(const char *what, uint64_t total)
{
    double now = clock_seconds();
    return (struct progress){what, total ? total : 1, now, now, false, isatty(STDERR_FILENO) != 0};
}

void progress_set(struct progress *progress, uint64_t done)
{
    double now = clock_seconds(), elapsed = now - progress->started;
    if (!progress->terminal || elapsed < patience_seconds || now - progress->shown < refresh_seconds || done == 0)
        return;
    progress->shown = now;
    progress->visible = true;
    int filled = (int)(BAR_WIDTH * done / progress->total);
    fprintf(stderr, "\r%s [%.*s%*s] %3d%% %.0f/s, %.0f s left ", progress->what, filled,
            "##############################", BAR_WIDTH - filled, "", (int)(100 * done / progress->total),
            (double)done / elapsed, elapsed * (double)(progress->total - done) / (double)done);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->visible)
        fprintf(stderr, "\r%*s\r", 79, "");
}

enum status output_open(FILE **out, char *temporary, const char *path, struct error *err)
{
    struct stat info;
    bool in_place =
        stat(path, &info) == 0 && !S_ISREG(info.st_mode); /* a pipe or a device: not to be replaced by a file */
    temporary[0] = 0;
    if (!in_place && snprintf(temporary, PATH_BYTES_MAX, "%s.tmp-%ld", path, (long)getpid()) >= PATH_BYTES_MAX)
        return error_set(err, STATUS_ARGUMENT, "%.200s...: the path is too long", path);
    *out = fopen(in_place ? path : temporary, "wb");
    if (!*out)
        return error_set(err, STATUS_IO, "%s: cannot create: %s", path, strerror(errno));
    return STATUS_OK;
}

enum status output_close(FILE *out, const char *temporary, const char *path, enum status status, struct error *err)
{
    int failed = fclose(out) != 0 ? errno : 0;
    if (status == STATUS_OK && failed == 0 && temporary[0] && rename(temporary, path) != 0)
        failed = errno;
    if (temporary[0] && (status != STATUS_OK || failed))
        remove(temporary);
    if (status == STATUS_OK && failed)
        return error_set(err, STATUS_IO, "%s: cannot write: %s", path, strerror(failed));
    return status;
}
