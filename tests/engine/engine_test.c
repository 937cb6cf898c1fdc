/* The engine around its sessions: refusals that change nothing, opening and closing, memory, the budget, reading
 * ahead, and that a step allocates nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/count_allocations.h"
#include "../model/synth_help.h"
#include "engine_help.h"

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS) {
        print_message("allocations are the sanitizer's in this build\n");
        skip();
    }
    static struct record a, b;
    day0_error error;
    day0_options options = engine_options();
    options.sessions_max = 2;
    options.checkpoints_max = 2;
    day0_engine *engine = engine_or_fail(&options);
    day0_session *sessions[2] = {session_or_fail(engine), session_or_fail(engine)};
    const char *stops[] = {"never there"};
    day0_generation g = recorded(engine, &a, 50), h = recorded(engine, &b, 80);
    h.sampling.temperature = 0.8f;
    h.sampling.top_k = 40;
    h.sampling.repetition_penalty = 1.1f;
    h.stop_strings = stops;
    h.n_stop_strings = 1;
    uint32_t working = 1;
    const int32_t *text = some_text(engine, 0, 500);
    unsigned long counted = 0;
    for (int round = 0; round < 3; round++) {
        must(day0_session_submit(sessions[0], text + round * 7, 300, &g, NULL, &error), &error);
        must(day0_session_submit(sessions[1], text + round * 5, 20, &h, NULL, &error), &error);
        unsigned long before = allocations;
        for (working = 1; working > 0;)
            must(day0_engine_step(engine, &working, &error), &error);
        counted = allocations - before; /* the first round makes room for text */
        a.n_tokens = a.n_finishes = b.n_tokens = b.n_finishes = 0;
        a.text_bytes = b.text_bytes = 0;
    }
    assert_int_equal(counted, 0);
    day0_engine_close(engine);
}

/* ---- refusals ---- */

static void refusals_are_sentences_and_change_nothing(void **state)
{
    (void)state;
    static struct record r, before, after;
    day0_options options = engine_options();
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine), *other;
    day0_error error;
    const int32_t *text = some_text(engine, 0, RECORD_TOKENS_MAX + 1);
    day0_generation good = recorded(engine, &before, 10);
    generate(engine, session, text, 50, &good, NULL);
    size_t n_text;
    day0_session_tokens(session, &n_text);
    assert_refused(day0_session_open(&other, engine, &error), DAY0_ARGUMENT, &error, "sessions_max");
    assert_null(other);
    good = recorded(engine, &r, 10);
    assert_refused(day0_session_submit(session, text, 0, &good, NULL, &error), DAY0_ARGUMENT, &error, "empty");
    assert_refused(day0_session_submit(session, text, RECORD_TOKENS_MAX + 1, &good, NULL, &error), DAY0_ARGUMENT,
                   &error, "601 tokens, the context holds 600");
    int32_t wrong[3] = {1, 2, 2048};
    assert_refused(day0_session_submit(session, wrong, 3, &good, NULL, &error), DAY0_ARGUMENT, &error,
                   "token 2 is 2048");
    wrong[2] = -1;
    assert_refused(day0_session_submit(session, wrong, 3, NULL, NULL, &error), DAY0_ARGUMENT, &error, "token 2 is -1");
    const char *long_stop[17], *strings[1];
    char large[1100];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    for (int i = 0; i < 17; i++)
        long_stop[i] = "stop";
    struct {
        day0_generation g;
        const char *part;
    } bad[] = {{good, "temperature"}, {good, "temperature"}, {good, "top-p"},      {good, "top-p"},
               {good, "min-p"},       {good, "repetition"},  {good, "repetition"}, {good, "presence"},
               {good, "presence"},    {good, "stop tokens"}, {good, "log-prob"},   {good, "stop strings"},
               {good, "stop string"}, {good, "stop string"}};
    bad[0].g.sampling.temperature = -0.1f;
    bad[1].g.sampling.temperature = NAN;
    bad[2].g.sampling.top_p = 0.0f;
    bad[3].g.sampling.top_p = 1.1f;
    bad[4].g.sampling.min_p = 1.5f;
    bad[5].g.sampling.repetition_penalty = 0.0f;
    bad[6].g.sampling.repetition_penalty = INFINITY;
    bad[7].g.sampling.presence_penalty = NAN;
    bad[8].g.sampling.frequency_penalty = 1000.0f;
    bad[9].g.n_stop_tokens = DAY0_STOPS_MAX + 1;
    bad[9].g.stop_tokens = text;
    bad[10].g.top_logprobs = DAY0_TOP_LOGPROBS_MAX + 1;
    bad[11].g.stop_strings = long_stop;
    bad[11].g.n_stop_strings = 17;
    strings[0] = "";
    bad[12].g.stop_strings = strings;
    bad[12].g.n_stop_strings = 1;
    const char *larges[] = {large};
    bad[13].g.stop_strings = larges;
    bad[13].g.n_stop_strings = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(day0_session_submit(session, text, 20, &bad[i].g, NULL, &error), DAY0_ARGUMENT, &error,
                       bad[i].part);
    assert_refused(day0_session_rewind(session, n_text + 1, &error), DAY0_ARGUMENT, &error, "taken back");
    assert_int_equal(r.n_finishes, 0);
    assert_int_equal(day0_session_finish(session), DAY0_FINISH_LENGTH);
    uint32_t working;
    must(day0_engine_step(engine, &working, &error), &error);
    assert_int_equal(working, 0);
    size_t n;
    const int32_t *tokens = day0_session_tokens(session, &n);
    assert_int_equal(n, n_text);
    assert_memory_equal(tokens, text, 50 * sizeof *tokens);
    uint64_t computed = day0_session_computed(session);
    good = recorded(engine, &after, 10);
    day0_reuse reuse;
    generate(engine, session, text, 50, &good, &reuse);
    assert_same_record(&after, &before, "after many refusals");
    assert_int_equal(day0_session_computed(session) - computed, 9);        /* the prompt is still known */
    must(day0_session_submit(session, text, 3, NULL, NULL, NULL), &error); /* error and reuse may be NULL */
    assert_int_equal(day0_session_submit(session, text, 0, NULL, NULL, NULL), DAY0_ARGUMENT);
    day0_engine_close(engine);
}

