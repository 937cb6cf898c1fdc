/* A NaN or infinity ends its session alone: a sentence names the layer, neighbours do not notice, nothing of it is
 * kept. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/synth_help.h"
#include "engine_help.h"

enum { BAD_TOKEN = 32, TEXTS = 6, TEXT_TOKENS = 70 };

/* Overwrites the BF16 numbers [first, first + n) of a tensor. */
static void poison(const char *directory, const char *tensor, size_t first, size_t n, uint16_t value)
{
    char path[128], head[1 << 16], name[128];
    uint64_t header_bytes;
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fread(&header_bytes, sizeof header_bytes, 1, file), 1);
    assert_true(header_bytes < sizeof head);
    assert_int_equal(fread(head, 1, header_bytes, file), header_bytes);
    head[header_bytes] = 0;
    snprintf(name, sizeof name, "\"%s\":", tensor);
    const char *at = strstr(head, name);
    if (!at)
        fail_msg("there is no tensor %s", tensor);
    at = strstr(at, "\"data_offsets\":[") + strlen("\"data_offsets\":[");
    assert_int_equal(
        fseek(file, (long)(sizeof header_bytes + header_bytes + strtoul(at, NULL, 10) + 2 * first), SEEK_SET), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static const uint16_t bf16_nan = 0x7fc0, bf16_infinity = 0x7f80, bf16_minus_infinity = 0xff80;

/* A model and what breaks it. */
struct variant {
    const char *name;
    uint32_t full_layers;
    const char *tensor; /* NULL: the embedding of BAD_TOKEN */
    uint16_t value;
    bool dense;
};

static const struct variant variants[] = {
    {"KDA first, NaN", 1u << 1, NULL, bf16_nan, false},
    {"KDA first, infinity", 1u << 1, NULL, bf16_infinity, true},
    {"MLA first, NaN", 1u << 0, NULL, bf16_nan, false},
    {"MLA first, minus infinity", 1u << 0, NULL, bf16_minus_infinity, true},
    {"all KDA, NaN", 0, NULL, bf16_nan, true},
    {"all MLA, NaN", 7, NULL, bf16_nan, false},
    {"an expert, NaN", 1u << 1, "model.layers.1.block_sparse_moe.experts.3.w2.weight", bf16_nan, false},
    {"an expert, infinity", 1u << 0, "model.layers.2.block_sparse_moe.experts.2.w1.weight", bf16_infinity, false},
};

static day0_engine *open_variant(const struct variant *v, uint32_t sessions, uint32_t checkpoints)
{
    struct synth synth = synth_default();
    synth.full_layers = v->full_layers;
    if (v->tensor) {
        synth.experts = 24;
        synth.chosen = 1;
    }
    if (v->full_layers == 0)
        synth.index_topk = 0;
    if (v->dense)
        synth.experts = synth.latent = 0;
    struct synth_directory directory = synth_write(&synth);
    if (v->tensor)
        poison(directory.path, v->tensor, 0, 5, v->value);
    else
        poison(directory.path, "model.embed_tokens.weight", BAD_TOKEN * synth.hidden + 3, 2, v->value);
    day0_options options = engine_options();
    options.model = directory.path;
    options.context_max = 200;
    options.sessions_max = sessions;
    options.checkpoints_max = checkpoints;
    day0_engine *engine = engine_or_fail(&options);
    synth_remove(&directory);
    return engine;
}

/* Text i; of the embedding variants every other one has the bad token: first, last, or in between. */
static void text_of(const struct variant *v, int i, int32_t *tokens)
{
    synth_tokens(tokens, TEXT_TOKENS, BAD_TOKEN, (uint64_t)i + 1);
    if (!v->tensor && i % 2)
        tokens[i == 1 ? 0 : i == 3 ? TEXT_TOKENS - 1 : 40] = BAD_TOKEN;
}

static bool has_bad_token(const struct variant *v, const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n && !v->tensor; i++)
        if (tokens[i] == BAD_TOKEN)
            return true;
    return false;
}

static uint32_t tokens_of(const struct variant *v, int i)
{
    return v->tensor ? 3 + 5 * (uint32_t)i : TEXT_TOKENS; /* short ones meet the bad expert while they generate */
}

static void assert_failed(const day0_session *session, const struct variant *v)
{
    assert_int_equal(day0_session_finish(session), DAY0_FINISH_FAILED);
    const char *sentence = day0_session_failure(session);
    /* What an expert of layer 2 (or 3) gives comes to a later layer, or to the head alone. */
    bool named = !v->tensor ? strstr(sentence, "into layer 1 of 3") != NULL
                            : strstr(sentence, "into layer 3 of 3") || strstr(sentence, "into the output head");
    if (!strstr(sentence, "NaN or infinity") || !named)
        fail_msg("%s: the sentence is '%s'", v->name, sentence);
    assert_null(day0_session_logits(session));
}

