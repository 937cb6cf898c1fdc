/* Checkpoints on disk: names, shards, types, and every way a file can be wrong. */
#include "checkpoint_writer.h"

#include <stdbool.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

static char folder[WRITER_PATH_BYTES];

static int make_folder(void **state)
{
    (void)state;
    writer_make_folder(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    writer_remove_folder(folder);
    return 0;
}

static struct checkpoint *open_good(void)
{
    struct checkpoint *checkpoint;
    struct error err = {0};
    if (checkpoint_open(&checkpoint, folder, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return checkpoint;
}

static void expect_refused(enum status status, const char *const *words)
{
    struct checkpoint *checkpoint;
    struct error err = {0};
    enum status got = checkpoint_open(&checkpoint, folder, &err);
    if (got != status)
        fail_msg("status %d instead of %d: \"%s\" (wanted \"%s\"...)", got, status, err.text, words[0]);
    assert_null(checkpoint);
    writer_expect_words(&err, words);
}

/* ---- what opens ---- */

static void test_prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *stored, *canonical;
    } names[] = {
        {"language_model.model.layers.0.a", "model.layers.0.a"},
        {"model.language_model.layers.1.a", "model.layers.1.a"},
        {"model.language_model.model.layers.2.a", "model.layers.2.a"},
        {"model.layers.3.a", "model.layers.3.a"},
        {"layers.4.a", "model.layers.4.a"},
        {"language_model.layers.5.a", "model.layers.5.a"},
        {"language_model.lm_head.weight", "lm_head.weight"},
        {"embed_tokens.weight", "model.embed_tokens.weight"},
    };
    struct writer writer = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        writer_add(&writer, names[i].stored, "U8", 1, i + 1, 0, 0, 0);
    writer_save(&writer, folder, "model.safetensors", 0, 1);
    struct checkpoint *checkpoint = open_good();
    assert_int_equal(checkpoint_count(checkpoint), sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct tensor *tensor = checkpoint_find(checkpoint, names[i].canonical);
        assert_non_null(tensor);
        assert_string_equal(tensor->name, names[i].canonical);
        assert_int_equal(tensor->shape[0], i + 1);
    }
    for (size_t i = 1; i < checkpoint_count(checkpoint); i++)
        assert_true(strcmp(checkpoint_at(checkpoint, i - 1)->name, checkpoint_at(checkpoint, i)->name) < 0);
    assert_null(checkpoint_find(checkpoint, "model.layers.6.a"));
    assert_null(checkpoint_find(checkpoint, ""));
    checkpoint_close(checkpoint);
    writer_fini(&writer);
}

static void test_head_prefixes(void **state)
{
    (void)state;
    static const char *const stored[] = {"lm_head.weight", "language_model.lm_head.weight",
                                         "model.language_model.lm_head.weight"};
    for (size_t i = 0; i < 3; i++) {
        struct writer writer = {0};
        writer_add(&writer, stored[i], "BF16", 2, 2, 3, 0, 0);
        writer_save(&writer, folder, "model.safetensors", 0, 1);
        struct checkpoint *checkpoint = open_good();
        assert_non_null(checkpoint_find(checkpoint, "lm_head.weight"));
        checkpoint_close(checkpoint);
        writer_fini(&writer);
    }
}

/* The vision part is not read at all: its types, ranks and alignment are none of our business. */
static void test_vision_is_skipped(void **state)
{
    (void)state;
    writer_header(folder, "model.safetensors",
                  "{\"vision_tower.a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[1,3]},"
                  "\"mm_projector.b\":{\"dtype\":\"F4\",\"shape\":[2,2,2,2,2],\"data_offsets\":[4,5]},"
                  "\"model.vision_tower.c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]},"
                  "\"language_model.model.norm.weight\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[6,8]}}",
                  8);
    struct checkpoint *checkpoint = open_good();
    assert_int_equal(checkpoint_count(checkpoint), 1);
    assert_int_equal(checkpoint_skipped(checkpoint), 3);
    assert_non_null(checkpoint_find(checkpoint, "model.norm.weight"));
    checkpoint_close(checkpoint);
}

static void test_types_and_data(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "BF16", "F16", "U8", "I8"};
    static const enum stored stored[] = {STORED_F32, STORED_BF16, STORED_F16, STORED_U8, STORED_OTHER};
    struct writer writer = {0};
    char name[32];
    for (size_t i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "model.t%zu", i);
        memset(writer_add(&writer, name, types[i], 4, 2, 1, 3, 1)->data, (int)i + 1, 6 * writer_width(types[i]));
    }
    for (size_t n_shards = 1; n_shards <= 3; n_shards++) {
        if (n_shards == 1)
            writer_save(&writer, folder, "model.safetensors", 0, 1);
        else
            writer_save_shards(&writer, folder, n_shards);
        struct checkpoint *checkpoint = open_good();
        assert_int_equal(checkpoint_count(checkpoint), 5);
        for (size_t i = 0; i < 5; i++) {
            snprintf(name, sizeof name, "model.t%zu", i);
            const struct tensor *tensor = checkpoint_find(checkpoint, name);
            assert_non_null(tensor);
            assert_int_equal(tensor->stored, stored[i]);
            assert_string_equal(tensor->dtype, types[i]);
            assert_int_equal(tensor->rank, 4);
            assert_int_equal(tensor->shape[2], 3);
            assert_int_equal(tensor->bytes, 6 * writer_width(types[i]));
            assert_memory_equal(tensor->data, writer.tensors[i].data, tensor->bytes);
            assert_non_null(strstr(tensor->file, n_shards == 1 ? "model.safetensors" : "-of-00000"));
        }
        checkpoint_close(checkpoint);
    }
    writer_fini(&writer);
}

