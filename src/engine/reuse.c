/* States kept for reuse: where a later text with the same beginning goes on.
 *
 * Kept: at the end of every prompt and of every answer, so that a chat's next question, an edited one and an answer
 * asked for again find their place; and every KEEP_TOKENS of a long prompt, where its pieces end anyway: cutting
 * pieces at the borders of messages would cost more in small pieces (each reads the weights) than it spares in edits.
 *
 * Evicted: the state that is missed least: the tokens that must be computed again without it, from the deepest kept
 * state before it, by the root of the time since it was used. Old texts are thinned instead of forgotten from their
 * beginning, which is where all later edits must start: with 16 states, tests/engine/chat_test.c computes 5,944 tokens
 * of prompts in 100 turns; 6,411 if the state not used for longest is evicted; 5,307 are new. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine.h"
#include "ops/kda.h"

enum { KEEP_TOKENS = 256 };

enum status reuse_open(day0_engine *engine, struct error *err)
{
    uint32_t n = engine->options.checkpoints_max, context = engine->options.context_max;
    TRY(memory_take(&engine->kept, n, sizeof *engine->kept, "kept states", err));
    for (uint32_t i = 0; i < n; i++) {
        struct kept_state *kept = &engine->kept[i];
        TRY(model_sequence_init(engine->model, &kept->sequence, err));
        TRY(memory_take(&kept->tokens, context, sizeof *kept->tokens, "kept states", err));
        TRY(memory_take(&kept->logits, engine->model->config.vocab_size, sizeof *kept->logits, "kept states", err));
    }
    return STATUS_OK;
}

void reuse_close(day0_engine *engine)
{
    for (uint32_t i = 0; engine->kept && i < engine->options.checkpoints_max; i++) {
        sequence_fini(&engine->kept[i].sequence);
        free(engine->kept[i].tokens);
        free(engine->kept[i].logits);
    }
    free(engine->kept);
}

static uint32_t common_prefix(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    uint32_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static bool begins_with(const struct kept_state *kept, const int32_t *tokens, uint32_t n)
{
    return kept->sequence.length >= n && memcmp(kept->tokens, tokens, n * sizeof *tokens) == 0;
}

/* The deepest kept state of at most `n_max` tokens that is a beginning of `tokens`, NULL if there is none. One of
 * exactly `n_exact` tokens must have logits. */
static struct kept_state *deepest(const day0_engine *engine, const int32_t *tokens, uint32_t n_max, uint32_t n_exact)
{
    struct kept_state *found = NULL;
    for (uint32_t i = 0; i < engine->options.checkpoints_max; i++) {
        struct kept_state *kept = &engine->kept[i];
        uint32_t length = kept->sequence.length;
        if (kept->last_used > 0 && length <= n_max && (length != n_exact || kept->has_logits) &&
            (!found || length > found->sequence.length) && begins_with(kept, tokens, length))
            found = kept;
    }
    return found;
}

/* The state that is missed least, NULL if nothing is kept. */
static struct kept_state *least_missed(const day0_engine *engine)
{
    struct kept_state *found = NULL;
    double least = 0;
    for (uint32_t i = 0; i < engine->options.checkpoints_max; i++) {
        struct kept_state *kept = &engine->kept[i];
        double missed =
            (double)(kept->sequence.length - kept->before) / sqrt((double)(engine->clock - kept->last_used + 1));
        if (kept->last_used > 0 && (!found || missed < least)) {
            found = kept;
            least = missed;
        }
    }
    return found;
}

static void forget(day0_engine *engine, struct kept_state *gone)
{
    gone->last_used = 0;
    for (uint32_t i = 0; i < engine->options.checkpoints_max; i++) {
        struct kept_state *kept = &engine->kept[i];
        if (kept->last_used > 0 && kept->before == gone->sequence.length &&
            begins_with(kept, gone->tokens, gone->sequence.length))
            kept->before = gone->before;
    }
    sequence_reset(&gone->sequence);
}

bool reuse_forget_one(day0_engine *engine)
{
    struct kept_state *kept = least_missed(engine);
    if (kept)
        forget(engine, kept);
    return kept != NULL;
}

/* A place to keep a state in. */
static struct kept_state *empty_place(day0_engine *engine)
{
    for (uint32_t i = 0; i < engine->options.checkpoints_max; i++)
        if (engine->kept[i].last_used == 0)
            return &engine->kept[i];
    struct kept_state *kept = least_missed(engine);
    forget(engine, kept);
    return kept;
}

