#include "text/chat_formats.h"

#include <stdio.h>
#include <string.h>

#include "text/json_text.h"

static const char default_system_text[] = "You are Kimi, an AI assistant created by Moonshot AI.";

static enum status begin(struct chat_segments *out, const char *control, struct byte_span who, struct error *err)
{
    TRY(chat_segments_control(out, control, err));
    TRY(chat_segments_text(out, who, err));
    return chat_segments_control(out, "<|im_middle|>", err);
}

static enum status begin_words(struct chat_segments *out, const char *control, const char *who, struct error *err)
{
    return begin(out, control, (struct byte_span){who, strlen(who)}, err);
}

static enum status end(struct chat_segments *out, struct error *err)
{
    return chat_segments_control(out, "<|im_end|>", err);
}

static enum status render_json(const json_t *value, enum json_text_style style, struct chat_segments *out,
                               struct error *err)
{
    struct byte_buffer json = {0};
    return chat_segments_buffer(out, &json, json_text_write(&json, value, style, err), err);
}

/* What stands between two control tokens is one segment, so texts are joined before they become one. */
static enum status write_content(struct byte_buffer *text, const struct chat_message *message, struct error *err)
{
    for (size_t i = 0; i < message->part_count; i++)
        TRY(byte_buffer_append(text, message->parts[i].data, message->parts[i].bytes, err));
    return STATUS_OK;
}

static enum status write_call_name(struct byte_buffer *text, struct byte_span name, size_t number, struct error *err)
{
    char suffix[24];
    snprintf(suffix, sizeof suffix, ":%zu", number);
    TRY(byte_buffer_append_text(text, "functions.", err));
    TRY(byte_buffer_append(text, name.data, name.bytes, err));
    return byte_buffer_append_text(text, suffix, err);
}

static enum status write_result(struct byte_buffer *text, const struct chat_message *message, size_t number,
                                struct error *err)
{
    TRY(byte_buffer_append_text(text, "## Return of ", err));
    TRY(write_call_name(text, message->call_name, number, err));
    TRY(byte_buffer_append_text(text, "\n", err));
    return write_content(text, message, err);
}

/* Calls are numbered through the whole conversation, from 0. */
static enum status render_calls(const struct chat_message *message, size_t first, struct chat_segments *out,
                                struct error *err)
{
    if (message->call_count == 0)
        return STATUS_OK;
    TRY(chat_segments_control(out, "<|tool_calls_section_begin|>", err));
    for (size_t i = 0; i < message->call_count; i++) {
        const struct chat_call *call = &message->calls[i];
        struct byte_buffer name = {0};
        TRY(chat_segments_control(out, "<|tool_call_begin|>", err));
        TRY(chat_segments_buffer(out, &name, write_call_name(&name, call->name, first + i, err), err));
        TRY(chat_segments_control(out, "<|tool_call_argument_begin|>", err));
        if (call->raw.data)
            TRY(chat_segments_text(out, call->raw, err));
        else
            TRY(render_json(call->arguments, JSON_TEXT_SPACED, out, err));
        TRY(chat_segments_control(out, "<|tool_call_end|>", err));
    }
    return chat_segments_control(out, "<|tool_calls_section_end|>", err);
}

static enum status render_message(const struct chat_message *message, size_t calls_before, struct chat_segments *out,
                                  struct error *err)
{
    static const char *const controls[] = {"<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>"};
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (message->name.data)
        TRY(begin(out, controls[message->role], message->name, err));
    else
        TRY(begin_words(out, controls[message->role], roles[message->role], err));
    struct byte_buffer text = {0};
    enum status status = message->role == CHAT_TOOL
                             ? write_result(&text, message, calls_before + message->call_number - 1, err)
                             : write_content(&text, message, err);
    TRY(chat_segments_buffer(out, &text, status, err));
    if (message->role == CHAT_ASSISTANT)
        TRY(render_calls(message, calls_before, out, err));
    return end(out, err);
}

/* The options of K3 that this format has no words for. */
static enum status refuse_foreign(const struct chat_request *request, struct error *err)
{
    const char *what = request->tool_choice != CHAT_TOOLS_AUTO ? "tool_choice"
                       : request->reply != CHAT_REPLY_TEXT     ? "response_format"
                       : request->effort.data                  ? "thinking_effort"
                                                               : NULL;
    for (size_t i = 0; i < request->message_count && !what; i++)
        if (request->messages[i].tools)
            what = "tools inside a message";
    if (what)
        return error_set(err, STATUS_UNSUPPORTED, "the chat format of this model cannot express %s; leave it out",
                         what);
    return STATUS_OK;
}

enum status chat_k2_render(const struct chat_request *request, struct chat_segments *segments, struct error *err)
{
    size_t calls_before = 0, calls_here = 0;
    TRY(refuse_foreign(request, err));
    if (request->tools) {
        TRY(begin_words(segments, "<|im_system|>", "tool_declare", err));
        TRY(render_json(request->tools, JSON_TEXT_SORTED_COMPACT, segments, err));
        TRY(end(segments, err));
    }
    if (request->messages[0].role != CHAT_SYSTEM) {
        TRY(begin_words(segments, "<|im_system|>", "system", err));
        TRY(chat_segments_words(segments, default_system_text, err));
        TRY(end(segments, err));
    }
    for (size_t i = 0; i < request->message_count; i++) {
        const struct chat_message *message = &request->messages[i];
        if (message->role == CHAT_ASSISTANT) {
            calls_before += calls_here;
            calls_here = message->call_count;
        }
        TRY(render_message(message, calls_before, segments, err));
    }
    return begin_words(segments, "<|im_assistant|>", "assistant", err);
}
