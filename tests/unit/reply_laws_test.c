/* Laws of replies: message to ids to message, any ids, no leaks, limits, sinks that fail. */
#include "reply_help.h"

/* ---- there and back ---- */

static const char *random_piece(struct rng *rng)
{
    static const char *const pieces[] = {"a",
                                         "word ",
                                         "\"",
                                         "&",
                                         "&quot;",
                                         "<|open|>",
                                         "<|close|>",
                                         "<|sep|>",
                                         "[EOS]",
                                         "\xc3\xa9",
                                         "\n",
                                         "\\",
                                         "argument key=\"",
                                         "\xf0\x9f\x98\x80",
                                         "{",
                                         " type=\"",
                                         "<|end_of_msg|>",
                                         "\t",
                                         "call",
                                         "\xe6\xbc\xa2"};
    return pieces[rng_below(rng, sizeof pieces / sizeof *pieces)];
}

static void random_text(struct rng *rng, struct byte_buffer *out)
{
    out->bytes = 0;
    for (uint64_t i = rng_below(rng, 8); i > 0; i--)
        must(byte_buffer_append_text(out, random_piece(rng), &err));
}

static void add_json_string(struct byte_buffer *json, const struct byte_buffer *text)
{
    must(json_text_write_string(json, (struct byte_span){text->data, text->bytes}, &err));
}

/* Arguments of distinct keys in Python's spelling. */
static void random_arguments(struct rng *rng, struct byte_buffer *out)
{
    static const char *const values[] = {"1",
                                         "-2.5",
                                         "1e+20",
                                         "true",
                                         "false",
                                         "null",
                                         "[]",
                                         "[1, \"x\", {}]",
                                         "{\"a\": {\"b\": \"\\n\"}}",
                                         "12345678901234567890123"};
    struct byte_buffer text = {0};
    out->bytes = 0;
    must(byte_buffer_append_text(out, "{", &err));
    for (uint64_t i = 0, count = rng_below(rng, 4); i < count; i++) {
        must(byte_buffer_append_text(out, i ? ", " : "", &err));
        random_text(rng, &text);
        must(byte_buffer_append(&text, &(char){(char)('0' + i)}, 1, &err));
        add_json_string(out, &text);
        must(byte_buffer_append_text(out, ": ", &err));
        random_text(rng, &text);
        if (rng_below(rng, 2))
            add_json_string(out, &text);
        else
            must(byte_buffer_append_text(out, values[rng_below(rng, sizeof values / sizeof *values)], &err));
    }
    must(byte_buffer_append_text(out, "}", &err));
    byte_buffer_fini(&text);
}

/* The ids of segments [first, end). */
static void encode_range(const struct tokenizer *t, const struct chat_segments *segments, size_t first, size_t end,
                         struct token_list *ids)
{
    struct chat_segments part = {0};
    for (size_t i = first; i < end; i++) {
        struct chat_segment segment = chat_segments_at(segments, i);
        struct byte_span text = {segment.text, segment.bytes};
        char name[64];
        snprintf(name, sizeof name, "%.*s", segment.bytes < 63 ? (int)segment.bytes : 0, segment.text);
        must(segment.is_control ? chat_segments_control(&part, name, &err) : chat_segments_text(&part, text, &err));
    }
    must(chat_encode(t, &part, ids, &err));
    chat_segments_fini(&part);
}

/* Where the reply stands among the segments of [user, assistant] and the next prompt: the prompt of the user
 * alone comes before it, and its last part, which opens a reply, again after it. */
static void find_reply(const struct chat_segments *all, enum chat_format format, bool thinking, size_t *first,
                       size_t *end)
{
    struct chat_request request;
    struct chat_segments prompt = {0};
    size_t user = 0, ends = format == CHAT_FORMAT_K2 ? 2 : 1; /* K2 says a system message first */
    must(chat_request_user(&request, "u", 1, thinking, NULL, &err));
    must(chat_render(format, &request, &prompt, &err));
    while (ends > 0) {
        struct chat_segment segment = chat_segments_at(&prompt, user++);
        ends -= segment.is_control &&
                (strncmp(segment.text, E, segment.bytes) == 0 || strncmp(segment.text, IM_END, segment.bytes) == 0);
    }
    *first = prompt.count;
    *end = all->count - (prompt.count - user);
    chat_request_fini(&request);
    chat_segments_fini(&prompt);
}

