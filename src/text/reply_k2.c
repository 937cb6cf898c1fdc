/* Replies in the K2 format of Kimi Linear; NOT verified, see chat.h. A call is
 *     <|tool_call_begin|> functions.NAME:INDEX <|tool_call_argument_begin|> {...} <|tool_call_end|> */
#include <string.h>

#include "text/reply_parts.h"

enum { SECTION_BEGIN, SECTION_END, CALL_BEGIN, ARGUMENT_BEGIN, CALL_END, TURN_SYSTEM, TURN_USER, TURN_ASSISTANT };

void reply_k2_init(struct reply *reply)
{
    static const char *const names[REPLY_CONTROLS] = {"<|tool_calls_section_begin|>",
                                                      "<|tool_calls_section_end|>",
                                                      "<|tool_call_begin|>",
                                                      "<|tool_call_argument_begin|>",
                                                      "<|tool_call_end|>",
                                                      "<|im_system|>",
                                                      "<|im_user|>",
                                                      "<|im_assistant|>"};
    for (int i = 0; i < REPLY_CONTROLS; i++)
        reply->controls[i] = tokenizer_special(reply->tokenizer, names[i]);
    reply->place = REPLY_IN_CONTENT;
}

/* NAME of `functions.NAME:INDEX`; what stands around it may be missing, blanks are left out. */
static struct byte_span name_of(const struct byte_buffer *text)
{
    static const char space[] = "functions.", blanks[] = {' ', '\n'};
    struct byte_span name = {text->data, text->bytes};
    for (; name.bytes && memchr(blanks, *name.data, sizeof blanks); name.bytes--)
        name.data++;
    while (name.bytes && memchr(blanks, name.data[name.bytes - 1], sizeof blanks))
        name.bytes--;
    if (name.bytes >= strlen(space) && memcmp(name.data, space, strlen(space)) == 0) {
        name.data += strlen(space);
        name.bytes -= strlen(space);
    }
    size_t front = name.bytes;
    while (front > 0 && name.data[front - 1] >= '0' && name.data[front - 1] <= '9')
        front--;
    if (front > 0 && front < name.bytes && name.data[front - 1] == ':')
        name.bytes = front - 1;
    return name;
}

/* The name is whole: the arguments follow. A name over the limit names nothing. */
static enum status begin_call(struct reply *reply, struct error *err)
{
    reply->tag_kind = REPLY_NO_TAG;
    if (reply->tag_is_large) {
        reply_mark(reply, REPLY_FLAW_LARGE);
        return STATUS_OK;
    }
    TRY(reply_begin_call(reply, name_of(&reply->tag), err));
    if (reply_is_in_call(reply))
        reply->place = REPLY_IN_RAW;
    return STATUS_OK;
}

/* Everything but the name and the arguments of a call: whatever is open ends here. */
static enum status go_to(struct reply *reply, enum reply_place place, struct error *err)
{
    if (reply->tag_kind != REPLY_NO_TAG)
        reply_mark(reply, REPLY_FLAW_FORM);
    reply->tag_kind = REPLY_NO_TAG;
    TRY(reply_end_call(reply, REPLY_FLAW_FORM, err));
    reply->place = place;
    return STATUS_OK;
}

static enum status end_call(struct reply *reply, struct error *err)
{
    unsigned flaws = 0;
    if (reply->tag_kind != REPLY_NO_TAG) { /* a name without arguments */
        flaws = REPLY_FLAW_FORM;
        TRY(begin_call(reply, err));
    }
    return reply_end_call(reply, flaws, err);
}

enum status reply_k2_control(struct reply *reply, int32_t id, struct error *err)
{
    int control = 0;
    while (control < REPLY_CONTROLS && reply->controls[control] != id)
        control++;
    if (control < REPLY_CONTROLS)
        TRY(reply_end_text(reply, err));
    if (reply->finish != REPLY_UNFINISHED || reply->place == REPLY_IN_NOTHING)
        return STATUS_OK;
    switch (control) {
    case SECTION_BEGIN:
        return go_to(reply, REPLY_IN_TOOLS, err);
    case SECTION_END:
        return go_to(reply, REPLY_IN_CONTENT, err);
    case CALL_BEGIN:
        TRY(go_to(reply, REPLY_IN_TOOLS, err));
        reply_begin_tag(reply, REPLY_TAG_OPEN);
        return STATUS_OK;
    case ARGUMENT_BEGIN:
        if (reply->tag_kind != REPLY_NO_TAG)
            return begin_call(reply, err);
        break;
    case CALL_END:
        return end_call(reply, err);
    case TURN_SYSTEM:
    case TURN_USER:
    case TURN_ASSISTANT: /* another turn: this one is over */
        TRY(go_to(reply, REPLY_IN_NOTHING, err));
        break;
    default:
        break;
    }
    reply_mark(reply, REPLY_FLAW_FORM);
    return STATUS_OK;
}