static void options_are_checked(void **state)
{
    (void)state;
    day0_options o = engine_options(), bad[17];
    static const char *const parts[17] = {
        "directory",    "models/none", "sessions_max", "sessions_max", "checkpoints_max", "piece_tokens",
        "piece_tokens", "kv",          "li_scale",     "exec",         "context",         "dense",
        "experts",      "streams",     "li_scan",      "pack",         "without"};
    day0_engine *engine;
    day0_error error;
    for (int i = 0; i < 17; i++)
        bad[i] = o;
    bad[0].model = NULL;
    bad[1].model = "models/none";
    bad[2].sessions_max = 0;
    bad[3].sessions_max = 100000;
    bad[4].checkpoints_max = 1 << 20;
    bad[5].piece_tokens = 0;
    bad[6].piece_tokens = 257;
    bad[7].kv = "f16";
    bad[8].li_scale = "round";
    bad[9].exec = "";
    bad[10].context_max = 0;
    bad[11].dense = "int4";
    bad[12].experts = "mxfp8";
    bad[13].streams = "maybe";
    bad[14].li_scan = "int8";
    bad[15].pack = "tight";
    bad[16].without = "grouping,";
    for (int i = 0; i < 17; i++) {
        day0_status status = day0_engine_open(&engine, &bad[i], &error);
        assert_null(engine);
        assert_refused(status, i == 1 ? DAY0_NOT_FOUND : DAY0_ARGUMENT, &error, parts[i]);
    }
    bad[0] = o;
    bad[0].cpu = "abacus";
    assert_refused(day0_engine_open(&engine, &bad[0], &error), DAY0_ARGUMENT, &error, "abacus");
    assert_int_equal(day0_engine_open(&engine, &bad[0], NULL), DAY0_ARGUMENT);
    day0_engine_close(NULL);
    day0_session_close(NULL);
}

static void without_a_tokenizer_only_ids_work(void **state)
{
    (void)state;
    static struct record r;
    struct synth synth = synth_default();
    struct synth_directory directory = synth_write(&synth);
    day0_options options = engine_options();
    options.model = directory.path;
    day0_engine *engine = engine_or_fail(&options);
    synth_remove(&directory);
    day0_session *session = session_or_fail(engine);
    int32_t tokens[20];
    synth_tokens(tokens, 20, 33, 1);
    day0_generation g = recorded(engine, &r, 30);
    generate(engine, session, tokens, 20, &g, NULL);
    assert_int_equal(r.n_tokens, 30);
    assert_int_equal(r.text_bytes, 0);
    day0_error error;
    day0_tokens out;
    day0_reply *reply;
    char *text;
    size_t bytes;
    const char *stops[] = {"a"};
    g.stop_strings = stops;
    g.n_stop_strings = 1;
    assert_refused(day0_session_submit(session, tokens, 20, &g, NULL, &error), DAY0_ARGUMENT, &error, "tokenizer");
    assert_refused(day0_tokenize(engine, "a", 1, &out, &error), DAY0_NOT_FOUND, &error, "tiktoken.model");
    assert_refused(day0_detokenize(engine, tokens, 1, &text, &bytes, &error), DAY0_NOT_FOUND, &error, "tiktoken.model");
    assert_refused(day0_chat_prompt(engine, "{}", 2, &out, &error), DAY0_NOT_FOUND, &error, "tiktoken.model");
    assert_refused(day0_reply_open(&reply, engine, false, NULL, NULL, &error), DAY0_NOT_FOUND, &error,
                   "tiktoken.model");
    day0_engine_close(engine);
}

