/* Byte pair encoding under a made vocabulary: the slow definition, a megabyte without a break, and the speed
 * on mixed text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
enum { SPEED_COUNTS = 0 };
#else
enum { SPEED_COUNTS = 1 };
#endif

static struct error err;

static void must(enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
}

/* ---- made vocabularies ---- */

enum { TOKEN_BYTES_MAX = 16 };

struct vocabulary {
    char (*tokens)[TOKEN_BYTES_MAX];
    unsigned char *lengths;
    size_t count;
    struct byte_buffer file;
};

static void add_line(struct vocabulary *vocabulary, const char *token, size_t bytes)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char line[64];
    size_t used = 0;
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t bits = 0;
        for (size_t at = i; at < i + 3; at++)
            bits = bits << 8 | (at < bytes ? (unsigned char)token[at] : 0);
        for (int shift = 18; shift >= 0; shift -= 6)
            line[used++] = letters[bits >> shift & 63];
    }
    memset(line + used - (2 - (bytes + 2) % 3), '=', 2 - (bytes + 2) % 3);
    used += (size_t)sprintf(line + used, " %zu\n", vocabulary->count);
    must(byte_buffer_append(&vocabulary->file, line, used, &err));
    memcpy(vocabulary->tokens[vocabulary->count], token, bytes);
    vocabulary->lengths[vocabulary->count++] = (unsigned char)bytes;
}

/* The bytes, then tokens that each join two older ones, as training makes them; joins stay inside `alphabet`
 * (pairs of a text start from its letters), and no token is there twice. */
static void make_vocabulary(struct vocabulary *vocabulary, size_t count, const char *const *alphabet, size_t letters,
                            uint64_t seed)
{
    struct rng rng = {seed};
    enum { SEEN = 1 << 20 };
    uint32_t *seen = calloc(SEEN, sizeof *seen);
    *vocabulary = (struct vocabulary){malloc(count * TOKEN_BYTES_MAX), malloc(count), 0, {0}};
    for (int byte = 0; byte < 256; byte++)
        add_line(vocabulary, &(char){(char)byte}, 1);
    while (vocabulary->count < count) {
        char token[2 * TOKEN_BYTES_MAX];
        size_t bytes = 0;
        for (int half = 0; half < 2; half++) {
            size_t pick = rng_below(&rng, letters + vocabulary->count - 256);
            const char *part = pick < letters ? alphabet[pick] : vocabulary->tokens[256 + pick - letters];
            size_t length = pick < letters ? strlen(part) : vocabulary->lengths[256 + pick - letters];
            memcpy(token + bytes, part, length);
            bytes += length;
        }
        uint64_t hash = 14695981039346656037u;
        for (size_t i = 0; i < bytes; i++)
            hash = (hash ^ (unsigned char)token[i]) * 1099511628211u;
        if (bytes > TOKEN_BYTES_MAX || bytes < 2 || seen[(hash >> 40) % SEEN])
            continue; /* a false alarm only costs a candidate */
        seen[(hash >> 40) % SEEN] = 1;
        add_line(vocabulary, token, bytes);
    }
    free(seen);
}

static void free_vocabulary(struct vocabulary *vocabulary)
{
    free(vocabulary->tokens);
    free(vocabulary->lengths);
    byte_buffer_fini(&vocabulary->file);
}

/* ---- tests ---- */

/* The definition: the lowest rank of all adjacent pairs, leftmost first, again and again. */
static size_t encode_slowly(const struct ranks *ranks, const char *piece, size_t bytes, int32_t *ids)
{
    size_t ends[600], count = bytes;
    if (ranks_find(ranks, piece, bytes) >= 0) {
        ids[0] = ranks_find(ranks, piece, bytes);
        return 1;
    }
    for (size_t i = 0; i < bytes; i++)
        ends[i] = i + 1;
    for (;;) {
        size_t best = 0;
        int32_t best_rank = -1;
        for (size_t i = 0; i + 1 < count; i++) {
            size_t start = i ? ends[i - 1] : 0;
            int32_t rank = ranks_find(ranks, piece + start, ends[i + 1] - start);
            if (rank >= 0 && (best_rank < 0 || rank < best_rank)) {
                best_rank = rank;
                best = i;
            }
        }
        if (best_rank < 0)
            break;
        memmove(ends + best, ends + best + 1, (--count - best) * sizeof *ends);
    }
    for (size_t i = 0; i < count; i++) {
        size_t start = i ? ends[i - 1] : 0;
        ids[i] = ranks_find(ranks, piece + start, ends[i] - start);
    }
    return count;
}

