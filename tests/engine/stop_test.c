/* How generations end: stop tokens and strings, limits, cancellation, a new submit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine_help.h"

enum { PROMPT = 40, FREE_TOKENS = 60 };

struct fixture {
    day0_options options;
    day0_engine *engine;
    day0_session *session;
    const int32_t *prompt;
    struct record whole; /* greedy, nothing stops it */
};

static struct fixture fixture;

static int open_fixture(void **state)
{
    struct fixture *f = &fixture;
    f->options = engine_options();
    f->options.sessions_max = 2;
    f->engine = engine_or_fail(&f->options);
    f->session = session_or_fail(f->engine);
    f->prompt = some_text(f->engine, 600, PROMPT);
    day0_generation g = recorded(f->engine, &f->whole, FREE_TOKENS);
    generate(f->engine, f->session, f->prompt, PROMPT, &g, NULL);
    assert_int_equal(f->whole.n_tokens, FREE_TOKENS);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    day0_engine_close(fixture.engine);
    return 0;
}

/* ---- stop strings ---- */

/* Where the text must end: before the string that is whole first, of those the longest; its length if none appears. */
static size_t naive_stop(const char *text, size_t bytes, const char *const *stops, uint32_t n_stops)
{
    for (size_t end = 1; end <= bytes; end++) {
        size_t begin = SIZE_MAX;
        for (uint32_t i = 0; i < n_stops; i++) {
            size_t n = strlen(stops[i]);
            if (n <= end && memcmp(text + end - n, stops[i], n) == 0 && end - n < begin)
                begin = end - n;
        }
        if (begin != SIZE_MAX)
            return begin;
    }
    return bytes;
}

static void check_stops(struct fixture *f, const char *const *stops, uint32_t n_stops)
{
    static struct record r;
    const struct record *whole = &f->whole;
    day0_generation g = recorded(f->engine, &r, FREE_TOKENS);
    g.stop_strings = stops;
    g.n_stop_strings = n_stops;
    generate(f->engine, f->session, f->prompt, PROMPT, &g, NULL);
    size_t want = naive_stop(whole->text, whole->text_bytes, stops, n_stops);
    if (r.text_bytes != want || memcmp(r.text, whole->text, want) != 0)
        fail_msg("stop '%s' and %u more: '%.*s' instead of '%.*s'", stops[0], n_stops - 1, (int)r.text_bytes, r.text,
                 (int)want, whole->text);
    assert_int_equal(r.finish, want < whole->text_bytes ? DAY0_FINISH_STOP : DAY0_FINISH_LENGTH);
    assert_int_equal(r.n_finishes, 1);
    if (want < whole->text_bytes)
        assert_int_equal(r.released_bytes, 0);
    assert_memory_equal(r.ids, whole->ids, r.n_tokens * sizeof *r.ids);
}

static void stop_strings_end_the_text_before_them(void **state)
{
    struct fixture *f = *state;
    const struct record *whole = &f->whole;
    struct rng rng = {5};
    char strings[4][64];
    const char *stops[4];
    /* All of the text in turn: at the very start, at the very end, over token borders. */
    for (size_t at = 0; at + 5 <= whole->text_bytes; at += slow_tests() ? 1 : 14) {
        size_t n = at % 3 == 0 ? 5 : at % 3 == 1 ? 1 : 3;
        snprintf(strings[0], sizeof strings[0], "%.*s", (int)n, whole->text + at);
        stops[0] = strings[0];
        check_stops(f, stops, 1);
    }
    /* Several at once, some only nearly there, some one inside the other. */
    for (int round = 0; round < (slow_tests() ? 300 : 15); round++) {
        uint32_t n_stops = 1 + (uint32_t)rng_below(&rng, 4);
        for (uint32_t i = 0; i < n_stops; i++) {
            size_t n = 1 + rng_below(&rng, 30), at = rng_below(&rng, whole->text_bytes - n);
            at = i > 0 && rng_below(&rng, 2) ? whole->text_bytes / 2 : at;
            n = n < whole->text_bytes - at ? n : whole->text_bytes - at;
            snprintf(strings[i], sizeof strings[i], "%.*s", (int)n, whole->text + at);
            if (rng_below(&rng, 2))
                snprintf(strings[i] + n, sizeof strings[i] - n, "%c", (char)('#' + rng_below(&rng, 3)));
            stops[i] = strings[i];
        }
        check_stops(f, stops, n_stops);
    }
}

static void what_a_stop_string_held_back_comes_with_the_end(void **state)
{
    struct fixture *f = *state;
    const struct record *whole = &f->whole;
    static struct record r;
    char stop[64];
    snprintf(stop, sizeof stop, "%.*s#", 12, whole->text + whole->text_bytes - 12);
    const char *stops[] = {stop};
    day0_generation g = recorded(f->engine, &r, FREE_TOKENS);
    g.stop_strings = stops;
    g.n_stop_strings = 1;
    generate(f->engine, f->session, f->prompt, PROMPT, &g, NULL);
    assert_true(r.released_bytes >= 12);
    assert_same_record(&r, whole, "with a stop string that almost appeared");
}

