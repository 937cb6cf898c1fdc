/* The scheduler: each step takes one token of every generating session and pieces of the waiting prompts, no more than
 * piece_tokens of them, so that a generating session never waits longer than for one piece. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine.h"
#include "text/chat.h"

/* ---- ends ---- */

/* What was held back, half a character or the beginning of a stop string, into session->text. */
static enum status release_held(day0_session *session, struct error *err)
{
    bool stopped = false;
    session->text.bytes = 0;
    if (!session->engine->tokenizer || session->n_generated == 0 || session->text_over)
        return STATUS_OK;
    TRY(detokenizer_flush(&session->detokenizer, &session->text, err));
    TRY(stop_strings_push(&session->stop_strings, &session->text, &stopped, err));
    return stopped ? STATUS_OK : stop_strings_flush(&session->stop_strings, &session->text, err);
}

void scheduler_finish(day0_session *session, day0_finish finish)
{
    struct error err;
    session->phase = PHASE_IDLE;
    session->cancelled = false;
    if (release_held(session, &err) != STATUS_OK) {
        session->text.bytes = 0;
        finish = DAY0_FINISH_FAILED;
        snprintf(session->failure, sizeof session->failure, "%.*s", (int)sizeof session->failure - 1, err.text);
    }
    session->finish = finish;
    if (finish != DAY0_FINISH_FAILED)
        reuse_keep(session);
    if (session->generation.on_finish)
        session->generation.on_finish(session->generation.context, session, finish, session->text.data,
                                      session->text.bytes);
}

static void fail_session(day0_session *session, const char *sentence)
{
    snprintf(session->failure, sizeof session->failure, "%.*s", (int)sizeof session->failure - 1, sentence);
    scheduler_finish(session, DAY0_FINISH_FAILED);
}

static bool is_stop(const day0_session *s, int32_t token)
{
    const struct config *config = &s->engine->model->config;
    int32_t ends[CHAT_STOP_TOKENS_MAX];
    size_t n_ends = s->engine->tokenizer ? chat_stop_tokens(s->engine->tokenizer, ends) : 0;
    for (uint32_t i = 0; i < s->generation.n_stop_tokens; i++)
        if (s->stop_tokens[i] == token)
            return true;
    if (s->generation.ignore_end)
        return false;
    for (size_t i = 0; i < n_ends; i++)
        if (ends[i] == token)
            return true;
    for (uint32_t i = 0; i < config->n_stop_tokens; i++)
        if (config->stop_tokens[i] == token)
            return true;
    return false;
}

/* ---- one token ---- */

/* The logits to sample from: with the penalties of tokens that are in the text. */
static const float *penalized(day0_session *s)
{
    const day0_sampling *p = &s->generation.sampling;
    uint32_t vocabulary = s->engine->model->config.vocab_size;
    if (p->repetition_penalty == 1.0f && p->presence_penalty == 0.0f && p->frequency_penalty == 0.0f)
        return s->logits;
    memcpy(s->adjusted, s->logits, vocabulary * sizeof *s->adjusted);
    for (uint32_t i = 0; p->repetition_penalty != 1.0f && i < s->n_tokens; i++) {
        float raw = s->logits[s->tokens[i]]; /* from the raw logit: a token that is there twice is penalized once */
        s->adjusted[s->tokens[i]] = raw > 0.0f ? raw / p->repetition_penalty : raw * p->repetition_penalty;
    }
    for (uint32_t i = 0; i < vocabulary; i++)
        if (s->counts[i] > 0)
            s->adjusted[i] -= p->presence_penalty + p->frequency_penalty * (float)s->counts[i];
    return s->adjusted;
}

static void fill_logprobs(const day0_session *s, day0_token *token, day0_token_logprob *top)
{
    const day0_generation *g = &s->generation;
    uint32_t vocabulary = s->engine->model->config.vocab_size;
    int32_t ids[DAY0_TOP_LOGPROBS_MAX];
    if (!g->logprobs)
        return;
    double total = sampler_log_total(s->logits, vocabulary);
    token->logprob = (float)((double)s->logits[token->id] - total);
    sampler_top(s->logits, vocabulary, ids, g->top_logprobs);
    for (uint32_t i = 0; i < g->top_logprobs; i++)
        top[i] = (day0_token_logprob){ids[i], (float)((double)s->logits[ids[i]] - total)};
    token->top = top;
    token->n_top = g->top_logprobs;
}

