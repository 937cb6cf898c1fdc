#include <stdio.h>

#include "text/json_text.h"
#include "text/reply.h"

static enum status write_member(struct byte_buffer *out, const char *before, struct byte_span text, struct error *err)
{
    TRY(byte_buffer_append_text(out, before, err));
    return json_text_write_string(out, text, err);
}

static struct byte_span span_of(const struct byte_buffer *buffer)
{
    return (struct byte_span){buffer->data, buffer->bytes};
}

/* The arguments as a JSON string, wrapped if a request could not say them. */
static enum status write_arguments(struct byte_buffer *out, const struct byte_buffer *arguments, struct error *err)
{
    static const char before[] = ", \"arguments\": ";
    json_t *json = NULL;
    enum status status = json_text_parse(arguments->data, arguments->bytes, &json, err);
    bool wrapped = json && !json_is_object(json);
    json_decref(json);
    if (status != STATUS_OK && status != STATUS_FORMAT)
        return status;
    if (!wrapped)
        return write_member(out, before, span_of(arguments), err);
    struct byte_buffer object = {0};
    status = byte_buffer_append_text(&object, "{\"json\": ", err);
    if (status == STATUS_OK)
        status = byte_buffer_append(&object, arguments->data, arguments->bytes, err);
    if (status == STATUS_OK)
        status = byte_buffer_append_text(&object, "}", err);
    if (status == STATUS_OK)
        status = write_member(out, before, span_of(&object), err);
    byte_buffer_fini(&object);
    return status;
}

static enum status write_call(struct byte_buffer *out, const struct reply *reply, size_t index, const char *id_prefix,
                              struct error *err)
{
    const struct reply_call *call = &reply->calls[index];
    char number[24];
    struct byte_buffer id = {0};
    snprintf(number, sizeof number, "%zu", index);
    enum status status = byte_buffer_append_text(&id, id_prefix, err);
    if (status == STATUS_OK)
        status = byte_buffer_append_text(&id, number, err);
    if (status == STATUS_OK)
        status = write_member(out, "{\"id\": ", span_of(&id), err);
    byte_buffer_fini(&id);
    TRY(status);
    TRY(write_member(out, ", \"type\": \"function\", \"function\": {\"name\": ", span_of(&call->name), err));
    TRY(write_arguments(out, &call->arguments, err));
    return byte_buffer_append_text(out, "}}", err);
}

enum status chat_reply_message(const struct reply *reply, const char *id_prefix, struct byte_buffer *out,
                               struct error *err)
{
    size_t written = 0, whole = 0;
    for (size_t i = 0; i < reply->call_count; i++)
        whole += !(reply->calls[i].flaws & REPLY_FLAWS_BROKEN);
    TRY(byte_buffer_append_text(out, "{\"role\": \"assistant\", \"content\": ", err));
    if (reply->content.bytes == 0 && whole > 0)
        TRY(byte_buffer_append_text(out, "null", err));
    else
        TRY(json_text_write_string(out, span_of(&reply->content), err));
    if (reply->reasoning.bytes)
        TRY(write_member(out, ", \"reasoning_content\": ", span_of(&reply->reasoning), err));
    for (size_t i = 0; i < reply->call_count; i++) {
        if (reply->calls[i].flaws & REPLY_FLAWS_BROKEN)
            continue;
        TRY(byte_buffer_append_text(out, written++ ? ", " : ", \"tool_calls\": [", err));
        TRY(write_call(out, reply, i, id_prefix, err));
    }
    return byte_buffer_append_text(out, written ? "]}" : "}", err);
}
