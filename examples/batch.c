/* Continues several texts at once and prints a table: how each ended and how sure the model was of its words.
 *
 *     batch MODEL TEXT...
 *
 * All sessions share each step, so that the weights are read once for all of them. Each text's result is the
 * same bits as if it had been alone. */
#include <day0.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS_MAX = 16, TOKENS_MAX = 24, TEXT_BYTES_MAX = 4096 };

/* One text: what is known of it when it is over. */
struct job {
    day0_session *session;
    const char *prompt;
    size_t n_prompt;
    uint32_t n_tokens;
    double logprob_sum;
    uint32_t n_best; /* tokens that were the model's first choice */
    char text[TEXT_BYTES_MAX];
    size_t text_bytes;
};

static void append(struct job *job, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && job->text_bytes + 1 < sizeof job->text; i++)
        job->text[job->text_bytes++] = text[i] == '\n' ? ' ' : text[i]; /* a row of the table is one line */
    job->text[job->text_bytes] = 0;
}

static int on_token(void *context, day0_session *session, const day0_token *token)
{
    struct job *job = context; /* each session has its own context */
    (void)session;
    append(job, token->text, token->text_bytes);
    job->n_tokens++;
    job->logprob_sum += token->logprob;
    job->n_best += token->n_top > 0 && token->top[0].id == token->id;
    return 0;
}

static void on_finish(void *context, day0_session *session, day0_finish finish, const char *text, size_t text_bytes)
{
    (void)session;
    (void)finish;
    append(context, text, text_bytes);
}

static day0_status submit(day0_engine *engine, struct job *job, uint64_t seed, day0_error *error)
{
    day0_tokens tokens = {0};
    day0_generation generation = day0_generation_default(engine);
    generation.tokens_max = TOKENS_MAX;
    generation.sampling.seed = seed;
    generation.logprobs = true; /* of the model itself, before temperature and cuts */
    generation.top_logprobs = 1;
    generation.on_token = on_token;
    generation.on_finish = on_finish;
    generation.context = job;
    day0_status status = day0_session_open(&job->session, engine, error);
    if (status == DAY0_OK)
        status = day0_tokenize(engine, job->prompt, strlen(job->prompt), &tokens, error);
    if (status == DAY0_OK)
        status = day0_session_submit(job->session, tokens.ids, tokens.count, &generation, NULL, error);
    job->n_prompt = tokens.count;
    day0_tokens_free(&tokens); /* submit has copied them */
    return status;
}

static void print_table(const struct job *jobs, int n)
{
    static const char *const ends[] = {"none", "stop", "length", "cancelled", "failed"};
    printf("%6s %6s %-9s %10s %6s  %s\n", "prompt", "tokens", "ended by", "perplexity", "first", "text");
    for (int i = 0; i < n; i++) {
        const struct job *job = &jobs[i];
        day0_finish finish = day0_session_finish(job->session);
        bool any = job->n_tokens > 0;
        printf("%6zu %6u %-9s %10.2f %5.0f%%  %s%s\n", job->n_prompt, job->n_tokens, ends[finish],
               any ? exp(-job->logprob_sum / job->n_tokens) : 0.0, any ? 100.0 * job->n_best / job->n_tokens : 0.0,
               job->prompt, finish == DAY0_FINISH_FAILED ? day0_session_failure(job->session) : job->text);
    }
}

int main(int argc, char **argv)
{
    int n = argc - 2, steps = 0;
    if (n < 1 || n > TEXTS_MAX) {
        fprintf(stderr, "usage: batch MODEL TEXT...   (1 to %d texts)\n", TEXTS_MAX);
        return 2;
    }
    static struct job jobs[TEXTS_MAX];
    day0_error error;
    day0_engine *engine = NULL;
    day0_options options = day0_options_default();
    options.model = argv[1];
    options.context_max = 1024;
    options.sessions_max = (uint32_t)n;
    options.piece_tokens = 64; /* a text that is generating never waits for more of another's prompt */
    day0_status status = day0_engine_open(&engine, &options, &error);
    for (int i = 0; status == DAY0_OK && i < n; i++) {
        jobs[i].prompt = argv[i + 2];
        status = submit(engine, &jobs[i], (uint64_t)i + 1, &error);
    }
    /* day0_engine_run would do; stepping leaves room for other work, such as texts that arrive in between. */
    for (uint32_t working = 1; status == DAY0_OK && working > 0; steps++)
        status = day0_engine_step(engine, &working, &error);
    if (status == DAY0_OK) {
        print_table(jobs, n);
        printf("%d texts in %d steps\n", n, steps);
    } else {
        fprintf(stderr, "batch: %s\n", error.text);
    }
    day0_engine_close(engine);
    return status == DAY0_OK ? 0 : 1;
}