/* ---- sessions come and go ---- */

static void sessions_close_in_any_order(void **state)
{
    (void)state;
    static struct record r[3], fourth;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    day0_options options = engine_options();
    options.sessions_max = 3;
    day0_error error;
    day0_engine *engine = engine_or_fail(&options);
    for (int o = 0; o < 6; o++) {
        day0_session *sessions[3];
        for (int s = 0; s < 3; s++) {
            sessions[s] = session_or_fail(engine);
            day0_generation g = recorded(engine, &r[s], 30);
            must(day0_session_submit(sessions[s], some_text(engine, 100, 90 + (size_t)s), 90 + (size_t)s, &g, NULL,
                                     &error),
                 &error);
        }
        for (int i = 0; i < 3; i++) {
            for (int step = 0; step < 3; step++)
                must(day0_engine_step(engine, NULL, &error), &error);
            int s = orders[o][i];
            assert_int_equal(r[s].n_finishes, 0);
            day0_session_close(sessions[s]);
            assert_int_equal(r[s].finish, DAY0_FINISH_CANCELLED);
            assert_int_equal(r[s].n_finishes, 1);
            if (i == 1) { /* its place is free again */
                day0_session *again = session_or_fail(engine);
                day0_generation g = recorded(engine, &fourth, 5);
                must(day0_session_submit(again, some_text(engine, 0, 10), 10, &g, NULL, &error), &error);
                must(day0_engine_step(engine, NULL, &error), &error);
                day0_session_close(again);
            }
        }
        uint32_t working = 9;
        must(day0_engine_step(engine, &working, &error), &error);
        assert_int_equal(working, 0);
    }
    day0_session *last = session_or_fail(engine);
    day0_generation g = recorded(engine, &r[0], 30);
    must(day0_session_submit(last, some_text(engine, 0, 10), 10, &g, NULL, &error), &error);
    day0_engine_close(engine);
    assert_int_equal(r[0].finish, DAY0_FINISH_CANCELLED);
}

/* ---- memory ---- */

static void the_memory_report_adds_up(void **state)
{
    (void)state;
    day0_options options = engine_options();
    options.sessions_max = 2;
    options.checkpoints_max = 0;
    day0_engine *engine = engine_or_fail(&options);
    day0_session *a = session_or_fail(engine), *b = session_or_fail(engine);
    day0_memory empty = day0_engine_memory(engine);
    assert_int_equal(empty.cache_used_bytes, 0);
    assert_int_equal(empty.checkpoints_bytes, 0);
    assert_true(empty.weights_bytes > 9 << 20 && empty.workspace_bytes > 0 && empty.sessions_bytes > 0);
    assert_int_equal(empty.total_bytes, empty.weights_bytes + empty.cache_bytes + empty.sessions_bytes +
                                            empty.checkpoints_bytes + empty.workspace_bytes);
    assert_true(empty.budget_bytes >= empty.total_bytes);
    generate(engine, a, some_text(engine, 0, 64), 64, NULL, NULL);
    uint64_t page = day0_engine_memory(engine).cache_used_bytes;
    assert_true(page > 0);
    generate(engine, b, some_text(engine, 0, 65), 65, NULL, NULL);
    assert_int_equal(day0_engine_memory(engine).cache_used_bytes, 3 * page);
    assert_int_equal(day0_engine_memory(engine).total_bytes, empty.total_bytes);
    day0_session_close(a);
    assert_int_equal(day0_engine_memory(engine).cache_used_bytes, 2 * page);
    day0_session_close(b);
    assert_int_equal(day0_engine_memory(engine).cache_used_bytes, 0);
    day0_engine_close(engine);
    options.checkpoints_max = 4;
    engine = engine_or_fail(&options);
    day0_memory more = day0_engine_memory(engine);
    /* Four against two; a session has three rows of the vocabulary more. */
    uint64_t row = day0_engine_vocabulary(engine) * sizeof(float);
    assert_int_equal(more.checkpoints_bytes, 2 * (more.sessions_bytes - 2 * 3 * row));
    assert_int_equal(more.total_bytes, empty.total_bytes + more.checkpoints_bytes);
    day0_engine_close(engine);
}

