#include "model_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cpu/tiers.h"

bool slow_tests(void)
{
    const char *slow = getenv("DAY0_SLOW");
    return slow && strcmp(slow, "1") == 0;
}

const char *golden_root(void)
{
    const char *root = getenv("DAY0_GOLDEN");
    return root && *root ? root : "tests/golden/model";
}

static char *read_or_fail(const char *directory, const char *name, size_t *bytes)
{
    char path[PATH_BYTES_MAX], *data;
    struct error err;
    if (file_join(path, directory, name, &err) != STATUS_OK ||
        file_read(path, 1 << 28, &data, bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return data;
}

struct golden golden_load(const char *name, uint32_t n_tokens_max)
{
    struct golden g = {0};
    size_t bytes;
    snprintf(g.directory, sizeof g.directory, "%s/%s", golden_root(), name);
    char *text = read_or_fail(g.directory, "tokens.txt", &bytes);
    g.tokens = calloc(bytes, sizeof *g.tokens);
    uint32_t n_file = 0;
    for (char *at = strtok(text, " \n"); at; at = strtok(NULL, " \n"))
        g.tokens[n_file++] = atoi(at);
    free(text);
    g.logits = (float *)(void *)read_or_fail(g.directory, "logits.f32", &bytes);
    g.vocabulary = (uint32_t)(bytes / sizeof(float) / n_file);
    assert_int_equal(bytes, (size_t)n_file * g.vocabulary * sizeof(float));
    g.n_tokens = n_file < n_tokens_max ? n_file : n_tokens_max;
    return g;
}

void golden_free(struct golden *golden)
{
    free(golden->tokens);
    free(golden->logits);
}

void answers_free(struct answers *answers)
{
    free(answers->logits);
    free(answers->selected);
}

struct model_options exact_options(uint32_t context_max)
{
    struct model_options options = model_options_default();
    options.act = ACT_EXACT;
    options.latent_dtype = options.index_dtype = DTYPE_F32;
    options.context_max = context_max;
    options.reports_selected = true;
    options.n_threads = 2;
    return options;
}

static void note_selected(void *context, uint32_t layer, uint32_t span, uint32_t position, const uint32_t *chosen,
                          uint32_t n_chosen)
{
    (void)span;
    FILE *out = context;
    fprintf(out, "%u %u", layer + 1, position);
    for (uint32_t i = 0; i < n_chosen; i++)
        fprintf(out, " %u", chosen[i]);
    fputc('\n', out);
}

static void must(enum status status, const struct error *err)
{
    if (status != STATUS_OK)
        fail_msg("%s", err->text);
}

struct answers feed_pieces(struct model *model, const int32_t *tokens, uint32_t n_tokens, const uint32_t *pieces,
                           uint32_t n_pieces)
{
    struct answers a = {.n_logits = (size_t)n_tokens * model->config.vocab_size};
    struct sequence sequence;
    struct error err;
    a.logits = malloc(a.n_logits * sizeof(float));
    FILE *selected = open_memstream(&a.selected, &a.selected_bytes);
    must(model_sequence_init(model, &sequence, &err), &err);
    for (uint32_t first = 0, p = 0; first < n_tokens; p++) {
        uint32_t left = n_tokens - first, n = n_pieces ? pieces[p % n_pieces] : left;
        n = n < left ? n : left;
        struct model_span span = {&sequence, tokens + first, n, 0};
        struct model_outputs outputs = {.logits = a.logits + (size_t)first * model->config.vocab_size,
                                        .selected = model->selected ? note_selected : NULL,
                                        .selected_context = selected};
        must(model_step(model, &span, 1, &outputs, &err), &err);
        first += n;
    }
    sequence_fini(&sequence);
    fclose(selected);
    return a;
}

struct model *open_or_fail(const char *directory, const struct model_options *options)
{
    struct model *model;
    struct error err;
    must(model_open(&model, directory, options, &err), &err);
    return model;
}

struct answers run_pieces(const char *directory, const struct model_options *options, const int32_t *tokens,
                          uint32_t n_tokens, const uint32_t *pieces, uint32_t n_pieces)
{
    struct model *model = open_or_fail(directory, options);
    struct answers a = feed_pieces(model, tokens, n_tokens, pieces, n_pieces);
    model_close(model);
    return a;
}

/* Selections come in another order when a prompt comes in other pieces: compare them line by line as a set. */
static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **sorted_lines(char *text, size_t *n)
{
    char **lines = calloc(strlen(text) + 1, sizeof *lines);
    *n = 0;
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
        lines[(*n)++] = at;
    qsort(lines, *n, sizeof *lines, compare_lines);
    return lines;
}

void assert_same_bits(const struct answers *got, const struct answers *want, const char *what)
{
    assert_int_equal(got->n_logits, want->n_logits);
    for (size_t i = 0; i < got->n_logits; i++)
        if (memcmp(&got->logits[i], &want->logits[i], sizeof(float)) != 0)
            fail_msg("%s: logit %zu is %.9g, the other run gave %.9g", what, i, (double)got->logits[i],
                     (double)want->logits[i]);
    char *a = strdup(got->selected), *b = strdup(want->selected);
    size_t n, m;
    char **lines = sorted_lines(a, &n), **others = sorted_lines(b, &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++)
        if (strcmp(lines[i], others[i]) != 0)
            fail_msg("%s: selections differ: '%.60s...' and '%.60s...'", what, lines[i], others[i]);
    free(lines);
    free(others);
    free(a);
    free(b);
}

size_t machine_tiers(const char **names, size_t max)
{
    static const char *const all[] = {"ref", "avx2", "avx512", "avx512fp16", "neon"};
    static bool said;
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        unsigned tiers;
        if (n < max && tiers_parse(all[i], &tiers, NULL) == STATUS_OK)
            names[n++] = all[i];
        else if (!said)
            print_message("this machine has no tier %s: runs on it are skipped\n", all[i]);
    }
    said = true;
    return n;
}
