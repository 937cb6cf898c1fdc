/* A conversation that outlives the program: every question is answered by a new engine that goes on from
 * FILE.
 *
 *     remember MODEL FILE QUESTION...
 *
 * FILE holds the model's state and, as the session's note, the messages; it is made at the first question.
 * After the last answer that answer is taken back and another one is given. The lines in brackets say what
 * was reused. */
#include <day0.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing string: the messages so far, as the inside of a JSON array. */
struct text {
    char *data;
    size_t bytes;
};

static void add(struct text *text, const char *more, size_t bytes)
{
    char *grown = realloc(text->data, text->bytes + bytes + 1);
    if (!grown) {
        perror("remember");
        exit(1);
    }
    memcpy(grown + text->bytes, more, bytes);
    text->data = grown;
    text->bytes += bytes;
    grown[text->bytes] = 0;
}

static void add_question(struct text *messages, const char *question)
{
    static const char begin[] = "{\"role\":\"user\",\"content\":\"";
    add(messages, ",", messages->bytes > 0);
    add(messages, begin, sizeof begin - 1);
    for (; *question; question++) {
        char escaped[8];
        bool plain = (unsigned char)*question >= ' ' && *question != '"' && *question != '\\';
        snprintf(escaped, sizeof escaped, plain ? "%c" : "\\u%04x", (unsigned char)*question);
        add(messages, escaped, strlen(escaped));
    }
    add(messages, "\"}", 2);
}

/* The reply parser takes the model's markup apart; only what is meant for the reader is printed. */
static void on_event(void *context, const day0_reply_event *event)
{
    (void)context;
    if (event->kind == DAY0_REPLY_CONTENT)
        fwrite(event->text, 1, event->text_bytes, stdout);
    else if (event->kind == DAY0_REPLY_END)
        puts(event->is_cut ? " ..." : "");
}

static int on_token(void *context, day0_session *session, const day0_token *token)
{
    (void)session;
    return day0_reply_push(context, token->id, NULL) != DAY0_OK;
}

/* Answers the conversation so far. *n_prompt is where the answer begins in the session's text, *message the
 * reply as JSON, malloc'd, for the conversation's next request. */
static day0_status answer(day0_engine *engine, day0_session *session, const struct text *messages, uint64_t seed,
                          size_t *n_prompt, char **message, day0_error *error)
{
    static const char begin[] = "{\"thinking\":false,\"messages\":[";
    struct text request = {0};
    day0_tokens prompt = {0};
    day0_reply *reply = NULL;
    day0_reuse reuse;
    add(&request, begin, sizeof begin - 1);
    add(&request, messages->data, messages->bytes);
    add(&request, "]}", 2);
    day0_status status = day0_chat_prompt(engine, request.data, request.bytes, &prompt, error);
    if (status == DAY0_OK)
        status = day0_reply_open(&reply, engine, false, on_event, NULL, error); /* not thinking, as in the request */
    if (status == DAY0_OK) {
        day0_generation generation = day0_generation_default(engine);
        generation.tokens_max = 48;
        generation.sampling.seed = seed;
        generation.on_token = on_token;
        generation.context = reply;
        status = day0_session_submit(session, prompt.ids, prompt.count, &generation, &reuse, error);
    }
    if (status == DAY0_OK) {
        printf("[%s]\n", reuse.reason);
        status = day0_engine_run(engine, error);
    }
    if (status == DAY0_OK && day0_session_finish(session) == DAY0_FINISH_FAILED) {
        snprintf(error->text, sizeof error->text, "%s", day0_session_failure(session));
        status = DAY0_FORMAT;
    }
    if (status == DAY0_OK)
        status = day0_reply_finish(reply, day0_session_finish(session) == DAY0_FINISH_STOP, error);
    if (status == DAY0_OK)
        status = day0_reply_message(reply, message, error);
    *n_prompt = prompt.count;
    day0_reply_close(reply);
    day0_tokens_free(&prompt);
    free(request.data);
    return status;
}

/* One question and its answer, in an engine of its own. `again`: then another answer in place of it. */
static day0_status turn(const char *model, const char *file, const char *question, bool again, day0_error *error)
{
    day0_options options = day0_options_default();
    day0_engine *engine = NULL;
    day0_session *session;
    struct text messages = {0};
    char *message = NULL;
    size_t n_prompt = 0;
    bool recompute = false; /* the file's state is of other numerics: the text counts, and is computed again */
    options.model = model;
    options.context_max = 2048;
    day0_status status = day0_engine_open(&engine, &options, error);
    if (status == DAY0_OK)
        status = day0_session_open(&session, engine, error);
    if (status == DAY0_OK) {
        status = day0_session_load(session, file, &recompute, error);
        if (status == DAY0_NOT_FOUND)
            status = DAY0_OK; /* the first question */
    }
    if (status == DAY0_OK) {
        size_t bytes;
        const char *note = day0_session_note(session, &bytes);
        if (note)
            add(&messages, note, bytes);
        add_question(&messages, question);
        printf("\n> %s\n", question);
        status = answer(engine, session, &messages, 1, &n_prompt, &message, error);
    }
    if (status == DAY0_OK && again) {
        /* Back to the end of the question. Up to 16 tokens are undone in place; beyond that, the state that
         * was kept at the end of the question serves. */
        size_t n_tokens;
        (void)day0_session_tokens(session, &n_tokens);
        free(message);
        message = NULL;
        status = day0_session_rewind(session, n_tokens - n_prompt, error);
        printf("\n(another answer)\n");
        if (status == DAY0_OK)
            status = answer(engine, session, &messages, 2, &n_prompt, &message, error);
    }
    if (status == DAY0_OK) {
        add(&messages, ",", 1);
        add(&messages, message, strlen(message));
        status = day0_session_set_note(session, messages.data, messages.bytes, error);
    }
    if (status == DAY0_OK)
        status = day0_session_save(session, file, error); /* whole or not at all: the old file stays until then */
    free(message);
    free(messages.data);
    day0_engine_close(engine);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: remember MODEL FILE QUESTION...\n");
        return 2;
    }
    for (int i = 3; i < argc; i++) {
        day0_error error;
        if (turn(argv[1], argv[2], argv[i], i == argc - 1, &error) != DAY0_OK) {
            fprintf(stderr, "remember: %s\n", error.text);
            return 1;
        }
    }
    return 0;
}
