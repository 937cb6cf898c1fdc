/* Tokenizer files that do not say what they must: each is refused with a sentence that names the place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/chat.h"
#include "text/tokenizer.h"

static const char directory[] = "models/jargon-k31";
static char *model, *config;
static size_t model_bytes, config_bytes;
static struct error err;

static void must(enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
}

static int read_files(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX];
    must(file_join(path, directory, "tiktoken.model", &err));
    must(file_read(path, 1 << 24, &model, &model_bytes, &err));
    must(file_join(path, directory, "tokenizer_config.json", &err));
    must(file_read(path, 1 << 24, &config, &config_bytes, &err));
    return 0;
}

static int free_files(void **state)
{
    (void)state;
    free(model);
    free(config);
    return 0;
}

static struct byte_span good_model(void)
{
    return (struct byte_span){model, model_bytes};
}

static struct byte_span span(const char *text)
{
    return (struct byte_span){text, strlen(text)};
}

static void assert_refused(struct byte_span with_model, struct byte_span with_config, const char *want)
{
    struct tokenizer *tokenizer;
    assert_int_equal(tokenizer_open_contents(&tokenizer, with_model, with_config, &err), STATUS_FORMAT);
    assert_null(tokenizer);
    if (!strstr(err.text, want))
        fail_msg("want: %s\nfound: %s", want, err.text);
}

/* The good file with `text` put in place of line `line` (from 1). */
static void assert_line_refused(size_t line, const char *text, const char *want)
{
    struct byte_buffer file = {0};
    const char *start = model;
    for (size_t i = 1; i < line; i++)
        start = strchr(start, '\n') + 1;
    const char *rest = strchr(start, '\n');
    must(byte_buffer_append(&file, model, (size_t)(start - model), &err));
    must(byte_buffer_append_text(&file, text, &err));
    must(byte_buffer_append(&file, rest, model_bytes - (size_t)(rest - model), &err));
    assert_refused((struct byte_span){file.data, file.bytes}, (struct byte_span){config, config_bytes}, want);
    byte_buffer_fini(&file);
}

static void ranks_are_checked(void **state)
{
    (void)state;
    assert_refused(span(""), span("{}"), "want 256 to 16777216 tokens");
    assert_refused(span("AA== 0\n"), span("{}"), "found 1");
    assert_line_refused(300, "garbage", "line 300: want `base64 rank`, found `garbage`");
    assert_line_refused(300, "AAAA ", "line 300");
    assert_line_refused(300, "AAAA 12x", "line 300");
    assert_line_refused(300, "AAAA -1", "line 300");
    assert_line_refused(300, "AAAA 99999999999999999999", "line 300");
    assert_line_refused(300, "AA*A 299", "want base64 of 1 to");
    assert_line_refused(300, "AAA 299", "want base64");
    assert_line_refused(300, "A=== 299", "want base64");
    assert_line_refused(300, "==== 299", "want base64");
    assert_line_refused(300, " 299", "want base64");
    assert_line_refused(300, "AAAA 298", "rank 298 is there twice");
    assert_line_refused(300, "AAAA 1984", "rank 1984, but the 1984 lines must hold the ranks 0 to 1983 without gaps");
    assert_line_refused(300, "QQ== 299", "the ranks 65 and 299 are the same token");
    assert_line_refused(66, "AAAAAA== 65", "every single byte must be a token, byte 0x41 is not");
}

static void crlf_and_order_do_not_matter(void **state)
{
    (void)state;
    struct byte_buffer file = {0};
    struct tokenizer *tokenizer;
    for (const char *end = model + model_bytes; end > model;) { /* lines from the last to the first */
        const char *start = end - 1;
        while (start > model && start[-1] != '\n')
            start--;
        must(byte_buffer_append(&file, start, (size_t)(end - 1 - start), &err));
        must(byte_buffer_append_text(&file, "\r\n\n", &err));
        end = start;
    }
    must(tokenizer_open_contents(&tokenizer, (struct byte_span){file.data, file.bytes},
                                 (struct byte_span){config, config_bytes}, &err));
    size_t bytes;
    assert_memory_equal(tokenizer_bytes(tokenizer, 65, &bytes), "A", 1);
    tokenizer_close(tokenizer);
    byte_buffer_fini(&file);
}

