#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status grow(char **data, size_t *capacity, size_t bytes_max, const char *path, struct error *err)
{
    size_t wanted = *capacity ? *capacity * 2 : 1 << 16;
    if (wanted > bytes_max + 1)
        wanted = bytes_max + 1;
    char *larger = realloc(*data, wanted + 1);
    if (!larger)
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate %zu bytes to read it", path, wanted);
    *data = larger;
    *capacity = wanted;
    return STATUS_OK;
}

static enum status read_stream(FILE *in, const char *path, size_t bytes_max, char **data, size_t *size,
                               struct error *err)
{
    size_t capacity = 0;
    *size = 0;
    for (;;) {
        if (*size == capacity)
            TRY(grow(data, &capacity, bytes_max, path, err));
        size_t got = fread(*data + *size, 1, capacity - *size, in);
        *size += got;
        if (*size > bytes_max)
            return error_set(err, STATUS_FORMAT, "%s: at most %zu bytes are read here, the file is longer", path,
                             bytes_max);
        if (got == 0)
            break;
    }
    if (ferror(in))
        return error_set(err, STATUS_IO, "%s: cannot read: %s", path, strerror(errno));
    (*data)[*size] = 0;
    return STATUS_OK;
}

enum status file_read(const char *path, size_t bytes_max, char **data_out, size_t *size_out, struct error *err)
{
    bool standard_input = strcmp(path, "-") == 0;
    struct stat info;
    *data_out = NULL;
    *size_out = 0;
    FILE *in = standard_input ? stdin : fopen(path, "rb");
    if (!in)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: cannot open: %s", path,
                         strerror(errno));
    enum status status = STATUS_OK;
    if (!standard_input && fstat(fileno(in), &info) == 0 && S_ISDIR(info.st_mode))
        status = error_set(err, STATUS_IO, "%s: a file was wanted, this is a directory", path);
    if (status == STATUS_OK)
        status = read_stream(in, path, bytes_max, data_out, size_out, err);
    if (!standard_input)
        fclose(in);
    if (status != STATUS_OK) {
        free(*data_out);
        *data_out = NULL;
        *size_out = 0;
    }
    return status;
}

enum status file_write(const char *path, const void *data, size_t size, struct error *err)
{
    char temporary[PATH_BYTES_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid()) >= (int)sizeof temporary)
        return error_set(err, STATUS_ARGUMENT, "%.200s...: the path is too long", path);
    FILE *out = fopen(temporary, "wb");
    if (!out)
        return error_set(err, STATUS_IO, "%s: cannot create: %s", path, strerror(errno));
    bool written = fwrite(data, 1, size, out) == size && fflush(out) == 0 && fsync(fileno(out)) == 0;
    int why = errno;
    written = fclose(out) == 0 && written;
    if (written && rename(temporary, path) == 0)
        return STATUS_OK;
    if (written)
        why = errno;
    remove(temporary);
    return error_set(err, STATUS_IO, "%s: cannot write %zu bytes: %s", path, size, strerror(why));
}

enum status file_join(char *out, const char *directory, const char *name, struct error *err)
{
    if (snprintf(out, PATH_BYTES_MAX, "%s/%s", directory, name) >= PATH_BYTES_MAX)
        return error_set(err, STATUS_ARGUMENT, "%.200s...: the path is too long", directory);
    return STATUS_OK;
}

void file_safe_name(char *out, size_t size, const char *text)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    size_t n = 0;
    for (; text[n] && n + 1 < size; n++)
        out[n] = strchr(safe, text[n]) ? text[n] : '_';
    out[n] = 0;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}
