#include "text/chat_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "text/json_text.h"
#include "text/utf8.h"

/* ---- single fields ---- */

/* A member that is there and not null, or NULL. */
static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bool equals(struct byte_span span, const char *text)
{
    return span.bytes == strlen(text) && memcmp(span.data, text, span.bytes) == 0;
}

/* An optional string; data is NULL if absent. */
static enum status read_string(const json_t *object, const char *key, struct byte_span *out, struct error *err)
{
    const json_t *value = member(object, key);
    *out = (struct byte_span){0};
    if (!value)
        return STATUS_OK;
    if (!json_text_is_string(value))
        return error_set(err, STATUS_FORMAT, "`%s` must be a string, found %s", key, json_text_type(value));
    *out = json_text_string(value);
    return STATUS_OK;
}

/* An optional string out of a list; gives its index, 0 if absent. */
static enum status read_choice(const json_t *object, const char *key, const char *const *choices, size_t count,
                               unsigned *out, struct error *err)
{
    struct byte_span text = {0};
    *out = 0;
    TRY(read_string(object, key, &text, err));
    for (unsigned i = 0; i < count; i++)
        if (!text.data || equals(text, choices[i])) {
            *out = i;
            return STATUS_OK;
        }
    char list[128] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", choices[i]);
    return error_set(err, STATUS_FORMAT, "`%s` must be one of %s; found \"%.*s\"", key, list,
                     text.bytes > 80 ? 80 : (int)text.bytes, text.data);
}

static enum status read_list(const json_t *object, const char *key, size_t count_max, json_t **out, struct error *err)
{
    *out = member(object, key);
    if (!*out)
        return STATUS_OK;
    if (!json_is_array(*out))
        return error_set(err, STATUS_FORMAT, "`%s` must be a list, found %s", key, json_text_type(*out));
    if (json_array_size(*out) > count_max)
        return error_set(err, STATUS_UNSUPPORTED, "`%s` has %zu entries; at most %zu are read", key,
                         json_array_size(*out), count_max);
    return STATUS_OK;
}

static enum status read_tools(const json_t *object, const json_t **out, struct error *err)
{
    json_t *list = NULL, *tool;
    size_t index;
    TRY(read_list(object, "tools", SIZE_MAX, &list, err));
    *out = json_array_size(list) ? list : NULL;
    json_array_foreach (list, index, tool)
        if (!json_is_object(tool))
            return error_set(err, STATUS_FORMAT, "`tools`[%zu] must be an object, found %s", index,
                             json_text_type(tool));
    return STATUS_OK;
}

static bool is_blank(struct byte_span text)
{
    for (size_t at = 0; at < text.bytes;) {
        struct utf8_step step = utf8_step(text.data + at, text.bytes - at);
        if (!utf8_is_space(step.code))
            return false;
        at += step.bytes;
    }
    return true;
}

/* ---- messages ---- */

static enum status read_part(const json_t *part, struct byte_span *out, struct error *err)
{
    struct byte_span type = {0};
    if (!json_is_object(part))
        return error_set(err, STATUS_FORMAT, "must be an object with `type` and `text`, found %s",
                         json_text_type(part));
    TRY(read_string(part, "type", &type, err));
    if (!type.data || !equals(type, "text"))
        return error_set(err, STATUS_UNSUPPORTED, "only parts of type \"text\" are understood, found \"%.*s\"",
                         type.bytes > 80 ? 80 : (int)type.bytes, type.data ? type.data : "");
    TRY(read_string(part, "text", out, err));
    return out->data ? STATUS_OK : error_set(err, STATUS_FORMAT, "a text part needs `text`");
}

