/* Damaged checkpoints: config.json and header changed at random, in ways that are almost right and ways that
 * are not.
 *
 * Law: each one opens and runs a step without a crash, or is refused with a sentence; the report says the
 * same as opening does. 1,000 of them in `make check`, 10,000 with DAY0_SLOW=1; DAY0_MUTATION=N repeats the
 * one of that number and says what it was. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "lab/synth.h"
#include "model/report.h"
#include "model_help.h"

enum { MUTATIONS = 1000, MUTATIONS_SLOW = 10000, BASES = 2, MEMBERS_MAX = 4096 };

/* A whole checkpoint in memory, and what the current mutation makes of it. */
struct base {
    char *config, *file; /* config.json; model.safetensors */
    size_t config_bytes, file_bytes, header_bytes;
};

static struct base bases[BASES];
static char folder[] = "/tmp/day0-mutated-XXXXXX";
static char what[256]; /* the current mutation, in words */
static long current;
static struct rng rng;

static uint64_t below(uint64_t n)
{
    return rng_below(&rng, n);
}

static void say_and_die(int signal_number)
{
    char text[400];
    int n = snprintf(text, sizeof text, "mutation %ld (%s): signal %d\n", current, what, signal_number);
    if (write(STDERR_FILENO, text, (size_t)n) == n)
        signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* ---- the bases ---- */

static void read_base(struct base *base, const char *config)
{
    char path[PATH_BYTES_MAX], directory[PATH_BYTES_MAX];
    struct synth_result result;
    struct error err;
    snprintf(path, sizeof path, "tests/golden/config/%s", config);
    snprintf(directory, sizeof directory, "%s/base", folder);
    struct synth_options options = {.config_path = path, .directory = directory, .seed = 3, .shard_bytes = UINT64_MAX};
    if (synth_checkpoint(&options, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(file_join(path, directory, "config.json", NULL), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 20, &base->config, &base->config_bytes, NULL), STATUS_OK);
    remove(path);
    assert_int_equal(file_join(path, directory, "model.safetensors", NULL), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 24, &base->file, &base->file_bytes, NULL), STATUS_OK);
    remove(path);
    rmdir(directory);
    uint64_t length;
    memcpy(&length, base->file, 8);
    base->header_bytes = length;
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    read_base(&bases[0], "tiny-k31.json");
    read_base(&bases[1], "tiny-linear.json");
    signal(SIGSEGV, say_and_die);
    signal(SIGBUS, say_and_die);
    signal(SIGFPE, say_and_die);
    signal(SIGABRT, say_and_die);
    return 0;
}

static void remove_in_folder(const char *name)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < BASES; i++) {
        free(bases[i].config);
        free(bases[i].file);
    }
    remove_in_folder("config.json");
    remove_in_folder("model.safetensors");
    return rmdir(folder);
}

static void put(const char *name, const void *bytes, size_t size)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
}

/* ---- mutations of JSON ---- */

struct member {
    json_t *object;
    const char *key;
};

static size_t list_members(json_t *object, struct member *out, size_t n)
{
    const char *key;
    json_t *value;
    json_object_foreach (object, key, value) {
        if (n < MEMBERS_MAX)
            out[n++] = (struct member){object, key};
        if (json_is_object(value))
            n = list_members(value, out, n);
    }
    return n;
}

/* A value where `old` stood: often of the same type and near it, sometimes anything. */
static json_t *other_value(const json_t *old)
{
    static const char *const words[] = {"",
                                        "x",
                                        "silu",
                                        "situ",
                                        "softmax",
                                        "sigmoid",
                                        "BF16",
                                        "F32",
                                        "F16",
                                        "U8",
                                        "F8_E4M3",
                                        "I64",
                                        "mxfp4-pack-quantized"};
    static const json_int_t numbers[] = {
        0,         1,          2,         3,   4,        5,   7,    8,    16,    31,      32,
        33,        64,         100,       255, 256,      257, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1,
        INT32_MAX, UINT32_MAX, INT64_MAX, -1,  INT64_MIN};
    if (json_is_integer(old) && below(3)) {
        json_int_t value = json_integer_value(old);
        switch (below(5)) {
        case 0:
            return json_integer(value + 1);
        case 1:
            return json_integer(value - 1);
        case 2:
            return json_integer(value <= INT32_MAX && value >= 0 ? 2 * value : 2);
        case 3:
            return json_integer(value / 2);
        default:
            return json_integer(numbers[below(sizeof numbers / sizeof *numbers)]);
        }
    }
    if (json_is_array(old) && json_array_size(old) > 0 && below(3)) {
        json_t *list = json_deep_copy(old);
        size_t at = below(json_array_size(list));
        if (below(3) == 0)
            json_array_remove(list, at);
        else if (below(2))
            json_array_insert_new(list, at, other_value(json_array_get(list, at)));
        else
            json_array_set_new(list, at, other_value(json_array_get(list, at)));
        return list;
    }
    switch (below(9)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(below(2));
    case 2:
        return json_real((double[]){0.5, -5, 1e30, -1e-30, 1e-5, 0}[below(6)]);
    case 3:
        return json_array();
    case 4:
        return json_object();
    case 5:
        return json_string(words[below(sizeof words / sizeof *words)]);
    default:
        return json_integer(numbers[below(sizeof numbers / sizeof *numbers)]);
    }
}