static void nothing_follows_a_stop_string(void **state)
{
    struct fixture *f = *state;
    static struct record r;
    /* Tokens of single bytes over 127, and of letters: a stop string before half a character. The model is driven by
     * sampling at high temperature, so that such bytes come. */
    const char *stops[] = {"e", "a", "o", "i", " "};
    for (uint64_t seed = 0; seed < (slow_tests() ? 1000 : 150); seed++) {
        static struct record all;
        day0_generation g = recorded(f->engine, &all, 12);
        g.sampling.temperature = 20.0f;
        g.sampling.seed = seed;
        generate(f->engine, f->session, f->prompt, 2, &g, NULL);
        size_t want = naive_stop(all.text, all.text_bytes, stops, 5);
        g = recorded(f->engine, &r, 12);
        g.sampling.temperature = 20.0f;
        g.sampling.seed = seed;
        g.stop_strings = stops;
        g.n_stop_strings = 5;
        generate(f->engine, f->session, f->prompt, 2, &g, NULL);
        assert_int_equal(r.text_bytes, want);
        assert_memory_equal(r.text, all.text, want);
    }
}

/* ---- stop tokens ---- */

static void stop_tokens_end_the_text_and_are_not_in_it(void **state)
{
    struct fixture *f = *state;
    const struct record *whole = &f->whole;
    static struct record r;
    for (uint32_t k = 0; k < FREE_TOKENS; k += 11) {
        int32_t stops[DAY0_STOPS_MAX];
        uint32_t first = k;
        for (uint32_t i = FREE_TOKENS; i-- > 0;)
            first = whole->ids[i] == whole->ids[k] ? i : first;
        for (int i = 0; i < DAY0_STOPS_MAX; i++)
            stops[i] = 1990;
        stops[k % DAY0_STOPS_MAX] = whole->ids[k];
        day0_generation g = recorded(f->engine, &r, FREE_TOKENS);
        g.stop_tokens = stops;
        g.n_stop_tokens = DAY0_STOPS_MAX;
        generate(f->engine, f->session, f->prompt, PROMPT, &g, NULL);
        assert_int_equal(r.finish, DAY0_FINISH_STOP);
        assert_int_equal(r.n_tokens, first);
        assert_memory_equal(r.ids, whole->ids, first * sizeof *r.ids);
        size_t n;
        day0_session_tokens(f->session, &n);
        assert_int_equal(n, PROMPT + first);
    }
}

static void the_models_own_end_is_kept_or_ignored(void **state)
{
    struct fixture *f = *state;
    static struct record r, ignored;
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"What is a kluge?\"}]}";
    day0_tokens prompt;
    day0_error error;
    must(day0_chat_prompt(f->engine, request, sizeof request - 1, &prompt, &error), &error);
    day0_generation g = recorded(f->engine, &r, 500);
    g.ignore_end = false;
    generate(f->engine, f->session, prompt.ids, prompt.count, &g, NULL);
    assert_int_equal(r.finish, DAY0_FINISH_STOP);
    g = recorded(f->engine, &ignored, r.n_tokens + 5);
    generate(f->engine, f->session, prompt.ids, prompt.count, &g, NULL);
    assert_int_equal(ignored.finish, DAY0_FINISH_LENGTH);
    assert_int_equal(ignored.n_tokens, r.n_tokens + 5);
    assert_memory_equal(ignored.ids, r.ids, r.n_tokens * sizeof *r.ids);
    assert_int_equal(ignored.ids[r.n_tokens], 1986);
    day0_tokens_free(&prompt);
}

/* ---- limits ---- */

