/* Takes the events of a reply and puts them together again: what a stream says must be what the reply holds.
 * CHECKs the order of the events and the texts, for unit tests and fuzzing alike. */
#ifndef DAY0_TESTS_UNIT_REPLY_COLLECT_H
#define DAY0_TESTS_UNIT_REPLY_COLLECT_H

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "text/json_text.h"
#include "text/reply.h"
#include "text/utf8.h"

struct collected {
    struct byte_buffer reasoning, content;
    struct byte_buffer arguments; /* of the call that is open */
    size_t call_count;
    bool in_call, ended;
    unsigned flaws;
    enum reply_finish finish;
    const struct reply *reply;
};

static inline void collect_text(struct byte_buffer *buffer, struct byte_span text)
{
    CHECK(text.bytes > 0 && utf8_is_valid(text.data, text.bytes));
    CHECK(byte_buffer_append(buffer, text.data, text.bytes, NULL) == STATUS_OK);
}

static inline bool buffers_equal(const struct byte_buffer *a, const struct byte_buffer *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

static inline void check_argument(const struct collected *c, const struct reply_event *event)
{
    json_t *json = NULL;
    CHECK(json_text_parse(event->text.data, event->text.bytes, &json, NULL) == STATUS_OK);
    json_decref(json);
    CHECK(c->arguments.bytes >= event->text.bytes);
    CHECK(memcmp(c->arguments.data + c->arguments.bytes - event->text.bytes, event->text.data, event->text.bytes) == 0);
}

static inline enum status collect(void *context, const struct reply_event *event, struct error *err)
{
    struct collected *c = context;
    (void)err;
    CHECK(!c->ended);
    switch (event->kind) {
    case REPLY_EVENT_REASONING:
        collect_text(&c->reasoning, event->text);
        break;
    case REPLY_EVENT_CONTENT:
        collect_text(&c->content, event->text);
        break;
    case REPLY_EVENT_CALL_BEGIN:
        CHECK(!c->in_call && event->call_index == c->call_count);
        CHECK(utf8_is_valid(event->text.data, event->text.bytes));
        c->in_call = true;
        c->arguments.bytes = 0;
        c->call_count++;
        break;
    case REPLY_EVENT_CALL_ARGUMENTS:
        collect_text(&c->arguments, event->text);
        break;
    case REPLY_EVENT_ARGUMENT:
        check_argument(c, event);
        break;
    case REPLY_EVENT_CALL_END:
        CHECK(c->arguments.bytes == event->text.bytes);
        CHECK(buffers_equal(&c->arguments, &c->reply->calls[event->call_index].arguments));
        CHECK(event->flaws == c->reply->calls[event->call_index].flaws);
        break;
    case REPLY_EVENT_END:
        CHECK(!c->in_call);
        c->finish = event->finish;
        c->flaws = event->flaws;
        c->ended = true;
        return STATUS_OK;
    }
    bool is_of_call = event->kind >= REPLY_EVENT_CALL_BEGIN;
    CHECK(c->in_call == is_of_call && (!is_of_call || event->call_index + 1 == c->call_count));
    if (event->kind == REPLY_EVENT_CALL_END)
        c->in_call = false;
    return STATUS_OK;
}

static inline void collected_fini(struct collected *c)
{
    byte_buffer_fini(&c->reasoning);
    byte_buffer_fini(&c->content);
    byte_buffer_fini(&c->arguments);
}

/* Parses a reply whole, CHECKing that its events say the same. `stopped` as for reply_finish. */
static inline void parse_reply(struct reply *reply, const struct tokenizer *tokenizer, enum chat_format format,
                               bool thinking, const int32_t *ids, size_t count, bool stopped)
{
    struct collected c = {.reply = reply};
    struct error err = {0};
    reply_init(reply, tokenizer, format, thinking, collect, &c);
    for (size_t i = 0; i < count; i++)
        CHECK(reply_push(reply, ids[i], &err) == STATUS_OK);
    CHECK(reply_finish(reply, stopped, &err) == STATUS_OK);
    CHECK(c.ended && c.finish == reply->finish && c.flaws == reply->flaws);
    CHECK(c.call_count == reply->call_count);
    CHECK(buffers_equal(&c.reasoning, &reply->reasoning) && buffers_equal(&c.content, &reply->content));
    reply->sink = NULL;
    collected_fini(&c);
}

static inline bool is_prefix(const struct byte_buffer *front, const struct byte_buffer *whole)
{
    return front->bytes <= whole->bytes && (front->bytes == 0 || memcmp(front->data, whole->data, front->bytes) == 0);
}

/* `cut` is what `whole` was at some point on its way. */
static inline void check_prefix(const struct reply *cut, const struct reply *whole)
{
    CHECK(is_prefix(&cut->reasoning, &whole->reasoning) && is_prefix(&cut->content, &whole->content));
    CHECK(cut->call_count <= whole->call_count);
    for (size_t i = 0; i < cut->call_count; i++) {
        CHECK(buffers_equal(&cut->calls[i].name, &whole->calls[i].name));
        CHECK(is_prefix(&cut->calls[i].arguments, &whole->calls[i].arguments));
        if (!(cut->calls[i].flaws & REPLY_FLAW_CUT))
            CHECK(buffers_equal(&cut->calls[i].arguments, &whole->calls[i].arguments));
        CHECK(i + 1 == cut->call_count || !(cut->calls[i].flaws & REPLY_FLAW_CUT));
    }
}

/* Cuts the reply before every token and compares with the whole. */
static inline void check_cuts(const struct reply *whole, const struct tokenizer *tokenizer, enum chat_format format,
                              bool thinking, const int32_t *ids, size_t count)
{
    struct reply cut;
    for (size_t n = 0; n < count; n++) {
        parse_reply(&cut, tokenizer, format, thinking, ids, n, false);
        check_prefix(&cut, whole);
        reply_fini(&cut);
    }
}

/* The message of the reply goes into a request, which renders. */
static inline void render_reply(const struct reply *reply, enum chat_format format, bool thinking,
                                struct chat_segments *segments)
{
    struct byte_buffer json = {0};
    struct chat_request request;
    struct error err = {0};
    static const char before[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}, ";
    CHECK(byte_buffer_append_text(&json, before, &err) == STATUS_OK);
    CHECK(chat_reply_message(reply, "call_", &json, &err) == STATUS_OK);
    CHECK(byte_buffer_append_text(&json, thinking ? "]}" : "], \"thinking\": false}", &err) == STATUS_OK);
    if (chat_request_init(&request, json.data, json.bytes, &err) != STATUS_OK) {
        fprintf(stderr, "%.*s\n%s\n", (int)json.bytes, json.data, err.text);
        CHECK(!"the message of a reply is refused");
    }
    CHECK(chat_render(format, &request, segments, &err) == STATUS_OK);
    chat_request_fini(&request);
    byte_buffer_fini(&json);
}

#endif
