#include "text/reply.h"

#include <stdlib.h>

#include "text/reply_parts.h"

void reply_init(struct reply *reply, const struct tokenizer *tokenizer, enum chat_format format, bool thinking,
                reply_sink *sink, void *context)
{
    *reply = (struct reply){.tokenizer = tokenizer, .format = format, .sink = sink, .context = context};
    detokenizer_init(&reply->words, tokenizer);
    reply->stop_count = chat_format_stop_tokens(
        tokenizer, format == CHAT_FORMAT_NONE ? chat_format_of(tokenizer) : format, reply->stops);
    reply->place = REPLY_IN_CONTENT;
    if (format == CHAT_FORMAT_K3)
        reply_k3_init(reply, thinking);
    else if (format == CHAT_FORMAT_K2)
        reply_k2_init(reply);
}

void reply_fini(struct reply *reply)
{
    struct byte_buffer *const buffers[] = {&reply->reasoning, &reply->content, &reply->tag,        &reply->key,
                                           &reply->type,      &reply->value,   &reply->words_text, &reply->scratch};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        byte_buffer_fini(buffers[i]);
    for (size_t i = 0; i < reply->call_count; i++) {
        byte_buffer_fini(&reply->calls[i].name);
        byte_buffer_fini(&reply->calls[i].arguments);
    }
    free(reply->calls);
    *reply = (struct reply){0};
}

enum status reply_emit(struct reply *reply, struct reply_event event, struct error *err)
{
    return reply->sink ? reply->sink(reply->context, &event, err) : STATUS_OK;
}

void reply_mark(struct reply *reply, unsigned flaws)
{
    reply->flaws |= flaws;
    if (reply_is_in_call(reply))
        reply->calls[reply->call_count - 1].flaws |= flaws;
}

/* ---- text ---- */

static bool is_blank(struct byte_span text)
{
    for (size_t i = 0; i < text.bytes; i++)
        if (text.data[i] != ' ' && text.data[i] != '\t' && text.data[i] != '\n' && text.data[i] != '\r')
            return false;
    return true;
}

static enum status add_words(struct reply *reply, struct byte_buffer *to, enum reply_event_kind kind,
                             struct byte_span text, struct error *err)
{
    TRY(byte_buffer_append(to, text.data, text.bytes, err));
    return reply_emit(reply, (struct reply_event){.kind = kind, .text = text}, err);
}

static enum status add_tag(struct reply *reply, struct byte_span text, struct error *err)
{
    if (reply->tag.bytes + text.bytes > REPLY_TAG_BYTES_MAX)
        reply->tag_is_large = true;
    return reply->tag_is_large ? STATUS_OK : byte_buffer_append(&reply->tag, text.data, text.bytes, err);
}

/* Whole characters find their way. */
static enum status take_text(struct reply *reply, struct byte_span text, struct error *err)
{
    if (text.bytes == 0)
        return STATUS_OK;
    if (text.bytes > REPLY_TEXT_BYTES_MAX - reply->text_bytes)
        return reply_cut(reply, err);
    reply->text_bytes += text.bytes;
    if (reply->tag_kind != REPLY_NO_TAG)
        return add_tag(reply, text, err);
    switch ((enum reply_place)reply->place) {
    case REPLY_IN_THINK:
        return add_words(reply, &reply->reasoning, REPLY_EVENT_REASONING, text, err);
    case REPLY_IN_CONTENT:
        return add_words(reply, &reply->content, REPLY_EVENT_CONTENT, text, err);
    case REPLY_IN_STRING:
    case REPLY_IN_VALUE:
    case REPLY_IN_RAW:
        return reply_call_text(reply, text, err);
    case REPLY_IN_TOOLS:
    case REPLY_IN_CALL:
    case REPLY_AFTER_RAW:
    case REPLY_IN_NOTHING:
        break;
    }
    if (!is_blank(text))
        reply_mark(reply, REPLY_FLAW_FORM);
    return STATUS_OK;
}

enum status reply_end_text(struct reply *reply, struct error *err)
{
    reply->words_text.bytes = 0;
    TRY(detokenizer_flush(&reply->words, &reply->words_text, err));
    return take_text(reply, (struct byte_span){reply->words_text.data, reply->words_text.bytes}, err);
}

void reply_begin_tag(struct reply *reply, enum reply_tag_kind kind)
{
    if (reply->tag_kind != REPLY_NO_TAG)
        reply_mark(reply, REPLY_FLAW_FORM);
    reply->tag_kind = kind;
    reply->tag.bytes = 0;
    reply->tag_is_large = false;
}

/* ---- the end ---- */

static enum status end(struct reply *reply, enum reply_finish finish, struct error *err)
{
    reply->finish = finish;
    return reply_emit(reply, (struct reply_event){.kind = REPLY_EVENT_END, .finish = finish, .flaws = reply->flaws},
                      err);
}

enum status reply_cut(struct reply *reply, struct error *err)
{
    TRY(reply_end_call(reply, REPLY_FLAW_CUT, err));
    return end(reply, REPLY_CUT, err);
}

/* The model has ended its message: what is open is closed. */
static enum status stop(struct reply *reply, struct error *err)
{
    TRY(reply_end_text(reply, err));
    if (reply->finish != REPLY_UNFINISHED)
        return STATUS_OK;
    if (reply->tag_kind != REPLY_NO_TAG)
        reply_mark(reply, REPLY_FLAW_FORM);
    TRY(reply_end_call(reply, REPLY_FLAW_FORM, err));
    enum reply_finish finish = REPLY_STOPPED;
    for (size_t i = 0; i < reply->call_count; i++)
        if (!(reply->calls[i].flaws & REPLY_FLAWS_BROKEN))
            finish = REPLY_CALLS;
    return end(reply, finish, err);
}

enum status reply_finish(struct reply *reply, bool stopped, struct error *err)
{
    if (reply->finish != REPLY_UNFINISHED)
        return STATUS_OK;
    return stopped || reply->place == REPLY_IN_NOTHING ? stop(reply, err) : reply_cut(reply, err);
}

enum status reply_push(struct reply *reply, int32_t id, struct error *err)
{
    if (reply->finish != REPLY_UNFINISHED || id < 0 || id >= tokenizer_vocab_size(reply->tokenizer))
        return STATUS_OK;
    for (size_t i = 0; i < reply->stop_count; i++)
        if (id == reply->stops[i])
            return stop(reply, err);
    if (tokenizer_is_special(reply->tokenizer, id) && reply->format != CHAT_FORMAT_NONE)
        return reply->format == CHAT_FORMAT_K3 ? reply_k3_control(reply, id, err) : reply_k2_control(reply, id, err);
    reply->words_text.bytes = 0;
    TRY(detokenizer_push(&reply->words, id, &reply->words_text, err));
    return take_text(reply, (struct byte_span){reply->words_text.data, reply->words_text.bytes}, err);
}
