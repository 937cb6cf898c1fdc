/* Chat prompts: the vendor's segments, refusals, what looks like structure, and both formats on small
 * requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "text/chat.h"

static struct tokenizer *tokenizer;
static struct error err;

static void must(enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
}

static int open_tokenizer(void **state)
{
    (void)state;
    must(tokenizer_open(&tokenizer, "models/jargon-k31", &err));
    return 0;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

static enum status render_json(enum chat_format format, const char *json, struct chat_segments *segments)
{
    struct chat_request request;
    *segments = (struct chat_segments){0};
    enum status status = chat_request_init(&request, json, strlen(json), &err);
    if (status == STATUS_OK)
        status = chat_render(format, &request, segments, &err);
    chat_request_fini(&request);
    return status;
}

/* The prompt as one text, a bar before each segment. */
static char *joined(const struct chat_segments *segments)
{
    struct byte_buffer out = {0};
    for (size_t i = 0; i < segments->count; i++) {
        struct chat_segment segment = chat_segments_at(segments, i);
        must(byte_buffer_append_text(&out, "|", &err));
        must(byte_buffer_append(&out, segment.text, segment.bytes, &err));
    }
    must(byte_buffer_append(&out, "", 1, &err));
    return out.data;
}

/* The rendered prompt contains `want`. */
static void assert_rendered(enum chat_format format, const char *json, const char *want)
{
    struct chat_segments segments;
    must(render_json(format, json, &segments));
    char *text = joined(&segments);
    if (!strstr(text, want))
        fail_msg("want: %s\nfound: %s", want, text);
    free(text);
    chat_segments_fini(&segments);
}

/* The request is refused, and the sentence contains `want`. */
static void assert_refused(enum chat_format format, const char *json, const char *want)
{
    struct chat_segments segments;
    assert_int_not_equal(render_json(format, json, &segments), STATUS_OK);
    chat_segments_fini(&segments);
    if (!strstr(err.text, want))
        fail_msg("want: %s\nfound: %s", want, err.text);
}

static void segments_equal_vendor(void **state)
{
    (void)state;
    json_error_t where;
    json_t *entry, *golden = json_load_file("tests/golden/text/chat_k3.json", 0, &where);
    size_t index, rendered = 0, refused = 0;
    assert_int_equal(json_array_size(golden), 60);
    json_array_foreach (golden, index, entry) {
        struct chat_segments segments;
        json_t *want = json_object_get(entry, "segments");
        char *json = json_dumps(json_object_get(entry, "request"), 0);
        enum status status = render_json(CHAT_FORMAT_K3, json, &segments);
        if ((status == STATUS_OK) != !!want)
            fail_msg("request %zu: %s", index, status == STATUS_OK ? "rendered, the vendor refuses" : err.text);
        rendered += status == STATUS_OK;
        refused += status != STATUS_OK;
        assert_true(status != STATUS_OK || segments.count == json_array_size(want));
        for (size_t i = 0; status == STATUS_OK && i < segments.count; i++) {
            struct chat_segment segment = chat_segments_at(&segments, i);
            json_t *text = json_array_get(json_array_get(want, i), 0);
            if (segment.bytes != json_string_length(text) ||
                memcmp(segment.text, json_string_value(text), segment.bytes) != 0 ||
                segment.is_control != json_is_true(json_array_get(json_array_get(want, i), 1)))
                fail_msg("request %zu, segment %zu: want %s, found %.*s", index, i, json_string_value(text),
                         (int)segment.bytes, segment.text);
        }
        free(json);
        chat_segments_fini(&segments);
    }
    print_message("%zu requests rendered as the vendor's, %zu refused as there\n", rendered, refused);
    json_decref(golden);
}

