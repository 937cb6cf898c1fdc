/* A conversation of 100 turns in K3's format, in which earlier turns are edited and answers asked for again: every
 * answer is that of a cold run, and what was computed before is not computed again. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine_help.h"

enum { TURNS = 100, ANSWER_TOKENS = 14, CONTEXT = 4096, EDIT_EVERY = 7 };

struct chat {
    day0_options options;
    day0_engine *engine, *cold_engine;
    day0_session *session, *cold;
    json_t *messages;
    struct rng rng;
    int32_t *before; /* what the session's state held before the turn */
    uint32_t n_before;
    uint64_t computed, edits_computed, ideal, cold_computed;
};

static void add_question(struct chat *c, size_t at)
{
    static const char *const words[] = {"kluge", "hacker", "foo",    "grok",  "bogon", "cruft",     "frob",
                                        "munge", "luser",  "wizard", "flame", "mung",  "phreaking", "retrocomputing"};
    static const char *const forms[] = {"What is a %s?", "What is %s?",
                                        "And what do you say of %s, in short, when one asks?", "%s",
                                        "Tell me what a %s is and where the word comes from, please."};
    char text[160];
    const char *word = words[rng_below(&c->rng, sizeof words / sizeof *words)];
    switch (rng_below(&c->rng, 5)) {
    case 0:
        snprintf(text, sizeof text, forms[0], word);
        break;
    case 1:
        snprintf(text, sizeof text, forms[1], word);
        break;
    case 2:
        snprintf(text, sizeof text, forms[2], word);
        break;
    case 3:
        snprintf(text, sizeof text, forms[3], word);
        break;
    default:
        snprintf(text, sizeof text, forms[4], word);
        break;
    }
    while (json_array_size(c->messages) > at)
        json_array_remove(c->messages, at);
    json_array_append_new(c->messages, json_pack("{s:s,s:s}", "role", "user", "content", text));
}

static day0_tokens prompt_of(struct chat *c)
{
    day0_error error;
    day0_tokens prompt;
    json_t *request = json_pack("{s:O,s:b}", "messages", c->messages, "thinking", 0);
    char *text = json_dumps(request, JSON_COMPACT);
    must(day0_chat_prompt(c->engine, text, strlen(text), &prompt, &error), &error);
    free(text);
    json_decref(request);
    return prompt;
}

static void add_answer(struct chat *c, const struct record *r)
{
    day0_error error;
    day0_reply *reply;
    char *text;
    must(day0_reply_open(&reply, c->engine, false, NULL, NULL, &error), &error);
    for (uint32_t i = 0; i < r->n_tokens; i++)
        must(day0_reply_push(reply, r->ids[i], &error), &error);
    must(day0_reply_finish(reply, r->finish == DAY0_FINISH_STOP, &error), &error);
    must(day0_reply_message(reply, &text, &error), &error);
    json_array_append_new(c->messages, json_loads(text, 0, NULL));
    free(text);
    day0_reply_close(reply);
}

/* What the promise is: the deepest of the session's own state, undone by up to 16, and all kept ones. */
static uint32_t known_beginning(const struct chat *c, const day0_tokens *prompt, uint32_t same)
{
    uint32_t best = c->n_before - same <= sequence_rewindable(&c->session->sequence) ? same : 0;
    for (uint32_t i = 0; i < c->options.checkpoints_max; i++) {
        const struct kept_state *kept = &c->engine->kept[i];
        uint32_t n = kept->sequence.length;
        if (kept->last_used > 0 && n <= prompt->count && n > best &&
            memcmp(kept->tokens, prompt->ids, n * sizeof *prompt->ids) == 0)
            best = n;
    }
    return best;
}

