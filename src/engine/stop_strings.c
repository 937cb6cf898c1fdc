#include "engine/stop_strings.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum status stop_strings_init(struct stop_strings *stops, const char *const *strings, size_t count, struct error *err)
{
    *stops = (struct stop_strings){0};
    if (count > STOP_STRINGS_MAX)
        return error_set(err, STATUS_ARGUMENT, "at most %d stop strings, %zu were given", STOP_STRINGS_MAX, count);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(strings[i]);
        if (bytes == 0 || bytes > STOP_STRING_BYTES_MAX) {
            stop_strings_fini(stops);
            return error_set(err, STATUS_ARGUMENT, "a stop string has 1 to %d bytes, number %zu has %zu",
                             STOP_STRING_BYTES_MAX, i + 1, bytes);
        }
        enum status status = memory_take(&stops->strings[i], bytes, 1, "a stop string", err);
        if (status != STATUS_OK) {
            stop_strings_fini(stops);
            return status;
        }
        memcpy(stops->strings[i], strings[i], bytes);
        stops->bytes[i] = bytes;
        stops->count++;
    }
    return STATUS_OK;
}

void stop_strings_fini(struct stop_strings *stops)
{
    for (size_t i = 0; i < stops->count; i++)
        free(stops->strings[i]);
    byte_buffer_fini(&stops->held);
    *stops = (struct stop_strings){0};
}

/* Where the stop string begins that is whole first (of those, the longest), or the text's end if none appears. So the
 * place does not depend on the parts that the text comes in. */
static size_t find_stop(const struct stop_strings *stops)
{
    size_t begin = stops->held.bytes, end = SIZE_MAX;
    for (size_t i = 0; i < stops->count && stops->held.bytes > 0; i++) {
        const char *found = memmem(stops->held.data, stops->held.bytes, stops->strings[i], stops->bytes[i]);
        if (!found)
            continue;
        size_t at = (size_t)(found - stops->held.data), its_end = at + stops->bytes[i];
        if (its_end < end || (its_end == end && at < begin)) {
            begin = at;
            end = its_end;
        }
    }
    return begin;
}

/* Bytes at the end of the held text that may be the beginning of a stop string: the longest such end. */
static size_t undecided(const struct stop_strings *stops)
{
    size_t longest = 0;
    for (size_t i = 0; i < stops->count; i++)
        for (size_t n = stops->bytes[i] - 1; n > longest; n--)
            if (n <= stops->held.bytes && memcmp(stops->held.data + stops->held.bytes - n, stops->strings[i], n) == 0)
                longest = n;
    return longest;
}

enum status stop_strings_push(struct stop_strings *stops, struct byte_buffer *text, bool *stopped, struct error *err)
{
    *stopped = false;
    if (stops->count == 0)
        return STATUS_OK;
    TRY(byte_buffer_append(&stops->held, text->data, text->bytes, err));
    text->bytes = 0;
    size_t released = find_stop(stops);
    *stopped = released < stops->held.bytes;
    if (!*stopped)
        released -= undecided(stops);
    TRY(byte_buffer_append(text, stops->held.data, released, err));
    stops->held.bytes = *stopped ? 0 : stops->held.bytes - released;
    if (stops->held.bytes > 0)
        memmove(stops->held.data, stops->held.data + released, stops->held.bytes);
    return STATUS_OK;
}

enum status stop_strings_flush(struct stop_strings *stops, struct byte_buffer *text, struct error *err)
{
    TRY(byte_buffer_append(text, stops->held.data, stops->held.bytes, err));
    stops->held.bytes = 0;
    return STATUS_OK;
}
