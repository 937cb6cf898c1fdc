#include "app/turn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "lab/progress.h"

/* What is being printed; sections are set apart by a line break, reasoning is dim on a terminal. */
enum section { NOTHING, REASONING, CONTENT, CALL };

struct printer {
    enum section section;
    bool colors, at_line_start, failed;
    const day0_engine *engine;
    day0_reply *reply; /* NULL: raw */
    uint32_t n_tokens;
    double first_token;
    day0_error error;
    bool has_error;
};

static void put(struct printer *p, const char *text, size_t bytes)
{
    if (bytes == 0)
        return;
    p->failed |= fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0;
    p->at_line_start = text[bytes - 1] == '\n';
}

static void put_text(struct printer *p, const char *text)
{
    put(p, text, strlen(text));
}

static void enter(struct printer *p, enum section section)
{
    if (p->section == section)
        return;
    if (p->section == REASONING && p->colors)
        put_text(p, "\033[0m");
    if (p->section != NOTHING && !p->at_line_start)
        put_text(p, "\n");
    p->section = section;
    if (section == REASONING && p->colors)
        put_text(p, "\033[2m");
}

static void on_event(void *context, const day0_reply_event *event)
{
    struct printer *p = context;
    switch (event->kind) {
    case DAY0_REPLY_REASONING:
        enter(p, REASONING);
        put(p, event->text, event->text_bytes);
        break;
    case DAY0_REPLY_CONTENT:
        enter(p, CONTENT);
        put(p, event->text, event->text_bytes);
        break;
    case DAY0_REPLY_CALL_BEGIN:
        enter(p, NOTHING);
        enter(p, CALL);
        put_text(p, "[calls ");
        put(p, event->text, event->text_bytes);
        put_text(p, " ");
        break;
    case DAY0_REPLY_CALL_ARGUMENTS:
        put(p, event->text, event->text_bytes);
        break;
    case DAY0_REPLY_CALL_END:
        put_text(p, event->is_flawed ? " (cut)]" : "]");
        break;
    case DAY0_REPLY_END:
        enter(p, NOTHING);
        break;
    }
}

/* A raw reply shows special tokens by their names. */
static void put_special(struct printer *p, int32_t id)
{
    char *name;
    size_t bytes;
    p->has_error = day0_detokenize(p->engine, &id, 1, &name, &bytes, &p->error) != DAY0_OK;
    if (!p->has_error)
        put(p, name, bytes);
    free(name);
}

static int on_token(void *context, day0_session *session, const day0_token *token)
{
    struct printer *p = context;
    (void)session;
    if (p->n_tokens++ == 0)
        p->first_token = clock_seconds();
    if (!p->reply && token->is_special)
        put_special(p, token->id);
    else if (!p->reply)
        put(p, token->text, token->text_bytes);
    else if (!p->has_error)
        p->has_error = day0_reply_push(p->reply, token->id, &p->error) != DAY0_OK;
    return app_interrupted() || p->failed || p->has_error;
}

static void on_finish(void *context, day0_session *session, day0_finish finish, const char *text, size_t bytes)
{
    struct printer *p = context;
    (void)session;
    if (!p->reply)
        put(p, text, bytes);
    else if (!p->has_error)
        p->has_error = day0_reply_finish(p->reply, finish == DAY0_FINISH_STOP, &p->error) != DAY0_OK;
    enter(p, NOTHING);
    if (!p->at_line_start && p->n_tokens > 0)
        put_text(p, "\n");
}

/* Steps until the session is done; the prompt's progress shows on a terminal. */
static day0_status run_steps(day0_session *session, day0_engine *engine, const struct printer *p, uint64_t n_new,
                             day0_error *error)
{
    uint64_t before = day0_session_computed(session);
    struct progress progress = progress_begin("prompt", n_new);
    uint32_t working = 0;
    day0_status status;
    do {
        if (app_interrupted())
            day0_session_cancel(session);
        status = day0_engine_step(engine, &working, error);
        if (p->n_tokens == 0)
            progress_set(&progress, day0_session_computed(session) - before);
        else
            progress_end(&progress);
    } while (status == DAY0_OK && working > 0);
    progress_end(&progress);
    if (status != DAY0_OK) { /* a failed step leaves the work submitted, with callbacks into the caller's frame */
        day0_status ended = day0_session_rewind(session, 0, NULL);
        CHECK(ended == DAY0_OK);
    }
    return status;
}

day0_status turn_run(day0_session *session, day0_engine *engine, const day0_tokens *prompt,
                     const struct app_flags *flags, const day0_sampling *sampling, bool raw, struct turn *turn,
                     day0_error *error)
{
    struct printer p = {.colors = isatty(STDOUT_FILENO) != 0, .at_line_start = true, .engine = engine};
    day0_generation generation = day0_generation_default(engine);
    day0_reuse reuse;
    *turn = (struct turn){.n_prompt = prompt->count};
    generation.sampling = *sampling;
    generation.tokens_max = flags->n_tokens;
    generation.on_token = on_token;
    generation.on_finish = on_finish;
    generation.context = &p;
    day0_status status = raw ? DAY0_OK : day0_reply_open(&p.reply, engine, flags->think, on_event, &p, error);
    double start = clock_seconds();
    if (status == DAY0_OK)
        status = day0_session_submit(session, prompt->ids, prompt->count, &generation, &reuse, error);
    if (status == DAY0_OK) {
        memcpy(turn->reuse, reuse.reason, sizeof turn->reuse);
        turn->n_reused = reuse.tokens_reused;
        status = run_steps(session, engine, &p, prompt->count - reuse.tokens_reused, error);
    }
    double end = clock_seconds(), first = p.n_tokens ? p.first_token : end;
    turn->prompt_seconds = first - start;
    turn->answer_seconds = end - first;
    turn->n_answer = p.n_tokens;
    turn->finish = day0_session_finish(session);
    if (status == DAY0_OK && p.has_error) {
        *error = p.error;
        status = error->status;
    }
    if (status == DAY0_OK && turn->finish == DAY0_FINISH_FAILED) {
        *error = (day0_error){.status = DAY0_FORMAT};
        snprintf(error->text, sizeof error->text, "%s", day0_session_failure(session));
        status = DAY0_FORMAT;
    }
    if (status == DAY0_OK && p.failed) {
        *error = (day0_error){.status = DAY0_IO};
        snprintf(error->text, sizeof error->text, "cannot write to standard output: %s", strerror(errno));
        status = DAY0_IO;
    }
    if (status == DAY0_OK && p.reply)
        status = day0_reply_message(p.reply, &turn->message, error);
    day0_reply_close(p.reply);
    return status;
}

void turn_print_stats(const struct turn *turn, const day0_sampling *sampling)
{
    size_t computed = turn->n_prompt - turn->n_reused;
    double later = turn->n_answer > 1 ? (turn->n_answer - 1) / turn->answer_seconds : 0;
    fprintf(stderr, "%s\nprompt: %zu tokens computed in %.2f s (%.0f/s); answer: %u tokens, %.1f/s; seed %llu\n",
            turn->reuse, computed, turn->prompt_seconds,
            turn->prompt_seconds > 0 ? (double)computed / turn->prompt_seconds : 0.0, turn->n_answer, later,
            (unsigned long long)sampling->seed);
}
