/* Replies in the K3 format: tags of control tokens with attributes. */
#include <string.h>

#include "text/reply_parts.h"

enum { OPEN, CLOSE, SEP };

void reply_k3_init(struct reply *reply, bool thinking)
{
    reply->controls[OPEN] = tokenizer_special(reply->tokenizer, "<|open|>");
    reply->controls[CLOSE] = tokenizer_special(reply->tokenizer, "<|close|>");
    reply->controls[SEP] = tokenizer_special(reply->tokenizer, "<|sep|>");
    reply->place = thinking ? REPLY_IN_THINK : REPLY_IN_CONTENT;
}

/* ---- the text of a tag: name key="value" ... ---- */

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static void skip(struct byte_span *text, size_t bytes)
{
    text->data += bytes;
    text->bytes -= bytes;
}

static void skip_blanks(struct byte_span *text)
{
    while (text->bytes && is_blank(*text->data))
        skip(text, 1);
}

/* Takes the front up to a blank, or to `end`. */
static struct byte_span take_word(struct byte_span *text, char end)
{
    struct byte_span word = {text->data, 0};
    while (word.bytes < text->bytes && !is_blank(word.data[word.bytes]) && word.data[word.bytes] != end)
        word.bytes++;
    skip(text, word.bytes);
    return word;
}

static bool equals(struct byte_span span, const char *text)
{
    return span.bytes == strlen(text) && memcmp(span.data, text, span.bytes) == 0;
}

static enum status unescape(struct byte_buffer *out, struct byte_span text, struct error *err)
{
    static const char quote[] = "&quot;", and[] = "&amp;";
    while (text.bytes) {
        if (text.bytes >= strlen(quote) && memcmp(text.data, quote, strlen(quote)) == 0) {
            TRY(byte_buffer_append_text(out, "\"", err));
            skip(&text, strlen(quote));
        } else if (text.bytes >= strlen(and) && memcmp(text.data, and, strlen(and)) == 0) {
            TRY(byte_buffer_append_text(out, "&", err));
            skip(&text, strlen(and));
        } else {
            TRY(byte_buffer_append(out, text.data, 1, err));
            skip(&text, 1);
        }
    }
    return STATUS_OK;
}

/* Puts the value of the attribute into `out`, nothing if it is absent; `rest` is the tag behind its name. */
static enum status read_attribute(struct byte_span rest, const char *wanted, struct byte_buffer *out, struct error *err)
{
    out->bytes = 0;
    for (skip_blanks(&rest); rest.bytes; skip_blanks(&rest)) {
        struct byte_span key = take_word(&rest, '=');
        if (rest.bytes < 2 || memcmp(rest.data, "=\"", 2) != 0) {
            (void)take_word(&rest, 0); /* no attribute */
            continue;
        }
        skip(&rest, 2);
        const char *quote = memchr(rest.data, '"', rest.bytes);
        struct byte_span value = {rest.data, quote ? (size_t)(quote - rest.data) : rest.bytes};
        skip(&rest, value.bytes + (quote != NULL));
        if (equals(key, wanted))
            return unescape(out, value, err);
    }
    return STATUS_OK;
}

/* ---- tags ---- */

enum tag { TAG_THINK, TAG_RESPONSE, TAG_TOOLS, TAG_CALL, TAG_ARGUMENT, TAG_JSON, TAG_MESSAGE, TAG_UNKNOWN };

static enum tag read_name(struct byte_span *text)
{
    static const char *const names[] = {"think", "response", "tools", "call", "argument", "json", "message"};
    skip_blanks(text);
    struct byte_span name = take_word(text, 0);
    int tag = 0;
    while (tag < TAG_UNKNOWN && !equals(name, names[tag]))
        tag++;
    return (enum tag)tag;
}

/* Leaves the call if one is open, which is a fault, as is reasoning that was not closed. */
static enum status go_to(struct reply *reply, enum reply_place place, struct error *err)
{
    if (reply->place == REPLY_IN_THINK && place != REPLY_IN_THINK)
        reply_mark(reply, REPLY_FLAW_FORM);
    TRY(reply_end_call(reply, REPLY_FLAW_FORM, err));
    reply->place = place;
    return STATUS_OK;
}

static enum status open_call(struct reply *reply, struct byte_span rest, struct error *err)
{
    if (reply->place != REPLY_IN_TOOLS)
        reply_mark(reply, REPLY_FLAW_FORM);
    TRY(go_to(reply, REPLY_IN_TOOLS, err));
    TRY(read_attribute(rest, "tool", &reply->value, err));
    return reply_begin_call(reply, (struct byte_span){reply->value.data, reply->value.bytes}, err);
}