static void test_tolerated(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes, count;
    } cases[] = {
        {"{}", 0, 0},
        {" {\"__metadata__\":{\"a\":\"\\\"\\u00e9\",\"b\":[1,-2.5e3,true,null,{}]}} ", 0, 0},
        {"{\"model.a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"model.a\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[3,3]}}", 4, 1},
        {"{\"model.a\":{\"data_offsets\":[8,12],\"shape\":[1],\"dtype\":\"F32\",\"note\":{\"x\":[]}}}", 64, 1},
        {"{\"model.b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
         "\"model.a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
         8, 2},
        {"{\"model.a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        writer_header(folder, "model.safetensors", cases[i].header, cases[i].data_bytes);
        struct checkpoint *checkpoint = open_good();
        assert_int_equal(checkpoint_count(checkpoint), cases[i].count);
        checkpoint_close(checkpoint);
    }
}

static void test_many_names(void **state)
{
    (void)state;
    enum { N = 20000 };
    char *header = NULL, name[80];
    size_t header_bytes;
    FILE *out = open_memstream(&header, &header_bytes);
    for (uint32_t i = 0; i < N; i++)
        fprintf(out,
                "%c\"language_model.model.layers.%u.e.%u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
                i ? ',' : '{', i % 93, i, i, i + 1);
    fprintf(out, "}");
    fclose(out);
    writer_header(folder, "model.safetensors", header, N);
    free(header);
    struct checkpoint *checkpoint = open_good();
    const char *data = NULL;
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "model.layers.%u.e.%u", i % 93, i);
        const struct tensor *tensor = checkpoint_find(checkpoint, name);
        assert_non_null(tensor);
        assert_true(i == 0 || (const char *)tensor->data == data + 1);
        data = tensor->data;
    }
    checkpoint_close(checkpoint);
}

/* ---- what is refused ---- */

struct refusal {
    const char *header;
    size_t data_bytes;
    const char *words[6];
};

#define T(name, rest) "\"" name "\":{" rest "}"
#define GOOD "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]"

