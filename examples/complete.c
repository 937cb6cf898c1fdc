/* Continues a text and prints it while it comes.
 *
 *     complete MODEL TEXT [STOP [SEED]]
 *
 * MODEL is a checkpoint directory. With STOP, the text ends before the first place where that string appears.
 * The same SEED, text and model give the same continuation on every machine. */
#include <day0.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the callbacks need. The engine hands this pointer back with every token. */
struct output {
    bool failed; /* standard output took no more */
};

/* Called once for every token, with the text that became certain by it: whole characters, never half of one,
 * and never a part of the stop string. A nonzero result ends the generation. */
static int on_token(void *context, day0_session *session, const day0_token *token)
{
    struct output *output = context;
    (void)session;
    if (fwrite(token->text, 1, token->text_bytes, stdout) != token->text_bytes || fflush(stdout) != 0)
        output->failed = true;
    return output->failed;
}

/* Called once at the end. What might have become the stop string and did not is released here. */
static void on_finish(void *context, day0_session *session, day0_finish finish, const char *text, size_t text_bytes)
{
    (void)context;
    (void)session;
    (void)finish;
    if (text_bytes > 0)
        fwrite(text, 1, text_bytes, stdout);
    putchar('\n');
}

static day0_status complete(const char *model, const char *text, const char *stop, uint64_t seed, day0_error *error)
{
    day0_options options = day0_options_default();
    day0_engine *engine = NULL;
    day0_session *session;
    day0_tokens tokens = {0};
    struct output output = {false};

    options.model = model;
    options.context_max = 2048;  /* the smaller, the less memory is set aside */
    options.checkpoints_max = 0; /* one text: nothing to share with later ones */
    day0_status status = day0_engine_open(&engine, &options, error);
    if (status == DAY0_OK)
        status = day0_session_open(&session, engine, error);
    if (status == DAY0_OK)
        status = day0_tokenize(engine, text, strlen(text), &tokens, error);
    if (status == DAY0_OK) {
        day0_generation generation = day0_generation_default(engine); /* as the model's authors advise */
        generation.tokens_max = 100;
        generation.sampling.seed = seed;
        generation.stop_strings = &stop;
        generation.n_stop_strings = stop ? 1 : 0;
        generation.on_token = on_token;
        generation.on_finish = on_finish;
        generation.context = &output;
        printf("%s", text);
        status = day0_session_submit(session, tokens.ids, tokens.count, &generation, NULL, error);
    }
    if (status == DAY0_OK)
        status = day0_engine_run(engine, error); /* calls on_token and on_finish */

    /* The call went well; did the text? A session can end by itself, with a sentence. */
    if (status == DAY0_OK && day0_session_finish(session) == DAY0_FINISH_FAILED) {
        snprintf(error->text, sizeof error->text, "%s", day0_session_failure(session));
        status = DAY0_FORMAT;
    } else if (status == DAY0_OK && output.failed) {
        snprintf(error->text, sizeof error->text, "cannot write to standard output");
        status = DAY0_IO;
    }
    day0_tokens_free(&tokens);
    day0_engine_close(engine); /* closes the session, too; NULL is fine */
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: complete MODEL TEXT [STOP [SEED]]\n");
        return 2;
    }
    day0_error error;
    const char *stop = argc > 3 && argv[3][0] ? argv[3] : NULL;
    uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    if (complete(argv[1], argv[2], stop, seed, &error) != DAY0_OK) {
        fprintf(stderr, "complete: %s\n", error.text);
        return 1;
    }
    return 0;
}
