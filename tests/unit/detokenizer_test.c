/* Streaming text: what comes out token by token is the decoding of all bytes at once, in whole characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "text/detokenizer.h"

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

/* All bytes at once: valid characters stay, each maximal invalid front becomes U+FFFD. */
static void replace_invalid(const struct byte_buffer *bytes, struct byte_buffer *out)
{
    for (size_t at = 0; at < bytes->bytes;) {
        struct utf8_step step = utf8_step(bytes->data + at, bytes->bytes - at);
        if (step.kind == UTF8_VALID)
            must(byte_buffer_append(out, bytes->data + at, step.bytes, &err));
        else
            must(byte_buffer_append_text(out, UTF8_REPLACEMENT, &err));
        at += step.bytes;
    }
}

static void streams_like_one_decode(void **state)
{
    (void)state;
    struct rng rng = {11};
    struct detokenizer stream;
    detokenizer_init(&stream, tokenizer);
    for (int round = 0; round < 5000; round++) {
        struct byte_buffer bytes = {0}, want = {0}, got = {0};
        size_t count = rng_below(&rng, 40);
        for (size_t i = 0; i < count; i++) {
            /* Mostly single bytes of multi-byte characters, so that fronts, breaks and whole characters all
             * occur. */
            int32_t id = (int32_t)rng_below(&rng, (uint64_t)tokenizer_vocab_size(tokenizer));
            static const char fronts[] = "\xf0\x9f\x98\x80\xe4\xbd\xed\xa0\xc2\xf4\x8f\xbf";
            if (rng_below(&rng, 3)) {
                struct token_list one = {0};
                must(tokenizer_encode(tokenizer, &fronts[rng_below(&rng, sizeof fronts - 1)], 1, &one, &err));
                id = one.ids[0];
                token_list_fini(&one);
            }
            must(tokenizer_decode(tokenizer, &id, 1, &bytes, &err));
            size_t before = got.bytes;
            must(detokenizer_push(&stream, id, &got, &err));
            assert_true(utf8_is_valid(got.data + before, got.bytes - before));
        }
        must(detokenizer_flush(&stream, &got, &err));
        replace_invalid(&bytes, &want);
        assert_int_equal(want.bytes, got.bytes);
        if (got.bytes)
            assert_memory_equal(want.data, got.data, got.bytes);
        byte_buffer_fini(&bytes);
        byte_buffer_fini(&want);
        byte_buffer_fini(&got);
    }
}

/* Pushes the bytes one by one, flushes, compares. */
static void assert_replaced(const char *bytes, const char *want)
{
    struct detokenizer stream;
    struct byte_buffer got = {0};
    struct token_list ids = {0};
    detokenizer_init(&stream, tokenizer);
    for (const char *at = bytes; *at; at++)
        must(tokenizer_encode(tokenizer, at, 1, &ids, &err));
    for (size_t i = 0; i < ids.count; i++)
        must(detokenizer_push(&stream, ids.ids[i], &got, &err));
    must(detokenizer_flush(&stream, &got, &err));
    must(byte_buffer_append(&got, "", 1, &err));
    assert_string_equal(got.data, want);
    byte_buffer_fini(&got);
    token_list_fini(&ids);
}

static void replaces_as_python(void **state)
{
    (void)state;
#define R UTF8_REPLACEMENT
    /* The right sides are Python's bytes.decode(errors="replace"). */
    assert_replaced("a\xf0\x9f\x98\x80z", "a\xf0\x9f\x98\x80z");
    assert_replaced("\xf0\x9f\x98", R);
    assert_replaced("\xf0\x9f\x98z", R "z");
    assert_replaced("\xf0\x9f\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80");
    assert_replaced("\xe0\x80\x80", R R R);
    assert_replaced("\xed\xa0\x80", R R R);
    assert_replaced("\xf4\x90\x80\x80", R R R R);
    assert_replaced("\xc0\xaf\xc2", R R R);
    assert_replaced("\xe4\xbd\xa0\x80", "\xe4\xbd\xa0" R);
    assert_replaced("\xf8\x88\x80\x80\x80", R R R R R);
#undef R
}

static void holds_back_and_refuses(void **state)
{
    (void)state;
    struct detokenizer stream;
    struct byte_buffer out = {0};
    struct token_list ids = {0};
    detokenizer_init(&stream, tokenizer);
    must(tokenizer_encode(tokenizer, "\xe4", 1, &ids, &err));
    must(detokenizer_push(&stream, ids.ids[0], &out, &err));
    assert_int_equal(out.bytes, 0);
    assert_int_equal(detokenizer_push(&stream, tokenizer_vocab_size(tokenizer), &out, &err), STATUS_ARGUMENT);
    assert_int_equal(detokenizer_push(&stream, -1, &out, &err), STATUS_ARGUMENT);
    must(detokenizer_push(&stream, tokenizer_special(tokenizer, "[EOS]"), &out, &err));
    assert_int_equal(out.bytes, 8);
    assert_memory_equal(out.data, UTF8_REPLACEMENT "[EOS]", 8);
    byte_buffer_fini(&out);
    token_list_fini(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_like_one_decode),
        cmocka_unit_test(replaces_as_python),
        cmocka_unit_test(holds_back_and_refuses),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
