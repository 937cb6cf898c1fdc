/* Sessions through the public interface: what a generation gives, alone and among others, and that nobody waits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_help.h"

enum { FIRST_CONTROL = 1984 };

/* ---- against the model itself ---- */

struct by_hand {
    struct model *model;
    struct sequence sequence;
    float *logits; /* after the last token fed */
};

static void feed(struct by_hand *h, const int32_t *tokens, uint32_t n)
{
    struct error err;
    struct model_span span = {&h->sequence, tokens, n, n - 1};
    struct model_outputs outputs = {.logits = h->logits};
    if (model_step(h->model, &span, 1, &outputs, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static struct by_hand by_hand_open(void)
{
    struct by_hand h;
    struct error err;
    struct model_options options = model_options_default();
    options.context_max = RECORD_TOKENS_MAX;
    options.n_threads = 1;
    h.model = open_or_fail(JARGON, &options);
    h.logits = malloc(h.model->config.vocab_size * sizeof *h.logits);
    assert_int_equal(model_sequence_init(h.model, &h.sequence, &err), STATUS_OK);
    return h;
}

static void by_hand_close(struct by_hand *h)
{
    sequence_fini(&h->sequence);
    model_close(h->model);
    free(h->logits);
}

static int32_t best_of(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return (int32_t)best;
}

static double naive_logprob(const float *logits, uint32_t n, int32_t id)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[id]);
    return -log(sum);
}

static void greedy_equals_the_model_step_by_step(void **state)
{
    (void)state;
    static struct record r;
    day0_options options = engine_options();
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    uint32_t vocabulary = day0_engine_vocabulary(engine);
    const int32_t *prompt = some_text(engine, 0, 300);
    day0_generation g = recorded(engine, &r, 60);
    assert_null(day0_session_logits(session));
    generate(engine, session, prompt, 300, &g, NULL);
    assert_int_equal(r.n_tokens, 60);
    assert_int_equal(r.finish, DAY0_FINISH_LENGTH);
    assert_int_equal(r.n_finishes, 1);
    struct by_hand h = by_hand_open();
    feed(&h, prompt, 300);
    for (uint32_t i = 0; i < r.n_tokens; i++) {
        assert_int_equal(r.ids[i], best_of(h.logits, vocabulary));
        assert_float_equal(r.logprobs[i], naive_logprob(h.logits, vocabulary, r.ids[i]), 1e-5);
        if (i + 1 < r.n_tokens)
            feed(&h, &r.ids[i], 1);
    }
    assert_memory_equal(day0_session_logits(session), h.logits, vocabulary * sizeof(float));
    size_t n;
    const int32_t *tokens = day0_session_tokens(session, &n);
    assert_int_equal(n, 360);
    assert_memory_equal(tokens, prompt, 300 * sizeof *tokens);
    assert_memory_equal(tokens + 300, r.ids, 60 * sizeof *tokens);
    assert_int_equal(day0_session_computed(session), 359);
    char *text;
    size_t bytes;
    day0_error error;
    uint32_t n_words = 0;
    for (uint32_t i = 0; i < r.n_tokens; i++) /* control tokens have no text */
        if (r.ids[i] < FIRST_CONTROL)
            r.ids[n_words++] = r.ids[i];
    must(day0_detokenize(engine, r.ids, n_words, &text, &bytes, &error), &error);
    assert_int_equal(r.text_bytes, bytes);
    assert_memory_equal(r.text, text, bytes);
    free(text);
    by_hand_close(&h);
    day0_engine_close(engine);
}

/* ---- log-probabilities ---- */

static const float *sort_logits;

static int more_probable_first(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sort_logits[x] != sort_logits[y])
        return sort_logits[x] > sort_logits[y] ? -1 : 1;
    return (x > y) - (x < y);
}

static int check_top(void *context, day0_session *session, const day0_token *token)
{
    uint32_t *n_checked = context, n = 2048;
    int32_t ids[2048];
    const float *logits = day0_session_logits(session);
    assert_int_equal(token->n_top, DAY0_TOP_LOGPROBS_MAX);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)i;
    sort_logits = logits;
    qsort(ids, n, sizeof *ids, more_probable_first);
    for (uint32_t i = 0; i < token->n_top; i++) {
        assert_int_equal(token->top[i].id, ids[i]);
        assert_float_equal(token->top[i].logprob, naive_logprob(logits, n, ids[i]), 1e-5);
    }
    assert_float_equal(token->logprob, naive_logprob(logits, n, token->id), 1e-5);
    ++*n_checked;
    return 0;
}