static enum status read_content(const json_t *object, struct chat_message *message, struct error *err)
{
    json_t *content = member(object, "content"), *part;
    size_t index;
    if (!content)
        return STATUS_OK;
    if (!json_is_array(content) && !json_text_is_string(content))
        return error_set(err, STATUS_FORMAT, "`content` must be a string or a list of parts, found %s",
                         json_text_type(content));
    size_t count = json_is_array(content) ? json_array_size(content) : 1;
    TRY(memory_take(&message->parts, count, sizeof *message->parts, "a message", err));
    message->part_count = count;
    if (!json_is_array(content))
        return read_string(object, "content", &message->parts[0], err);
    json_array_foreach (content, index, part)
        if (read_part(part, &message->parts[index], err) != STATUS_OK)
            return error_prefix(err, "`content`[%zu]", index);
    return STATUS_OK;
}

/* Arguments come as an object, or as a string that should hold one. */
static enum status read_arguments(const json_t *function, struct chat_call *call, struct error *err)
{
    json_t *given = member(function, "arguments");
    if (given && json_text_is_string(given))
        call->raw = json_text_string(given);
    if (!given || (call->raw.data && call->raw.bytes == 0)) {
        call->arguments = json_object();
        return call->arguments ? STATUS_OK : error_set(err, STATUS_MEMORY, "cannot allocate a tool call");
    }
    if (call->raw.data) {
        enum status status = json_text_parse(call->raw.data, call->raw.bytes, &call->arguments, err);
        if (status != STATUS_OK) /* no JSON: rendered raw */
            return status == STATUS_FORMAT ? STATUS_OK : status;
    } else {
        call->arguments = json_incref(given);
    }
    if (!json_is_object(call->arguments))
        return error_set(err, STATUS_FORMAT, "`arguments` must be a JSON object, found %s",
                         json_text_type(call->arguments));
    return STATUS_OK;
}

static enum status read_call(const json_t *object, struct chat_call *call, struct error *err)
{
    const json_t *function = member(object, "function");
    if (!json_is_object(function))
        return error_set(err, STATUS_FORMAT, "a tool call needs an object `function`");
    TRY(read_string(object, "id", &call->id, err));
    TRY(read_string(function, "name", &call->name, err));
    if (!call->name.data)
        return error_set(err, STATUS_FORMAT, "`function` needs a `name`");
    return read_arguments(function, call, err);
}

static enum status read_assistant(const json_t *object, struct chat_message *message, struct error *err)
{
    json_t *calls = NULL;
    TRY(read_string(object, "reasoning_content", &message->reasoning, err));
    if (!message->reasoning.data)
        TRY(read_string(object, "reasoning", &message->reasoning, err));
    if (is_blank(message->reasoning))
        message->reasoning.bytes = 0;
    TRY(read_list(object, "tool_calls", CHAT_REQUEST_CALLS_MAX, &calls, err));
    TRY(memory_take(&message->calls, json_array_size(calls), sizeof *message->calls, "tool calls", err));
    message->call_count = json_array_size(calls);
    for (size_t i = 0; i < message->call_count; i++)
        if (read_call(json_array_get(calls, i), &message->calls[i], err) != STATUS_OK)
            return error_prefix(err, "`tool_calls`[%zu]", i);
    return STATUS_OK;
}

static enum status read_message(const json_t *object, struct chat_message *message, struct error *err)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    unsigned role = 0;
    if (!json_is_object(object))
        return error_set(err, STATUS_FORMAT, "must be an object, found %s", json_text_type(object));
    if (!member(object, "role"))
        return error_set(err, STATUS_FORMAT, "needs a `role`");
    TRY(read_choice(object, "role", roles, 4, &role, err));
    message->role = (enum chat_role)role;
    TRY(read_string(object, "name", &message->name, err));
    TRY(read_content(object, message, err));
    if (message->role == CHAT_SYSTEM)
        return read_tools(object, &message->tools, err);
    if (message->role == CHAT_TOOL)
        return read_string(object, "tool_call_id", &message->call_id, err);
    return message->role == CHAT_ASSISTANT ? read_assistant(object, message, err) : STATUS_OK;
}

/* ---- results of tools ---- */

