/* Growing bytes: what the text room writes into. May hold zero bytes; nothing is terminated.
 *
 * Owns     its memory until byte_buffer_fini, which may be called twice and on a zeroed struct; a zeroed
 *          struct is empty.
 * Fails    STATUS_MEMORY; the bytes written before stay. */
#ifndef DAY0_TEXT_BYTE_BUFFER_H
#define DAY0_TEXT_BYTE_BUFFER_H

#include <stddef.h>

#include "base/error.h"

/* Bytes that somebody else owns. */
struct byte_span {
    const char *data;
    size_t bytes;
};

struct byte_buffer {
    char *data;
    size_t bytes;
    size_t capacity;
};

NEEDS_CHECK enum status byte_buffer_append(struct byte_buffer *buffer, const void *data, size_t bytes,
                                           struct error *err);
NEEDS_CHECK enum status byte_buffer_append_text(struct byte_buffer *buffer, const char *text, struct error *err);
void byte_buffer_fini(struct byte_buffer *buffer);

#endif
