/* A rendered prompt: segments of text, each a control token by name or plain text, to be encoded one by one.
 *
 * Owns     copies of all texts until chat_segments_fini, which may be called twice and on a zeroed struct; a
 *          zeroed struct is empty. */
#ifndef DAY0_TEXT_CHAT_SEGMENTS_H
#define DAY0_TEXT_CHAT_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "text/byte_buffer.h"

struct chat_segment {
    const char *text; /* not terminated */
    size_t bytes;
    bool is_control;
};

struct chat_segments_entry {
    size_t end; /* in the list's text; the segment starts where the one before ends */
    bool is_control;
};

struct chat_segments {
    struct byte_buffer text; /* of all segments */
    struct chat_segments_entry *entries;
    size_t count;
    size_t capacity;
};

/* Appends a control token by its name. */
NEEDS_CHECK enum status chat_segments_control(struct chat_segments *segments, const char *name, struct error *err);

/* Appends a segment of plain text; an empty one is left out. */
NEEDS_CHECK enum status chat_segments_text(struct chat_segments *segments, struct byte_span text, struct error *err);
NEEDS_CHECK enum status chat_segments_words(struct chat_segments *segments, const char *text, struct error *err);

/* Ends the writing of a text: appends it if `written` is STATUS_OK, and releases the buffer in any case.
 * Fails    with `written` if that is a failure, else as above. */
NEEDS_CHECK enum status chat_segments_buffer(struct chat_segments *segments, struct byte_buffer *text,
                                             enum status written, struct error *err);

/* Segment `index` < count; borrowed until the list changes. */
struct chat_segment chat_segments_at(const struct chat_segments *segments, size_t index);

void chat_segments_fini(struct chat_segments *segments);

#endif
