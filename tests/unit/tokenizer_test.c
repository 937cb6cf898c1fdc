/* The tokenizer: the ids of the tiktoken library, the round trip of any bytes, runs without a break, and bad
 * files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

static const char directory[] = "models/jargon-k31";
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
    must(tokenizer_open(&tokenizer, directory, &err));
    return 0;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

static void ids_equal_tiktoken(void **state)
{
    (void)state;
    json_error_t where;
    json_t *line, *golden = json_load_file("tests/golden/text/tokens_demo.json", JSON_ALLOW_NUL, &where);
    size_t index;
    assert_true(json_array_size(golden) == 3000);
    json_array_foreach (golden, index, line) {
        struct token_list ids = {0};
        json_t *text = json_array_get(line, 0), *want = json_array_get(line, 1);
        must(tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), &ids, &err));
        bool equal = ids.count == json_array_size(want);
        for (size_t i = 0; equal && i < ids.count; i++)
            equal = ids.ids[i] == json_integer_value(json_array_get(want, i));
        if (!equal)
            fail_msg("line %zu: other ids than tiktoken for: %s", index, json_string_value(text));
        token_list_fini(&ids);
    }
    json_decref(golden);
}

/* Encodes, decodes, compares; gives the number of tokens. */
static size_t round_trip(const struct tokenizer *with, const char *text, size_t bytes)
{
    struct token_list ids = {0};
    struct byte_buffer back = {0};
    must(tokenizer_encode(with, text, bytes, &ids, &err));
    for (size_t i = 0; i < ids.count; i++)
        assert_false(tokenizer_is_special(with, ids.ids[i]));
    must(tokenizer_decode(with, ids.ids, ids.count, &back, &err));
    assert_int_equal(back.bytes, bytes);
    if (bytes)
        assert_memory_equal(back.data, text, bytes);
    size_t count = ids.count;
    token_list_fini(&ids);
    byte_buffer_fini(&back);
    return count;
}

static void random_bytes_come_back(void **state)
{
    (void)state;
    struct rng rng = {1};
    char text[300];
    for (int round = 0; round < 4000; round++) {
        size_t bytes = rng_below(&rng, sizeof text);
        /* One kind a round: any bytes, bytes of few values, fronts of multi-byte characters among letters. */
        for (size_t i = 0; i < bytes; i++)
            text[i] = round % 3 == 0   ? (char)rng_below(&rng, 256)
                      : round % 3 == 1 ? "a \n\0\xe4\xbd\xa0\xf0\x9f\x98\x80"[rng_below(&rng, 11)]
                                       : (char)(0x60 + rng_below(&rng, 0x95));
        round_trip(tokenizer, text, bytes);
    }
    assert_int_equal(round_trip(tokenizer, "", 0), 0);
    assert_int_equal(round_trip(tokenizer, NULL, 0), 0);
}

static void special_names_are_text(void **state)
{
    (void)state;
    struct rng rng = {2};
    int32_t first = 0, end = tokenizer_vocab_size(tokenizer);
    while (!tokenizer_is_special(tokenizer, first))
        first++;
    assert_true(end - first >= 7);
    for (int32_t id = first; id < end; id++) {
        size_t bytes;
        const char *name = tokenizer_bytes(tokenizer, id, &bytes);
        assert_int_equal(tokenizer_special(tokenizer, name), id);
        for (int round = 0; round < 50; round++) {
            char text[256];
            size_t used = 0;
            while (used + bytes + 1 < sizeof text) {
                if (rng_below(&rng, 4) == 0) {
                    memcpy(text + used, name, bytes);
                    used += bytes;
                } else {
                    text[used++] = (char)(' ' + (int)rng_below(&rng, 95));
                }
            }
            round_trip(tokenizer, text, used);
        }
    }
    assert_int_equal(tokenizer_special(tokenizer, "<|no such token|>"), -1);
}

static void long_runs(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    const char *kinds[] = {" ", "a", "Z", "7", "\n", ".", "\xff", "\xe4\xbd\xa0", "aB", " \n", "'s"};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        size_t period = strlen(kinds[kind]);
        for (size_t i = 0; i < BYTES; i++)
            text[i] = kinds[kind][i % period];
        double start = clock_seconds();
        size_t count = round_trip(tokenizer, text, BYTES / period * period);
        double seconds = clock_seconds() - start;
        print_message("1 MB of kind %zu: %zu tokens, %.2f s\n", kind, count, seconds);
        assert_true(seconds < 20);
    }
    free(text);
}

static void cuts_as_the_vendor(void **state)
{
    (void)state;
    struct pretokenizer *splitter;
    struct pretokenizer_cursor cursor;
    struct byte_span piece;
    enum { BYTES = 900000 };
    char *text = malloc(BYTES);
    must(pretokenizer_open(&splitter, &err));
    memset(text, 'a', 60000);
    must(pretokenizer_begin(&cursor, splitter, text, 60000, &err));
    for (size_t want = 25000, i = 0; i < 3; i++, want = i == 2 ? 10000 : 25000) {
        must(pretokenizer_next(&cursor, &piece, &err));
        assert_int_equal(piece.bytes, want);
    }
    pretokenizer_end(&cursor);
    /* Words of 9 letters and a space, so that the part of 400,000 ends between words, then shifted by one
     * character. */
    for (size_t shift = 0; shift < 2; shift++) {
        for (size_t i = 0; i < BYTES; i++)
            text[i] = (i + shift) % 10 == 0 ? ' ' : 'x';
        bool starts_at_part = false, starts_inside = false;
        must(pretokenizer_begin(&cursor, splitter, text, BYTES, &err));
        for (;;) {
            must(pretokenizer_next(&cursor, &piece, &err));
            if (piece.bytes == 0)
                break;
            starts_at_part |= piece.data == text + 400000;
            starts_inside |= piece.data != text && *piece.data != ' ';
        }
        pretokenizer_end(&cursor);
        assert_true(starts_at_part);
        assert_int_equal(starts_inside, shift == 1);
    }
    pretokenizer_close(splitter);
    free(text);
}

static void bytes_of_ids(void **state)
{
    (void)state;
    size_t bytes;
    struct byte_buffer out = {0};
    int32_t end = tokenizer_vocab_size(tokenizer);
    assert_null(tokenizer_bytes(tokenizer, -1, &bytes));
    assert_null(tokenizer_bytes(tokenizer, end, &bytes));
    assert_string_equal(tokenizer_bytes(tokenizer, tokenizer_special(tokenizer, "<|open|>"), &bytes), "<|open|>");
    assert_int_equal(bytes, 8);
    assert_int_equal(tokenizer_decode(tokenizer, &end, 1, &out, &err), STATUS_ARGUMENT);
    assert_non_null(strstr(err.text, "vocabulary"));
    assert_null(out.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_tiktoken),     cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(special_names_are_text), cmocka_unit_test(long_runs),
        cmocka_unit_test(cuts_as_the_vendor),     cmocka_unit_test(bytes_of_ids),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