/* The token's text, as far as it is certain, into session->text. *stopped: a stop string appeared. */
static enum status token_text(day0_session *s, const day0_token *token, bool *stopped, struct error *err)
{
    *stopped = false;
    s->text.bytes = 0;
    /* Ids past the tokenizer's exist where a model's vocabulary is padded: they have no text. */
    if (!s->engine->tokenizer || token->is_special || token->id >= tokenizer_vocab_size(s->engine->tokenizer))
        return STATUS_OK;
    TRY(detokenizer_push(&s->detokenizer, token->id, &s->text, err));
    return stop_strings_push(&s->stop_strings, &s->text, stopped, err);
}

/* Samples the session's next token and hands it out. */
static void next_token(day0_session *s)
{
    const day0_engine *engine = s->engine;
    struct error err;
    bool stopped;
    day0_token_logprob top[DAY0_TOP_LOGPROBS_MAX];
    if (s->n_generated == s->generation.tokens_max || s->n_tokens == engine->options.context_max) {
        scheduler_finish(s, DAY0_FINISH_LENGTH);
        return;
    }
    day0_token token = {.id = sampler_pick(&s->sampler, penalized(s)), .index = s->n_generated};
    if (is_stop(s, token.id)) {
        scheduler_finish(s, DAY0_FINISH_STOP);
        return;
    }
    fill_logprobs(s, &token, top);
    s->tokens[s->n_tokens++] = token.id;
    s->n_generated++;
    s->counts[token.id]++;
    token.is_special = engine->tokenizer && token.id < tokenizer_vocab_size(engine->tokenizer) &&
                       tokenizer_is_special(engine->tokenizer, token.id);
    if (token_text(s, &token, &stopped, &err) != STATUS_OK) {
        fail_session(s, err.text);
        return;
    }
    token.text = s->text.data;
    token.text_bytes = s->text.bytes;
    const day0_generation *g = &s->generation;
    bool asked = g->on_token && g->on_token(g->context, s, &token) != 0;
    s->text_over = stopped;
    if (stopped)
        scheduler_finish(s, DAY0_FINISH_STOP);
    else if (asked || s->cancelled)
        scheduler_finish(s, DAY0_FINISH_CANCELLED);
    else if (s->n_generated == g->tokens_max || s->n_tokens == engine->options.context_max)
        scheduler_finish(s, DAY0_FINISH_LENGTH);
}

/* ---- one step ---- */

static void add_span(day0_engine *engine, uint32_t *n_spans, day0_session *s, uint32_t n_tokens)
{
    bool last = s->sequence.length + n_tokens == s->n_tokens;
    engine->span_sessions[*n_spans] = s;
    engine->spans[(*n_spans)++] = (struct model_span){.sequence = &s->sequence,
                                                      .tokens = s->tokens + s->sequence.length,
                                                      .n_tokens = n_tokens,
                                                      .first_logit = last ? n_tokens - 1 : n_tokens};
}

/* Generating sessions first, then pieces of prompts; the prompts take turns at going first. */
static uint32_t gather(day0_engine *engine)
{
    uint32_t n_spans = 0, room = engine->options.piece_tokens, n_waiting = 0, place = 0;
    for (day0_session *s = engine->sessions; s; s = s->next) {
        uint32_t left = s->n_tokens - s->sequence.length;
        if (s->phase == PHASE_GENERATE && left > 0)
            add_span(engine, &n_spans, s, left);
        n_waiting += s->phase == PHASE_PROMPT && left > 0;
    }
    if (n_waiting == 0)
        return n_spans;
    uint32_t turn = engine->next_prompt++ % n_waiting;
    for (int round = 0; round < 2; round++, place = 0)
        for (day0_session *s = engine->sessions; s; s = s->next) {
            uint32_t left = s->n_tokens - s->sequence.length;
            if (s->phase != PHASE_PROMPT || left == 0)
                continue;
            bool mine = round == 0 ? place >= turn : place < turn;
            place++;
            if (mine && room > 0) {
                uint32_t n = left < room ? left : room;
                add_span(engine, &n_spans, s, n);
                room -= n;
            }
        }
    return n_spans;
}