static void logprobs_are_the_sorted_log_softmax(void **state)
{
    (void)state;
    day0_options options = engine_options();
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    day0_error error;
    uint32_t n_checked = 0;
    float out[2048];
    int32_t all[2048];
    assert_int_equal(day0_engine_vocabulary(engine), 2048);
    for (int32_t i = 0; i < 2048; i++)
        all[i] = i;
    assert_refused(day0_session_logprobs(session, all, 1, out, &error), DAY0_ARGUMENT, &error, "no logits");
    day0_generation g = day0_generation_default(engine);
    g.sampling.temperature = 1.5f;
    g.sampling.repetition_penalty = 1.3f; /* log-probabilities are those before sampling settings */
    g.tokens_max = 20;
    g.ignore_end = true;
    g.logprobs = true;
    g.top_logprobs = DAY0_TOP_LOGPROBS_MAX;
    g.on_token = check_top;
    g.context = &n_checked;
    generate(engine, session, some_text(engine, 50, 70), 70, &g, NULL);
    assert_int_equal(n_checked, 20);
    must(day0_session_logprobs(session, all, 2048, out, &error), &error);
    double sum = 0;
    for (uint32_t i = 0; i < 2048; i++) {
        sum += exp((double)out[i]);
        assert_float_equal(out[i], naive_logprob(day0_session_logits(session), 2048, (int32_t)i), 1e-5);
    }
    assert_float_equal(sum, 1.0, 1e-4);
    all[3] = 2048;
    assert_refused(day0_session_logprobs(session, all, 4, out, &error), DAY0_ARGUMENT, &error, "2048");
    day0_engine_close(engine);
}

/* ---- penalties ---- */

static float penalized(float raw, bool in_text, uint32_t generated, const day0_sampling *p)
{
    if (in_text && p->repetition_penalty != 1.0f)
        raw = raw > 0.0f ? raw / p->repetition_penalty : raw * p->repetition_penalty;
    if (generated > 0)
        raw -= p->presence_penalty + p->frequency_penalty * (float)generated;
    return raw;
}

static void penalties_equal_a_naive_computation(void **state)
{
    (void)state;
    static const float settings[][3] = {{1.3f, 0, 0}, {1, 1.5f, 0}, {1, 0, 0.7f}, {1.1f, -0.5f, 0.9f}};
    static struct record r;
    day0_options options = engine_options();
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    uint32_t vocabulary = day0_engine_vocabulary(engine);
    const int32_t *prompt = some_text(engine, 400, 40);
    for (size_t c = 0; c < sizeof settings / sizeof *settings; c++) {
        day0_generation g = recorded(engine, &r, 40);
        g.sampling.repetition_penalty = settings[c][0];
        g.sampling.presence_penalty = settings[c][1];
        g.sampling.frequency_penalty = settings[c][2];
        generate(engine, session, prompt, 40, &g, NULL);
        assert_int_equal(r.n_tokens, 40);
        struct by_hand h = by_hand_open();
        float *adjusted = malloc(vocabulary * sizeof *adjusted);
        feed(&h, prompt, 40);
        for (uint32_t i = 0; i < r.n_tokens; i++) {
            for (uint32_t v = 0; v < vocabulary; v++) {
                bool in_text = false;
                uint32_t generated = 0;
                for (uint32_t j = 0; j < 40; j++)
                    in_text |= prompt[j] == (int32_t)v;
                for (uint32_t j = 0; j < i; j++)
                    generated += r.ids[j] == (int32_t)v;
                adjusted[v] = penalized(h.logits[v], in_text || generated > 0, generated, &g.sampling);
            }
            assert_int_equal(r.ids[i], best_of(adjusted, vocabulary));
            feed(&h, &r.ids[i], 1);
        }
        free(adjusted);
        by_hand_close(&h);
    }
    day0_engine_close(engine);
}

/* ---- among others ---- */

enum { SESSIONS = 6 };

struct piece_of_work {
    size_t first, n;
    uint32_t tokens_max, submit_at; /* after so many steps */
    float temperature;
    uint64_t seed;
};

static const struct piece_of_work works[SESSIONS] = {
    {0, 33, 40, 0, 0.0f, 0},    {100, 250, 25, 0, 0.9f, 1}, {400, 1, 50, 3, 1.0f, 7},
    {700, 130, 30, 5, 0.7f, 3}, {900, 64, 20, 6, 1.2f, 4},  {1200, 301, 10, 12, 0.0f, 5},
};

static day0_generation of_work(const day0_engine *engine, const struct piece_of_work *w, struct record *r)
{
    day0_generation g = recorded(engine, r, w->tokens_max);
    g.sampling.temperature = w->temperature;
    g.sampling.top_p = w->temperature > 0 ? 0.95f : 1.0f;
    g.sampling.seed = w->seed;
    return g;
}