static void keep_logits(struct kept_state *kept, const day0_session *session)
{
    kept->has_logits = session->has_logits;
    if (session->has_logits)
        memcpy(kept->logits, session->logits, session->engine->model->config.vocab_size * sizeof *kept->logits);
}

void reuse_keep(day0_session *session)
{
    day0_engine *engine = session->engine;
    uint32_t length = session->sequence.length;
    if (length == 0 || engine->options.checkpoints_max == 0)
        return;
    session->last_kept = length;
    struct kept_state *kept = deepest(engine, session->tokens, length, 0);
    if (!kept || kept->sequence.length < length) {
        kept = empty_place(engine);
        struct kept_state *before = deepest(engine, session->tokens, length, 0);
        kept->before = before ? before->sequence.length : 0;
        sequence_copy(&kept->sequence, &session->sequence);
        memcpy(kept->tokens, session->tokens, length * sizeof *kept->tokens);
        keep_logits(kept, session);
        for (uint32_t i = 0; i < engine->options.checkpoints_max; i++) {
            struct kept_state *other = &engine->kept[i];
            if (other->last_used > 0 && other->before < length && other->sequence.length > length &&
                begins_with(other, kept->tokens, length))
                other->before = length;
        }
    } else if (!kept->has_logits) {
        keep_logits(kept, session);
    }
    kept->last_used = ++engine->clock;
}

void reuse_keep_piece(day0_session *session)
{
    if (session->sequence.length - session->last_kept >= KEEP_TOKENS)
        reuse_keep(session);
}

static void say(day0_reuse *reuse, uint32_t reused, const char *how)
{
    reuse->tokens_reused = reused;
    snprintf(reuse->reason, sizeof reuse->reason, "%u of %zu tokens reused: %s", reused, reuse->tokens_total, how);
}

void reuse_find(day0_session *session, const int32_t *tokens, uint32_t n_tokens, day0_reuse *reuse)
{
    day0_engine *engine = session->engine;
    struct sequence *s = &session->sequence;
    char how[160];
    *reuse = (day0_reuse){.tokens_total = n_tokens};
    uint32_t same = common_prefix(session->tokens, s->length, tokens, n_tokens);
    /* Undoing gives no logits: unless they are there, the last token of the text must still be computed. */
    bool whole = same == s->length && session->has_logits;
    uint32_t own = same < n_tokens || whole ? same : n_tokens - 1;
    if (s->length - own > sequence_rewindable(s))
        own = 0;
    struct kept_state *kept = deepest(engine, tokens, n_tokens, n_tokens);
    if (kept && kept->sequence.length > own) {
        sequence_copy(s, &kept->sequence);
        session->has_logits = kept->has_logits;
        if (kept->has_logits)
            memcpy(session->logits, kept->logits, engine->model->config.vocab_size * sizeof *session->logits);
        kept->last_used = ++engine->clock;
        snprintf(how, sizeof how, "the state kept after token %u has the same beginning%s", s->length,
                 s->length == n_tokens ? "; nothing is left to compute" : "");
        say(reuse, s->length, how);
        return;
    }
    if (own > 0) {
        uint32_t undone = s->length - own;
        if (undone > 0)
            kda_rewind(&engine->model->kernels, s, undone);
        session->has_logits = session->has_logits && undone == 0;
        if (undone == 0)
            snprintf(how, sizeof how, "the session's text goes on");
        else
            snprintf(how, sizeof how,
                     same < n_tokens ? "the last %u tokens were undone, token %u differs"
                                     : "the last %u tokens were undone, the text ends after token %u",
                     undone, same < n_tokens ? same + 1 : same);
        say(reuse, own, how);
        return;
    }
    if (session->broken)
        snprintf(how, sizeof how, "the session's state held a NaN or infinity");
    else if (s->length == 0)
        snprintf(how, sizeof how, "the session is new and no kept state has this beginning");
    else if (same == n_tokens)
        snprintf(how, sizeof how,
                 "the text ends %u tokens before the session's; %u can be undone, and no kept state is so short",
                 s->length - same, sequence_rewindable(s));
    else if (same == 0)
        snprintf(how, sizeof how, "the first token differs from the session's, and no kept state has this beginning");
    else
        snprintf(how, sizeof how,
                 "token %u differs, %u tokens back; %u can be undone, and no kept state lies before it", same + 1,
                 s->length - same, sequence_rewindable(s));
    sequence_reset(s);
    session->has_logits = false;
    say(reuse, 0, how);
}