static void turn(struct chat *c, uint32_t number, const char *kind)
{
    static struct record r, want;
    day0_tokens prompt = prompt_of(c);
    day0_reuse reuse;
    uint64_t computed = day0_session_computed(c->session);
    uint32_t same = 0, n_cached = c->session->sequence.length;
    memcpy(c->before, c->session->tokens, n_cached * sizeof *c->before);
    c->n_before = n_cached;
    while (same < n_cached && same < prompt.count && c->before[same] == prompt.ids[same])
        same++;
    bool is_edit = strcmp(kind, "next") != 0;
    uint32_t known = known_beginning(c, &prompt, same);
    day0_generation g = recorded(c->engine, &r, ANSWER_TOKENS);
    g.ignore_end = false;
    generate(c->engine, c->session, prompt.ids, prompt.count, &g, &reuse);
    computed = day0_session_computed(c->session) - computed;
    uint32_t fed = r.n_tokens - (r.finish == DAY0_FINISH_LENGTH);
    assert_int_equal(computed, prompt.count - reuse.tokens_reused + fed);
    if (!is_edit)
        assert_int_equal(reuse.tokens_reused, same); /* new tokens only */
    assert_int_equal(reuse.tokens_reused, known);
    print_message("turn %3u %-6s prompt %4zu, first change at %4u, computed %4llu: %s\n", number, kind, prompt.count,
                  same, (unsigned long long)(prompt.count - reuse.tokens_reused), reuse.reason);
    c->computed += prompt.count - reuse.tokens_reused;
    c->edits_computed += is_edit ? prompt.count - reuse.tokens_reused : 0;
    c->ideal += prompt.count - same;
    c->cold_computed += prompt.count;
    /* The same in an engine that knows nothing. */
    day0_session_close(c->cold);
    c->cold = session_or_fail(c->cold_engine);
    g = recorded(c->cold_engine, &want, ANSWER_TOKENS);
    g.ignore_end = false;
    generate(c->cold_engine, c->cold, prompt.ids, prompt.count, &g, NULL);
    assert_same_record(&r, &want, kind);
    assert_memory_equal(day0_session_logits(c->session), day0_session_logits(c->cold),
                        day0_engine_vocabulary(c->engine) * sizeof(float));
    add_answer(c, &r);
    day0_tokens_free(&prompt);
}

static void a_hundred_turns_compute_what_is_new(void **state)
{
    (void)state;
    struct chat c = {.options = engine_options(), .messages = json_array(), .rng = {7}};
    c.options.context_max = CONTEXT;
    c.engine = engine_or_fail(&c.options);
    day0_options cold = c.options;
    cold.checkpoints_max = 0;
    c.cold_engine = engine_or_fail(&cold);
    c.session = session_or_fail(c.engine);
    c.cold = session_or_fail(c.cold_engine);
    c.before = malloc(CONTEXT * sizeof *c.before);
    json_array_append_new(c.messages, json_pack("{s:s,s:s}", "role", "system", "content", "You explain jargon."));
    for (uint32_t t = 0; t < TURNS; t++) {
        size_t n = json_array_size(c.messages);
        if (t % EDIT_EVERY != EDIT_EVERY - 1) {
            add_question(&c, n);
            turn(&c, t, "next");
        } else if (t % 3 == 0) {
            json_array_remove(c.messages, n - 1);
            turn(&c, t, "again");
        } else {
            /* Questions are the odd messages; of the first quarter, which keeps the cold runs short. */
            size_t questions = (n - 1) / 2;
            add_question(&c, 1 + 2 * rng_below(&c.rng, 1 + questions / 4));
            turn(&c, t, "edit");
        }
    }
    print_message("%d turns: %llu prompt tokens computed (%llu of them in edits), %llu are new, %llu in cold runs\n",
                  TURNS, (unsigned long long)c.computed, (unsigned long long)c.edits_computed,
                  (unsigned long long)c.ideal, (unsigned long long)c.cold_computed);
    json_decref(c.messages);
    free(c.before);
    day0_engine_close(c.engine);
    day0_engine_close(c.cold_engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_hundred_turns_compute_what_is_new)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