static void structure_in_text_stays_text(void **state)
{
    (void)state;
    struct rng rng = {3};
    int32_t first = 0;
    while (!tokenizer_is_special(tokenizer, first))
        first++;
    for (int round = 0; round < 500; round++) {
        char text[400];
        size_t used = 0, controls = 0;
        while (used < 300) {
            size_t bytes;
            int32_t id = first + (int32_t)rng_below(&rng, (uint64_t)(tokenizer_vocab_size(tokenizer) - first));
            const char *name = tokenizer_bytes(tokenizer, id, &bytes);
            if (rng_below(&rng, 3) == 0)
                memcpy(text + used, name, bytes);
            else
                memcpy(text + used, "message role=\"system\" ", bytes = 1 + rng_below(&rng, 22));
            used += bytes;
        }
        struct chat_request request;
        struct chat_segments segments = {0};
        struct token_list ids = {0};
        must(chat_request_user(&request, text, used, round % 2, NULL, &err));
        must(chat_render(CHAT_FORMAT_K3, &request, &segments, &err));
        must(chat_encode(tokenizer, &segments, &ids, &err));
        for (size_t i = 0; i < ids.count; i++)
            controls += tokenizer_is_special(tokenizer, ids.ids[i]);
        assert_int_equal(controls, 5 + 4); /* of the user's message; of the assistant's two tags */
        chat_request_fini(&request);
        chat_segments_fini(&segments);
        token_list_fini(&ids);
    }
}

static void user_helper(void **state)
{
    (void)state;
    struct chat_request request;
    struct chat_segments segments = {0};
    must(chat_request_user(&request, "a \"b\"\n\\ \x01 \xc3\xa9\0z", 15, true, "high", &err));
    must(chat_render(chat_format_of(tokenizer), &request, &segments, &err));
    char *text = joined(&segments);
    assert_non_null(strstr(text, "`thinking_effort=high`.|<|close|>"));
    assert_non_null(strstr(text, "|user|\"|<|sep|>|a \"b\"\n\\ \x01 \xc3\xa9"));
    free(text);
    chat_request_fini(&request);
    chat_segments_fini(&segments);
    assert_int_equal(chat_request_user(&request, "\xff", 1, true, NULL, &err), STATUS_FORMAT);
    assert_int_equal(chat_request_user(&request, "a", 1, true, "huge", &err), STATUS_FORMAT);
    assert_non_null(strstr(err.text, "low, medium, high, max"));
}

#define USER "{\"role\": \"user\", \"content\": \"u\"}"
#define CALL(id, name, arguments)                                                                                      \
    "{\"id\": \"" id "\", \"function\": {\"name\": \"" name "\", \"arguments\": " arguments "}}"
#define CALLS(calls) "{\"role\": \"assistant\", \"content\": \"c\", \"tool_calls\": [" calls "]}"
#define RESULT(id, text) "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" text "\"}"
#define REQUEST(messages) "{\"messages\": [" messages "]}"

static void values_as_python_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *given, *type, *want;
    } cases[] = {
        {"1", "number", "1"},
        {"-0", "number", "0"},
        {"1.0", "number", "1.0"},
        {"1e2", "number", "100.0"},
        {"1E+16", "number", "1e+16"},
        {"123456789012345678901234567890", "number", "123456789012345678901234567890"},
        {"-9223372036854775809", "number", "-9223372036854775809"},
        {"9223372036854775807", "number", "9223372036854775807"},
        {"0.1", "number", "0.1"},
        {"0.00001", "number", "1e-05"},
        {"0.0001", "number", "0.0001"},
        {"5.960464477539063e-08", "number", "5.960464477539063e-08"},
        {"-0.0", "number", "-0.0"},
        {"1e400", "number", "Infinity"},
        {"-1e400", "number", "-Infinity"},
        {"NaN", "number", "NaN"},
        {"[-Infinity, 1e20, {}]", "array", "[-Infinity, 1e+20, {}]"},
        {"{\"b\": 2, \"a\": \"\\u0000\\u001f\\n\\\"\\u00e9\\u007f\", \"b\": 3}", "object",
         "{\"b\": 3, \"a\": \"\\u0000\\u001f\\n\\\"\xc3\xa9\x7f\"}"},
        {"\"NaN\"", "string", "NaN"},
        {"[\"\\u0000NaN\"]", "array", "[\"\\u0000NaN\"]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512], want[512];
        snprintf(json, sizeof json, REQUEST(USER "," CALLS(CALL("1", "f", "{\"k\": %s}"))), cases[i].given);
        snprintf(want, sizeof want, "| key|=\"|k|\"| type|=\"|%s|\"|<|sep|>|%s|<|close|>", cases[i].type,
                 cases[i].want);
        assert_rendered(CHAT_FORMAT_K3, json, want);
    }
}

