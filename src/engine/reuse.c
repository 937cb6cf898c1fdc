/* States kept for reuse: where a later text with the same beginning goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine.h"
#include "ops/kda.h"

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

/* The state not used for longest; an empty place if there is one and `empty` is wanted. */
static struct kept_state *oldest(const day0_engine *engine, bool empty)
{
    struct kept_state *found = NULL;
    for (uint32_t i = 0; i < engine->options.checkpoints_max; i++) {
        struct kept_state *kept = &engine->kept[i];
        if ((empty || kept->last_used > 0) && (!found || kept->last_used < found->last_used))
            found = kept;
    }
    return found;
}

bool reuse_forget_one(day0_engine *engine)
{
    struct kept_state *kept = oldest(engine, false);
    if (!kept)
        return false;
    sequence_reset(&kept->sequence);
    kept->last_used = 0;
    return true;
}

/* The deepest kept state that is a beginning of `tokens`, NULL if there is none. */
static struct kept_state *deepest(const day0_engine *engine, const int32_t *tokens, uint32_t n_tokens)
{
    struct kept_state *found = NULL;
    for (uint32_t i = 0; i < engine->options.checkpoints_max; i++) {
        struct kept_state *kept = &engine->kept[i];
        uint32_t length = kept->sequence.length;
        if (kept->last_used > 0 && length <= n_tokens && (!found || length > found->sequence.length) &&
            memcmp(kept->tokens, tokens, length * sizeof *tokens) == 0)
            found = kept;
    }
    return found;
}

void reuse_keep(day0_session *session)
{
    day0_engine *engine = session->engine;
    uint32_t length = session->sequence.length;
    if (length == 0 || session->broken || !session->has_logits || engine->options.checkpoints_max == 0)
        return;
    struct kept_state *same = deepest(engine, session->tokens, length);
    if (!same || same->sequence.length < length) {
        same = oldest(engine, true);
        sequence_copy(&same->sequence, &session->sequence);
        memcpy(same->tokens, session->tokens, length * sizeof *same->tokens);
        memcpy(same->logits, session->logits, engine->model->config.vocab_size * sizeof *same->logits);
    }
    same->last_used = ++engine->clock;
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
    struct kept_state *kept = deepest(engine, tokens, n_tokens);
    if (kept && kept->sequence.length > own) {
        sequence_copy(s, &kept->sequence);
        memcpy(session->logits, kept->logits, engine->model->config.vocab_size * sizeof *session->logits);
        session->has_logits = true;
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
            snprintf(how, sizeof how, same < n_tokens ? "the last %u tokens were undone, token %u differs"
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
        snprintf(how, sizeof how, "the text ends %u tokens before the session's; %u can be undone, and no kept state is so short",
                 s->length - same, sequence_rewindable(s));
    else if (same == 0)
        snprintf(how, sizeof how, "the first token differs from the session's, and no kept state has this beginning");
    else
        snprintf(how, sizeof how, "token %u differs, %u tokens back; %u can be undone, and no kept state lies before it",
                 same + 1, s->length - same, sequence_rewindable(s));
    sequence_reset(s);
    session->has_logits = false;
    say(reuse, 0, how);
}
