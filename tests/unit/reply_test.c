/* Replies: what a model may say and how it is read, whole, cut before every token, and split in other ways.
 */
#include "reply_help.h"

struct row {
    const char *given, *want;
};

static void check_rows(const struct tokenizer *t, enum chat_format format, bool thinking, const struct row *rows,
                       size_t count)
{
    struct rng rng = {1};
    struct token_list ids = {0};
    for (size_t i = 0; i < count; i++) {
        for (int round = 0; round < 8; round++) {
            struct reply reply;
            struct chat_segments segments = {0};
            enum split split = round < SPLIT_RANDOM ? (enum split)round : SPLIT_RANDOM;
            to_ids(t, rows[i].given, split, &rng, &ids);
            parse_reply(&reply, t, format, thinking, ids.ids, ids.count, false);
            if (strcmp(told(&reply), rows[i].want) != 0)
                fail_msg("row %zu: %s\nwant:  %s\nfound: %s", i, rows[i].given, rows[i].want, told(&reply));
            check_cuts(&reply, t, format, thinking, ids.ids, ids.count);
            if (format != CHAT_FORMAT_NONE)
                render_reply(&reply, format, thinking && format == CHAT_FORMAT_K3, &segments);
            chat_segments_fini(&segments);
            reply_fini(&reply);
        }
    }
    token_list_fini(&ids);
}

#define CHECK_ROWS(t, format, thinking, rows) check_rows(t, format, thinking, rows, sizeof rows / sizeof *rows)

/* ---- K3 ---- */

static void well_formed(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {THOUGHT("t") RESPONSE("c") END, "stopped 0 [t] [c]"},
        {THOUGHT("") RESPONSE("") END, "stopped 0 [] []"},
        {THOUGHT("t") RESPONSE("c") TOOLS(CALL("f", "")) END, "calls 0 [t] [c] f {} 0"},
        {THOUGHT("t") RESPONSE("")
             TOOLS(CALL("f", ARGUMENT("a", "string", "x \"y\"\n")) CALL("g", ARGUMENT("b", "number", "1.50"))) END,
         "calls 0 [t] [] f {\"a\": \"x \\\"y\\\"\\n\"} 0 g {\"b\": 1.50} 0"},
        {THOUGHT("") RESPONSE("") TOOLS(
             CALL("f", ARGUMENT("a", "string", "") ARGUMENT("b", "number", "-12345678901234567890123")
                           ARGUMENT("c", "boolean", "true") ARGUMENT("d", "null", "null")
                               ARGUMENT("e", "object", "{\"x\": {}}") ARGUMENT("f", "array", "[1, \"N\\\"I\"]"))) END,
         "calls 0 [] [] f {\"a\": \"\", \"b\": -12345678901234567890123, \"c\": true, \"d\": null, "
         "\"e\": {\"x\": {}}, \"f\": [1, \"N\\\"I\"]} 0"},
        {THOUGHT("") RESPONSE("")
             TOOLS(CALL("a&quot;&amp;quot;&amp;&lt;", ARGUMENT("k\n&quot;&amp;", "string", "&amp;"))) END,
         "calls 0 [] [] a\"&quot;&&lt; {\"k\\n\\\"&\": \"&amp;\"} 0"},
        {THOUGHT("\xf0\x9f\x98\x80") RESPONSE("\xc3\xa9 \xe6\xbc\xa2") END,
         "stopped 0 [\xf0\x9f\x98\x80] [\xc3\xa9 \xe6\xbc\xa2]"},
        {THOUGHT("\1<|open|>tools\1<|sep|>") RESPONSE("\1<|close|>response\1<|sep|>\1<|end_of_msg|>&quot;\1[EOS]") END,
         "stopped 0 [<|open|>tools<|sep|>] [<|close|>response<|sep|><|end_of_msg|>&quot;[EOS]]"},
        {THOUGHT("") RESPONSE("") TOOLS(CALL("f", ARGUMENT("a", "string", "\1<|close|>argument\1<|sep|>\1<|open|>")))
             END,
         "calls 0 [] [] f {\"a\": \"<|close|>argument<|sep|><|open|>\"} 0"},
        {THOUGHT("") RESPONSE("") END "more" OPEN("tools"), "stopped 0 [] []"},
        {"t[EOS]u", "stopped 0 [t] []"},
    };
    static const struct row without_think[] = {
        {"c" CLOSE("response") END, "stopped 0 [] [c]"},
        {CLOSE("response") TOOLS(CALL("f", "")) END, "calls 0 [] [] f {} 0"},
        {"c" E, "stopped 0 [] [c]"},
    };
    CHECK_ROWS(tokenizer, CHAT_FORMAT_K3, true, rows);
    CHECK_ROWS(tokenizer, CHAT_FORMAT_K3, false, without_think);
}