static void tool_results_find_their_calls(void **state)
{
    (void)state;
#define TOOL(name, n, text)                                                                                            \
    "|<|open|>|message| role|=\"|tool|\"| tool|=\"|" name "|\"| index|=\"|" n "|\"|<|sep|>|" text "|"
#define END "<|close|>|message|<|sep|>|<|end_of_msg|>"
    const char *calls = CALLS(CALL("x", "f", "{}") "," CALL("y", "g", "\"\"")) ",";
    char json[1024];
    snprintf(json, sizeof json, REQUEST(USER ",%s" RESULT("y", "2") "," RESULT("x", "1")), calls);
    assert_rendered(CHAT_FORMAT_K3, json, TOOL("f", "1", "1") END TOOL("g", "2", "2") END);
    snprintf(json, sizeof json, REQUEST(USER ",%s" RESULT("y", "2") "," RESULT("z", "1")), calls);
    assert_rendered(CHAT_FORMAT_K3, json, TOOL("f", "1", "2") END TOOL("g", "2", "1") END);
    snprintf(json, sizeof json, REQUEST(USER ",%s" RESULT("z", "1") "," RESULT("z", "2") "," RESULT("z", "3")), calls);
    assert_refused(CHAT_FORMAT_K3, json, "messages[4]: the result of a tool answers no call");
    assert_refused(CHAT_FORMAT_K3, REQUEST(RESULT("z", "1")), "messages[0]");
}

static void later_tools(void **state)
{
    (void)state;
    assert_rendered(CHAT_FORMAT_K3,
                    REQUEST(USER ",{\"role\": \"system\", \"content\": \"x\", \"tools\": [{\"b\": 1, \"a\": 2.50}]}"),
                    "|\"|<|sep|>|## New Tools Available\n");
    assert_rendered(CHAT_FORMAT_K3,
                    REQUEST(USER ",{\"role\": \"system\", \"content\": \"x\", \"tools\": [{\"b\": 1, \"a\": 2.50}]}"),
                    "extended tools.\n\n```json\n[{\"a\":2.5,\"b\":1}]\n```|<|close|>");
}

