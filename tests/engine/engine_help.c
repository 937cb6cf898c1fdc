#include "engine_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

day0_options engine_options(void)
{
    const char *threads = getenv("DAY0_TEST_THREADS");
    day0_options options = day0_options_default();
    options.model = JARGON;
    options.cpu = getenv("DAY0_CPU");
    options.context_max = RECORD_TOKENS_MAX;
    options.threads = threads ? (uint32_t)atoi(threads) : 2;
    return options;
}

void must(day0_status status, const day0_error *error)
{
    if (status != DAY0_OK)
        fail_msg("%s", error->text);
}

void assert_refused(day0_status got, day0_status want, const day0_error *error, const char *part)
{
    if (got != want)
        fail_msg("status %d instead of %d (%s)", (int)got, (int)want, got != DAY0_OK ? error->text : "no failure");
    assert_int_equal(error->status, want);
    if (!strstr(error->text, part))
        fail_msg("the sentence '%s' does not say '%s'", error->text, part);
}

day0_engine *engine_or_fail(const day0_options *options)
{
    day0_engine *engine = NULL;
    day0_error error;
    must(day0_engine_open(&engine, options, &error), &error);
    return engine;
}

day0_session *session_or_fail(day0_engine *engine)
{
    day0_session *session = NULL;
    day0_error error;
    must(day0_session_open(&session, engine, &error), &error);
    return session;
}

const int32_t *some_text(const day0_engine *engine, size_t first, size_t n)
{
    static day0_tokens tokens;
    if (!tokens.ids) {
        char *text;
        size_t bytes;
        struct error err;
        day0_error error;
        if (file_read(JARGON "/eval.txt", 1 << 20, &text, &bytes, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        must(day0_tokenize(engine, text, bytes, &tokens, &error), &error);
        free(text);
    }
    assert_true(first + n <= tokens.count);
    return tokens.ids + first;
}

static void add_text(struct record *r, const char *text, size_t bytes)
{
    assert_true(r->text_bytes + bytes < sizeof r->text);
    if (bytes > 0)
        memcpy(r->text + r->text_bytes, text, bytes);
    r->text_bytes += bytes;
}

static int on_token(void *context, day0_session *session, const day0_token *token)
{
    struct record *r = context;
    (void)session;
    assert_int_equal(r->n_finishes, 0);
    assert_int_equal(token->index, r->n_tokens);
    assert_true(r->n_tokens < RECORD_TOKENS_MAX);
    r->logprobs[r->n_tokens] = token->logprob;
    r->ids[r->n_tokens++] = token->id;
    add_text(r, token->text, token->text_bytes);
    if (r->cancels)
        day0_session_cancel(r->cancels);
    return r->stop_after > 0 && r->n_tokens == r->stop_after;
}

static void on_finish(void *context, day0_session *session, day0_finish finish, const char *text, size_t bytes)
{
    struct record *r = context;
    assert_int_equal(day0_session_finish(session), finish);
    r->finish = finish;
    r->n_finishes++;
    r->released_bytes = bytes;
    add_text(r, text, bytes);
}

day0_generation recorded(const day0_engine *engine, struct record *record, uint32_t tokens_max)
{
    day0_generation g = day0_generation_default(engine);
    memset(record, 0, sizeof *record);
    g.sampling = (day0_sampling){.top_p = 1.0f, .repetition_penalty = 1.0f};
    g.tokens_max = tokens_max;
    g.ignore_end = g.logprobs = true;
    g.on_token = on_token;
    g.on_finish = on_finish;
    g.context = record;
    return g;
}

void generate(day0_engine *engine, day0_session *session, const int32_t *tokens, size_t n,
              const day0_generation *generation, day0_reuse *reuse)
{
    day0_error error;
    must(day0_session_submit(session, tokens, n, generation, reuse, &error), &error);
    must(day0_engine_run(engine, &error), &error);
    assert_int_not_equal(day0_session_finish(session), DAY0_FINISH_NONE);
}

void assert_same_record(const struct record *got, const struct record *want, const char *what)
{
    if (got->n_tokens != want->n_tokens || memcmp(got->ids, want->ids, got->n_tokens * sizeof *got->ids) != 0)
        fail_msg("%s: other tokens (%u and %u of them)", what, got->n_tokens, want->n_tokens);
    if (memcmp(got->logprobs, want->logprobs, got->n_tokens * sizeof *got->logprobs) != 0)
        fail_msg("%s: other log-probabilities", what);
    if (got->text_bytes != want->text_bytes || memcmp(got->text, want->text, got->text_bytes) != 0)
        fail_msg("%s: the text is '%.*s' instead of '%.*s'", what, (int)got->text_bytes, got->text,
                 (int)want->text_bytes, want->text);
    if (got->finish != want->finish || got->n_finishes != want->n_finishes)
        fail_msg("%s: another end: %d instead of %d", what, (int)got->finish, (int)want->finish);
}

void assert_cold_logits(const day0_session *session, size_t n, const day0_options *options, const char *what)
{
    day0_options alone = *options;
    alone.sessions_max = 1;
    alone.checkpoints_max = 0;
    day0_engine *engine = engine_or_fail(&alone);
    day0_session *cold = session_or_fail(engine);
    size_t n_text;
    const int32_t *tokens = day0_session_tokens(session, &n_text);
    assert_true(n <= n_text);
    generate(engine, cold, tokens, n, NULL, NULL);
    assert_non_null(day0_session_logits(session));
    if (memcmp(day0_session_logits(session), day0_session_logits(cold),
               day0_engine_vocabulary(engine) * sizeof(float)) != 0)
        fail_msg("%s: the logits are not those of a cold run", what);
    day0_engine_close(engine);
}

void temporary_path(char *out, size_t bytes, const char *name)
{
    const char *place = getenv("TMPDIR");
    assert_true(snprintf(out, bytes, "%s/day0_engine_%ld_%s", place && *place ? place : "/tmp", (long)getpid(), name) <
                (int)bytes);
}