static void a_nan_ends_its_session_alone(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof variants / sizeof *variants; c++) {
        static struct record alone[TEXTS], among[TEXTS];
        const struct variant *v = &variants[c];
        int32_t tokens[TEXTS][TEXT_TOKENS];
        uint32_t n_failed = 0, n_sound = 0;
        day0_error error;
        for (int i = 0; i < TEXTS; i++) {
            text_of(v, i, tokens[i]);
            day0_engine *engine = open_variant(v, 1, 0);
            day0_session *session = session_or_fail(engine);
            day0_generation g = recorded(engine, &alone[i], 25);
            generate(engine, session, tokens[i], tokens_of(v, i), &g, NULL);
            if (alone[i].finish == DAY0_FINISH_FAILED)
                assert_failed(session, v);
            else
                assert_string_equal(day0_session_failure(session), "");
            if (has_bad_token(v, tokens[i], TEXT_TOKENS))
                assert_int_equal(alone[i].finish, DAY0_FINISH_FAILED);
            n_failed += alone[i].finish == DAY0_FINISH_FAILED;
            n_sound += alone[i].finish != DAY0_FINISH_FAILED;
            day0_engine_close(engine);
        }
        if (n_failed == 0 || n_sound == 0)
            fail_msg("%s: %u texts fail, %u do not", v->name, n_failed, n_sound);
        day0_engine *engine = open_variant(v, TEXTS, 8);
        day0_session *sessions[TEXTS];
        for (int round = 0; round < 2; round++) { /* again on pages and states that held a NaN */
            for (int i = 0; i < TEXTS; i++) {
                sessions[i] = session_or_fail(engine);
                day0_generation g = recorded(engine, &among[i], 25);
                must(day0_session_submit(sessions[i], tokens[i], tokens_of(v, i), &g, NULL, &error), &error);
            }
            must(day0_engine_run(engine, &error), &error);
            for (int i = 0; i < TEXTS; i++) {
                assert_same_record(&among[i], &alone[i], v->name);
                if (alone[i].finish == DAY0_FINISH_FAILED)
                    assert_failed(sessions[i], v);
            }
            for (int i = TEXTS - 1; i >= 0; i--)
                day0_session_close(sessions[i]);
        }
        day0_engine_close(engine);
    }
}

static void nothing_of_it_is_kept_or_saved(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof variants / sizeof *variants; c++) {
        static struct record r, want;
        const struct variant *v = &variants[c];
        if (v->tensor)
            continue;
        day0_engine *engine = open_variant(v, 1, 8), *cold = open_variant(v, 1, 0);
        day0_session *session = session_or_fail(engine), *other = session_or_fail(cold);
        day0_error error;
        day0_reuse reuse;
        int32_t bad[TEXT_TOKENS], good[TEXT_TOKENS];
        text_of(v, 5, bad);
        text_of(v, 5, good);
        good[40] = 7;
        for (int round = 0; round < 2; round++) {
            day0_generation g = recorded(engine, &r, 10);
            generate(engine, session, bad, TEXT_TOKENS, &g, &reuse);
            assert_int_equal(reuse.tokens_reused, 0);
            assert_failed(session, v);
            assert_int_equal(r.n_tokens, 0);
            assert_int_equal(r.n_finishes, 1);
            assert_int_equal(day0_engine_memory(engine).cache_used_bytes, 0);
        }
        /* A snapshot of it is the text alone. */
        void *data;
        size_t bytes, n;
        must(day0_session_snapshot(session, &data, &bytes, &error), &error);
        must(day0_session_restore(session, data, bytes, &error), &error);
        free(data);
        day0_session_tokens(session, &n);
        assert_int_equal(n, TEXT_TOKENS);
        day0_generation g = recorded(engine, &r, 10);
        generate(engine, session, bad, TEXT_TOKENS, &g, &reuse);
        assert_failed(session, v);
        /* Without the token all is well, from the start. */
        g = recorded(engine, &r, 10);
        generate(engine, session, good, TEXT_TOKENS, &g, &reuse);
        assert_int_equal(reuse.tokens_reused, 0);
        assert_non_null(strstr(reuse.reason, "NaN"));
        g = recorded(cold, &want, 10);
        generate(cold, other, good, TEXT_TOKENS, &g, NULL);
        assert_same_record(&r, &want, v->name);
        assert_string_equal(day0_session_failure(session), "");
        /* The good beginning of a text that breaks later stays known. */
        good[TEXT_TOKENS - 1] = BAD_TOKEN;
        uint32_t beginning = TEXT_TOKENS - 10;
        generate(engine, session, good, beginning, NULL, NULL);
        generate(engine, session, good, TEXT_TOKENS, NULL, &reuse);
        assert_int_equal(reuse.tokens_reused, beginning);
        assert_failed(session, v);
        g = recorded(engine, &r, 10);
        generate(engine, session, good, beginning, &g, &reuse);
        assert_int_equal(reuse.tokens_reused, beginning);
        g = recorded(cold, &want, 10);
        generate(cold, other, good, beginning, &g, NULL);
        assert_same_record(&r, &want, v->name);
        day0_engine_close(engine);
        day0_engine_close(cold);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_ends_its_session_alone),
        cmocka_unit_test(nothing_of_it_is_kept_or_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