static void ill_formed(void **state)
{
    (void)state;
    static const struct row rows[] = {
        /* reasoning never closed; no response */
        {"t" TOOLS(CALL("f", "")) END, "calls 1 [t] [] f {} 0"},
        {"t" RESPONSE("c") END, "stopped 1 [t] [c]"},
        {"t" CALL("f", "") E, "calls 1 [t] [] f {} 0"},
        {THOUGHT("t") TOOLS(CALL("f", "")) END, "calls 0 [t] [] f {} 0"},
        {THOUGHT("t") "c" TOOLS(CALL("f", "")) END, "calls 0 [t] [c] f {} 0"},
        {THOUGHT("t") "c" E, "stopped 0 [t] [c]"},
        {OPEN("think") THOUGHT("t") RESPONSE("c") END, "stopped 0 [t] [c]"},
        {THOUGHT("t") RESPONSE("c") OPEN("think") THOUGHT("u") "d" END, "stopped 0 [tu] [cd]"},
        /* calls that are not closed */
        {THOUGHT("") OPEN("tools") OPEN("call tool=\"f\"") OPEN("argument key=\"a\" type=\"number\"") "1" E,
         "calls 1 [] [] f {\"a\": 1} 1"},
        {THOUGHT("") OPEN("tools") OPEN("call tool=\"f\"") OPEN("argument key=\"a\" type=\"string\"") "x" OPEN(
             "argument key=\"b\" type=\"string\"") "y" OPEN("call tool=\"g\"") CLOSE("tools") "c" E,
         "calls 1 [] [c] f {\"a\": \"x\", \"b\": \"y\"} 1 g {} 1"},
        {THOUGHT("") OPEN("tools") OPEN("call tool=\"f\"") OPEN("argument key=\"a\" type=\"string\"") "x" RESPONSE("c"),
         "cut 1 [] [c] f {\"a\": \"x\"} 1"},
        /* attributes missing, in another order, ill-written */
        {THOUGHT("") TOOLS(OPEN("call") CLOSE("call")) E, "calls 1 [] []  {} 1"},
        {THOUGHT("") TOOLS(OPEN("call index=\"2\" x tool=\"f") CLOSE("call")) E, "calls 0 [] [] f {} 0"},
        {THOUGHT("") TOOLS(OPEN(" call  tool=f tool=\"g\" tool=\"h\" ") CLOSE("call")) E, "calls 0 [] [] g {} 0"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("argument key=\"a\"") "1" CLOSE("argument"))) E,
         "calls 1 [] [] f {\"a\": \"1\"} 1"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("argument type=\"number\" key=\"a\"") "1" CLOSE("argument"))) E,
         "calls 0 [] [] f {\"a\": 1} 0"},
        /* values that are not what they say */
        {THOUGHT("") TOOLS(CALL("f", ARGUMENT("a", "number", "one") ARGUMENT("b", "object", "{\"x\": ")
                                         ARGUMENT("c", "number", "NaN") ARGUMENT("d", "array", "")
                                             ARGUMENT("e", "number", "true") ARGUMENT("f", "integer", "7"))) E,
         "calls 2 [] [] f {\"a\": \"one\", \"b\": \"{\\\"x\\\": \", \"c\": \"NaN\", \"d\": \"\", \"e\": "
         "true, "
         "\"f\": 7} 2"},
        {THOUGHT("") TOOLS(CALL("f", ARGUMENT("a", "number", "1") ARGUMENT("a", "number", "2"))) E,
         "calls 4 [] [] f {\"a\": 1, \"a\": 2} 4"},
        /* the block of JSON */
        {THOUGHT("") TOOLS(CALL("f", OPEN("json type=\"object\"") "{\"a\":1}" CLOSE("json"))) E,
         "calls 0 [] [] f {\"a\":1} 0"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("json type=\"object\"") "{\"a\":" CLOSE("json"))) E,
         "calls 4 [] [] f {\"a\": 4"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("json type=\"object\"") "[1]" CLOSE("json"))) E, "calls 4 [] [] f [1] 4"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("json type=\"object\"") CLOSE("json"))) E, "calls 4 [] [] f {} 4"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("json") "{}" CLOSE("json") ARGUMENT("a", "number", "1"))) E,
         "calls 1 [] [] f {} 1"},
        {THOUGHT("") TOOLS(CALL("f", ARGUMENT("a", "number", "1") OPEN("json") "{}" CLOSE("json"))) E,
         "calls 1 [] [] f {\"a\": 1} 1"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("json") "{}" ARGUMENT("a", "number", "1"))) E, "calls 1 [] [] f {} 1"},
        {THOUGHT("") TOOLS(CALL("f", OPEN("json") "{\"a\": NaN}" CLOSE("json"))) E, "calls 4 [] [] f {\"a\": NaN} 4"},
        /* text and tags that do not belong */
        {THOUGHT("") RESPONSE("a" OPEN("b") "c" CLOSE("b") "d") "e" END, "stopped 1 [] [acde]"},
        {THOUGHT("") TOOLS("\n" CALL("f", " \n" ARGUMENT("a", "number", " 1\n")) "\n") E,
         "calls 0 [] [] f {\"a\":  1\n} 0"},
        {THOUGHT("") TOOLS("a" CALL("f", "b") "c") E, "calls 1 [] [] f {} 1"},
        {CLOSE("response") "t" CLOSE("tools") CLOSE("call") CLOSE("argument") CLOSE("json") S "u", "cut 1 [tu] []"},
        {THOUGHT("") RESPONSE("c") END, "stopped 0 [] [c]"},
        {THOUGHT("") "a" ARGUMENT("a", "string", "b") OPEN("json") "c" CLOSE("json") "d" E, "stopped 1 [] [abcd]"},
        {THOUGHT("") "a[BOS]b[PAD]c" E, "stopped 1 [] [abc]"},
        {THOUGHT("") RESPONSE("c") OPEN("message role=\"user\"") RESPONSE("d") TOOLS(CALL("f", "")),
         "stopped 1 [] [c]"},
        /* markers inside markers, and no end to them */
        {"t" O "thi" C "think" S "c" O "a" O "b" C "c" E, "stopped 1 [t] [c]"},
        {"t" C "think" O "response" S "c" E, "stopped 1 [t] [c]"},
        {"t" S S S "u" O S C S "v" E, "stopped 1 [tuv] []"},
        {"t" O "call tool=\"f\"" E, "stopped 1 [t] []"},
    };
    CHECK_ROWS(tokenizer, CHAT_FORMAT_K3, true, rows);
}