/* One member gets another value or another name, moves or goes. */
static void mutate_member(json_t *root, const char *where)
{
    static struct member members[MEMBERS_MAX];
    static const char *const keys[] = {"dsa_config",
                                       "index_topk",
                                       "topk",
                                       "head_dim",
                                       "num_experts_per_tok",
                                       "gate_lower_bound",
                                       "text_config",
                                       "quantization_config",
                                       "attn_res_block_size",
                                       "q_lora_rank",
                                       "tie_word_embeddings",
                                       "new_key",
                                       "layers",
                                       "shape",
                                       "dtype",
                                       "data_offsets",
                                       "__metadata__"};
    size_t n = list_members(root, members, 0);
    if (n == 0)
        return;
    struct member m = members[below(n)];
    json_t *old = json_object_get(m.object, m.key);
    char key[200];
    snprintf(key, sizeof key, "%s", m.key);
    switch (below(6)) {
    case 0:
        snprintf(what, sizeof what, "%s: %.100s removed", where, key);
        json_object_del(m.object, m.key);
        return;
    case 1: {
        const char *name = keys[below(sizeof keys / sizeof *keys)];
        snprintf(what, sizeof what, "%s: %.100s renamed to %s", where, key, name);
        json_object_set(m.object, name, old);
        if (below(4))
            json_object_del(m.object, key);
        return;
    }
    case 2: {
        struct member to = members[below(n)];
        json_t *target = below(2) ? to.object : root;
        snprintf(what, sizeof what, "%s: %.60s copied over or beside %.60s", where, key, to.key);
        json_object_set_new(target, below(2) ? to.key : key, json_deep_copy(old));
        return;
    }
    case 3: { /* one letter of the name */
        size_t length = strlen(key);
        if (length == 0)
            return;
        json_incref(old);
        json_object_del(m.object, m.key);
        key[below(length)] = (char)('a' + below(26));
        snprintf(what, sizeof what, "%s: a letter changed, now %.100s", where, key);
        json_object_set_new(m.object, key, old);
        return;
    }
    default: {
        json_t *value = other_value(old);
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(what, sizeof what, "%s: %.100s set to %.60s", where, key, text ? text : "?");
        free(text);
        json_object_set_new(m.object, key, value);
    }
    }
}

static char *mutate_json(const char *text, size_t bytes, const char *where)
{
    json_t *root = json_loadb(text, bytes, 0, NULL);
    assert_non_null(root);
    for (uint64_t n = 1 + (below(4) == 0) * below(3); n > 0; n--)
        mutate_member(root, where);
    char *changed = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return changed ? changed : strdup("{}");
}

/* ---- mutations of bytes ---- */

static void flip_bytes(char *bytes, size_t size, const char *where)
{
    uint64_t n = 1 + below(4);
    snprintf(what, sizeof what, "%s: %llu bytes flipped", where, (unsigned long long)n);
    for (; n > 0 && size > 0; n--) {
        char *at = bytes + below(size);
        *at = below(2) ? (char)(*at ^ 1 << below(8)) : "\"{}[]:,0123456789.-eE \\\n\0"[below(25)];
    }
}

/* Header and data as a file; the given length may lie. */
static void put_file(const char *header, size_t header_bytes, uint64_t length, const char *data, size_t data_bytes)
{
    char *file = malloc(8 + header_bytes + data_bytes + 1);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, header_bytes);
    memcpy(file + 8 + header_bytes, data, data_bytes);
    put("model.safetensors", file, 8 + header_bytes + data_bytes);
    free(file);
}

static void mutate_header(const struct base *base)
{
    char *header = mutate_json(base->file + 8, base->header_bytes, "header");
    size_t bytes = strlen(header), padded = (bytes + 63) / 64 * 64;
    header = realloc(header, padded + 1);
    memset(header + bytes, ' ', padded - bytes);
    put_file(header, padded, padded, base->file + 8 + base->header_bytes, base->file_bytes - 8 - base->header_bytes);
    free(header);
}

static void mutate_bytes(const struct base *base)
{
    char *file = malloc(base->file_bytes + 1);
    memcpy(file, base->file, base->file_bytes);
    size_t size = base->file_bytes;
    switch (below(5)) {
    case 0:
        size = below(size);
        snprintf(what, sizeof what, "file cut off at %zu of %zu", size, base->file_bytes);
        break;
    case 1:
        flip_bytes(file, 8, "header length");
        break;
    case 2:
        flip_bytes(file + 8 + base->header_bytes, size - 8 - base->header_bytes, "data");
        break;
    default:
        flip_bytes(file + 8, base->header_bytes, "header");
    }
    put("model.safetensors", file, size);
    free(file);
}

