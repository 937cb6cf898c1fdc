/* Who shares a step, a cache or a history with a sequence does not change its answers by a bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "synth_help.h"

enum { CONTEXT = 130, PROMPT = 37, DECODED = 20, LENGTH = PROMPT + DECODED, OTHERS_MAX = 8, VOCABULARY = 33 };

static struct error err;

static void must(enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
}

static struct model *open_batch(enum dtype latents, enum dtype keys, enum exec_mode exec, unsigned n_threads)
{
    struct synth synth = synth_default();
    struct model_options options = exact_options(CONTEXT);
    synth.full_layers = 6;
    options.latent_dtype = latents;
    options.index_dtype = keys;
    options.sequences_max = OTHERS_MAX + 1;
    options.exec = exec;
    options.n_threads = n_threads;
    return synth_open(&synth, &options);
}

/* The watched sequence's step `i`: 0 its prompt, then a token a step. */
static struct model_span watched_span(struct sequence *sequence, const int32_t *tokens, uint32_t i)
{
    return i == 0 ? (struct model_span){sequence, tokens, PROMPT, 0}
                  : (struct model_span){sequence, tokens + PROMPT + i - 1, 1, 0};
}

/* Feeds the watched sequence among `n_others`, which come and go with prompts, single tokens, with and without
 * logits. */
static void feed_among(struct model *model, const int32_t *tokens, uint32_t n_others, uint64_t seed, float *logits)
{
    struct sequence sequences[OTHERS_MAX + 1];
    struct rng rng = {seed};
    static float rows[(OTHERS_MAX + 1) * CONTEXT * VOCABULARY];
    int32_t other_tokens[OTHERS_MAX][CONTEXT];
    for (uint32_t s = 0; s <= n_others; s++)
        must(model_sequence_init(model, &sequences[s], &err));
    for (uint32_t i = 0; i <= DECODED; i++) {
        struct model_span spans[OTHERS_MAX + 1];
        uint32_t n = 0, place = (uint32_t)rng_below(&rng, n_others + 1), before = 0, here = i ? 1 : PROMPT;
        for (uint32_t s = 0; s <= n_others; s++) {
            if (s == place) {
                spans[n++] = watched_span(&sequences[n_others], tokens, i);
                continue;
            }
            struct sequence *other = &sequences[s - (s > place)];
            int32_t *own = other_tokens[s - (s > place)];
            uint32_t m = rng_below(&rng, 2) ? 1 : (uint32_t)rng_below(&rng, 41);
            if (other->length + m > CONTEXT)
                sequence_reset(other);
            synth_tokens(own, m, VOCABULARY, rng_next(&rng));
            spans[n] = (struct model_span){other, own, m, rng_below(&rng, 2) ? m : (uint32_t)rng_below(&rng, m + 1)};
            before += s < place ? m - spans[n].first_logit : 0;
            n++;
        }
        must(model_step(model, spans, n, &(struct model_outputs){.logits = rows}, &err));
        memcpy(logits + (size_t)(i ? PROMPT + i - 1 : 0) * VOCABULARY, rows + (size_t)before * VOCABULARY,
               (size_t)here * VOCABULARY * sizeof *logits);
    }
    for (uint32_t s = 0; s <= n_others; s++)
        sequence_fini(&sequences[s]);
}

static void alone_and_among_others(void **state)
{
    (void)state;
    static const uint32_t others[] = {1, 2, 5, 8};
    static const enum dtype latents[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT16, DTYPE_INT16},
                            keys[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F32, DTYPE_BF16};
    int32_t tokens[LENGTH];
    static float alone[LENGTH * VOCABULARY], among[LENGTH * VOCABULARY];
    synth_tokens(tokens, LENGTH, VOCABULARY, 12);
    for (int way = 0; way < 4; way++) {
        struct model *model =
            open_batch(latents[way], keys[way], way < 2 ? EXEC_GRAPH : EXEC_EAGER, (unsigned)way % 3 + 1);
        feed_among(model, tokens, 0, 1, alone);
        for (size_t o = 0; o < sizeof others / sizeof *others; o++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                memset(among, 0xff, sizeof among);
                feed_among(model, tokens, others[o], seed, among);
                if (memcmp(among, alone, sizeof alone) != 0)
                    fail_msg("way %d: among %u others, seed %d, the answers differ", way, others[o], (int)seed);
            }
        assert_int_equal(model->pages.n_free, model->pages.n_pages);
        model_close(model);
    }
}