static void cut(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"", "cut 0 [] []"},
        {"t", "cut 0 [t] []"},
        {"t" C, "cut 0 [t] []"},
        {"t" C "thi", "cut 0 [t] []"},
        {THOUGHT("t") O "respon", "cut 0 [t] []"},
        {THOUGHT("t") RESPONSE("c"), "cut 0 [t] [c]"},
        {THOUGHT("t") RESPONSE("c") C "message", "cut 0 [t] [c]"},
        {THOUGHT("t") RESPONSE("c") CLOSE("message"), "stopped 0 [t] [c]"},
        {THOUGHT("t") TOOLS(CALL("f", "")) CLOSE("message"), "calls 0 [t] [] f {} 0"},
        {THOUGHT("t") TOOLS(CALL("f", "")), "cut 0 [t] [] f {} 0"},
        {THOUGHT("t") OPEN("tools") OPEN("call tool=\"f\""), "cut 16 [t] [] f  16"},
        {THOUGHT("t") OPEN("tools") OPEN("call tool=\"f\"") OPEN("argument key=\"a\" type=\"string\"") "rm /tmp",
         "cut 16 [t] [] f {\"a\": \"rm /tmp 16"},
        {THOUGHT("t") OPEN("tools") OPEN("call tool=\"f\"") OPEN("argument key=\"a\" type=\"number\"") "12",
         "cut 16 [t] [] f  16"},
        {THOUGHT("t") OPEN("tools") OPEN("call tool=\"f\"") ARGUMENT("a", "number", "12") C "call",
         "cut 16 [t] [] f {\"a\": 12 16"},
        {THOUGHT("t") OPEN("tools") OPEN("call tool=\"f\"") OPEN("json") "{}", "cut 16 [t] [] f {} 16"},
    };
    CHECK_ROWS(tokenizer, CHAT_FORMAT_K3, true, rows);
    /* The same words, ended by a stop token the parser does not know. */
    struct reply reply;
    struct token_list ids = {0};
    to_ids(tokenizer, rows[11].given, SPLIT_NOT, NULL, &ids);
    parse_reply(&reply, tokenizer, CHAT_FORMAT_K3, true, ids.ids, ids.count, true);
    assert_string_equal(told(&reply), "calls 1 [t] [] f {\"a\": \"rm /tmp\"} 1");
    must(reply_finish(&reply, false, &err));
    must(reply_push(&reply, 0, &err));
    assert_string_equal(told(&reply), "calls 1 [t] [] f {\"a\": \"rm /tmp\"} 1");
    reply_fini(&reply);
    reply_fini(&reply);
    token_list_fini(&ids);
}