/* A call has either arguments or one block of JSON: what comes second is dropped. */
static enum status open_value(struct reply *reply, enum tag tag, struct byte_span rest, struct error *err)
{
    if (reply_is_in_argument(reply)) {
        reply_mark(reply, REPLY_FLAW_FORM);
        TRY(reply_end_argument(reply, err));
    }
    if (reply->place != REPLY_IN_CALL || (tag == TAG_JSON && reply->argument_count > 0)) {
        reply_mark(reply, REPLY_FLAW_FORM);
        if (reply->place == REPLY_IN_RAW)
            reply->place = REPLY_AFTER_RAW;
        return STATUS_OK;
    }
    if (tag == TAG_JSON) {
        reply->place = REPLY_IN_RAW;
        return STATUS_OK;
    }
    TRY(read_attribute(rest, "key", &reply->key, err));
    TRY(read_attribute(rest, "type", &reply->type, err));
    return reply_begin_argument(reply, err);
}

static enum status open_tag(struct reply *reply, enum tag tag, struct byte_span rest, struct error *err)
{
    switch (tag) {
    case TAG_THINK:
        return go_to(reply, REPLY_IN_THINK, err);
    case TAG_RESPONSE:
        return go_to(reply, REPLY_IN_CONTENT, err);
    case TAG_TOOLS:
        return go_to(reply, REPLY_IN_TOOLS, err);
    case TAG_CALL:
        return open_call(reply, rest, err);
    case TAG_ARGUMENT:
    case TAG_JSON:
        return open_value(reply, tag, rest, err);
    case TAG_MESSAGE: /* another turn: this one is over */
        reply_mark(reply, REPLY_FLAW_FORM);
        return go_to(reply, REPLY_IN_NOTHING, err);
    case TAG_UNKNOWN:
        break;
    }
    reply_mark(reply, REPLY_FLAW_FORM);
    return STATUS_OK;
}

static enum status close_tag(struct reply *reply, enum tag tag, struct error *err)
{
    bool fits = false;
    switch (tag) {
    case TAG_THINK:
        fits = reply->place == REPLY_IN_THINK;
        if (fits)
            reply->place = REPLY_IN_CONTENT;
        break;
    case TAG_RESPONSE:
        fits = reply->place == REPLY_IN_CONTENT;
        break;
    case TAG_TOOLS:
        fits = reply->place == REPLY_IN_TOOLS;
        if (fits || reply_is_in_call(reply))
            TRY(go_to(reply, REPLY_IN_CONTENT, err));
        break;
    case TAG_CALL:
        fits = reply_is_in_call(reply);
        TRY(reply_end_call(reply, reply->place == REPLY_IN_RAW ? REPLY_FLAW_FORM : 0, err));
        break;
    case TAG_ARGUMENT:
        fits = reply_is_in_argument(reply);
        if (fits)
            TRY(reply_end_argument(reply, err));
        break;
    case TAG_JSON:
        fits = reply->place == REPLY_IN_RAW;
        if (fits)
            reply->place = REPLY_AFTER_RAW;
        break;
    case TAG_MESSAGE:
        fits = true;
        TRY(go_to(reply, REPLY_IN_NOTHING, err));
        break;
    case TAG_UNKNOWN:
        break;
    }
    if (!fits)
        reply_mark(reply, REPLY_FLAW_FORM);
    return STATUS_OK;
}

static enum status end_tag(struct reply *reply, struct error *err)
{
    enum reply_tag_kind kind = (enum reply_tag_kind)reply->tag_kind;
    struct byte_span text = {reply->tag.data ? reply->tag.data : "", reply->tag.bytes};
    reply->tag_kind = REPLY_NO_TAG;
    if (kind == REPLY_NO_TAG || reply->tag_is_large)
        reply_mark(reply, kind == REPLY_NO_TAG ? REPLY_FLAW_FORM : REPLY_FLAW_LARGE);
    if (kind == REPLY_NO_TAG || reply->tag_is_large || reply->place == REPLY_IN_NOTHING)
        return STATUS_OK;
    enum tag tag = read_name(&text);
    return kind == REPLY_TAG_OPEN ? open_tag(reply, tag, text, err) : close_tag(reply, tag, err);
}

enum status reply_k3_control(struct reply *reply, int32_t id, struct error *err)
{
    const int32_t *controls = reply->controls;
    if (id != controls[OPEN] && id != controls[CLOSE] && id != controls[SEP]) {
        reply_mark(reply, REPLY_FLAW_FORM);
        return STATUS_OK;
    }
    TRY(reply_end_text(reply, err));
    if (reply->finish != REPLY_UNFINISHED)
        return STATUS_OK;
    if (id == controls[SEP])
        return end_tag(reply, err);
    reply_begin_tag(reply, id == controls[OPEN] ? REPLY_TAG_OPEN : REPLY_TAG_CLOSE);
    return STATUS_OK;
}