static void assert_segments_equal(const struct chat_segments *a, const struct chat_segments *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->entries[i].end, b->entries[i].end);
        assert_int_equal(a->entries[i].is_control, b->entries[i].is_control);
    }
    assert_memory_equal(a->text.data, b->text.data, a->text.bytes);
}

enum { CALLS_MAX = 3 };

/* A random reply, as fields and as the reply that would have been parsed from it. */
struct sample {
    struct reply reply; /* only the fields that chat_reply_message reads */
    struct reply_call calls[CALLS_MAX];
};

static void sample_make(struct sample *sample, struct rng *rng, bool thinking)
{
    *sample = (struct sample){0};
    sample->reply.calls = sample->calls;
    random_text(rng, &sample->reply.content);
    if (thinking && rng_below(rng, 4)) {
        random_text(rng, &sample->reply.reasoning);
        must(byte_buffer_append_text(&sample->reply.reasoning, "x", &err));
    }
    sample->reply.call_count = rng_below(rng, CALLS_MAX + 1);
    for (size_t i = 0; i < sample->reply.call_count; i++) {
        random_text(rng, &sample->calls[i].name);
        must(byte_buffer_append_text(&sample->calls[i].name, "f", &err));
        random_arguments(rng, &sample->calls[i].arguments);
    }
}

static void sample_fini(struct sample *sample)
{
    byte_buffer_fini(&sample->reply.content);
    byte_buffer_fini(&sample->reply.reasoning);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        byte_buffer_fini(&sample->calls[i].name);
        byte_buffer_fini(&sample->calls[i].arguments);
    }
}

/* Message to segments to ids to reply, and back to the same segments. */
static void round_trip(const struct tokenizer *t, enum chat_format format, uint64_t seed)
{
    struct rng rng = {seed};
    struct token_list ids = {0};
    for (int round = 0; round < 500; round++) {
        struct sample sample;
        struct reply reply;
        struct chat_segments segments = {0}, again = {0};
        size_t first, end;
        bool thinking = format == CHAT_FORMAT_K3 && rng_below(&rng, 2);
        sample_make(&sample, &rng, thinking);
        render_reply(&sample.reply, format, thinking, &segments);
        find_reply(&segments, format, thinking, &first, &end);
        ids.count = 0;
        encode_range(t, &segments, first, end, &ids);
        parse_reply(&reply, t, format, thinking, ids.ids, ids.count, false);
        if (reply.flaws != 0 || reply.finish != (sample.reply.call_count ? REPLY_CALLS : REPLY_STOPPED))
            fail_msg("round %d: %s", round, told(&reply));
        assert_true(buffers_equal(&reply.content, &sample.reply.content));
        assert_true(buffers_equal(&reply.reasoning, &sample.reply.reasoning));
        assert_int_equal(reply.call_count, sample.reply.call_count);
        for (size_t i = 0; i < reply.call_count; i++) {
            assert_true(buffers_equal(&reply.calls[i].name, &sample.calls[i].name));
            assert_true(buffers_equal(&reply.calls[i].arguments, &sample.calls[i].arguments));
        }
        render_reply(&reply, format, thinking, &again);
        assert_segments_equal(&segments, &again);
        if (round % 10 == 0)
            check_cuts(&reply, t, format, thinking, ids.ids, ids.count);
        chat_segments_fini(&segments);
        chat_segments_fini(&again);
        reply_fini(&reply);
        sample_fini(&sample);
    }
    token_list_fini(&ids);
}

static void round_trips(void **state)
{
    (void)state;
    round_trip(tokenizer, CHAT_FORMAT_K3, 5);
    round_trip(byte_tokenizer(), CHAT_FORMAT_K3, 6);
    round_trip(byte_tokenizer(), CHAT_FORMAT_K2, 7);
}

/* ---- any ids ---- */