static void specials_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *config, *want;
    } cases[] = {
        {"", "tokenizer_config.json line 1: not JSON"},
        {"{", "not JSON"},
        {"[]", "want an object `added_tokens_decoder`"},
        {"{}", "want an object `added_tokens_decoder`"},
        {"{\"added_tokens_decoder\": [1]}", "want an object"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}", "want ids as keys, found \"x\""},
        {"{\"added_tokens_decoder\": {\"-1\": {\"content\": \"a\"}}}", "want ids as keys"},
        {"{\"added_tokens_decoder\": {\"99999999999999999999\": {\"content\": \"a\"}}}", "want ids as keys"},
        {"{\"added_tokens_decoder\": {\"1983\": {\"content\": \"a\"}}}",
         "id 1983 is already a rank; special ids start at 1984"},
        {"{\"added_tokens_decoder\": {\"2000000\": {\"content\": \"a\"}}}", "id 2000000 is too large"},
        {"{\"added_tokens_decoder\": {\"1984\": {}}}", "1984 needs a `content`"},
        {"{\"added_tokens_decoder\": {\"1984\": {\"content\": \"\"}}}", "1984 needs a `content`"},
        {"{\"added_tokens_decoder\": {\"1984\": 5}}", "1984 needs a `content`"},
        {"{\"added_tokens_decoder\": {\"1984\": {\"content\": \"a\"}, \"1985\": {\"content\": \"a\"}}}",
         "1985 (a) is there twice"},
        {"{\"added_tokens_decoder\": {\"1984\": {\"content\": \"a\"}, \"01984\": {\"content\": \"b\"}}}",
         "is there twice"},
        {"{\"added_tokens_decoder\": {\"1986\": {\"content\": \"<|reserved_token_1984|>\"}}}",
         "is the name of another id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(good_model(), span(cases[i].config), cases[i].want);
}

static void unnamed_ids_are_reserved(void **state)
{
    (void)state;
    struct tokenizer *tokenizer;
    size_t bytes;
    must(tokenizer_open_contents(&tokenizer, good_model(),
                                 span("{\"added_tokens_decoder\": {\"2239\": {\"content\": \"[PAD]\"}}}"), &err));
    assert_int_equal(tokenizer_vocab_size(tokenizer), 1984 + 256);
    assert_string_equal(tokenizer_bytes(tokenizer, 2000, &bytes), "<|reserved_token_2000|>");
    assert_int_equal(tokenizer_special(tokenizer, "<|reserved_token_2000|>"), 2000);
    assert_true(tokenizer_is_special(tokenizer, 1984) && !tokenizer_is_special(tokenizer, 1983));
    assert_int_equal(chat_format_of(tokenizer), CHAT_FORMAT_NONE);
    tokenizer_close(tokenizer);
    tokenizer_close(NULL);
}

static void k2_by_its_tokens(void **state)
{
    (void)state;
    struct tokenizer *tokenizer;
    int32_t stops[CHAT_STOP_TOKENS_MAX];
    must(tokenizer_open_contents(
        &tokenizer, good_model(),
        span("{\"added_tokens_decoder\": {\"1984\": {\"content\": \"[BOS]\"}, \"1985\": {\"content\": "
             "\"[EOS]\"}, "
             "\"1986\": {\"content\": \"<|im_end|>\"}, \"1987\": {\"content\": \"<|im_user|>\"}, "
             "\"1988\": {\"content\": \"<|im_assistant|>\"}, \"1994\": {\"content\": \"<|im_system|>\"}, "
             "\"2001\": {\"content\": \"<|im_middle|>\"}}}"),
        &err));
    assert_int_equal(chat_format_of(tokenizer), CHAT_FORMAT_K2);
    assert_int_equal(chat_stop_tokens(tokenizer, stops), 2);
    assert_int_equal(stops[0], 1985);
    assert_int_equal(stops[1], 1986);
    tokenizer_close(tokenizer);
}

static void missing_files_are_named(void **state)
{
    (void)state;
    struct tokenizer *tokenizer;
    assert_int_equal(tokenizer_open(&tokenizer, "no/such/place", &err), STATUS_NOT_FOUND);
    assert_null(tokenizer);
    assert_non_null(strstr(err.text, "no/such/place/tiktoken.model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_checked),    cmocka_unit_test(crlf_and_order_do_not_matter),
        cmocka_unit_test(specials_are_checked), cmocka_unit_test(unnamed_ids_are_reserved),
        cmocka_unit_test(k2_by_its_tokens),     cmocka_unit_test(missing_files_are_named),
    };
    return cmocka_run_group_tests(tests, read_files, free_files);
}