/* The call of this id, or -1. */
static long find_call(const struct chat_message *assistant, struct byte_span id)
{
    for (size_t i = 0; id.data && assistant && i < assistant->call_count; i++) {
        struct byte_span other = assistant->calls[i].id;
        if (other.data && other.bytes == id.bytes && memcmp(other.data, id.data, id.bytes) == 0)
            return (long)i;
    }
    return -1;
}

struct result_place {
    long call;
    size_t given;
};

static int compare_places(const void *a, const void *b)
{
    const struct result_place *left = a, *right = b;
    if (left->call != right->call)
        return left->call < right->call ? -1 : 1;
    return left->given < right->given ? -1 : 1;
}

/* Puts a row of results, all of them answers to calls of `assistant`, into the order of the calls, and names
 * the tools. Does nothing if a result is the answer to none. */
static enum status order_results(struct chat_message *row, size_t count, const struct chat_message *assistant,
                                 struct error *err)
{
    struct result_place *places = NULL;
    struct chat_message *copy = NULL;
    size_t known = 0;
    enum status status = memory_take(&places, count, sizeof *places, "tool results", err);
    if (status == STATUS_OK)
        status = memory_take(&copy, count, sizeof *copy, "tool results", err);
    for (; status == STATUS_OK && known < count; known++) {
        places[known] = (struct result_place){find_call(assistant, row[known].call_id), known};
        if (places[known].call < 0)
            break;
    }
    if (status == STATUS_OK && known == count) {
        memcpy(copy, row, count * sizeof *row);
        qsort(places, count, sizeof *places, compare_places);
        for (size_t i = 0; i < count; i++) {
            row[i] = copy[places[i].given];
            row[i].call_name = assistant->calls[places[i].call].name;
        }
    }
    free(places);
    free(copy);
    return status;
}

static enum status pair_results(struct chat_request *request, struct error *err)
{
    const struct chat_message *assistant = NULL;
    size_t number = 0;
    for (size_t i = 0, end; i < request->message_count; i = end) {
        struct chat_message *row = &request->messages[i];
        for (end = i; end < request->message_count && request->messages[end].role == CHAT_TOOL;)
            end++;
        if (end == i) {
            if (row->role == CHAT_ASSISTANT) {
                assistant = row;
                number = 0;
            }
            end++;
            continue;
        }
        TRY(order_results(row, end - i, assistant, err));
        for (size_t at = 0; at < end - i; at++) {
            row[at].call_number = ++number;
            if (!row[at].call_name.data && assistant && number <= assistant->call_count)
                row[at].call_name = assistant->calls[number - 1].name;
            if (!row[at].call_name.data)
                row[at].call_name = row[at].name;
            if (!row[at].call_name.data)
                return error_set(err, STATUS_FORMAT,
                                 "messages[%zu]: the result of a tool answers no call of the assistant message before",
                                 i + at);
        }
    }
    return STATUS_OK;
}

/* ---- the request ---- */

static enum status read_reply(struct chat_request *request, struct error *err)
{
    static const char *const types[] = {"text", "json_object", "json_schema"};
    unsigned type = 0;
    const json_t *format = member(request->root, "response_format");
    if (!format)
        return STATUS_OK;
    if (!json_is_object(format))
        return error_set(err, STATUS_FORMAT, "`response_format` must be an object, found %s", json_text_type(format));
    TRY(read_choice(format, "type", types, 3, &type, err));
    request->reply = (enum chat_reply)type;
    request->schema = member(member(format, "json_schema"), "schema");
    if (request->reply == CHAT_REPLY_JSON_SCHEMA && !json_is_object(request->schema))
        return error_set(err, STATUS_FORMAT,
                         "`response_format` of type json_schema needs an object json_schema.schema");
    return STATUS_OK;
}