/* Feeds and gives the logits of all tokens. */
static void feed(struct model *model, struct sequence *sequence, const int32_t *tokens, uint32_t n, float *logits)
{
    must(model_step(model, &(struct model_span){sequence, tokens, n, 0}, 1, &(struct model_outputs){.logits = logits},
                    &err));
}

/* A copy goes on as if it had read everything itself, while its source goes on otherwise, whoever is first. */
static void copies_go_on(void **state)
{
    (void)state;
    enum { MORE = 40 };
    static const uint32_t lengths[] = {0, 1, 2, 15, 16, 63, 64, 65, 70};
    static float want[2][CONTEXT * VOCABULARY], got[2][CONTEXT * VOCABULARY];
    struct model *model = open_batch(DTYPE_INT16, DTYPE_BF16, EXEC_GRAPH, 2);
    int32_t tokens[2][CONTEXT];
    struct sequence source, copy;
    must(model_sequence_init(model, &source, &err));
    must(model_sequence_init(model, &copy, &err));
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        uint32_t n = lengths[l];
        synth_tokens(tokens[0], n + MORE, VOCABULARY, l + 20);
        memcpy(tokens[1], tokens[0], n * sizeof(int32_t));
        synth_tokens(tokens[1] + n, MORE, VOCABULARY, l + 50);
        for (int i = 0; i < 2; i++) {
            sequence_reset(&source);
            feed(model, &source, tokens[i], n + MORE, want[i]);
        }
        sequence_reset(&source);
        if (n)
            feed(model, &source, tokens[0], n, got[0]);
        sequence_copy(&copy, &source);
        for (uint32_t i = 0; i < MORE; i += 5) { /* in turn: the first to write is the one who copies the page */
            struct sequence *both[2] = {&source, &copy};
            for (size_t k = l % 2, done = 0; done < 2; done++, k = 1 - k)
                feed(model, both[k], tokens[k] + n + i, 5, got[k] + (size_t)(n + i) * VOCABULARY);
        }
        for (int i = 0; i < 2; i++)
            if (memcmp(got[i] + n * VOCABULARY, want[i] + n * VOCABULARY, MORE * VOCABULARY * sizeof(float)) != 0)
                fail_msg("a %s of %u tokens goes on otherwise than without the copy", i ? "copy" : "source", n);
    }
    sequence_fini(&source);
    sequence_fini(&copy);
    model_close(model);
}

/* A step that is refused leaves every sequence and the cache as they were, whichever span is at fault. */
static void refused_steps_change_nothing(void **state)
{
    (void)state;
    static float want[CONTEXT * VOCABULARY], got[CONTEXT * VOCABULARY];
    struct model *model = open_batch(DTYPE_F32, DTYPE_F32, EXEC_GRAPH, 1);
    struct sequence first, second, copy;
    int32_t tokens[CONTEXT], bad[] = {3, 4, VOCABULARY}, negative[] = {-1};
    must(model_sequence_init(model, &first, &err));
    must(model_sequence_init(model, &second, &err));
    must(model_sequence_init(model, &copy, &err));
    synth_tokens(tokens, CONTEXT, VOCABULARY, 30);
    feed(model, &second, tokens, CONTEXT, want);
    sequence_reset(&second);
    feed(model, &first, tokens, 10, got);
    feed(model, &second, tokens, 5, got);
    uint32_t n_free = model->pages.n_free;
    struct model_span faults[] = {{&second, bad, 3, 0}, {&second, negative, 1, 0}, {&second, tokens, CONTEXT, 0}};
    for (size_t i = 0; i < 3; i++) {
        struct model_span spans[2] = {{&first, tokens + 10, 100, 0}, faults[i]};
        memset(err.text, 0, sizeof err.text);
        assert_int_equal(model_step(model, spans, 2, &(struct model_outputs){.logits = got}, &err), STATUS_ARGUMENT);
        assert_true(strlen(err.text) > 10);
        assert_int_equal(first.length, 10);
        assert_int_equal(second.length, 5);
        assert_int_equal(model->pages.n_free, n_free);
    }
    sequence_copy(&copy, &first);
    feed(model, &first, tokens + 20, 110, got); /* elsewhere */
    feed(model, &copy, tokens + 10, 120, got + 10 * VOCABULARY);
    assert_memory_equal(got + 10 * VOCABULARY, want + 10 * VOCABULARY, 120 * VOCABULARY * sizeof(float));
    sequence_fini(&first);
    sequence_fini(&second);
    sequence_fini(&copy);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_and_among_others),
        cmocka_unit_test(copies_go_on),
        cmocka_unit_test(refused_steps_change_nothing),
    };
    return cmocka_run_group_tests_name("neighbours", tests, NULL, NULL);
}
