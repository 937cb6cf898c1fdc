/* What is computed once is not computed again, and whatever was reused, the result is that of a cold run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine_help.h"

enum { CONTEXT = 320 };

static day0_options small_options(uint32_t sessions, uint32_t checkpoints)
{
    day0_options options = engine_options();
    options.context_max = CONTEXT;
    options.sessions_max = sessions;
    options.checkpoints_max = checkpoints;
    return options;
}

/* Submits `n` tokens for their logits; gives how many were reused, whose reason says `part`. */
static size_t ask(day0_engine *engine, day0_session *session, const int32_t *tokens, size_t n, const char *part)
{
    day0_reuse reuse;
    uint64_t before = day0_session_computed(session);
    generate(engine, session, tokens, n, NULL, &reuse);
    assert_int_equal(reuse.tokens_total, n);
    assert_int_equal(day0_session_computed(session) - before, n - reuse.tokens_reused);
    if (!strstr(reuse.reason, part))
        fail_msg("the reason '%s' does not say '%s'", reuse.reason, part);
    return reuse.tokens_reused;
}

static void texts_that_go_on_or_change(void **state)
{
    (void)state;
    static const uint32_t back[] = {1, 2, 15, 16, 17, 18, 40, 150, 200};
    day0_options options = small_options(1, 0);
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    int32_t text[CONTEXT];
    memcpy(text, some_text(engine, 0, CONTEXT), sizeof text);
    assert_int_equal(ask(engine, session, text, 150, "is new"), 0);
    assert_cold_logits(session, 150, &options, "a first text");
    assert_int_equal(ask(engine, session, text, 150, "goes on"), 150);
    assert_cold_logits(session, 150, &options, "the same again");
    assert_int_equal(ask(engine, session, text, 200, "goes on"), 150);
    assert_cold_logits(session, 200, &options, "P then P+Q");
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        /* Each time token 200 - back is another one, and the rest is as before. */
        uint32_t at = 200 - back[i];
        text[at] = (text[at] + 1 + (int32_t)i) % 1900;
        const char *part = at == 0 ? "the first token differs" : back[i] <= 16 ? "were undone, token" : "can be undone";
        assert_int_equal(ask(engine, session, text, 200, part), back[i] <= 16 ? at : 0);
        assert_cold_logits(session, 200, &options, part);
    }
    /* Shorter texts: a beginning of the session's needs its last token again, for logits. */
    assert_int_equal(ask(engine, session, text, 190, "the text ends after token 190"), 189);
    assert_cold_logits(session, 190, &options, "10 tokens less");
    assert_int_equal(ask(engine, session, text, 187, "were undone"), 186);
    assert_cold_logits(session, 187, &options, "3 tokens less");
    assert_int_equal(ask(engine, session, text, 184, "; 3 can be undone"), 0); /* of 16, 13 are undone */
    assert_cold_logits(session, 184, &options, "too many tokens less");
    assert_int_equal(ask(engine, session, text, 140, "the text ends 44 tokens before"), 0);
    assert_cold_logits(session, 140, &options, "44 tokens less");
    assert_int_equal(ask(engine, session, text, 1, "the text ends 139 tokens before"), 0);
    assert_cold_logits(session, 1, &options, "one token");
    day0_engine_close(engine);
}

static void random_walk(const day0_options *options, uint64_t seed, int rounds)
{
    struct rng rng = {seed};
    day0_engine *engine = engine_or_fail(options);
    day0_session *sessions[2] = {session_or_fail(engine), session_or_fail(engine)};
    int32_t text[2][CONTEXT];
    uint32_t n[2] = {0, 0};
    day0_error error;
    static struct record r;
    for (int s = 0; s < 2; s++)
        memcpy(text[s], some_text(engine, 0, CONTEXT), sizeof text[s]);
    for (int round = 0; round < rounds; round++) {
        int s = (int)rng_below(&rng, 2);
        uint32_t kind = (uint32_t)rng_below(&rng, 5), more = 1 + (uint32_t)rng_below(&rng, 60);
        size_t n_text;
        if (kind == 0 && n[s] > 0) { /* take some back */
            uint32_t taken = (uint32_t)rng_below(&rng, 1 + (rng_below(&rng, 3) ? (n[s] < 16 ? n[s] : 16) : n[s]));
            must(day0_session_rewind(sessions[s], taken, &error), &error);
            n[s] -= taken;
        } else if (kind == 1 && n[s] > 0) { /* change one */
            uint32_t near = 1 + (uint32_t)rng_below(&rng, 30),
                     at = near < n[s] && round % 2 ? n[s] - near : (uint32_t)rng_below(&rng, n[s]);
            text[s][at] = (int32_t)rng_below(&rng, 1984);
        } else if (kind == 2) { /* the other's text */
            memcpy(text[s], text[1 - s], sizeof text[s]);
            n[s] = n[1 - s];
        }
        n[s] = n[s] + more < 200 ? n[s] + more : 1 + (uint32_t)rng_below(&rng, 200);
        day0_generation g = recorded(engine, &r, (uint32_t)rng_below(&rng, 25));
        generate(engine, sessions[s], text[s], n[s], &g, NULL);
        day0_session_tokens(sessions[s], &n_text);
        assert_int_equal(n_text, n[s] + r.n_tokens);
        memcpy(text[s] + n[s], r.ids, r.n_tokens * sizeof *r.ids);
        char what[64];
        snprintf(what, sizeof what, "seed %d, round %d, kind %u", (int)seed, round, kind);
        assert_cold_logits(sessions[s], n_text - (r.n_tokens > 0), options, what);
        n[s] += r.n_tokens;
    }
    day0_engine_close(engine);
}

