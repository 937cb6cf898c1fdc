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
    double rate = (double)done / elapsed;
    fprintf(stderr, "\r%s [%.*s%*s] %3d%% %.0f%s/s, %.0f s left ", progress->what, filled,
            "##############################", BAR_WIDTH - filled, "", (int)(100 * done / progress->total),
            rate < 1e6 ? rate : rate / 1e6, rate < 1e6 ? "" : " M",
            elapsed * (double)(progress->total - done) / (double)done);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->visible)
        fprintf(stderr, "\r%*s\r", 79, "");
}

static int show(void *context, const char *what, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    if (!progress->what || strcmp(progress->what, what) != 0)
        *progress = progress_begin(what, total);
    progress_set(progress, done);
    if (done < total)
        return 0;
    progress_end(progress);
    progress->what = NULL;
    return 0;
}

static void say(void *context, const char *sentence)
{
    struct progress *progress = context;
    progress_end(progress);
    fprintf(stderr, "day0: %s\n", sentence);
}

struct watch progress_watch(void)
{
    static struct progress progress;
    return (struct watch){show, say, &progress};
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
