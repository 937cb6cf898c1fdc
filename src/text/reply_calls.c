/* The calls of a reply: arguments become the JSON text of an object while they arrive. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/json_text.h"
#include "text/reply_parts.h"

enum { CALLS_FIRST = 4, CLOSER_BYTES = 4 };

static struct reply_call *open_call(struct reply *reply)
{
    CHECK(reply_is_in_call(reply));
    return &reply->calls[reply->call_count - 1];
}

static struct byte_span span_of(const struct byte_buffer *buffer)
{
    return (struct byte_span){buffer->data, buffer->bytes};
}

/* ---- the text of the arguments ---- */

static enum status write_arguments(struct reply *reply, struct byte_span text, struct error *err)
{
    if (text.bytes == 0)
        return STATUS_OK;
    TRY(byte_buffer_append(&open_call(reply)->arguments, text.data, text.bytes, err));
    return reply_emit(
        reply,
        (struct reply_event){.kind = REPLY_EVENT_CALL_ARGUMENTS, .text = text, .call_index = reply->call_count - 1},
        err);
}

/* The same up to the limit, where the call ends. */
static enum status add_arguments(struct reply *reply, struct byte_span text, struct error *err)
{
    if (open_call(reply)->arguments.bytes + text.bytes > REPLY_CALL_BYTES_MAX - CLOSER_BYTES)
        return reply_end_call(reply, REPLY_FLAW_LARGE, err);
    return write_arguments(reply, text, err);
}

static enum status add_literal(struct reply *reply, const char *text, struct error *err)
{
    return write_arguments(reply, (struct byte_span){text, strlen(text)}, err);
}

/* Puts what stands before a value into the scratch. */
static enum status write_key(struct reply *reply, struct error *err)
{
    reply->scratch.bytes = 0;
    TRY(byte_buffer_append_text(&reply->scratch, reply->argument_count ? ", " : "{", err));
    TRY(json_text_write_string(&reply->scratch, span_of(&reply->key), err));
    return byte_buffer_append_text(&reply->scratch, ": ", err);
}

/* ---- values ---- */

/* Python's json module reads NaN and Infinity; JSON has neither, and no N or I outside of its strings. */
static bool has_foreign_words(struct byte_span json)
{
    bool in_string = false;
    for (size_t i = 0; i < json.bytes; i++) {
        if (json.data[i] == '"')
            in_string = !in_string;
        else if (in_string && json.data[i] == '\\')
            i++;
        else if (!in_string && (json.data[i] == 'N' || json.data[i] == 'I'))
            return true;
    }
    return false;
}

/* Appends the value that is whole now to the scratch, as JSON. */
static enum status write_value(struct reply *reply, struct error *err)
{
    struct byte_span text = span_of(&reply->value), type = span_of(&reply->type);
    json_t *json = NULL;
    enum status status = json_text_parse(text.data ? text.data : "", text.bytes, &json, err);
    if (status != STATUS_OK && status != STATUS_FORMAT)
        return status;
    bool is_json = status == STATUS_OK && text.data && !has_foreign_words(text);
    const char *found = is_json ? json_text_type(json) : "";
    if (strlen(found) != type.bytes || memcmp(found, type.data, type.bytes) != 0)
        reply_mark(reply, REPLY_FLAW_VALUE);
    json_decref(json);
    return is_json ? byte_buffer_append(&reply->scratch, text.data, text.bytes, err)
                   : json_text_write_string(&reply->scratch, text, err);
}

enum status reply_begin_argument(struct reply *reply, struct error *err)
{
    static const char string[] = "string";
    CHECK(reply->place == REPLY_IN_CALL);
    struct byte_span type = span_of(&reply->type);
    reply->value.bytes = 0;
    reply->place = REPLY_IN_VALUE;
    if (type.bytes == 0)
        reply_mark(reply, REPLY_FLAW_FORM);
    if (type.bytes != 0 && (type.bytes != strlen(string) || memcmp(type.data, string, type.bytes) != 0))
        return STATUS_OK;
    TRY(write_key(reply, err));
    reply->value_start = open_call(reply)->arguments.bytes + reply->scratch.bytes;
    TRY(byte_buffer_append_text(&reply->scratch, "\"", err));
    reply->place = REPLY_IN_STRING;
    return add_arguments(reply, span_of(&reply->scratch), err);
}

