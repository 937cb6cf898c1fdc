/* Stop strings in a text that comes in parts: finds the first that is whole, and holds back what may become one. */
#ifndef DAY0_ENGINE_STOP_STRINGS_H
#define DAY0_ENGINE_STOP_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "text/byte_buffer.h"

enum { STOP_STRINGS_MAX = 16, STOP_STRING_BYTES_MAX = 1024 };

struct stop_strings {
    char *strings[STOP_STRINGS_MAX];
    size_t bytes[STOP_STRINGS_MAX];
    size_t count;
    struct byte_buffer held; /* text that is not released yet */
};

/* Copies the strings. Fails on too many, empty or over-long ones. Owns its memory until stop_strings_fini. */
NEEDS_CHECK enum status stop_strings_init(struct stop_strings *stops, const char *const *strings, size_t count,
                                          struct error *err);
void stop_strings_fini(struct stop_strings *stops);

/* Takes the next part of the text in `text`, and replaces it by what can be released: all up to a stop string that
 * appeared (*stopped is true then), or all but an end that may be the beginning of one. */
NEEDS_CHECK enum status stop_strings_push(struct stop_strings *stops, struct byte_buffer *text, bool *stopped,
                                          struct error *err);

/* The text is over: what was held back is released into `text`. */
NEEDS_CHECK enum status stop_strings_flush(struct stop_strings *stops, struct byte_buffer *text, struct error *err);

#endif