static void k2_prompt(void **state)
{
    (void)state;
    assert_rendered(
        CHAT_FORMAT_K2, REQUEST(USER),
        "|<|im_system|>|system|<|im_middle|>|You are Kimi, an AI assistant created by Moonshot AI.|<|im_end|>"
        "|<|im_user|>|user|<|im_middle|>|u|<|im_end|>|<|im_assistant|>|assistant|<|im_middle|>");
    assert_rendered(CHAT_FORMAT_K2,
                    REQUEST(USER "," CALLS(CALL("x", "f", "{\"a\": 1}")) "," RESULT("x", "r") "," CALLS(
                        CALL("y", "g", "\"{}\"")) "," RESULT("y", "s")),
                    "|c|<|tool_calls_section_begin|>|<|tool_call_begin|>|functions.f:0|<|tool_call_argument_begin|>"
                    "|{\"a\": 1}|<|tool_call_end|>|<|tool_calls_section_end|>|<|im_end|>"
                    "|<|im_system|>|tool|<|im_middle|>|## Return of "
                    "functions.f:0\nr|<|im_end|>|<|im_assistant|>|assistant"
                    "|<|im_middle|>|c|<|tool_calls_section_begin|>|<|tool_call_begin|>|functions.g:1|"
                    "<|tool_call_argument_begin|>|{}|");
    assert_refused(CHAT_FORMAT_K2, "{\"messages\": [" USER "], \"tool_choice\": \"required\"}", "tool_choice");
    assert_refused(CHAT_FORMAT_NONE, REQUEST(USER), "no chat format");
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"", "line 1: not JSON"},
        {"{\"messages\": [" USER "]", "not JSON"},
        {"[]", "want an object"},
        {"123456789012345678901", "found number"},
        {"{}", "at least one message"},
        {"{\"messages\": {}}", "must be a list"},
        {REQUEST("1"), "messages[0]: must be an object, found number"},
        {REQUEST("{\"content\": \"x\"}"), "needs a `role`"},
        {REQUEST("{\"role\": \"developer\"}"), "system, user, assistant, tool; found \"developer\""},
        {REQUEST("{\"role\": 1}"), "`role` must be a string"},
        {REQUEST("{\"role\": \"user\", \"content\": NaN}"), "a string or a list of parts, found number"},
        {REQUEST("{\"role\": \"user\", \"content\": [\"x\"]}"), "messages[0]: `content`[0]: must be an object"},
        {REQUEST("{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}"), "found \"image_url\""},
        {REQUEST("{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}"), "needs `text`"},
        {REQUEST("{\"role\": \"user\", \"content\": \"\\ud800\"}"), "not JSON"},
        {REQUEST(CALLS("{}")), "`tool_calls`[0]: a tool call needs"},
        {REQUEST(CALLS("{\"function\": {}}")), "needs a `name`"},
        {REQUEST(CALLS(CALL("1", "f", "[]"))), "must be a JSON object, found array"},
        {REQUEST(CALLS(CALL("1", "f", "\"1e999\""))), "must be a JSON object, found number"},
        {"{\"messages\": [" USER "], \"tools\": [1]}", "`tools`[0]"},
        {"{\"messages\": [" USER "], \"tool_choice\": {\"type\": \"function\"}}", "`tool_choice` must be a string"},
        {"{\"messages\": [" USER "], \"response_format\": {\"type\": \"json_schema\"}}", "json_schema.schema"},
        {"{\"messages\": [" USER "], \"response_format\": {\"type\": \"xml\"}}", "text, json_object, json_schema"},
        {"{\"messages\": [" USER "], \"thinking\": 1}", "true or false"},
        {"{\"messages\": [" USER "], \"thinking_effort\": \"huge\"}", "low, medium, high, max; found \"huge\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(CHAT_FORMAT_K3, cases[i].json, cases[i].want);
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *json = malloc(2 * DEPTH + 64);
    size_t used = (size_t)sprintf(json, "{\"messages\": ");
    memset(json + used, '[', DEPTH);
    memset(json + used + DEPTH, ']', DEPTH);
    memcpy(json + used + 2 * DEPTH, "}", 2);
    assert_refused(CHAT_FORMAT_K3, json, "depth");
    free(json);
}

static void format_and_stops(void **state)
{
    (void)state;
    int32_t stops[CHAT_STOP_TOKENS_MAX];
    assert_int_equal(chat_format_of(tokenizer), CHAT_FORMAT_K3);
    assert_int_equal(chat_stop_tokens(tokenizer, stops), 2);
    assert_int_equal(stops[0], tokenizer_special(tokenizer, "[EOS]"));
    assert_int_equal(stops[1], tokenizer_special(tokenizer, "<|end_of_msg|>"));
    struct chat_segments segments = {0};
    struct token_list ids = {0};
    must(chat_segments_control(&segments, "<|im_user|>", &err));
    assert_int_equal(chat_encode(tokenizer, &segments, &ids, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "<|im_user|>"));
    chat_segments_fini(&segments);
    token_list_fini(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_equal_vendor),
        cmocka_unit_test(structure_in_text_stays_text),
        cmocka_unit_test(user_helper),
        cmocka_unit_test(values_as_python_writes_them),
        cmocka_unit_test(tool_results_find_their_calls),
        cmocka_unit_test(later_tools),
        cmocka_unit_test(k2_prompt),
        cmocka_unit_test(refusals),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(format_and_stops),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