static void sessions_give_what_they_give_alone(void **state)
{
    (void)state;
    static struct record alone[SESSIONS], among[SESSIONS];
    day0_options options = engine_options();
    float *logits[SESSIONS];
    size_t bytes = 0;
    for (int s = 0; s < SESSIONS; s++) {
        options.threads = 1 + (uint32_t)s % 2;
        day0_engine *engine = engine_or_fail(&options);
        day0_session *session = session_or_fail(engine);
        day0_generation g = of_work(engine, &works[s], &alone[s]);
        generate(engine, session, some_text(engine, works[s].first, works[s].n), works[s].n, &g, NULL);
        bytes = day0_engine_vocabulary(engine) * sizeof(float);
        logits[s] = malloc(bytes);
        memcpy(logits[s], day0_session_logits(session), bytes);
        day0_engine_close(engine);
    }
    static const uint32_t pieces[] = {256, 64, 17, 1};
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        day0_session *sessions[SESSIONS];
        day0_error error;
        options = engine_options();
        options.sessions_max = SESSIONS;
        options.piece_tokens = pieces[p];
        options.threads = 1 + (uint32_t)p % 2;
        day0_engine *engine = engine_or_fail(&options);
        for (int s = 0; s < SESSIONS; s++)
            sessions[s] = session_or_fail(engine);
        uint32_t working = 1;
        for (uint32_t step = 0; working > 0 || step < 20; step++) {
            for (int s = 0; s < SESSIONS; s++)
                if (works[s].submit_at == step) {
                    day0_generation g = of_work(engine, &works[s], &among[s]);
                    must(day0_session_submit(sessions[s], some_text(engine, works[s].first, works[s].n), works[s].n, &g,
                                             NULL, &error),
                         &error);
                }
            must(day0_engine_step(engine, &working, &error), &error);
        }
        for (int s = 0; s < SESSIONS; s++) {
            char what[64];
            snprintf(what, sizeof what, "session %d among others, pieces of %u", s, pieces[p]);
            assert_same_record(&among[s], &alone[s], what);
            assert_memory_equal(day0_session_logits(sessions[s]), logits[s], bytes);
        }
        day0_engine_close(engine);
    }
    for (int s = 0; s < SESSIONS; s++)
        free(logits[s]);
}

static void seeds_decide_what_is_sampled(void **state)
{
    (void)state;
    static struct record a, b;
    day0_options options = engine_options();
    day0_engine *engine = engine_or_fail(&options);
    day0_session *session = session_or_fail(engine);
    const int32_t *prompt = some_text(engine, 10, 20);
    struct piece_of_work w = {0, 0, 40, 0, 1.0f, 11};
    day0_generation g = of_work(engine, &w, &a);
    generate(engine, session, prompt, 20, &g, NULL);
    g = of_work(engine, &w, &b);
    generate(engine, session, prompt, 20, &g, NULL);
    assert_same_record(&b, &a, "the same seed again");
    w.seed = 12;
    g = of_work(engine, &w, &b);
    generate(engine, session, prompt, 20, &g, NULL);
    assert_memory_not_equal(b.ids, a.ids, sizeof a.ids);
    day0_engine_close(engine);
}

static void generating_sessions_never_wait(void **state)
{
    (void)state;
    enum { PIECE = 32 };
    static struct record records[SESSIONS];
    day0_session *sessions[SESSIONS];
    day0_error error;
    day0_options options = engine_options();
    options.sessions_max = SESSIONS;
    options.piece_tokens = PIECE;
    day0_engine *engine = engine_or_fail(&options);
    for (int s = 0; s < SESSIONS; s++)
        sessions[s] = session_or_fail(engine);
    uint32_t working = 1, steps = 0;
    uint64_t waited[SESSIONS] = {0};
    for (; working > 0 || steps < 20; steps++) {
        uint64_t before[SESSIONS], rows = 0, n_generating = 0;
        uint32_t tokens[SESSIONS];
        bool generating[SESSIONS];
        for (int s = 0; s < SESSIONS; s++) {
            if (works[s].submit_at == steps) {
                day0_generation g = of_work(engine, &works[s], &records[s]);
                must(day0_session_submit(sessions[s], some_text(engine, works[s].first, works[s].n), works[s].n, &g,
                                         NULL, &error),
                     &error);
            }
            before[s] = day0_session_computed(sessions[s]);
            tokens[s] = records[s].n_tokens;
            generating[s] = tokens[s] > 0 && records[s].n_finishes == 0;
        }
        must(day0_engine_step(engine, &working, &error), &error);
        for (int s = 0; s < SESSIONS; s++) {
            uint64_t computed = day0_session_computed(sessions[s]) - before[s];
            n_generating += generating[s];
            rows += generating[s] ? 0 : computed;
            if (generating[s]) {
                assert_int_equal(computed, 1);
                assert_int_equal(records[s].n_tokens, tokens[s] + 1);
            } else {
                /* A prompt is not starved by other prompts either. */
                bool waits = works[s].submit_at <= steps && records[s].n_finishes == 0 && tokens[s] == 0;
                waited[s] = waits && computed == 0 && records[s].n_tokens == 0 ? waited[s] + 1 : 0;
                assert_true(waited[s] < SESSIONS);
            }
        }
        assert_true(rows <= PIECE);
        assert_true(n_generating <= SESSIONS);
    }
    for (int s = 0; s < SESSIONS; s++)
        assert_int_equal(records[s].n_tokens, works[s].tokens_max);
    day0_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_equals_the_model_step_by_step), cmocka_unit_test(logprobs_are_the_sorted_log_softmax),
        cmocka_unit_test(penalties_equal_a_naive_computation),  cmocka_unit_test(sessions_give_what_they_give_alone),
        cmocka_unit_test(seeds_decide_what_is_sampled),         cmocka_unit_test(generating_sessions_never_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
