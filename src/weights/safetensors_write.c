#include "weights/safetensors_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "weights/safetensors.h"

enum { DATA_ALIGNMENT = 64, LENGTH_BYTES = 8 };

uint64_t safetensors_spec_bytes(const struct safetensors_spec *spec)
{
    uint64_t bytes = stored_bytes(spec->stored);
    for (uint32_t i = 0; i < spec->rank; i++)
        bytes *= spec->shape[i];
    return bytes;
}

static enum status write_all(struct safetensors_writer *writer, const char *bytes, size_t size, struct error *err)
{
    while (size > 0) {
        ssize_t written = write(writer->descriptor, bytes, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return error_set(err, STATUS_IO, "%s: cannot write: %s", writer->path,
                             strerror(written < 0 ? errno : ENOSPC));
        bytes += written;
        size -= (size_t)written;
    }
    return STATUS_OK;
}

/* Prints the header's JSON; gives the bytes of data it describes. */
static uint64_t print_header(FILE *out, const struct safetensors_spec *specs, size_t count)
{
    uint64_t offset = 0;
    fputc('{', out);
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_spec *spec = &specs[i];
        CHECK(spec->stored != STORED_OTHER && spec->rank <= TENSOR_RANK_MAX && !strpbrk(spec->name, "\"\\"));
        CHECK(offset % stored_bytes(spec->stored) == 0);
        fprintf(out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", spec->name, stored_name(spec->stored));
        for (uint32_t axis = 0; axis < spec->rank; axis++)
            fprintf(out, "%s%llu", axis ? "," : "", (unsigned long long)spec->shape[axis]);
        uint64_t end = offset + safetensors_spec_bytes(spec);
        fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset, (unsigned long long)end);
        offset = end;
    }
    fputc('}', out);
    return offset;
}

static enum status write_header(struct safetensors_writer *writer, const struct safetensors_spec *specs, size_t count,
                                struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate its header", writer->path);
    fwrite("........", 1, LENGTH_BYTES, out);
    writer->bytes_left = print_header(out, specs, count);
    fflush(out);
    for (size_t gap = (DATA_ALIGNMENT - bytes % DATA_ALIGNMENT) % DATA_ALIGNMENT; gap > 0; gap--)
        fputc(' ', out);
    if (fclose(out) != 0) {
        free(text);
        return error_set(err, STATUS_MEMORY, "%s: cannot allocate its header", writer->path);
    }
    for (int i = 0; i < LENGTH_BYTES; i++)
        text[i] = (char)((uint64_t)(bytes - LENGTH_BYTES) >> 8 * i);
    enum status status = write_all(writer, text, bytes, err);
    free(text);
    return status;
}

enum status safetensors_write_begin(struct safetensors_writer *writer, const char *path,
                                    const struct safetensors_spec *specs, size_t count, struct error *err)
{
    *writer = (struct safetensors_writer){.path = path};
    writer->descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->descriptor < 0)
        return error_set(err, STATUS_IO, "%s: cannot create: %s", path, strerror(errno));
    return write_header(writer, specs, count, err);
}

enum status safetensors_write_data(struct safetensors_writer *writer, const void *bytes, size_t size, struct error *err)
{
    CHECK(size <= writer->bytes_left);
    writer->bytes_left -= size;
    return write_all(writer, bytes, size, err);
}

enum status safetensors_write_end(struct safetensors_writer *writer, enum status status, struct error *err)
{
    if (writer->descriptor >= 0 && close(writer->descriptor) != 0 && status == STATUS_OK)
        status = error_set(err, STATUS_IO, "%s: cannot write: %s", writer->path, strerror(errno));
    CHECK(status != STATUS_OK || writer->bytes_left == 0);
    writer->descriptor = -1;
    return status;
}