static void law_4_any_history_gives_the_cold_result(void **state)
{
    (void)state;
    day0_options options = small_options(2, 5);
    int rounds = slow_tests() ? 150 : 10;
    random_walk(&options, 1, rounds);
    options.piece_tokens = 20;
    options.kv = "f32";
    random_walk(&options, 2, rounds);
    options.li = "mxfp8";
    options.checkpoints_max = 0;
    random_walk(&options, 3, rounds);
    options.li = "f32";
    options.checkpoints_max = 2;
    options.exec = "eager";
    options.threads = 1;
    random_walk(&options, 4, rounds);
}

static void sessions_share_what_they_have_in_common(void **state)
{
    (void)state;
    static struct record a, b;
    day0_options options = small_options(2, 4);
    day0_engine *engine = engine_or_fail(&options);
    day0_session *first = session_or_fail(engine), *second = session_or_fail(engine);
    int32_t text[CONTEXT];
    memcpy(text, some_text(engine, 500, CONTEXT), sizeof text);
    day0_generation g = recorded(engine, &a, 20);
    generate(engine, first, text, 192, &g, NULL);
    uint64_t alone = day0_engine_memory(engine).cache_used_bytes;
    /* The same prompt in another session: nothing to compute, the same tokens. */
    g = recorded(engine, &b, 20);
    day0_reuse reuse;
    uint64_t before = day0_session_computed(second);
    generate(engine, second, text, 192, &g, &reuse);
    assert_int_equal(reuse.tokens_reused, 192);
    assert_non_null(strstr(reuse.reason, "nothing is left to compute"));
    assert_int_equal(day0_session_computed(second) - before, 19);
    assert_same_record(&b, &a, "the same prompt in another session");
    uint64_t both = day0_engine_memory(engine).cache_used_bytes;
    assert_true(both < 2 * alone && both - alone <= alone / 3); /* 3 whole pages are shared, one is its own */
    /* Asked again for another answer: the prompt is still known. */
    g = recorded(engine, &b, 20);
    g.sampling.temperature = 1.0f;
    generate(engine, first, text, 192, &g, &reuse);
    assert_int_equal(reuse.tokens_reused, 192);
    /* What one session writes after the shared part the other does not see. */
    for (int i = 0; i < 3; i++) {
        text[195 + i] = (text[195 + i] + 1) % 1900;
        assert_int_equal(ask(engine, i % 2 ? first : second, text, 230, "kept after token 192"), 192);
        assert_cold_logits(i % 2 ? first : second, 230, &options, "after a shared beginning");
    }
    day0_engine_close(engine);
}

static void few_or_no_kept_states(void **state)
{
    (void)state;
    for (uint32_t checkpoints = 0; checkpoints <= 3; checkpoints++) {
        day0_options options = small_options(1, checkpoints);
        day0_engine *engine = engine_or_fail(&options);
        day0_session *session = session_or_fail(engine);
        const int32_t *texts[3] = {some_text(engine, 0, 100), some_text(engine, 200, 100), some_text(engine, 400, 100)};
        for (int i = 0; i < 3; i++)
            assert_int_equal(ask(engine, session, texts[i], 100, ""), 0);
        /* The last ones asked for are known: the session's own, and as many as are kept. */
        for (int i = 2; i >= 0; i--) {
            uint32_t age = 2 - (uint32_t)i;
            size_t reused = ask(engine, session, texts[i], 100, "");
            assert_int_equal(reused, age == 0 || age < checkpoints ? 100 : 0);
            assert_cold_logits(session, 100, &options, "with few kept states");
            if (reused == 0)
                break; /* it took another's place */
        }
        day0_engine_close(engine);
    }
}