enum status reply_end_argument(struct reply *reply, struct error *err)
{
    if (reply->place == REPLY_IN_STRING) {
        TRY(add_literal(reply, "\"", err));
    } else {
        TRY(write_key(reply, err));
        reply->value_start = open_call(reply)->arguments.bytes + reply->scratch.bytes;
        TRY(write_value(reply, err));
        TRY(add_arguments(reply, span_of(&reply->scratch), err));
        if (!reply_is_in_call(reply))
            return STATUS_OK;
    }
    reply->argument_count++;
    reply->place = REPLY_IN_CALL;
    struct byte_span all = span_of(&open_call(reply)->arguments);
    struct byte_span value = {all.data + reply->value_start, all.bytes - reply->value_start};
    return reply_emit(reply,
                      (struct reply_event){.kind = REPLY_EVENT_ARGUMENT,
                                           .text = value,
                                           .key = span_of(&reply->key),
                                           .type = span_of(&reply->type),
                                           .call_index = reply->call_count - 1},
                      err);
}

enum status reply_call_text(struct reply *reply, struct byte_span text, struct error *err)
{
    if (reply->place == REPLY_IN_RAW)
        return add_arguments(reply, text, err);
    if (reply->place == REPLY_IN_VALUE) {
        if (reply->value.bytes + text.bytes > REPLY_CALL_BYTES_MAX)
            return reply_end_call(reply, REPLY_FLAW_LARGE, err);
        return byte_buffer_append(&reply->value, text.data, text.bytes, err);
    }
    reply->scratch.bytes = 0;
    TRY(json_text_write_string(&reply->scratch, text, err));
    struct byte_span quoted = span_of(&reply->scratch);
    return add_arguments(reply, (struct byte_span){quoted.data + 1, quoted.bytes - 2}, err);
}

/* ---- calls ---- */

enum status reply_begin_call(struct reply *reply, struct byte_span name, struct error *err)
{
    CHECK(!reply_is_in_call(reply));
    if (reply->call_count == REPLY_CALLS_MAX)
        return reply_cut(reply, err);
    if (reply->call_count == reply->call_capacity) {
        size_t capacity = reply->call_capacity ? 2 * reply->call_capacity : CALLS_FIRST;
        struct reply_call *larger = realloc(reply->calls, capacity * sizeof *larger);
        if (!larger)
            return error_set(err, STATUS_MEMORY, "cannot allocate memory for %zu tool calls", capacity);
        reply->calls = larger;
        reply->call_capacity = capacity;
    }
    struct reply_call *call = &reply->calls[reply->call_count++];
    *call = (struct reply_call){0};
    reply->place = REPLY_IN_CALL;
    reply->argument_count = 0;
    TRY(byte_buffer_append(&call->name, name.data, name.bytes, err));
    if (name.bytes == 0)
        reply_mark(reply, REPLY_FLAW_FORM);
    return reply_emit(reply,
                      (struct reply_event){.kind = REPLY_EVENT_CALL_BEGIN,
                                           .text = span_of(&call->name),
                                           .call_index = reply->call_count - 1},
                      err);
}

/* Closes the object, and looks whether it is one. */
static enum status close_arguments(struct reply *reply, struct error *err)
{
    struct reply_call *call = open_call(reply);
    bool is_raw = reply->place != REPLY_IN_CALL;
    if (call->arguments.bytes == 0) {
        if (is_raw)
            reply_mark(reply, REPLY_FLAW_ARGUMENTS);
        return add_literal(reply, "{}", err);
    }
    if (!is_raw)
        TRY(add_literal(reply, "}", err));
    json_t *json = NULL;
    enum status status = json_text_parse(call->arguments.data, call->arguments.bytes, &json, err);
    if (status != STATUS_OK && status != STATUS_FORMAT)
        return status;
    if (!json_is_object(json) || has_foreign_words(span_of(&call->arguments)) ||
        (!is_raw && json_object_size(json) != reply->argument_count))
        reply_mark(reply, REPLY_FLAW_ARGUMENTS);
    json_decref(json);
    return STATUS_OK;
}

enum status reply_end_call(struct reply *reply, unsigned flaws, struct error *err)
{
    if (!reply_is_in_call(reply))
        return STATUS_OK;
    reply_mark(reply, flaws);
    bool is_broken = (open_call(reply)->flaws & REPLY_FLAWS_BROKEN) != 0;
    if (!is_broken && reply_is_in_argument(reply)) {
        reply_mark(reply, REPLY_FLAW_FORM);
        TRY(reply_end_argument(reply, err));
        if (!reply_is_in_call(reply)) /* it was too large, and ended the call */
            return STATUS_OK;
    }
    if (!is_broken)
        TRY(close_arguments(reply, err));
    struct reply_call *call = open_call(reply);
    reply->place = REPLY_IN_TOOLS;
    return reply_emit(reply,
                      (struct reply_event){.kind = REPLY_EVENT_CALL_END,
                                           .text = span_of(&call->arguments),
                                           .call_index = reply->call_count - 1,
                                           .flaws = call->flaws},
                      err);
}