static const struct refusal refusals[] = {
    {"", 0, {"model.safetensors", "expected an object", "found its end"}},
    {"[]", 0, {"expected an object", "byte 0", "'['"}},
    {"{", 0, {"expected a string"}},
    {"{} x", 0, {"nothing more", "'x'"}},
    {"{\"a", 0, {"expected the end of a string"}},
    {"{\"a\\n\":1}", 0, {"a name without escapes"}},
    {"{\"a\":1}", 0, {"expected an object", "'1'"}},
    {"{\"a\"}", 0, {"expected a colon"}},
    {"{\"\":{" GOOD "}}", 4, {"names of 1 to 512 bytes"}},
    {"{" T("model.a", "\"shape\":[4],\"data_offsets\":[0,4]") "}", 4, {"model.a", "found no dtype"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"data_offsets\":[0,4]") "}", 4, {"model.a", "found no shape"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4]") "}", 4, {"model.a", "found no data_offsets"}},
    {"{" T("model.a", GOOD ",\"dtype\":\"U8\"") "}", 4, {"each key once"}},
    {"{" T("model.a", "\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]") "}", 4, {"expected a string"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]") "}", 4, {"a whole number", "'-'"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4.0],\"data_offsets\":[0,4]") "}", 4, {"a comma", "'.'"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[04],\"data_offsets\":[0,4]") "}", 4, {"leading zeros"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]") "}", 4, {"expected a list"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]") "}",
     4,
     {"below 2^64"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]") "}",
     4,
     {"16 axes"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]") "}", 4, {"two offsets"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]") "}", 4, {"two offsets"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]") "}", 4, {"model.a", "found 4 to 0"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]") "}",
     4,
     {"model.a", "the 4 of", "found 1 to 5"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,18446744073709551615]") "}",
     4,
     {"model.a", "damaged"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,4]") "}",
     4,
     {"model.a", "5 elements of U8", "4 bytes"}},
    {"{" T("model.a", "\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,4]") "}",
     4,
     {"3 elements of BF16", "4 bytes"}},
    {"{" T("model.a", "\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]") "}",
     4,
     {"elements of F32"}},
    {"{" T("model.a", "\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]") "}",
     4,
     {"elements of U8"}},
    {"{" T("model.a", GOOD) "," T("model.b", "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]") "}",
     4,
     {"model.b", "bytes of its own", "shared with model.a"}},
    {"{" T("model.b", "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]") "," T("model.a", GOOD) "}",
     4,
     {"model.b", "shared with model.a"}},
    {"{" T("model.a", GOOD) "," T("model.b", GOOD) "}", 4, {"bytes of its own"}},
    {"{" T("model.a", GOOD) "," T("model.a", "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[4,5]") "}",
     8,
     {"model.a", "expected once", "second time"}},
    {"{" T("model.a", GOOD) "," T("language_model.model.a",
                                  "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[4,5]") "}",
     8,
     {"model.a", "expected once"}},
    {"{" T("model.a", "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]") "}",
     8,
     {"model.a", "a multiple of 4", "found it at byte"}},
    {"{" T("model.a", "\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[1,3]") "}",
     8,
     {"model.a", "a multiple of 2"}},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        writer_header(folder, "model.safetensors", refusals[i].header, refusals[i].data_bytes);
        expect_refused(STATUS_FORMAT, refusals[i].words);
    }
}

static void test_nesting_is_limited(void **state)
{
    (void)state;
    char header[1100] = "{\"__metadata__\":";
    memset(header + strlen(header), '[', 1000);
    writer_header(folder, "model.safetensors", header, 0);
    expect_refused(STATUS_FORMAT, (const char *const[]){"less nesting", NULL});
}