static void equals_the_definition(void **state)
{
    (void)state;
    static const char *const alphabet[] = {"a", "b", "c"};
    struct rng rng = {5};
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct vocabulary vocabulary;
        struct ranks ranks;
        make_vocabulary(&vocabulary, 300 + 100 * seed, alphabet, 3, seed);
        must(ranks_init(&ranks, vocabulary.file.data, vocabulary.file.bytes, "made", &err));
        for (int round = 0; round < 600; round++) {
            char piece[600];
            int32_t want[600];
            size_t bytes = 1 + rng_below(&rng, round % 4 ? 90 : sizeof piece);
            for (size_t i = 0; i < bytes; i++)
                piece[i] = (char)('a' + rng_below(&rng, 1 + (unsigned)round % 4));
            struct token_list got = {0};
            must(bpe_encode(&ranks, piece, bytes, &got, &err));
            assert_int_equal(encode_slowly(&ranks, piece, bytes, want), got.count);
            assert_memory_equal(want, got.ids, got.count * sizeof *want);
            token_list_fini(&got);
        }
        ranks_fini(&ranks);
        free_vocabulary(&vocabulary);
    }
}

static void megabyte_in_one_piece(void **state)
{
    (void)state;
    static const char *const alphabet[] = {"a"};
    enum { BYTES = 1 << 20 };
    struct vocabulary vocabulary;
    struct ranks ranks;
    struct token_list ids = {0};
    make_vocabulary(&vocabulary, 256 + 15, alphabet, 1, 1); /* runs of 2 to 16 letters */
    must(ranks_init(&ranks, vocabulary.file.data, vocabulary.file.bytes, "made", &err));
    char *piece = malloc(BYTES);
    memset(piece, 'a', BYTES);
    clock_t start = clock();
    must(bpe_encode(&ranks, piece, BYTES, &ids, &err));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("1 MB of one letter as one piece: %zu tokens, %.2f s\n", ids.count, seconds);
    assert_true(ids.count < BYTES && seconds < 20);
    token_list_fini(&ids);
    free(piece);
    ranks_fini(&ranks);
    free_vocabulary(&vocabulary);
}

/* Words of one to three tokens in two scripts, numbers, marks and lines. */
static size_t make_text(const struct vocabulary *vocabulary, char *text, size_t bytes)
{
    struct rng rng = {7};
    size_t used = 0;
    while (used + 64 < bytes) {
        uint64_t kind = rng_below(&rng, 20);
        if (kind < 16) {
            for (uint64_t parts = 1 + rng_below(&rng, 3); parts > 0; parts--) {
                size_t pick = 256 + rng_below(&rng, vocabulary->count - 256);
                memcpy(text + used, vocabulary->tokens[pick], vocabulary->lengths[pick]);
                used += vocabulary->lengths[pick];
            }
        } else if (kind == 16) {
            used += (size_t)sprintf(text + used, "%u", (unsigned)rng_below(&rng, 100000));
        } else {
            used += (size_t)sprintf(text + used, "%s",
                                    kind == 17   ? "(){};"
                                    : kind == 18 ? ",\n    "
                                                 : "\xe4\xbd\xa0\xe5\xa5\xbd");
        }
        text[used++] = ' ';
    }
    return used;
}

static void speed_on_mixed_text(void **state)
{
    (void)state;
    static const char *const alphabet[] = {"e", "t", "a",        "o",        "i",        "n",        "s",
                                           "r", "h", "l",        "d",        "c",        "u",        "m",
                                           "E", "T", "\xc3\xa9", "\xd0\xb0", "\xd0\xbe", "\xd0\xb5", "\xe4\xb8\xad"};
    static const char config[] = "{\"added_tokens_decoder\": {\"100000\": {\"content\": \"[EOS]\"}}}";
    size_t bytes = SPEED_COUNTS ? 10 << 20 : 1 << 20;
    struct vocabulary vocabulary;
    struct tokenizer *tokenizer;
    struct token_list ids = {0};
    make_vocabulary(&vocabulary, 100000, alphabet, sizeof alphabet / sizeof *alphabet, 9);
    must(tokenizer_open_contents(&tokenizer, (struct byte_span){vocabulary.file.data, vocabulary.file.bytes},
                                 (struct byte_span){config, strlen(config)}, &err));
    char *text = malloc(bytes);
    bytes = make_text(&vocabulary, text, bytes);
    clock_t start = clock();
    must(tokenizer_encode(tokenizer, text, bytes, &ids, &err));
    double rate = (double)bytes / 1e6 / ((double)(clock() - start) / CLOCKS_PER_SEC);
    print_message("%.1f MB of mixed text, 100,000 tokens: %.1f MB/s, %.2f bytes a token\n", (double)bytes / 1e6, rate,
                  (double)bytes / (double)ids.count);
    if (SPEED_COUNTS)
        assert_true(rate > 5);
    else
        print_message("SKIPPED: the 5 MB/s bound, which is for optimized builds without sanitizers\n");
    token_list_fini(&ids);
    free(text);
    tokenizer_close(tokenizer);
    free_vocabulary(&vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_definition),
        cmocka_unit_test(megabyte_in_one_piece),
        cmocka_unit_test(speed_on_mixed_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
