#include "text/chat_formats.h"

#include <stdio.h>
#include <string.h>

#include "text/json_text.h"

#define JSON_FENCE_OPEN "```json\n"
#define JSON_FENCE_CLOSE "\n```"

static const char tools_text[] = "# Tools\nHere are the available tools, described in JSONSchema.\n\n" JSON_FENCE_OPEN;
static const char more_tools_text[] =
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n" JSON_FENCE_OPEN;
static const char effort_text[] = "`thinking_effort` guides on how much to think in your thinking channel "
                                  "(not including the response channel), "
                                  "supported values include `low`, `medium`, `high`, and `max`.\n"
                                  "Now the system is invoked with `thinking_effort=";
static const char required_text[] =
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.";
static const char none_text[] =
    "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";
#define RAW_JSON_TEXT                                                                                                  \
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional "                    \
    "formatting."
static const char json_object_text[] = "The system is invoked with `response_format=json_object`.\n" RAW_JSON_TEXT;
static const char json_schema_text[] = "The system is invoked with `response_format=json_schema`.\n" RAW_JSON_TEXT
                                       "\nThe JSON data must match the following schema:\n" JSON_FENCE_OPEN;

/* ---- tags ---- */

static enum status begin_tag(struct chat_segments *out, const char *tag, struct error *err)
{
    TRY(chat_segments_control(out, "<|open|>", err));
    return chat_segments_words(out, tag, err);
}

static enum status end_tag(struct chat_segments *out, struct error *err)
{
    return chat_segments_control(out, "<|sep|>", err);
}

/* A tag without attributes. */
static enum status open_tag(struct chat_segments *out, const char *tag, struct error *err)
{
    TRY(begin_tag(out, tag, err));
    return end_tag(out, err);
}

static enum status close_tag(struct chat_segments *out, const char *tag, struct error *err)
{
    TRY(chat_segments_control(out, "<|close|>", err));
    TRY(chat_segments_words(out, tag, err));
    return end_tag(out, err);
}

static enum status escape(struct byte_buffer *out, struct byte_span value, struct error *err)
{
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.data[i] == '&')
            TRY(byte_buffer_append_text(out, "&amp;", err));
        else if (value.data[i] == '"')
            TRY(byte_buffer_append_text(out, "&quot;", err));
        else
            TRY(byte_buffer_append(out, value.data + i, 1, err));
    }
    return STATUS_OK;
}

/* One attribute; `key` is led by its blank. */
static enum status attribute(struct chat_segments *out, const char *key, struct byte_span value, struct error *err)
{
    struct byte_buffer escaped = {0};
    TRY(chat_segments_words(out, key, err));
    TRY(chat_segments_words(out, "=\"", err));
    TRY(chat_segments_buffer(out, &escaped, escape(&escaped, value, err), err));
    return chat_segments_words(out, "\"", err);
}

static enum status attribute_words(struct chat_segments *out, const char *key, const char *value, struct error *err)
{
    return attribute(out, key, (struct byte_span){value, strlen(value)}, err);
}

static enum status attribute_number(struct chat_segments *out, const char *key, size_t value, struct error *err)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%zu", value);
    return attribute_words(out, key, digits, err);
}

static enum status begin_message(struct chat_segments *out, const char *role, struct error *err)
{
    TRY(begin_tag(out, "message", err));
    return attribute_words(out, " role", role, err);
}

static enum status close_message(struct chat_segments *out, struct error *err)
{
    TRY(close_tag(out, "message", err));
    return chat_segments_control(out, "<|end_of_msg|>", err);
}

/* ---- what the system says ---- */

/* A system message of a type: `before`, the value as JSON (may be NULL), `after`, one text. */
static enum status system_message(struct chat_segments *out, const char *type, const char *before, const json_t *value,
                                  const char *after, struct error *err)
{
    struct byte_buffer body = {0};
    TRY(begin_message(out, "system", err));
    TRY(attribute_words(out, " type", type, err));
    TRY(end_tag(out, err));
    enum status status = byte_buffer_append_text(&body, before, err);
    if (status == STATUS_OK && value)
        status = json_text_write(&body, value, JSON_TEXT_SORTED_COMPACT, err);
    if (status == STATUS_OK)
        status = byte_buffer_append_text(&body, after, err);
    TRY(chat_segments_buffer(out, &body, status, err));
    return close_message(out, err);
}