static void lengths_are_limits(void **state)
{
    struct fixture *f = *state;
    static struct record r;
    const int32_t *text = some_text(f->engine, 0, RECORD_TOKENS_MAX);
    size_t n;
    static const struct {
        uint32_t prompt, tokens_max, want;
    } cases[] = {{PROMPT, 0, 0},
                 {PROMPT, 1, 1},
                 {1, 2, 2},
                 {RECORD_TOKENS_MAX - 3, 100, 3},
                 {RECORD_TOKENS_MAX - 1, 100, 1},
                 {RECORD_TOKENS_MAX, 100, 0},
                 {RECORD_TOKENS_MAX, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        day0_generation g = recorded(f->engine, &r, cases[c].tokens_max);
        generate(f->engine, f->session, text, cases[c].prompt, &g, NULL);
        assert_int_equal(r.finish, DAY0_FINISH_LENGTH);
        assert_int_equal(r.n_tokens, cases[c].want);
        assert_int_equal(r.n_finishes, 1);
        day0_session_tokens(f->session, &n);
        assert_int_equal(n, cases[c].prompt + cases[c].want);
        assert_cold_logits(f->session, cases[c].prompt + (cases[c].want > 0 ? cases[c].want - 1 : 0), &f->options,
                           "at a limit");
    }
}

/* ---- cancellation ---- */

static void work_is_cancelled_from_outside_and_inside(void **state)
{
    struct fixture *f = *state;
    static struct record r, other;
    day0_error error;
    uint32_t working;
    /* From outside, in the middle. */
    day0_generation g = recorded(f->engine, &r, FREE_TOKENS);
    must(day0_session_submit(f->session, f->prompt, PROMPT, &g, NULL, &error), &error);
    for (int i = 0; i < 10; i++)
        must(day0_engine_step(f->engine, &working, &error), &error);
    assert_int_equal(working, 1);
    uint32_t before = r.n_tokens;
    day0_session_cancel(f->session);
    must(day0_engine_step(f->engine, &working, &error), &error);
    assert_int_equal(working, 0);
    assert_int_equal(r.finish, DAY0_FINISH_CANCELLED);
    assert_int_equal(r.n_tokens, before);
    day0_session_cancel(f->session); /* idle: nothing happens, also later */
    /* By the callback's answer. */
    g = recorded(f->engine, &r, FREE_TOKENS);
    r.stop_after = 7;
    generate(f->engine, f->session, f->prompt, PROMPT, &g, NULL);
    assert_int_equal(r.finish, DAY0_FINISH_CANCELLED);
    assert_int_equal(r.n_tokens, 7);
    assert_memory_equal(r.ids, f->whole.ids, 7 * sizeof *r.ids);
    /* By a call in the callback. */
    g = recorded(f->engine, &r, FREE_TOKENS);
    r.cancels = f->session;
    generate(f->engine, f->session, f->prompt, PROMPT, &g, NULL);
    assert_int_equal(r.finish, DAY0_FINISH_CANCELLED);
    assert_int_equal(r.n_tokens, 1);
    /* By a neighbour's callback: not one token more. */
    day0_session *neighbour = session_or_fail(f->engine);
    g = recorded(f->engine, &r, 5);
    r.cancels = neighbour;
    day0_generation h = recorded(f->engine, &other, FREE_TOKENS);
    must(day0_session_submit(f->session, f->prompt, PROMPT, &g, NULL, &error), &error);
    must(day0_session_submit(neighbour, f->prompt, PROMPT, &h, NULL, &error), &error);
    must(day0_engine_run(f->engine, &error), &error);
    assert_int_equal(r.n_tokens, 5);
    assert_int_equal(other.finish, DAY0_FINISH_CANCELLED);
    assert_int_equal(other.n_tokens, 0);
    assert_int_equal(other.n_finishes, 1);
    day0_session_close(neighbour);
}

static void a_new_submit_ends_the_work_under_way(void **state)
{
    struct fixture *f = *state;
    static struct record first, second;
    day0_error error;
    uint32_t working;
    day0_generation g = recorded(f->engine, &first, FREE_TOKENS);
    must(day0_session_submit(f->session, f->prompt, PROMPT, &g, NULL, &error), &error);
    for (int i = 0; i < 5; i++)
        must(day0_engine_step(f->engine, &working, &error), &error);
    uint32_t n_before = first.n_tokens;
    /* A refused one does not. */
    day0_generation bad = g;
    bad.sampling.top_p = 2.0f;
    assert_refused(day0_session_submit(f->session, f->prompt, PROMPT, &bad, NULL, &error), DAY0_ARGUMENT, &error,
                   "top-p");
    assert_refused(day0_session_submit(f->session, f->prompt, 0, &g, NULL, &error), DAY0_ARGUMENT, &error, "empty");
    assert_int_equal(first.n_finishes, 0);
    must(day0_engine_step(f->engine, &working, &error), &error);
    assert_int_equal(first.n_tokens, n_before + 1);
    /* Half a prompt, and the session's own text as the next one's. */
    day0_generation h = recorded(f->engine, &second, 10);
    size_t n;
    const int32_t *own = day0_session_tokens(f->session, &n);
    must(day0_session_submit(f->session, own, n, &h, NULL, &error), &error);
    assert_int_equal(first.finish, DAY0_FINISH_CANCELLED);
    assert_int_equal(first.n_finishes, 1);
    must(day0_engine_run(f->engine, &error), &error);
    assert_memory_equal(second.ids, f->whole.ids + first.n_tokens, 10 * sizeof *second.ids);
    assert_cold_logits(f->session, n + 9, &f->options, "after a submit over work under way");
    assert_int_equal(first.n_finishes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_end_the_text_before_them),
        cmocka_unit_test(what_a_stop_string_held_back_comes_with_the_end),
        cmocka_unit_test(nothing_follows_a_stop_string),
        cmocka_unit_test(stop_tokens_end_the_text_and_are_not_in_it),
        cmocka_unit_test(the_models_own_end_is_kept_or_ignored),
        cmocka_unit_test(lengths_are_limits),
        cmocka_unit_test(work_is_cancelled_from_outside_and_inside),
        cmocka_unit_test(a_new_submit_ends_the_work_under_way),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