static enum status run_spans(day0_engine *engine, uint32_t n_spans, struct error *err)
{
    struct model_outputs outputs = {.logits = engine->step_logits, .bad_layers = engine->bad_layers};
    enum status status;
    do
        status = n_spans ? model_step(engine->model, engine->spans, n_spans, &outputs, err) : STATUS_OK;
    while (status == STATUS_MEMORY && reuse_forget_one(engine));
    return status;
}

static bool all_finite(const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* Takes over what the step gave one session. */
static void take_results(day0_session *s, uint32_t n_tokens, uint32_t bad_layer, const float *logits)
{
    uint32_t vocabulary = s->engine->model->config.vocab_size, n_layers = s->engine->model->config.n_layers;
    s->n_computed += n_tokens;
    s->has_logits = logits != NULL;
    if (bad_layer == SOUND && logits && !all_finite(logits, vocabulary))
        bad_layer = n_layers;
    if (bad_layer != SOUND) {
        char where[64] = "the output head", sentence[200];
        if (bad_layer < n_layers)
            snprintf(where, sizeof where, "layer %u of %u", bad_layer + 1, n_layers);
        snprintf(
            sentence, sizeof sentence,
            "a NaN or infinity came into %s by token %u; the weights or this text cannot be computed with, the session "
            "must start anew",
            where, s->sequence.length);
        sequence_reset(&s->sequence);
        s->has_logits = false;
        s->broken = true;
        fail_session(s, sentence);
        return;
    }
    if (logits)
        memcpy(s->logits, logits, vocabulary * sizeof *logits);
}

/* A session whose logits are there: keeps the state of a finished prompt, then samples. */
static void go_on(day0_session *s)
{
    if (s->phase == PHASE_PROMPT && s->sequence.length < s->n_tokens)
        reuse_keep_piece(s);
    if (s->phase == PHASE_IDLE || s->sequence.length < s->n_tokens)
        return;
    if (s->cancelled) { /* by another session's callback in this step */
        scheduler_finish(s, DAY0_FINISH_CANCELLED);
        return;
    }
    CHECK(s->has_logits);
    if (s->phase == PHASE_PROMPT) {
        reuse_keep(s);
        s->phase = PHASE_GENERATE;
    }
    next_token(s);
}

static void cancel_marked(day0_engine *engine)
{
    for (day0_session *s = engine->sessions; s; s = s->next)
        if (s->cancelled && s->phase != PHASE_IDLE)
            scheduler_finish(s, DAY0_FINISH_CANCELLED);
}

day0_status day0_engine_step(day0_engine *engine, uint32_t *working, day0_error *error)
{
    struct error err;
    cancel_marked(engine);
    uint32_t n_spans = gather(engine), vocabulary = engine->model->config.vocab_size;
    enum status status = run_spans(engine, n_spans, &err);
    if (status != STATUS_OK)
        return engine_error(error, status, &err);
    const float *logits = engine->step_logits;
    for (uint32_t i = 0; i < n_spans; i++) {
        bool has = engine->spans[i].first_logit < engine->spans[i].n_tokens;
        take_results(engine->span_sessions[i], engine->spans[i].n_tokens, engine->bad_layers[i], has ? logits : NULL);
        logits += has ? vocabulary : 0;
    }
    uint32_t n_working = 0;
    for (day0_session *s = engine->sessions; s; s = s->next) {
        go_on(s);
        n_working += s->phase != PHASE_IDLE;
    }
    if (working)
        *working = n_working;
    return DAY0_OK;
}

day0_status day0_engine_run(day0_engine *engine, day0_error *error)
{
    uint32_t working = 0;
    do {
        day0_status status = day0_engine_step(engine, &working, error);
        if (status != DAY0_OK)
            return status;
    } while (working > 0);
    return DAY0_OK;
}
