#include "text/chat_segments.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static enum status append(struct chat_segments *segments, struct byte_span text, bool is_control, struct error *err)
{
    if (segments->count == segments->capacity) {
        size_t wanted = segments->capacity ? segments->capacity * 2 : 64;
        struct chat_segments_entry *larger =
            wanted > SIZE_MAX / sizeof *larger ? NULL : realloc(segments->entries, wanted * sizeof *larger);
        if (!larger)
            return error_set(err, STATUS_MEMORY, "cannot allocate room for %zu segments of a prompt", wanted);
        segments->entries = larger;
        segments->capacity = wanted;
    }
    TRY(byte_buffer_append(&segments->text, text.data, text.bytes, err));
    segments->entries[segments->count++] = (struct chat_segments_entry){segments->text.bytes, is_control};
    return STATUS_OK;
}

enum status chat_segments_control(struct chat_segments *segments, const char *name, struct error *err)
{
    return append(segments, (struct byte_span){name, strlen(name)}, true, err);
}

enum status chat_segments_text(struct chat_segments *segments, struct byte_span text, struct error *err)
{
    return text.bytes ? append(segments, text, false, err) : STATUS_OK;
}

enum status chat_segments_words(struct chat_segments *segments, const char *text, struct error *err)
{
    return chat_segments_text(segments, (struct byte_span){text, strlen(text)}, err);
}

enum status chat_segments_buffer(struct chat_segments *segments, struct byte_buffer *text, enum status written,
                                 struct error *err)
{
    if (written == STATUS_OK)
        written = chat_segments_text(segments, (struct byte_span){text->data, text->bytes}, err);
    byte_buffer_fini(text);
    return written;
}

struct chat_segment chat_segments_at(const struct chat_segments *segments, size_t index)
{
    size_t start = index ? segments->entries[index - 1].end : 0;
    const struct chat_segments_entry *entry = &segments->entries[index];
    return (struct chat_segment){segments->text.data + start, entry->end - start, entry->is_control};
}

void chat_segments_fini(struct chat_segments *segments)
{
    byte_buffer_fini(&segments->text);
    free(segments->entries);
    *segments = (struct chat_segments){0};
}
