/* Text in and out of an engine: tokens, chat prompts, replies. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "text/chat.h"
#include "text/reply.h"

static enum status need_tokenizer(const day0_engine *engine, struct error *err)
{
    if (engine->tokenizer)
        return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND, "%s: there is no tiktoken.model; text needs it, only token ids work",
                     engine->directory);
}

static day0_status give_tokens(struct token_list *list, enum status status, const struct error *err, day0_tokens *out,
                               day0_error *error)
{
    *out = (day0_tokens){0};
    if (status != STATUS_OK) {
        token_list_fini(list);
        return engine_error(error, status, err);
    }
    *out = (day0_tokens){list->ids, list->count};
    return DAY0_OK;
}

void day0_tokens_free(day0_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (day0_tokens){0};
}

day0_status day0_tokenize(const day0_engine *engine, const char *text, size_t bytes, day0_tokens *out,
                          day0_error *error)
{
    struct error err;
    struct token_list list = {0};
    enum status status = need_tokenizer(engine, &err);
    if (status == STATUS_OK)
        status = tokenizer_encode(engine->tokenizer, text, bytes, &list, &err);
    return give_tokens(&list, status, &err, out, error);
}

day0_status day0_detokenize(const day0_engine *engine, const int32_t *ids, size_t n, char **text, size_t *bytes,
                            day0_error *error)
{
    struct error err;
    struct byte_buffer out = {0};
    *text = NULL;
    *bytes = 0;
    enum status status = need_tokenizer(engine, &err);
    if (status == STATUS_OK)
        status = tokenizer_decode(engine->tokenizer, ids, n, &out, &err);
    size_t length = out.bytes;
    if (status == STATUS_OK)
        status = byte_buffer_append(&out, "", 1, &err);
    if (status != STATUS_OK) {
        byte_buffer_fini(&out);
        return engine_error(error, status, &err);
    }
    *text = out.data;
    *bytes = length;
    return DAY0_OK;
}

day0_status day0_chat_prompt(const day0_engine *engine, const char *request_json, size_t bytes, day0_tokens *out,
                             day0_error *error)
{
    struct error err;
    struct token_list list = {0};
    struct chat_request request = {0};
    struct chat_segments segments = {0};
    enum status status = need_tokenizer(engine, &err);
    if (status == STATUS_OK)
        status = chat_request_init(&request, request_json, bytes, &err);
    if (status == STATUS_OK)
        status = chat_render(chat_format_of(engine->tokenizer), &request, &segments, &err);
    if (status == STATUS_OK)
        status = chat_encode(engine->tokenizer, &segments, &list, &err);
    chat_segments_fini(&segments);
    chat_request_fini(&request);
    return give_tokens(&list, status, &err, out, error);
}

/* ---- replies ---- */

struct day0_reply {
    struct reply reply;
    day0_reply_fn *on_event;
    void *context;
};

static enum status pass_on(void *context, const struct reply_event *event, struct error *err)
{
    static const day0_reply_kind kinds[] = {
        [REPLY_EVENT_REASONING] = DAY0_REPLY_REASONING,   [REPLY_EVENT_CONTENT] = DAY0_REPLY_CONTENT,
        [REPLY_EVENT_CALL_BEGIN] = DAY0_REPLY_CALL_BEGIN, [REPLY_EVENT_CALL_ARGUMENTS] = DAY0_REPLY_CALL_ARGUMENTS,
        [REPLY_EVENT_CALL_END] = DAY0_REPLY_CALL_END,     [REPLY_EVENT_END] = DAY0_REPLY_END,
    };
    (void)err;
    const struct day0_reply *r = context;
    if (event->kind == REPLY_EVENT_ARGUMENT) /* told again by the arguments' JSON */
        return STATUS_OK;
    day0_reply_event out = {.kind = kinds[event->kind],
                            .text = event->text.data,
                            .text_bytes = event->text.bytes,
                            .call_index = event->call_index,
                            .is_flawed = (event->flaws & REPLY_FLAWS_BROKEN) != 0,
                            .is_cut = event->finish == REPLY_CUT};
    r->on_event(r->context, &out);
    return STATUS_OK;
}

day0_status day0_reply_open(day0_reply **out, const day0_engine *engine, bool thinking, day0_reply_fn *on_event,
                            void *context, day0_error *error)
{
    struct error err;
    day0_reply *r = NULL;
    *out = NULL;
    enum status status = need_tokenizer(engine, &err);
    if (status == STATUS_OK)
        status = memory_take(&r, 1, sizeof *r, "a reply", &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    r->on_event = on_event;
    r->context = context;
    reply_init(&r->reply, engine->tokenizer, chat_format_of(engine->tokenizer), thinking, on_event ? pass_on : NULL, r);
    *out = r;
    return DAY0_OK;
}

day0_status day0_reply_push(day0_reply *reply, int32_t id, day0_error *error)
{
    struct error err;
    enum status status = reply_push(&reply->reply, id, &err);
    return engine_error(error, status, &err);
}

day0_status day0_reply_finish(day0_reply *reply, bool stopped, day0_error *error)
{
    struct error err;
    enum status status = reply_finish(&reply->reply, stopped, &err);
    return engine_error(error, status, &err);
}

day0_status day0_reply_message(const day0_reply *reply, char **json, day0_error *error)
{
    struct error err;
    struct byte_buffer text = {0};
    enum status status = chat_reply_message(&reply->reply, "call_", &text, &err);
    if (status == STATUS_OK)
        status = byte_buffer_append(&text, "", 1, &err);
    if (status != STATUS_OK)
        byte_buffer_fini(&text);
    *json = text.data;
    return engine_error(error, status, &err);
}

void day0_reply_close(day0_reply *reply)
{
    if (!reply)
        return;
    reply_fini(&reply->reply);
    free(reply);
}