static enum status render_head(const struct chat_request *request, struct chat_segments *out, struct error *err)
{
    if (request->tools)
        TRY(system_message(out, "tool-declare", tools_text, request->tools, JSON_FENCE_CLOSE, err));
    if (request->thinking && request->effort.bytes) {
        char text[16];
        snprintf(text, sizeof text, "%.*s`.", (int)request->effort.bytes, request->effort.data);
        TRY(system_message(out, "thinking-effort", effort_text, NULL, text, err));
    }
    return STATUS_OK;
}

static enum status render_tail(const struct chat_request *request, struct chat_segments *out, struct error *err)
{
    if (request->tool_choice != CHAT_TOOLS_AUTO)
        TRY(system_message(out, "tool-choice", request->tool_choice == CHAT_TOOLS_NONE ? none_text : required_text,
                           NULL, "", err));
    if (request->reply == CHAT_REPLY_JSON_OBJECT)
        TRY(system_message(out, "response-format", json_object_text, NULL, "", err));
    if (request->reply == CHAT_REPLY_JSON_SCHEMA)
        TRY(system_message(out, "response-format", json_schema_text, request->schema, JSON_FENCE_CLOSE, err));
    return STATUS_OK;
}

/* ---- messages ---- */

static enum status content(const struct chat_message *message, struct chat_segments *out, struct error *err)
{
    for (size_t i = 0; i < message->part_count; i++)
        TRY(chat_segments_text(out, message->parts[i], err));
    return STATUS_OK;
}

static enum status render_argument(const char *key, const json_t *value, struct chat_segments *out, struct error *err)
{
    struct byte_buffer json = {0};
    TRY(begin_tag(out, "argument", err));
    TRY(attribute_words(out, " key", key, err));
    TRY(attribute_words(out, " type", json_text_type(value), err));
    TRY(end_tag(out, err));
    if (json_text_is_string(value))
        TRY(chat_segments_text(out, json_text_string(value), err));
    else
        TRY(chat_segments_buffer(out, &json, json_text_write(&json, value, JSON_TEXT_SPACED, err), err));
    return close_tag(out, "argument", err);
}

static enum status render_call(const struct chat_call *call, size_t number, struct chat_segments *out,
                               struct error *err)
{
    const char *key;
    json_t *value;
    TRY(begin_tag(out, "call", err));
    TRY(attribute(out, " tool", call->name, err));
    TRY(attribute_number(out, " index", number, err));
    TRY(end_tag(out, err));
    json_object_foreach (call->arguments, key, value)
        TRY(render_argument(key, value, out, err));
    if (!call->arguments) {
        TRY(begin_tag(out, "json", err));
        TRY(attribute_words(out, " type", "object", err));
        TRY(end_tag(out, err));
        TRY(chat_segments_text(out, call->raw, err));
        TRY(close_tag(out, "json", err));
    }
    return close_tag(out, "call", err);
}

static enum status render_assistant(const struct chat_message *message, bool thinking, struct chat_segments *out,
                                    struct error *err)
{
    if (thinking) {
        TRY(open_tag(out, "think", err));
        TRY(chat_segments_text(out, message->reasoning, err));
        TRY(close_tag(out, "think", err));
    }
    TRY(open_tag(out, "response", err));
    TRY(content(message, out, err));
    TRY(close_tag(out, "response", err));
    if (message->call_count == 0)
        return STATUS_OK;
    TRY(open_tag(out, "tools", err));
    for (size_t i = 0; i < message->call_count; i++)
        TRY(render_call(&message->calls[i], i + 1, out, err));
    return close_tag(out, "tools", err);
}

static enum status render_message(const struct chat_message *message, bool thinking, struct chat_segments *out,
                                  struct error *err)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (message->tools)
        return system_message(out, "tool-declare", more_tools_text, message->tools, JSON_FENCE_CLOSE, err);
    TRY(begin_message(out, roles[message->role], err));
    if (message->role == CHAT_TOOL) {
        TRY(attribute(out, " tool", message->call_name, err));
        TRY(attribute_number(out, " index", message->call_number, err));
    } else if (message->name.data) {
        TRY(attribute(out, " name", message->name, err));
    }
    TRY(end_tag(out, err));
    if (message->role == CHAT_ASSISTANT)
        TRY(render_assistant(message, thinking, out, err));
    else
        TRY(content(message, out, err));
    return close_message(out, err);
}

enum status chat_k3_render(const struct chat_request *request, struct chat_segments *segments, struct error *err)
{
    TRY(render_head(request, segments, err));
    for (size_t i = 0; i < request->message_count; i++)
        TRY(render_message(&request->messages[i], request->thinking, segments, err));
    TRY(render_tail(request, segments, err));
    TRY(begin_message(segments, "assistant", err));
    TRY(end_tag(segments, err));
    return open_tag(segments, request->thinking ? "think" : "response", err);
}
