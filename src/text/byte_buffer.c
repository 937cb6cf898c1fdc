#include "text/byte_buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static enum status grow(struct byte_buffer *buffer, size_t more, struct error *err)
{
    size_t wanted = buffer->capacity ? buffer->capacity : 256;
    while (wanted - buffer->bytes < more && wanted <= SIZE_MAX / 2)
        wanted *= 2;
    char *larger = wanted - buffer->bytes < more ? NULL : realloc(buffer->data, wanted);
    if (!larger)
        return error_set(err, STATUS_MEMORY, "cannot allocate %.1f MB for text; free memory and try again",
                         (double)wanted / 1e6);
    buffer->data = larger;
    buffer->capacity = wanted;
    return STATUS_OK;
}

enum status byte_buffer_append(struct byte_buffer *buffer, const void *data, size_t bytes, struct error *err)
{
    if (bytes == 0)
        return STATUS_OK;
    if (buffer->capacity - buffer->bytes < bytes)
        TRY(grow(buffer, bytes, err));
    memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return STATUS_OK;
}

enum status byte_buffer_append_text(struct byte_buffer *buffer, const char *text, struct error *err)
{
    return byte_buffer_append(buffer, text, strlen(text), err);
}

void byte_buffer_fini(struct byte_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct byte_buffer){0};
}