static void half_characters(void **state)
{
    (void)state;
#define SMILE_FRONT "\xf0\x9f\x98"
#define FFFD "\xef\xbf\xbd"
    static const struct row rows[] = {
        {SMILE_FRONT, "cut 0 [] []"},
        {SMILE_FRONT E, "stopped 0 [" FFFD "] []"},
        {SMILE_FRONT CLOSE("think") "\x80 a\xff", "cut 0 [" FFFD "] [" FFFD " a" FFFD "]"},
        {"a" SMILE_FRONT C "thi" SMILE_FRONT S "b", "cut 1 [a" FFFD "b] []"},
        {THOUGHT("") TOOLS(CALL("f\xc3", ARGUMENT("\xe6\xbc", "string", "\xc3"))) E,
         "calls 0 [] [] f" FFFD " {\"" FFFD "\": \"" FFFD "\"} 0"},
        {THOUGHT("") TOOLS(CALL("f", ARGUMENT("a", "string", "\xc3\xa9" SMILE_FRONT))) E,
         "calls 0 [] [] f {\"a\": \"\xc3\xa9" FFFD "\"} 0"},
    };
    CHECK_ROWS(tokenizer, CHAT_FORMAT_K3, true, rows);
}

/* ---- the other formats ---- */

static void k2(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"c" IM_END, "stopped 0 [] [c]"},
        {"c[EOS]", "stopped 0 [] [c]"},
        {"c\xc3", "cut 0 [] [c]"},
        {"c" BEGIN NAME "functions.f:0" JSON "{\"a\": 1}" DONE NAME "functions.g.h:12" JSON "{}" DONE FINISH IM_END,
         "calls 0 [] [c] f {\"a\": 1} 0 g.h {} 0"},
        {BEGIN NAME "f" JSON "{}" DONE FINISH "d" IM_END, "calls 0 [] [d] f {} 0"},
        {BEGIN "\n" NAME " functions.f:x:1 \n" JSON "{}" DONE FINISH, "cut 0 [] [] f:x {} 0"},
        {BEGIN NAME "functions.:7" JSON "[]" DONE FINISH IM_END, "calls 5 [] []  [] 5"},
        {BEGIN NAME "f" JSON "{\"a\": " DONE FINISH IM_END, "calls 4 [] [] f {\"a\":  4"},
        {BEGIN NAME "f" JSON "{\"a\": " NAME "g" DONE IM_END, "calls 5 [] [] f {\"a\":  5 g {} 5"},
        {BEGIN NAME "f" JSON "{\"a\": 1}" IM_END, "calls 1 [] [] f {\"a\": 1} 1"},
        {BEGIN NAME "f" JSON "{\"a\": 1}", "cut 16 [] [] f {\"a\": 1} 16"},
        {BEGIN NAME "f", "cut 0 [] []"},
        {BEGIN NAME "f" IM_END, "stopped 1 [] []"},
        {"c" JSON "d" DONE "e<|im_user|>user<|im_middle|>f", "stopped 1 [] [cde]"},
        {"\1<|im_end|>\1<|tool_call_begin|>" IM_END, "stopped 0 [] [<|im_end|><|tool_call_begin|>]"},
    };
    CHECK_ROWS(byte_tokenizer(), CHAT_FORMAT_K2, false, rows);
}

