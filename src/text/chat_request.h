/* A chat request in the OpenAI style, read and validated: what the chat formats render.
 *
 *     {"messages": [{"role", "content", "name", "reasoning_content", "tool_calls", "tool_call_id", "tools"}],
 *      "tools": [...], "tool_choice": "auto" | "none" | "required",
 *      "response_format": {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": {...}}},
 *      "thinking": true | false, "thinking_effort": "low" | "medium" | "high" | "max"}
 *
 * Only `messages` is required. null stands for an absent value; thinking is on if absent; without an effort
 * the prompt does not speak of it. Keys not named here are ignored (sampling settings travel in the same
 * object). Contents are strings or lists of text parts; images are refused. The results of tools are paired
 * with their calls here, see chat_message. */
#ifndef DAY0_TEXT_CHAT_REQUEST_H
#define DAY0_TEXT_CHAT_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "text/byte_buffer.h"

enum {
    CHAT_REQUEST_BYTES_MAX = 1 << 27,
    CHAT_REQUEST_MESSAGES_MAX = 1 << 17,
    CHAT_REQUEST_CALLS_MAX = 1 << 12, /* of one message */
};

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };
enum chat_tool_choice { CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE, CHAT_TOOLS_REQUIRED };
enum chat_reply { CHAT_REPLY_TEXT, CHAT_REPLY_JSON_OBJECT, CHAT_REPLY_JSON_SCHEMA };

struct chat_call {
    struct byte_span id; /* data is NULL if absent */
    struct byte_span name;
    json_t *arguments;    /* an object, or NULL: then only `raw` says what was called */
    struct byte_span raw; /* the arguments as given, if they came as a string; else data is NULL */
};

struct chat_message {
    enum chat_role role;
    struct byte_span name;   /* data is NULL if absent */
    struct byte_span *parts; /* the content, part by part */
    size_t part_count;
    struct byte_span reasoning; /* of an assistant; 0 bytes if absent or blank */
    struct chat_call *calls;    /* of an assistant */
    size_t call_count;
    const json_t *tools; /* of a system message that extends the tools, else NULL */
    /* Of a tool's result: the tool's name, and the number of the result since the last assistant message,
     * from 1. If every result in a row of them names the id of a call of that message, the row is in the
     * order of the calls; otherwise results stand as given and belong to the calls by position. */
    struct byte_span call_id;
    struct byte_span call_name;
    size_t call_number;
};

struct chat_request {
    json_t *root; /* what the spans point into */
    struct chat_message *messages;
    size_t message_count;
    const json_t *tools; /* a non-empty array, or NULL */
    enum chat_tool_choice tool_choice;
    enum chat_reply reply;
    const json_t *schema; /* of CHAT_REPLY_JSON_SCHEMA */
    bool thinking;
    struct byte_span effort; /* 0 bytes if absent */
};

/* Does     reads the JSON text of a request.
 * Owns     *request until chat_request_fini, which may be called twice and on a zeroed struct; on failure it
 *          is released.
 * Fails    STATUS_FORMAT or STATUS_UNSUPPORTED, naming the place; STATUS_MEMORY. */
NEEDS_CHECK enum status chat_request_init(struct chat_request *request, const char *json, size_t bytes,
                                          struct error *err);

/* Does     makes the request of one user message; `effort` may be NULL.
 * Fails    as chat_request_init; STATUS_FORMAT if the text is no UTF-8. */
NEEDS_CHECK enum status chat_request_user(struct chat_request *request, const char *text, size_t bytes, bool thinking,
                                          const char *effort, struct error *err);

void chat_request_fini(struct chat_request *request);

#endif
