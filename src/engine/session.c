#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/session_format.h"
#include "ops/kda.h"

static enum status open_session(day0_session *s, day0_engine *engine, struct error *err)
{
    uint32_t vocabulary = engine->model->config.vocab_size;
    TRY(model_sequence_init(engine->model, &s->sequence, err));
    TRY(memory_take(&s->tokens, engine->options.context_max, sizeof *s->tokens, "a session", err));
    TRY(memory_take(&s->logits, vocabulary, sizeof *s->logits, "a session", err));
    TRY(memory_take(&s->adjusted, vocabulary, sizeof *s->adjusted, "a session", err));
    TRY(memory_take(&s->counts, vocabulary, sizeof *s->counts, "a session", err));
    return sampler_init(&s->sampler, vocabulary, err);
}

static void free_session(day0_session *s)
{
    sequence_fini(&s->sequence);
    sampler_fini(&s->sampler);
    stop_strings_fini(&s->stop_strings);
    byte_buffer_fini(&s->text);
    free(s->tokens);
    free(s->logits);
    free(s->adjusted);
    free(s->counts);
    free(s->note);
    free(s);
}

day0_status day0_session_open(day0_session **out, day0_engine *engine, day0_error *error)
{
    struct error err;
    day0_session *s;
    *out = NULL;
    if (engine->n_sessions == engine->options.sessions_max)
        return engine_error(error,
                            error_set(&err, STATUS_ARGUMENT,
                                      "the engine was opened for %u sessions and all are open; close one or raise "
                                      "sessions_max",
                                      engine->options.sessions_max),
                            &err);
    enum status status = memory_take(&s, 1, sizeof *s, "a session", &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    s->engine = engine;
    status = open_session(s, engine, &err);
    if (status != STATUS_OK) {
        free_session(s);
        return engine_error(error, status, &err);
    }
    day0_session **last = &engine->sessions;
    while (*last)
        last = &(*last)->next;
    *last = s;
    engine->n_sessions++;
    *out = s;
    return DAY0_OK;
}

void day0_session_close(day0_session *session)
{
    if (!session)
        return;
    if (session->phase != PHASE_IDLE)
        scheduler_finish(session, DAY0_FINISH_CANCELLED);
    day0_session **at = &session->engine->sessions;
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    session->engine->n_sessions--;
    free_session(session);
}

void session_forget(day0_session *session)
{
    sequence_reset(&session->sequence);
    session->n_tokens = 0;
    session->has_logits = session->broken = false;
    session->finish = DAY0_FINISH_NONE;
    session->failure[0] = 0;
}

/* ---- submit ---- */

static enum status check_tokens(const day0_session *s, const int32_t *tokens, size_t n, struct error *err)
{
    uint32_t vocabulary = s->engine->model->config.vocab_size, context = s->engine->options.context_max;
    if (n == 0)
        return error_set(err, STATUS_ARGUMENT, "the text is empty; at least one token is needed");
    if (n > context)
        return error_set(err, STATUS_ARGUMENT,
                         "the text has %zu tokens, the context holds %u; shorten it or open the "
                         "engine with a larger context_max",
                         n, context);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocabulary)
            return error_set(err, STATUS_ARGUMENT, "token %zu is %d; the vocabulary has ids 0 to %u", i, tokens[i],
                             vocabulary - 1);
    return STATUS_OK;
}

static enum status check_generation(const day0_session *s, const day0_generation *g, struct error *err)
{
    const day0_sampling *p = &g->sampling;
    if (g->n_stop_tokens > DAY0_STOPS_MAX)
        return error_set(err, STATUS_ARGUMENT, "at most %d stop tokens, %u were given", DAY0_STOPS_MAX,
                         g->n_stop_tokens);
    if (g->n_stop_strings > 0 && !s->engine->tokenizer)
        return error_set(err, STATUS_ARGUMENT,
                         "stop strings were given, and the checkpoint has no tokenizer; stop at "
                         "token ids instead");
    if (g->top_logprobs > DAY0_TOP_LOGPROBS_MAX || g->top_logprobs > s->engine->model->config.vocab_size)
        return error_set(err, STATUS_ARGUMENT,
                         "at most %d top log-probabilities and no more than there are tokens, not %u",
                         DAY0_TOP_LOGPROBS_MAX, g->top_logprobs);
    if (!(p->repetition_penalty > 0.0f && p->repetition_penalty <= 100.0f))
        return error_set(err, STATUS_ARGUMENT, "the repetition penalty must lie above 0 and up to 100, not %g",
                         (double)p->repetition_penalty);
    if (!(fabsf(p->presence_penalty) <= 100.0f && fabsf(p->frequency_penalty) <= 100.0f))
        return error_set(err, STATUS_ARGUMENT,
                         "presence and frequency penalties must lie in -100 to 100, not %g and %g",
                         (double)p->presence_penalty, (double)p->frequency_penalty);
    return STATUS_OK;
}

/* What a submit takes over once nothing can fail any more. */
struct prepared {
    struct sampler sampler; /* the session's, with new settings */
    struct stop_strings stops;
};

static enum status prepare(struct prepared *out, const day0_session *s, const day0_generation *g, struct error *err)
{
    const day0_sampling *p = &g->sampling;
    struct sampling sampling = {p->temperature, p->top_k, p->top_p, p->min_p, p->seed};
    TRY(check_generation(s, g, err));
    out->sampler = s->sampler;
    TRY(sampler_set(&out->sampler, &sampling, err));
    return stop_strings_init(&out->stops, g->stop_strings, g->n_stop_strings, err);
}