static void no_format(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"a" OPEN("tools") "b", "cut 0 [] [a<|open|>tools<|sep|>b]"},
        {"a[EOS]b", "stopped 0 [] [a]"},
        {"a" E "b", "stopped 0 [] [a]"},
        {"\xe6\xbc", "cut 0 [] []"},
    };
    CHECK_ROWS(tokenizer, CHAT_FORMAT_NONE, true, rows);
}

/* ---- the message ---- */

static void message(void **state)
{
    (void)state;
    static const struct {
        const char *given, *want;
    } cases[] = {
        {THOUGHT("t\n") RESPONSE("c\"") END,
         "{\"role\": \"assistant\", \"content\": \"c\\\"\", \"reasoning_content\": \"t\\n\"}"},
        {E, "{\"role\": \"assistant\", \"content\": \"\"}"},
        {THOUGHT("") TOOLS(CALL("f", ARGUMENT("a", "string", "b")) CALL("g", OPEN("json") "[1]" CLOSE("json"))) END,
         "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"x0\", \"type\": "
         "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"b\\\"}\"}}, "
         "{\"id\": "
         "\"x1\", \"type\": \"function\", \"function\": {\"name\": \"g\", \"arguments\": \"{\\\"json\\\": "
         "[1]}\"}}]}"},
        {THOUGHT("") OPEN("tools") OPEN("call tool=\"f\"") ARGUMENT("a", "string", "b"),
         "{\"role\": \"assistant\", \"content\": \"\"}"},
    };
    struct token_list ids = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply reply;
        struct byte_buffer json = {0};
        to_ids(tokenizer, cases[i].given, SPLIT_NOT, NULL, &ids);
        parse_reply(&reply, tokenizer, CHAT_FORMAT_K3, true, ids.ids, ids.count, false);
        must(chat_reply_message(&reply, "x", &json, &err));
        must(byte_buffer_append(&json, "", 1, &err));
        assert_string_equal(json.data, cases[i].want);
        byte_buffer_fini(&json);
        reply_fini(&reply);
    }
    token_list_fini(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed),     cmocka_unit_test(ill_formed), cmocka_unit_test(cut),
        cmocka_unit_test(half_characters), cmocka_unit_test(k2),         cmocka_unit_test(no_format),
        cmocka_unit_test(message),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