static void kept_states_make_room_when_pages_run_out(void **state)
{
    (void)state;
    day0_options options = small_options(2, 16);
    options.context_max = 200; /* 2 x (4 + 1) pages */
    day0_engine *engine = engine_or_fail(&options);
    day0_session *sessions[2] = {session_or_fail(engine), session_or_fail(engine)};
    static struct record r[2];
    day0_error error;
    for (uint32_t round = 0; round < 8; round++) {
        size_t n[2] = {150 + 5 * (round % 7), 190 - 9 * (round % 5)};
        for (size_t s = 0; s < 2; s++) {
            day0_generation g = recorded(engine, &r[s], 30);
            const int32_t *text = some_text(engine, 150 * round + 50 * s, n[s]);
            must(day0_session_submit(sessions[s], text, n[s], &g, NULL, &error), &error);
        }
        must(day0_engine_run(engine, &error), &error);
        for (size_t s = 0; s < 2; s++) {
            assert_int_equal(r[s].finish, DAY0_FINISH_LENGTH);
            assert_cold_logits(sessions[s], n[s] + r[s].n_tokens - 1, &options, "when pages ran out");
        }
        day0_memory memory = day0_engine_memory(engine);
        assert_true(memory.cache_used_bytes <= memory.cache_bytes);
    }
    day0_session_close(sessions[0]);
    day0_session_close(sessions[1]);
    day0_engine_close(engine);
}

static void long_prompts_are_known_on_the_way(void **state)
{
    (void)state;
    static struct record r;
    day0_options options = engine_options();
    options.piece_tokens = 100;
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    day0_error error;
    int32_t text[RECORD_TOKENS_MAX];
    memcpy(text, some_text(engine, 300, RECORD_TOKENS_MAX), sizeof text);
    assert_int_equal(ask(engine, session, text, 590, ""), 0);
    text[400] = (text[400] + 1) % 1900;
    assert_int_equal(ask(engine, session, text, 590, "the state kept after token 300"), 300);
    assert_cold_logits(session, 590, &options, "an edit in the middle of a long prompt");
    /* A prompt that was cancelled goes on. */
    day0_generation g = recorded(engine, &r, 5);
    text[0] = (text[0] + 1) % 1900;
    must(day0_session_submit(session, text, 590, &g, NULL, &error), &error);
    for (int i = 0; i < 3; i++)
        must(day0_engine_step(engine, NULL, &error), &error);
    day0_session_cancel(session);
    must(day0_engine_run(engine, &error), &error);
    assert_int_equal(r.finish, DAY0_FINISH_CANCELLED);
    assert_null(day0_session_logits(session)); /* the last computed token gave none */
    day0_session *other;
    day0_session_close(session);
    other = session_or_fail(engine);
    assert_int_equal(ask(engine, other, text, 590, "the state kept after token 300"), 300);
    assert_cold_logits(other, 590, &options, "a cancelled prompt in another session");
    day0_engine_close(engine);
}

static void rewound_texts_are_shorter(void **state)
{
    (void)state;
    day0_options options = small_options(1, 0);
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    day0_error error;
    size_t n;
    const int32_t *text = some_text(engine, 900, 200);
    for (size_t back = 0; back <= 20; back += back < 14 ? 7 : 1) {
        day0_session_close(session);
        session = session_or_fail(engine);
        generate(engine, session, text, 150, NULL, NULL);
        must(day0_session_rewind(session, back, &error), &error);
        day0_session_tokens(session, &n);
        assert_int_equal(n, 150 - back);
        assert_true((day0_session_logits(session) == NULL) == (back > 0));
        assert_int_equal(ask(engine, session, text, 180, ""), back <= 16 ? 150 - back : 0);
        assert_cold_logits(session, 180, &options, "after a rewind");
    }
    must(day0_session_rewind(session, 180, &error), &error);
    day0_session_tokens(session, &n);
    assert_int_equal(n, 0);
    assert_int_equal(day0_engine_memory(engine).cache_used_bytes, 0);
    day0_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_go_on_or_change),
        cmocka_unit_test(law_4_any_history_gives_the_cold_result),
        cmocka_unit_test(sessions_share_what_they_have_in_common),
        cmocka_unit_test(few_or_no_kept_states),
        cmocka_unit_test(kept_states_make_room_when_pages_run_out),
        cmocka_unit_test(long_prompts_are_known_on_the_way),
        cmocka_unit_test(rewound_texts_are_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