static void add_random(const struct tokenizer *t, enum chat_format format, struct rng *rng, struct token_list *ids)
{
    static const char *const words[] = {"think",
                                        "response",
                                        "tools",
                                        "call tool=\"f\"",
                                        "call",
                                        "json",
                                        "argument",
                                        "message",
                                        "unknown",
                                        "1",
                                        "\"x\"",
                                        "{}",
                                        "argument key=\"a\" type=\"string\"",
                                        "argument key=\"b\" type=\"number\""};
    static const char *const tags[2][3] = {{O, C, S}, {NAME, JSON, DONE}};
    const char *const *controls = tags[format == CHAT_FORMAT_K2];
    const char *word = words[rng_below(rng, sizeof words / sizeof *words)];
    uint64_t kind = rng_below(rng, 16);
    int32_t first = 0, size = tokenizer_vocab_size(t);
    while (!tokenizer_is_special(t, first))
        first++;
    if (kind == 0) { /* any special token; any id, also none */
        must(token_list_push(ids, first + (int32_t)rng_below(rng, (uint64_t)(size - first)), &err));
    } else if (kind == 1) {
        must(token_list_push(ids, (int32_t)rng_below(rng, (uint64_t)size + 9) - 4, &err));
    } else if (kind < 5) {
        must(tokenizer_encode(t, word, strlen(word), ids, &err));
    } else { /* a tag or a call of K2, its parts missing now and then */
        bool is_k2 = format == CHAT_FORMAT_K2, is_close = !is_k2 && rng_below(rng, 3) == 0;
        if (rng_below(rng, 16))
            must(token_list_push(ids, tokenizer_special(t, controls[is_close]), &err));
        must(tokenizer_encode(t, word, strlen(word), ids, &err));
        if (is_k2 && rng_below(rng, 8)) {
            must(token_list_push(ids, tokenizer_special(t, controls[1]), &err));
            must(tokenizer_encode(t, "{}", 2, ids, &err));
        }
        if (rng_below(rng, 16))
            must(token_list_push(ids, tokenizer_special(t, controls[2]), &err));
    }
}

static void random_ids(void **state)
{
    (void)state;
    struct rng rng = {11};
    size_t finishes[4] = {0}, calls = 0;
    for (int round = 0; round < 2000; round++) {
        const struct tokenizer *t = round % 2 ? byte_tokenizer() : tokenizer;
        enum chat_format format = round % 10 == 1 ? CHAT_FORMAT_NONE : round % 4 == 3 ? CHAT_FORMAT_K2 : CHAT_FORMAT_K3;
        struct token_list ids = {0};
        struct reply reply;
        struct chat_segments segments = {0};
        for (uint64_t n = rng_below(&rng, 30); n > 0; n--)
            add_random(t, format, &rng, &ids);
        parse_reply(&reply, t, format, round % 3, ids.ids, ids.count, round % 5 == 0);
        finishes[reply.finish]++;
        calls += reply.call_count;
        if (round % 5)
            check_cuts(&reply, t, format, round % 3, ids.ids, ids.count);
        if (format != CHAT_FORMAT_NONE)
            render_reply(&reply, format, format == CHAT_FORMAT_K3, &segments);
        chat_segments_fini(&segments);
        reply_fini(&reply);
        token_list_fini(&ids);
    }
    print_message("%zu stopped, %zu with calls, %zu cut; %zu calls\n", finishes[REPLY_STOPPED], finishes[REPLY_CALLS],
                  finishes[REPLY_CUT], calls);
    assert_true(finishes[REPLY_STOPPED] > 100 && finishes[REPLY_CALLS] > 100 && finishes[REPLY_CUT] > 100);
}

/* Text outside of markers is digits, text inside of them is not: so a letter that comes out has leaked. */
struct leaks {
    struct byte_buffer text; /* reasoning and content as they came */
};

static enum status look_for_leaks(void *context, const struct reply_event *event, struct error *sink_err)
{
    struct leaks *leaks = context;
    bool is_text = event->kind == REPLY_EVENT_REASONING || event->kind == REPLY_EVENT_CONTENT;
    if (!is_text && event->kind != REPLY_EVENT_ARGUMENT)
        return STATUS_OK;
    for (size_t i = 0; i < event->text.bytes; i++)
        assert_true(memchr("0123456789\"", event->text.data[i], 11));
    return is_text ? byte_buffer_append(&leaks->text, event->text.data, event->text.bytes, sink_err) : STATUS_OK;
}