static void take_generation(day0_session *s, const day0_generation *g, const struct prepared *prepared)
{
    struct byte_buffer held = s->stop_strings.held; /* keeps its room, so that steps need not allocate */
    s->stop_strings.held = (struct byte_buffer){0};
    stop_strings_fini(&s->stop_strings);
    s->stop_strings = prepared->stops;
    s->stop_strings.held = (struct byte_buffer){held.data, 0, held.capacity};
    s->sampler = prepared->sampler;
    if (g->n_stop_tokens > 0)
        memcpy(s->stop_tokens, g->stop_tokens, g->n_stop_tokens * sizeof *s->stop_tokens);
    s->generation = *g;
    s->generation.stop_tokens = s->stop_tokens;
    s->generation.stop_strings = NULL;
}

static enum status submit(day0_session *s, const int32_t *tokens, size_t n, const day0_generation *generation,
                          day0_reuse *reuse, struct error *err)
{
    day0_generation prompt_alone = {.sampling = day0_engine_sampling(s->engine)};
    struct prepared prepared;
    generation = generation ? generation : &prompt_alone;
    TRY(check_tokens(s, tokens, n, err));
    TRY(prepare(&prepared, s, generation, err));
    if (s->phase != PHASE_IDLE)
        scheduler_finish(s, DAY0_FINISH_CANCELLED);
    take_generation(s, generation, &prepared);
    reuse_find(s, tokens, (uint32_t)n, reuse);
    s->last_kept = s->sequence.length;
    s->broken = s->cancelled = s->text_over = false;
    s->failure[0] = 0;
    s->finish = DAY0_FINISH_NONE;
    memmove(s->tokens, tokens, n * sizeof *tokens); /* the caller may pass day0_session_tokens back */
    s->n_tokens = (uint32_t)n;
    s->n_generated = 0;
    memset(s->counts, 0, s->engine->model->config.vocab_size * sizeof *s->counts);
    if (s->engine->tokenizer)
        detokenizer_init(&s->detokenizer, s->engine->tokenizer);
    s->phase = PHASE_PROMPT;
    return STATUS_OK;
}

day0_status day0_session_submit(day0_session *session, const int32_t *tokens, size_t n_tokens,
                                const day0_generation *generation, day0_reuse *reuse, day0_error *error)
{
    struct error err;
    day0_reuse unused;
    enum status status = submit(session, tokens, n_tokens, generation, reuse ? reuse : &unused, &err);
    return engine_error(error, status, &err);
}

void day0_session_cancel(day0_session *session)
{
    session->cancelled = session->phase != PHASE_IDLE;
}

/* ---- questions ---- */

day0_finish day0_session_finish(const day0_session *session)
{
    return session->finish;
}

const char *day0_session_failure(const day0_session *session)
{
    return session->failure;
}

const int32_t *day0_session_tokens(const day0_session *session, size_t *n_tokens)
{
    *n_tokens = session->n_tokens;
    return session->tokens;
}

uint64_t day0_session_computed(const day0_session *session)
{
    return session->n_computed;
}

const float *day0_session_logits(const day0_session *session)
{
    return session->has_logits ? session->logits : NULL;
}

day0_status day0_session_logprobs(const day0_session *session, const int32_t *tokens, size_t n, float *out,
                                  day0_error *error)
{
    struct error err;
    uint32_t vocabulary = session->engine->model->config.vocab_size;
    enum status status = STATUS_OK;
    if (!session->has_logits)
        status = error_set(&err, STATUS_ARGUMENT, "there are no logits yet; submit a text and run first");
    for (size_t i = 0; status == STATUS_OK && i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocabulary)
            status =
                error_set(&err, STATUS_ARGUMENT, "token %d is none; ids go from 0 to %u", tokens[i], vocabulary - 1);
    if (status == STATUS_OK) {
        double total = sampler_log_total(session->logits, vocabulary);
        for (size_t i = 0; i < n; i++)
            out[i] = (float)((double)session->logits[tokens[i]] - total);
    }
    return engine_error(error, status, &err);
}

/* ---- rewind ---- */

day0_status day0_session_rewind(day0_session *session, size_t n, day0_error *error)
{
    struct error err;
    if (n > session->n_tokens)
        return engine_error(
            error,
            error_set(&err, STATUS_ARGUMENT, "%zu tokens were to be taken back, the text has %u", n, session->n_tokens),
            &err);
    if (session->phase != PHASE_IDLE)
        scheduler_finish(session, DAY0_FINISH_CANCELLED);
    session->n_tokens -= (uint32_t)n;
    struct sequence *s = &session->sequence;
    if (s->length > session->n_tokens) {
        uint32_t undone = s->length - session->n_tokens;
        session->has_logits = false;
        if (undone <= sequence_rewindable(s))
            kda_rewind(&session->engine->model->kernels, s, undone);
        else
            sequence_reset(s);
    }
    return DAY0_OK;
}

/* ---- note ---- */

day0_status day0_session_set_note(day0_session *session, const void *note, size_t bytes, day0_error *error)
{
    struct error err;
    char *copy = NULL;
    if (bytes > SESSION_NOTE_BYTES_MAX)
        return engine_error(error,
                            error_set(&err, STATUS_ARGUMENT, "a note has at most %d bytes, this one %zu",
                                      SESSION_NOTE_BYTES_MAX, bytes),
                            &err);
    enum status status = bytes ? memory_take(&copy, bytes, 1, "a session's note", &err) : STATUS_OK;
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    if (bytes)
        memcpy(copy, note, bytes);
    free(session->note);
    session->note = copy;
    session->note_bytes = bytes;
    return DAY0_OK;
}

const void *day0_session_note(const day0_session *session, size_t *bytes)
{
    *bytes = session->note_bytes;
    return session->note;
}
