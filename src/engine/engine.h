/* The engine's own structures, behind include/day0.h: what an engine, a session and a kept state are. */
#ifndef DAY0_ENGINE_ENGINE_H
#define DAY0_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "day0.h"
#include "decode/sampler.h"
#include "engine/stop_strings.h"
#include "model/model.h"
#include "text/detokenizer.h"
#include "text/token_list.h"
#include "text/tokenizer.h"

/* A state that a text with the same beginning can go on from: the state after `sequence.length` tokens. */
struct kept_state {
    struct sequence sequence;
    int32_t *tokens; /* [context_max] */
    float *logits;   /* [vocabulary] after the last token, if has_logits */
    bool has_logits;
    uint32_t before;    /* length of the deepest other kept state that is a beginning of this one; 0: none */
    uint64_t last_used; /* the engine's clock; 0: empty */
};

enum session_phase {
    PHASE_IDLE,
    PHASE_PROMPT,   /* tokens from sequence.length on are to be computed, the last gives logits */
    PHASE_GENERATE, /* logits are there, or the last token is to be computed for them */
};

struct day0_session {
    day0_engine *engine;
    day0_session *next; /* in the engine's list, in order of opening */
    enum session_phase phase;
    day0_finish finish;
    char failure[256];
    bool broken; /* the last work ended with a NaN: the state was forgotten */
    bool cancelled;

    struct sequence sequence;
    int32_t *tokens; /* [context_max] the text */
    uint32_t n_tokens;
    bool has_logits;          /* `logits` belong to the token at sequence.length - 1 */
    float *logits, *adjusted; /* [vocabulary] raw, and with penalties */
    uint32_t *counts;         /* [vocabulary] how often each token was generated */
    uint64_t n_computed;

    day0_generation generation;
    int32_t stop_tokens[DAY0_STOPS_MAX];
    struct stop_strings stop_strings;
    struct sampler sampler;
    struct detokenizer detokenizer;
    struct byte_buffer text; /* released with the current token */
    bool text_over;          /* a stop string appeared: no text follows it */
    uint32_t n_generated;
    uint32_t last_kept; /* of the current prompt: where its state was reused or kept last */
    char *note;         /* the caller's, carried by files */
    size_t note_bytes;
};

struct day0_engine {
    struct model *model;
    struct tokenizer *tokenizer; /* NULL: the checkpoint has none, only ids work */
    day0_options options;
    char directory[4096];
    char numerics[128], description[256];
    uint64_t identity[2]; /* of the checkpoint */
    struct sampling sampling;
    day0_session *sessions;
    uint32_t n_sessions, next_prompt; /* prompt sessions take turns */
    struct kept_state *kept;          /* [checkpoints_max] */
    uint64_t clock;
    /* Of one step. */
    struct model_span *spans;     /* [sessions_max] */
    day0_session **span_sessions; /* [sessions_max] */
    uint32_t *bad_layers;         /* [sessions_max] */
    float *step_logits;           /* [sessions_max][vocabulary] */
};

/* The internal error in the public one. Gives the status back. */
day0_status engine_error(day0_error *out, enum status status, const struct error *err);

/* session.c: makes the session's text and state empty. */
void session_forget(day0_session *session);

/* reuse.c: kept states. */
NEEDS_CHECK enum status reuse_open(day0_engine *engine, struct error *err);
void reuse_close(day0_engine *engine);
/* Keeps the session's state, in place of the one that is missed least; does nothing if it is kept already. */
void reuse_keep(day0_session *session);
/* Keeps the state of a prompt that is under way, now and then. */
void reuse_keep_piece(day0_session *session);
/* Makes the session's state the deepest one known of `tokens`; says what it did. */
void reuse_find(day0_session *session, const int32_t *tokens, uint32_t n_tokens, day0_reuse *reuse);
/* Frees cache pages by forgetting the state that is missed least; false if there is none. */
bool reuse_forget_one(day0_engine *engine);

/* scheduler.c */
/* Ends a session's work, tells its callback. */
void scheduler_finish(day0_session *session, day0_finish finish);

#endif