static void markers_do_not_leak(void **state)
{
    (void)state;
    static const char *const words[] = {"think", "response", "unknown",         "thi",
                                        "tools", "call",     "call tool=\"f\"", "argument key=\"a\" type=\"string\"",
                                        "json",  "argument", "message",         "argument key=\"b\" type=\"number\""};
    static const char *const controls[] = {O, C, S, "[BOS]"};
    struct rng rng = {13};
    for (int round = 0; round < 2000; round++) {
        /* Without calls nothing may get lost either. */
        bool has_calls = round % 2, in_marker = false;
        struct leaks leaks = {0};
        struct byte_buffer outside = {0};
        struct token_list ids = {0};
        struct reply reply;
        reply_init(&reply, tokenizer, CHAT_FORMAT_K3, rng_below(&rng, 2), look_for_leaks, &leaks);
        for (int n = 0; n < 60; n++) {
            uint64_t control = rng_below(&rng, 5);
            const char *word = words[rng_below(&rng, has_calls ? 12 : 4)], *digits = "1234567";
            ids.count = 0;
            if (rng_below(&rng, 2) && control < 4) {
                must(token_list_push(&ids, tokenizer_special(tokenizer, controls[control]), &err));
                in_marker = control < 2 || (in_marker && control == 3);
            } else if (in_marker) {
                must(tokenizer_encode(tokenizer, word, strlen(word), &ids, &err));
            } else {
                size_t length = 1 + rng_below(&rng, 7);
                must(tokenizer_encode(tokenizer, digits, length, &ids, &err));
                must(byte_buffer_append(&outside, digits, length, &err));
            }
            for (size_t i = 0; i < ids.count; i++)
                must(reply_push(&reply, ids.ids[i], &err));
        }
        must(reply_finish(&reply, rng_below(&rng, 2), &err));
        if (!has_calls)
            assert_true(buffers_equal(&outside, &leaks.text));
        reply_fini(&reply);
        token_list_fini(&ids);
        byte_buffer_fini(&outside);
        byte_buffer_fini(&leaks.text);
    }
}

/* ---- limits and failures ---- */

enum { LONG_BYTES = 65535 };

/* Bytes, the control tokens of K3, and one token of LONG_BYTES letters `a`. */
static struct tokenizer *long_tokenizer(int32_t *long_id)
{
    static const char config[] = "{\"added_tokens_decoder\": {\"257\": {\"content\": \"<|open|>\"}, \"258\": "
                                 "{\"content\": \"<|close|>\"}, \"259\": {\"content\": \"<|sep|>\"}, \"260\": "
                                 "{\"content\": \"<|end_of_msg|>\"}}}";
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct byte_buffer model = {0};
    struct tokenizer *t;
    char line[32];
    for (unsigned byte = 0; byte < 256; byte++) {
        snprintf(line, sizeof line, "%c%c== %u\n", letters[byte >> 2], letters[(byte & 3) << 4], byte);
        must(byte_buffer_append_text(&model, line, &err));
    }
    for (int i = 0; i < LONG_BYTES; i += 3)
        must(byte_buffer_append_text(&model, "YWFh", &err));
    must(byte_buffer_append_text(&model, " 256\n", &err));
    must(tokenizer_open_contents(&t, (struct byte_span){model.data, model.bytes},
                                 (struct byte_span){config, strlen(config)}, &err));
    byte_buffer_fini(&model);
    *long_id = 256;
    return t;
}

static void push_text(struct reply *reply, const struct tokenizer *t, const char *text)
{
    struct token_list ids = {0};
    to_ids(t, text, SPLIT_NOT, NULL, &ids);
    for (size_t i = 0; i < ids.count; i++)
        must(reply_push(reply, ids.ids[i], &err));
    token_list_fini(&ids);
}

static void push_long(struct reply *reply, int32_t id, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LONG_BYTES)
        must(reply_push(reply, id, &err));
}