static void mutate_config(const struct base *base)
{
    if (below(8) > 0) {
        char *text = mutate_json(base->config, base->config_bytes, "config");
        put("config.json", text, strlen(text));
        free(text);
        return;
    }
    char *text = malloc(base->config_bytes);
    memcpy(text, base->config, base->config_bytes);
    size_t size = below(2) ? below(base->config_bytes) : base->config_bytes;
    flip_bytes(text, size, "config");
    put("config.json", text, size);
    free(text);
}

static void make_mutation(long number)
{
    rng = (struct rng){(uint64_t)number * 0x9e3779b97f4a7c15u + 1};
    const struct base *base = &bases[below(BASES)];
    current = number;
    what[0] = 0;
    put("config.json", base->config, base->config_bytes);
    put("model.safetensors", base->file, base->file_bytes);
    switch (below(8)) {
    case 0:
    case 1:
    case 2:
        mutate_config(base);
        break;
    case 3:
        mutate_config(&bases[below(BASES)]); /* perhaps of the other model */
        mutate_header(base);
        break;
    case 4:
        mutate_bytes(base);
        break;
    default:
        mutate_header(base);
    }
}

/* ---- what must hold ---- */

static void check_sentence(const struct error *err)
{
    if (strlen(err->text) < 10)
        fail_msg("mutation %ld (%s): no sentence: '%s'", current, what, err->text);
    if (!strstr(err->text, "tensor "))
        return;
    bool missing = strstr(err->text, "in the checkpoint") != NULL;
    if (!strstr(err->text, "expected") || !strstr(err->text, "found") ||
        (!missing && !strstr(err->text, ".safetensors")))
        fail_msg("mutation %ld (%s): file, tensor, expected or found is not named: %s", current, what, err->text);
}

static void run_step(struct model *model)
{
    enum { TOKENS = 3 };
    int32_t tokens[TOKENS];
    uint32_t vocabulary = model->config.vocab_size;
    struct sequence sequence;
    struct error err;
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)((5 * i + 1) % vocabulary);
    float *logits = calloc((size_t)TOKENS * vocabulary, sizeof *logits);
    assert_int_equal(model_sequence_init(model, &sequence, &err), STATUS_OK);
    struct model_span span = {&sequence, tokens, TOKENS, 0};
    struct model_outputs outputs = {.logits = logits};
    assert_int_equal(model_step(model, &span, 1, &outputs, &err), STATUS_OK);
    sequence_fini(&sequence);
    free(logits);
}

/* Opens and runs it, or sees it refused; compares with the report. True if it opened. */
static bool try_one(long number)
{
    struct model_options options = model_options_default();
    struct model *model;
    struct report *report;
    struct error err = {0}, report_err = {0};
    make_mutation(number);
    options.context_max = 8;
    options.n_threads = 1;
    options.config.accept_unknown = below(2);
    bool opens = model_open(&model, folder, &options, &err) == STATUS_OK;
    if (opens)
        run_step(model);
    else
        check_sentence(&err);
    model_close(model);
    bool runnable = false;
    if (report_open(&report, folder, &options, 1 << 30, &report_err) == STATUS_OK)
        runnable = report->runnable;
    else
        check_sentence(&report_err);
    report_close(report);
    /* What only the data shows the report cannot know. */
    if (runnable != opens && !strstr(err.text, "found 255 (NaN)"))
        fail_msg("mutation %ld (%s): the report says %s, opening: %s", number, what,
                 runnable ? "runnable" : report_err.text, opens ? "fine" : err.text);
    return opens;
}

static void test_mutations(void **state)
{
    (void)state;
    const char *one = getenv("DAY0_MUTATION");
    long first = one ? atol(one) : 0, end = one ? first + 1 : slow_tests() ? MUTATIONS_SLOW : MUTATIONS, n_open = 0;
    for (long number = first; number < end; number++) {
        bool opens = try_one(number);
        n_open += opens;
        if (one)
            print_message("mutation %ld: %s: %s\n", number, what, opens ? "opens and runs" : "refused");
    }
    print_message("%ld mutations: %ld opened and ran, %ld were refused\n", end - first, n_open, end - first - n_open);
    if (!one)
        assert_true(n_open > (end - first) / 20 && n_open < (end - first) * 19 / 20);
}

/* The checkpoints as they are run, so that refusals above mean something. */
static void test_unharmed(void **state)
{
    (void)state;
    for (int i = 0; i < BASES; i++) {
        struct model_options options = model_options_default();
        put("config.json", bases[i].config, bases[i].config_bytes);
        put("model.safetensors", bases[i].file, bases[i].file_bytes);
        options.context_max = 8;
        options.n_threads = 1;
        struct model *model = open_or_fail(folder, &options);
        run_step(model);
        model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unharmed), cmocka_unit_test(test_mutations)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