static enum status read_options(struct chat_request *request, struct error *err)
{
    static const char *const choices[] = {"auto", "none", "required"};
    static const char *const efforts[] = {"low", "medium", "high", "max"};
    unsigned choice = 0, effort = 0;
    const json_t *thinking = member(request->root, "thinking");
    TRY(read_tools(request->root, &request->tools, err));
    TRY(read_choice(request->root, "tool_choice", choices, 3, &choice, err));
    request->tool_choice = (enum chat_tool_choice)choice;
    if (thinking && !json_is_boolean(thinking))
        return error_set(err, STATUS_FORMAT, "`thinking` must be true or false, found %s", json_text_type(thinking));
    request->thinking = !json_is_false(thinking);
    TRY(read_choice(request->root, "thinking_effort", efforts, 4, &effort, err));
    TRY(read_string(request->root, "thinking_effort", &request->effort, err));
    return read_reply(request, err);
}

static enum status read_request(struct chat_request *request, const char *json, size_t bytes, struct error *err)
{
    json_t *messages = NULL;
    if (bytes > CHAT_REQUEST_BYTES_MAX)
        return error_set(err, STATUS_UNSUPPORTED, "the request has %zu bytes; at most %d are read", bytes,
                         CHAT_REQUEST_BYTES_MAX);
    TRY(json_text_parse(json, bytes, &request->root, err));
    if (!json_is_object(request->root))
        return error_set(err, STATUS_FORMAT, "want an object with `messages`, found %s", json_text_type(request->root));
    TRY(read_list(request->root, "messages", CHAT_REQUEST_MESSAGES_MAX, &messages, err));
    if (json_array_size(messages) == 0)
        return error_set(err, STATUS_FORMAT, "want a list `messages` with at least one message");
    TRY(memory_take(&request->messages, json_array_size(messages), sizeof *request->messages, "messages", err));
    request->message_count = json_array_size(messages);
    for (size_t i = 0; i < request->message_count; i++)
        if (read_message(json_array_get(messages, i), &request->messages[i], err) != STATUS_OK)
            return error_prefix(err, "messages[%zu]", i);
    TRY(read_options(request, err));
    return pair_results(request, err);
}

enum status chat_request_init(struct chat_request *request, const char *json, size_t bytes, struct error *err)
{
    *request = (struct chat_request){0};
    enum status status = read_request(request, json, bytes, err);
    if (status != STATUS_OK) {
        chat_request_fini(request);
        error_prefix(err, "chat request");
    }
    return status;
}

static enum status write_user(struct byte_buffer *json, struct byte_span text, bool thinking, const char *effort,
                              struct error *err)
{
    TRY(byte_buffer_append_text(json, "{\"messages\": [{\"role\": \"user\", \"content\": ", err));
    TRY(json_text_write_string(json, text, err));
    TRY(byte_buffer_append_text(json, thinking ? "}], \"thinking\": true" : "}], \"thinking\": false", err));
    if (effort) {
        TRY(byte_buffer_append_text(json, ", \"thinking_effort\": ", err));
        TRY(json_text_write_string(json, (struct byte_span){effort, strlen(effort)}, err));
    }
    return byte_buffer_append_text(json, "}", err);
}

enum status chat_request_user(struct chat_request *request, const char *text, size_t bytes, bool thinking,
                              const char *effort, struct error *err)
{
    struct byte_buffer json = {0};
    *request = (struct chat_request){0};
    if (!utf8_is_valid(text, bytes))
        return error_set(err, STATUS_FORMAT, "the message is not UTF-8; convert it first");
    enum status status = write_user(&json, (struct byte_span){text, bytes}, thinking, effort, err);
    if (status == STATUS_OK)
        status = chat_request_init(request, json.data, json.bytes, err);
    byte_buffer_fini(&json);
    return status;
}

void chat_request_fini(struct chat_request *request)
{
    for (size_t i = 0; i < request->message_count; i++) {
        for (size_t at = 0; at < request->messages[i].call_count; at++)
            json_decref(request->messages[i].calls[at].arguments);
        free(request->messages[i].calls);
        free(request->messages[i].parts);
    }
    free(request->messages);
    json_decref(request->root);
    *request = (struct chat_request){0};
}