static void limits(void **state)
{
    (void)state;
    static const char *const types[] = {"argument key=\"a\" type=\"string\"", "argument key=\"a\" type=\"number\"",
                                        "json"};
    int32_t id;
    struct tokenizer *t = long_tokenizer(&id);
    struct reply reply;
    for (size_t i = 0; i < 3; i++) { /* a call over its limit ends, the next one is whole */
        reply_init(&reply, t, CHAT_FORMAT_K3, true, NULL, NULL);
        push_text(&reply, t, THOUGHT("t") OPEN("tools") OPEN("call tool=\"f\"") O);
        push_text(&reply, t, types[i]);
        push_text(&reply, t, S);
        push_long(&reply, id, REPLY_CALL_BYTES_MAX + 1);
        assert_true(reply.value.capacity <= 2 * REPLY_CALL_BYTES_MAX);
        push_text(&reply, t, CLOSE("argument") CLOSE("call") CALL("g", "") CLOSE("tools") "c" E);
        assert_int_equal(reply.call_count, 2);
        assert_true(reply.calls[0].arguments.bytes <= REPLY_CALL_BYTES_MAX);
        assert_true(reply.calls[0].flaws & REPLY_FLAW_LARGE);
        assert_int_equal(reply.calls[1].flaws, 0);
        assert_int_equal(reply.finish, REPLY_CALLS);
        assert_int_equal(reply.content.bytes, 1);
        reply_fini(&reply);
    }
    reply_init(&reply, t, CHAT_FORMAT_K3, true, NULL, NULL);
    push_text(&reply, t, "t" O "call tool=\""); /* a tag over its limit is no tag, and its text no text */
    push_long(&reply, id, LONG_BYTES);
    push_text(&reply, t, "\"" S CLOSE("think") "c");
    assert_true(reply.flaws == REPLY_FLAW_LARGE && reply.tag.bytes <= REPLY_TAG_BYTES_MAX);
    assert_true(reply.reasoning.bytes == 1 && reply.content.bytes == 1 && reply.call_count == 0);
    push_long(&reply, id, REPLY_TEXT_BYTES_MAX); /* a text over its limit is cut */
    assert_int_equal(reply.finish, REPLY_CUT);
    assert_true(reply.content.bytes > REPLY_TEXT_BYTES_MAX - 2 * LONG_BYTES);
    reply_fini(&reply);
    /* A call that lost an argument so is broken, and not closed. */
    reply_init(&reply, t, CHAT_FORMAT_K3, true, NULL, NULL);
    push_text(&reply, t, OPEN("call tool=\"f\"") ARGUMENT("a", "number", "1") O "argument key=\"");
    push_long(&reply, id, LONG_BYTES);
    push_text(&reply, t, "\"" S "x" CLOSE("argument") CLOSE("call") E);
    assert_true(reply.finish == REPLY_STOPPED && reply.call_count == 1);
    assert_int_equal(reply.calls[0].flaws, REPLY_FLAW_LARGE | REPLY_FLAW_FORM);
    assert_memory_equal(reply.calls[0].arguments.data, "{\"a\": 1", reply.calls[0].arguments.bytes);
    reply_fini(&reply);
    reply_init(&reply, t, CHAT_FORMAT_K3, true, NULL, NULL);
    for (size_t i = 0; i <= REPLY_CALLS_MAX; i++)
        push_text(&reply, t, CALL("f", ""));
    assert_true(reply.finish == REPLY_CUT && reply.call_count == REPLY_CALLS_MAX);
    reply_fini(&reply);
    tokenizer_close(t);
}

static enum status refuse(void *context, const struct reply_event *event, struct error *sink_err)
{
    int *left = context;
    (void)event;
    return --*left < 0 ? error_set(sink_err, STATUS_IO, "the reader is gone") : STATUS_OK;
}

/* A sink that fails at any event: the failure comes out, and the reply can be released. */
static void sink_failures(void **state)
{
    (void)state;
    struct token_list ids = {0};
    to_ids(tokenizer,
           "t" TOOLS(CALL("f", ARGUMENT("a", "string", "x") ARGUMENT("b", "number", "1"))
                         CALL("g", OPEN("json") "{}" CLOSE("json"))) RESPONSE("c") E,
           SPLIT_NOT, NULL, &ids);
    bool failed = true;
    int events = 0;
    for (; failed; events++) {
        int left = events;
        struct reply reply;
        enum status status = STATUS_OK;
        reply_init(&reply, tokenizer, CHAT_FORMAT_K3, true, refuse, &left);
        for (size_t i = 0; i < ids.count && status == STATUS_OK; i++)
            status = reply_push(&reply, ids.ids[i], &err);
        failed = status != STATUS_OK;
        assert_true(status == STATUS_OK || status == STATUS_IO);
        reply_fini(&reply);
    }
    assert_true(events > 12);
    token_list_fini(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips), cmocka_unit_test(random_ids),    cmocka_unit_test(markers_do_not_leak),
        cmocka_unit_test(limits),      cmocka_unit_test(sink_failures),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