static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        unsigned char bytes[12];
        size_t size;
        const char *words[4];
    } cases[] = {
        {{0}, 0, {"8 bytes of a header length", "a file of 0"}},
        {{2}, 7, {"8 bytes of a header length", "a file of 7"}},
        {{5, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10, {"a header of 5 bytes", "found 2", "truncated"}},
        {{0, 0, 0, 0x20, 0, 0, 0, 0, '{', '}'}, 10, {"a header of 536870912 bytes", "found 2"}},
        {{1, 0, 0, 0x20, 0, 0, 0, 0, '{', '}'}, 10, {"at most 536870912 bytes", "536870913"}},
        {{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'}, 10, {"at most 536870912 bytes", "not a safetensors"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        writer_file(folder, "model.safetensors", cases[i].bytes, cases[i].size);
        expect_refused(STATUS_FORMAT, cases[i].words);
    }
}

static void test_missing_files(void **state)
{
    (void)state;
    char path[2 * WRITER_PATH_BYTES];
    expect_refused(STATUS_NOT_FOUND, (const char *const[]){folder, "model.safetensors", "found neither", NULL});
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(STATUS_IO, (const char *const[]){"model.safetensors", "a plain file", NULL});
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(STATUS_IO, (const char *const[]){"model.safetensors", "a plain file", NULL});
    assert_int_equal(unlink(path), 0);
}

static void test_index_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        enum status status;
        const char *words[5];
    } cases[] = {
        {"", STATUS_FORMAT, {"model.safetensors.index.json", "an object"}},
        {"{\"weight_map\":{}}", STATUS_FORMAT, {"weight_map", "an empty one"}},
        {"{\"metadata\":{}}", STATUS_FORMAT, {"weight_map", "found none"}},
        {"{\"weight_map\":[]}", STATUS_FORMAT, {"an object", "'['"}},
        {"{\"weight_map\":{\"model.a\":1}}", STATUS_FORMAT, {"a string", "'1'"}},
        {"{\"weight_map\":{\"model.a\":\"x\"},\"weight_map\":{}}", STATUS_FORMAT, {"one weight_map"}},
        {"{\"weight_map\":{\"model.a\":\"../a.safetensors\"}}", STATUS_FORMAT, {"files beside it", "../a.safetensors"}},
        {"{\"weight_map\":{\"model.a\":\"/etc/passwd\"}}", STATUS_FORMAT, {"files beside it", "/etc/passwd"}},
        {"{\"weight_map\":{\"model.a\":\"sub/a.safetensors\"}}", STATUS_FORMAT, {"files beside it"}},
        {"{\"weight_map\":{\"model.a\":\"..\"}}", STATUS_FORMAT, {"files beside it"}},
        {"{\"weight_map\":{\"model.a\":\"\"}}", STATUS_FORMAT, {"1 to 255 bytes"}},
        {"{\"weight_map\":{\"\":\"one.safetensors\"}}", STATUS_FORMAT, {"1 to 512 bytes"}},
        {"{\"weight_map\":{\"model.a\":\"gone.safetensors\"}}", STATUS_NOT_FOUND, {"gone.safetensors", "cannot open"}},
        {"{\"weight_map\":{\"model.a\":\"one.safetensors\",\"model.c\":\"one.safetensors\",\"model.b\":\"two."
         "safetensors\"}}",
         STATUS_FORMAT,
         {"one.safetensors", "model.c", "found nothing of that name"}},
        {"{\"weight_map\":{\"model.a\":\"two.safetensors\",\"model.b\":\"two.safetensors\",\"x\":\"one.safetensors\"}}",
         STATUS_FORMAT,
         {"one.safetensors", "model.a", "expected in two.safetensors", "found here"}},
        {"{\"weight_map\":{\"model.a\":\"one.safetensors\",\"model.a\":\"two.safetensors\"}}",
         STATUS_FORMAT,
         {"model.a", "expected once"}},
        {"{\"weight_map\":{\"model.a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}",
         STATUS_FORMAT,
         {"model.a", "expected once"}},
    };
    writer_header(folder, "one.safetensors", "{" T("model.a", GOOD) "}", 4);
    writer_header(folder, "two.safetensors", "{" T("model.b", GOOD) "}", 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        writer_file(folder, "model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
        expect_refused(cases[i].status, cases[i].words);
    }
}

/* A shard may hold more than the index names; what it holds must still be there once. */
static void test_index_and_extra_tensors(void **state)
{
    (void)state;
    static const char index[] =
        "{\"weight_map\":{\"model.a\":\"one.safetensors\",\"vision_tower.x\":\"two.safetensors\"}}";
    writer_header(folder, "one.safetensors", "{" T("model.a", GOOD) "}", 4);
    writer_header(folder, "two.safetensors", "{" T("model.b", GOOD) "}", 4);
    writer_file(folder, "model.safetensors.index.json", index, sizeof index - 1);
    struct checkpoint *checkpoint = open_good();
    assert_int_equal(checkpoint_count(checkpoint), 2);
    checkpoint_close(checkpoint);
}

static void test_too_many_shards(void **state)
{
    (void)state;
    char *index = NULL;
    size_t bytes;
    FILE *out = open_memstream(&index, &bytes);
    for (int i = 0; i <= 4096; i++)
        fprintf(out, "%s\"a%d\":\"f%d\"", i ? "," : "{\"weight_map\":{", i, i);
    fprintf(out, "}}");
    fclose(out);
    writer_file(folder, "model.safetensors.index.json", index, bytes);
    free(index);
    expect_refused(STATUS_FORMAT, (const char *const[]){"at most 4096 shards", NULL});
}

/* ---- damage ---- */

static unsigned char *small_file(size_t *size)
{
    char header[1024] = "{\"__metadata__\":{\"format\":\"pt\"}";
    unsigned char data[64] = {0};
    for (int i = 0; i < 8; i++)
        snprintf(header + strlen(header), sizeof header - strlen(header),
                 ",\"language_model.model.layers.%d.w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[%d,%d]}",
                 i, 8 * i, 8 * i + 8);
    strcat(header, "}");
    return writer_compose(header, data, sizeof data, size);
}

static void test_truncated_anywhere(void **state)
{
    (void)state;
    size_t size;
    unsigned char *bytes = small_file(&size);
    for (size_t cut = 0; cut < size; cut += 7) {
        writer_file(folder, "model.safetensors", bytes, cut);
        expect_refused(STATUS_FORMAT, (const char *const[]){"model.safetensors", NULL});
    }
    writer_file(folder, "model.safetensors", bytes, size);
    checkpoint_close(open_good());
    free(bytes);
}

/* Parses from memory that ends where the file ends, so that the sanitizer sees a read beyond it. */
static void test_flipped_bytes(void **state)
{
    (void)state;
    size_t size;
    struct rng rng = {7};
    unsigned char *bytes = small_file(&size);
    for (int round = 0; round < 20000; round++) {
        size_t n = size - rng_below(&rng, 8) * rng_below(&rng, 40);
        unsigned char *copy = malloc(n);
        struct safetensors parsed;
        struct error err = {0};
        memcpy(copy, bytes, n);
        for (uint64_t flips = 1 + rng_below(&rng, 3); flips; flips--)
            copy[rng_below(&rng, n)] ^= (unsigned char)(1 + rng_below(&rng, 255));
        if (safetensors_parse(&parsed, "file", copy, n, &err) == STATUS_OK) {
            for (size_t i = 0; i < parsed.count; i++) {
                const struct safetensors_entry *entry = &parsed.entries[i];
                assert_true(entry->data >= (const char *)copy + 8 && entry->bytes <= n);
                assert_true(entry->data + entry->bytes <= (const char *)copy + n);
            }
            safetensors_fini(&parsed);
        } else {
            assert_true(strncmp(err.text, "file: ", 6) == 0);
        }
        free(copy);
    }
    free(bytes);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_prefixes),        IN_FOLDER(test_head_prefixes),      IN_FOLDER(test_vision_is_skipped),
        IN_FOLDER(test_types_and_data),  IN_FOLDER(test_tolerated),          IN_FOLDER(test_many_names),
        IN_FOLDER(test_refusals),        IN_FOLDER(test_nesting_is_limited), IN_FOLDER(test_lengths),
        IN_FOLDER(test_missing_files),   IN_FOLDER(test_index_refusals),     IN_FOLDER(test_index_and_extra_tensors),
        IN_FOLDER(test_too_many_shards), IN_FOLDER(test_truncated_anywhere), IN_FOLDER(test_flipped_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