static void a_budget_is_kept(void **state)
{
    (void)state;
    day0_options options = engine_options();
    options.context_max = 100000;
    options.budget_bytes = 1 << 20;
    day0_engine *engine;
    day0_error error;
    assert_refused(day0_engine_open(&engine, &options, &error), DAY0_MEMORY, &error, "no context fits");
    assert_non_null(strstr(error.text, "weights 0.01 GB"));
    options.budget_bytes = 80 << 20;
    assert_refused(day0_engine_open(&engine, &options, &error), DAY0_MEMORY, &error, "would fit");
    const char *at = strstr(error.text, "a context of ");
    assert_non_null(at);
    options.context_max = (uint32_t)strtoul(at + strlen("a context of "), NULL, 10);
    assert_true(options.context_max > 600 && options.context_max < 100000);
    engine = engine_or_fail(&options);
    assert_true(day0_engine_memory(engine).total_bytes <= options.budget_bytes);
    assert_int_equal(day0_engine_memory(engine).budget_bytes, options.budget_bytes);
    day0_engine_close(engine);
    options.context_max += 200;
    assert_refused(day0_engine_open(&engine, &options, &error), DAY0_MEMORY, &error, "would fit");
}

/* ---- reading ahead ---- */

struct progress {
    uint64_t done, total;
    uint32_t calls, stop_at;
};

static int on_progress(void *context, const char *what, uint64_t done, uint64_t total)
{
    struct progress *p = context;
    assert_string_equal(what, "reading weights");
    assert_true(done >= p->done && done <= total);
    p->done = done;
    p->total = total;
    return ++p->calls == p->stop_at;
}

/* Counts the changes of what is going on. */
static int on_conversion(void *context, const char *what, uint64_t done, uint64_t total)
{
    struct progress *p = context;
    bool reads = strcmp(what, "reading weights") == 0;
    assert_true(done <= total && (reads || strcmp(what, "converting weights") == 0));
    if (p->calls == 0 && !reads)
        p->calls = 1;
    if (p->calls == 1 && reads)
        p->calls = 2;
    if (p->calls == 2 && reads && done == total)
        p->calls = 3;
    return 0;
}

static void weights_are_read_ahead_and_that_can_be_stopped(void **state)
{
    (void)state;
    struct progress p = {0};
    day0_options options = engine_options();
    options.preload = true;
    options.progress = on_progress;
    options.progress_context = &p;
    day0_engine *engine = engine_or_fail(&options);
    assert_int_equal(p.done, p.total);
    uint64_t weights = day0_engine_memory(engine).weights_bytes; /* headers among them */
    assert_in_range(p.total, weights / 10 * 9, weights);
    assert_true(p.calls >= 2);
    day0_engine_close(engine);
    for (uint32_t stop_at = 1; stop_at <= 2; stop_at++) {
        day0_error error;
        p = (struct progress){.stop_at = stop_at};
        assert_refused(day0_engine_open(&engine, &options, &error), DAY0_INTERRUPTED, &error, "stopped");
        assert_null(engine);
        assert_int_equal(p.calls, stop_at);
    }
    options.progress = NULL;
    day0_engine_close(engine_or_fail(&options));
}

/* Converted weights are other numerics, and smaller; a class without anything to convert changes nothing. */
static void converted_weights_have_numerics_of_their_own(void **state)
{
    (void)state;
    day0_options options = engine_options();
    day0_engine *engine = engine_or_fail(&options);
    uint64_t stored = day0_engine_memory(engine).weights_bytes;
    char numerics[128];
    snprintf(numerics, sizeof numerics, "%s", day0_engine_numerics(engine));
    assert_int_equal(day0_engine_memory(engine).converted_bytes, 0);
    day0_engine_close(engine);
    options.experts = "int8"; /* the bundled model's are MXFP4 */
    engine = engine_or_fail(&options);
    assert_string_equal(day0_engine_numerics(engine), numerics);
    day0_engine_close(engine);
    options.dense = "int8";
    engine = engine_or_fail(&options);
    day0_memory memory = day0_engine_memory(engine);
    assert_non_null(strstr(day0_engine_numerics(engine), " dense=int8"));
    assert_null(strstr(day0_engine_numerics(engine), "experts"));
    assert_true(memory.converted_bytes > 0 && memory.weights_bytes < stored);
    struct progress p = {0};
    options.preload = true;
    options.progress = on_conversion;
    options.progress_context = &p;
    day0_engine_close(engine);
    engine = engine_or_fail(&options);
    assert_int_equal(p.calls, 3); /* both pieces of work, in this order, and the end */
    day0_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(refusals_are_sentences_and_change_nothing),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(without_a_tokenizer_only_ids_work),
        cmocka_unit_test(sessions_close_in_any_order),
        cmocka_unit_test(the_memory_report_adds_up),
        cmocka_unit_test(a_budget_is_kept),
        cmocka_unit_test(weights_are_read_ahead_and_that_can_be_stopped),
        cmocka_unit_test(converted_weights_have_numerics_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
