/* day0: runs Kimi Linear, Kimi K3 and Kimi K3.1 checkpoints. The public interface; link with -lday0 (pkg-config day0).
 *
 * An engine is a loaded model with its caches. A session is one text that grows: its tokens, and what the model
 * remembers of them. Work is submitted to sessions and done in steps, each of which mixes pieces of prompts with
 * single tokens of the sessions that are generating:
 *
 *     day0_options options = day0_options_default();
 *     day0_engine_open(&engine, &options, &error);
 *     day0_session_open(&session, engine, &error);
 *     day0_session_submit(session, tokens, n_tokens, &generation, &reuse, &error);
 *     day0_engine_run(engine, &error);                    calls generation.on_token as tokens come
 *
 * Threads   one thread at a time may call into an engine and its sessions; callbacks run on that thread and may call
 *           day0_session_cancel and the read-only functions, nothing else. That thread's stack needs 2 MB.
 * Errors    functions that can fail return a day0_status and fill *error (may be NULL) with one sentence that says
 *           what was wanted, what was found and what to do. A failed call changes nothing unless it says so.
 * Results   a session's results do not depend on what other sessions do, on threads, or on how its prompt is cut:
 *           the same bits always. */
#ifndef DAY0_H
#define DAY0_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAY0_API __attribute__((visibility("default")))
#define DAY0_CHECKED __attribute__((warn_unused_result))

#define DAY0_VERSION "0.1.0"

typedef enum day0_status {
    DAY0_OK = 0,
    DAY0_FORMAT,      /* a file or request does not say what it must */
    DAY0_UNSUPPORTED, /* it is well formed, and asks for what day0 does not do */
    DAY0_NOT_FOUND,   /* a file or tensor is missing */
    DAY0_IO,          /* the operating system refused */
    DAY0_MEMORY,      /* not enough memory, or not within the budget */
    DAY0_ARGUMENT,    /* an argument is out of range */
    DAY0_INTERRUPTED, /* a callback asked to stop */
} day0_status;

typedef struct day0_error {
    day0_status status;
    char text[512];
} day0_error;

typedef struct day0_engine day0_engine;
typedef struct day0_session day0_session;

/* ---------------------------------------------------------------------------------------------------------- engine */

/* Called now and then while something long goes on, done of total units (bytes or tokens); nonzero stops it. */
typedef int day0_progress_fn(void *context, const char *what, uint64_t done, uint64_t total);

/* A sentence worth knowing, such as why converted weights could not be kept; the work goes on. */
typedef void day0_notice_fn(void *context, const char *sentence);

typedef struct day0_options {
    const char *model;     /* checkpoint directory */
    uint64_t budget_bytes; /* memory the engine may use, weights included; 0: what the machine and its cgroup leave */
    uint32_t context_max;  /* tokens of one session; default 8192 */
    uint32_t sessions_max; /* default 1 */
    uint32_t checkpoints_max;   /* states kept for reuse by later texts with the same beginning; default 16 */
    uint32_t piece_tokens;      /* of a prompt in one step: what a generating session waits for at most; default 256 */
    uint32_t threads;           /* 0: one a core */
    const char *cpu;            /* strongest instruction tier, NULL: the machine's best */
    const char *act;            /* how activations meet weights: "exact", "int8", "int16" (NULL on x86-64) or "f16" */
    const char *exec;           /* "graph" (NULL) or "eager" */
    const char *streams;        /* in a graph run, overlap what is independent: "on" (NULL) or "off" */
    const char *without;        /* techniques to leave out, to measure them, docs/PERFORMANCE.md; NULL: none */
    const char *kv;             /* latent cache: "int16" (NULL on x86-64), "bf16" or "f32" */
    const char *dense;          /* projections, converted at load: NULL as stored, "mxfp8", "int8" or "mxfp4" */
    const char *experts;        /* routed experts: NULL as stored, "mxfp4" or "int8" */
    const char *li;             /* index keys: "bf16" (NULL), "mxfp8" or "f32" */
    const char *li_scale;       /* MXFP8 scale rule: "floor" (NULL) or "ceil" */
    const char *li_scan;        /* index scores: "bounds" (NULL), or "exact" for every key; the same choices */
    bool accept_unknown;        /* run although the config has keys that may change the meaning */
    bool preload;               /* read all weights at open, with progress, instead of at first use */
    const char *pack;           /* panels for weights that meet integers: "on" (NULL) or "off", docs/KERNELS.md */
    const char *cache;          /* folder that keeps converted and packed weights for the next start; NULL: what is
                                 converted is in memory alone, what is stored is not packed */
    day0_progress_fn *progress; /* or NULL */
    day0_notice_fn *notice;     /* or NULL */
    void *progress_context;     /* of both */
} day0_options;

DAY0_API day0_options day0_options_default(void);

/* Opens the model. The memory plan is checked against the budget before anything is reserved: what does not fit is
 * refused with the plan and what would fit. Owns everything until day0_engine_close, which accepts NULL and closes
 * the sessions too. */
DAY0_API DAY0_CHECKED day0_status day0_engine_open(day0_engine **out, const day0_options *options, day0_error *error);
DAY0_API void day0_engine_close(day0_engine *engine);

typedef struct day0_memory {
    uint64_t budget_bytes;
    uint64_t weights_bytes;    /* of files that are mapped, which the system may drop and reread */
    uint64_t converted_bytes;  /* of them, of converted weights: in memory that cannot be dropped if there is no file */
    uint64_t cache_bytes;      /* room for latents and index keys */
    uint64_t cache_used_bytes; /* of it, held by sessions and checkpoints now */
    uint64_t sessions_bytes;   /* recurrent states, texts and logits of sessions_max sessions */
    uint64_t checkpoints_bytes; /* room for states kept for reuse */
    uint64_t workspace_bytes;   /* of a step; and the program, its tokenizer and vectors in float32 */
    uint64_t total_bytes;       /* the plan: all but cache_used_bytes */
} day0_memory;

DAY0_API day0_memory day0_engine_memory(const day0_engine *engine);

DAY0_API uint32_t day0_engine_vocabulary(const day0_engine *engine);
/* Names the bits that the engine computes: session files carry it. Lives as long as the engine. */
DAY0_API const char *day0_engine_numerics(const day0_engine *engine);
/* The architecture, the instruction tier and threads in use, in one line. Lives as long as the engine. */
DAY0_API const char *day0_engine_description(const day0_engine *engine);

/* ------------------------------------------------------------------------------------------------------------ text */

/* Tokens that the caller owns; release with day0_tokens_free (a zeroed struct is empty). */
typedef struct day0_tokens {
    int32_t *ids;
    size_t count;
} day0_tokens;

DAY0_API void day0_tokens_free(day0_tokens *tokens);

/* Plain text to ids: special tokens in the text are text. */
DAY0_API DAY0_CHECKED day0_status day0_tokenize(const day0_engine *engine, const char *text, size_t bytes,
                                                day0_tokens *out, day0_error *error);

/* The bytes of some tokens, special ones by their names; terminated, free with free(). */
DAY0_API DAY0_CHECKED day0_status day0_detokenize(const day0_engine *engine, const int32_t *ids, size_t n, char **text,
                                                  size_t *bytes, day0_error *error);

/* A chat request (OpenAI-style JSON: messages, tools, tool_choice, response_format, thinking, thinking_effort) to the
 * ids of the prompt, in the model's own format. */
DAY0_API DAY0_CHECKED day0_status day0_chat_prompt(const day0_engine *engine, const char *request_json, size_t bytes,
                                                   day0_tokens *out, day0_error *error);

/* The model's reply taken apart while it is generated: feed it the ids that on_token gives. */
typedef struct day0_reply day0_reply;

typedef enum day0_reply_kind {
    DAY0_REPLY_REASONING,      /* text: what is new of the reasoning */
    DAY0_REPLY_CONTENT,        /* text: what is new of the answer */
    DAY0_REPLY_CALL_BEGIN,     /* text: the name of a tool */
    DAY0_REPLY_CALL_ARGUMENTS, /* text: what is new of the arguments as JSON */
    DAY0_REPLY_CALL_END,       /* text: all arguments, a JSON object; is_flawed: do not carry it out */
    DAY0_REPLY_END,            /* the reply is over */
} day0_reply_kind;

typedef struct day0_reply_event {
    day0_reply_kind kind;
    const char *text; /* not terminated; lives until the callback returns */
    size_t text_bytes;
    size_t call_index; /* from 0 */
    bool is_flawed;
    bool is_cut; /* DAY0_REPLY_END: the model did not end it by itself */
} day0_reply_event;

typedef void day0_reply_fn(void *context, const day0_reply_event *event);

/* `thinking` as in the request. Owned by the caller until day0_reply_close (accepts NULL); closed before the engine. */
DAY0_API DAY0_CHECKED day0_status day0_reply_open(day0_reply **out, const day0_engine *engine, bool thinking,
                                                  day0_reply_fn *on_event, void *context, day0_error *error);
DAY0_API DAY0_CHECKED day0_status day0_reply_push(day0_reply *reply, int32_t id, day0_error *error);
/* No more tokens come; `stopped`: the model ended by itself (DAY0_FINISH_STOP). */
DAY0_API DAY0_CHECKED day0_status day0_reply_finish(day0_reply *reply, bool stopped, day0_error *error);
/* The finished reply as the JSON of an assistant message, terminated, for the next request; free with free(). */
DAY0_API DAY0_CHECKED day0_status day0_reply_message(const day0_reply *reply, char **json, day0_error *error);
DAY0_API void day0_reply_close(day0_reply *reply);

/* ------------------------------------------------------------------------------------------------------ generation */

/* Applied in this order: penalties, temperature, top-k, top-p, min-p. */
typedef struct day0_sampling {
    float temperature; /* 0: always the best token */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 1: all */
    float min_p;       /* 0: all */
    float
        repetition_penalty;  /* positive logits of tokens in the text are divided by it, negative multiplied; 1: none */
    float presence_penalty;  /* subtracted from tokens already generated; 0: none */
    float frequency_penalty; /* subtracted once for each time a token was generated; 0: none */
    uint64_t seed;           /* the same seed, text and settings give the same tokens */
} day0_sampling;

/* What the checkpoint's generation_config.json asks for; no penalties, seed 0. */
DAY0_API day0_sampling day0_engine_sampling(const day0_engine *engine);

typedef struct day0_token_logprob {
    int32_t id;
    float logprob; /* natural logarithm of its probability before sampling settings */
} day0_token_logprob;

enum { DAY0_TOP_LOGPROBS_MAX = 20, DAY0_STOPS_MAX = 16 };

/* A generated token, as on_token sees it. Pointers live until the callback returns. */
typedef struct day0_token {
    int32_t id;
    uint32_t index;   /* from 0 */
    bool is_special;  /* a control token: no text */
    const char *text; /* whole UTF-8 characters that became certain with this token; may be empty */
    size_t text_bytes;
    float logprob;                 /* if logprobs were asked for */
    const day0_token_logprob *top; /* the most probable, best first */
    uint32_t n_top;
} day0_token;

typedef enum day0_finish {
    DAY0_FINISH_NONE,      /* still at work, or nothing submitted */
    DAY0_FINISH_STOP,      /* a stop token, a stop string, or the model's end of reply */
    DAY0_FINISH_LENGTH,    /* tokens_max, or the context is full */
    DAY0_FINISH_CANCELLED, /* by the caller or a callback */
    DAY0_FINISH_FAILED,    /* see day0_session_failure */
} day0_finish;

/* Nonzero stops the generation after this token. */
typedef int day0_token_fn(void *context, day0_session *session, const day0_token *token);
/* Once for every submit, whatever came of it. `text` is what a stop string held back and released, often empty. */
typedef void day0_finish_fn(void *context, day0_session *session, day0_finish finish, const char *text,
                            size_t text_bytes);

typedef struct day0_generation {
    day0_sampling sampling;
    uint32_t tokens_max;        /* 0: only the prompt is computed, for its logits */
    const int32_t *stop_tokens; /* besides those of the model */
    uint32_t n_stop_tokens;
    const char *const *stop_strings; /* the text ends before the first that is whole */
    uint32_t n_stop_strings;
    bool ignore_end; /* go on past the model's own end tokens */
    bool logprobs;
    uint32_t top_logprobs;     /* up to DAY0_TOP_LOGPROBS_MAX, with logprobs */
    day0_token_fn *on_token;   /* or NULL */
    day0_finish_fn *on_finish; /* or NULL */
    void *context;
} day0_generation;

/* The model's own sampling, 256 tokens, no callbacks. */
DAY0_API day0_generation day0_generation_default(const day0_engine *engine);

/* -------------------------------------------------------------------------------------------------------- sessions */

DAY0_API DAY0_CHECKED day0_status day0_session_open(day0_session **out, day0_engine *engine, day0_error *error);
/* Accepts NULL. Work under way is cancelled, its callback told. */
DAY0_API void day0_session_close(day0_session *session);

/* How much of a submitted text had been computed before. */
typedef struct day0_reuse {
    size_t tokens_total;
    size_t tokens_reused;
    char reason[256]; /* a sentence that says what was reused, or why nothing was */
} day0_reuse;

/* Makes the session's text `tokens` and generates after it. What the engine still knows of the text's beginning is
 * reused: the session's own state, undone by some tokens if need be, or a kept state of any session; the deepest that
 * is not newer than the first token that differs. Work that is under way is cancelled first. Copies what it is given,
 * but for the callbacks' context. `generation` NULL: the prompt alone. `reuse` may be NULL. */
DAY0_API DAY0_CHECKED day0_status day0_session_submit(day0_session *session, const int32_t *tokens, size_t n_tokens,
                                                      const day0_generation *generation, day0_reuse *reuse,
                                                      day0_error *error);

/* One step of all submitted work; *working (may be NULL) says how many sessions have more. */
DAY0_API DAY0_CHECKED day0_status day0_engine_step(day0_engine *engine, uint32_t *working, day0_error *error);
/* Steps until no session has work. */
DAY0_API DAY0_CHECKED day0_status day0_engine_run(day0_engine *engine, day0_error *error);

/* No further token comes; the work ends, and its callback is told, in the step that is running or the next one. */
DAY0_API void day0_session_cancel(day0_session *session);
DAY0_API day0_finish day0_session_finish(const day0_session *session);
/* The sentence of a session that ended with DAY0_FINISH_FAILED, else "". */
DAY0_API const char *day0_session_failure(const day0_session *session);

/* The text so far: prompt and generated tokens. Valid until the next call that changes the session. */
DAY0_API const int32_t *day0_session_tokens(const day0_session *session, size_t *n_tokens);
/* Tokens that steps computed for this session since it was opened. */
DAY0_API uint64_t day0_session_computed(const day0_session *session);

/* The logits [vocabulary] after the last computed token, NULL before any. Valid as above. */
DAY0_API const float *day0_session_logits(const day0_session *session);
/* Their log-probabilities for some tokens. */
DAY0_API DAY0_CHECKED day0_status day0_session_logprobs(const day0_session *session, const int32_t *tokens, size_t n,
                                                        float *out, day0_error *error);

/* Takes the last `n` tokens of the text back. Up to 16 computed ones cost nothing; beyond that the text is shorter
 * and what the next submit finds no state for is computed again. */
DAY0_API DAY0_CHECKED day0_status day0_session_rewind(day0_session *session, size_t n, day0_error *error);

/* The session's text and state as flat memory that the caller owns (free with free()), and back. Restoring needs an
 * engine of the same checkpoint and numerics. */
DAY0_API DAY0_CHECKED day0_status day0_session_snapshot(const day0_session *session, void **data, size_t *bytes,
                                                        day0_error *error);
DAY0_API DAY0_CHECKED day0_status day0_session_restore(day0_session *session, const void *data, size_t bytes,
                                                       day0_error *error);

/* The same in a file, compressed and checksummed; written under a temporary name and renamed, so that a file of that
 * name is always whole. A damaged file or one of another checkpoint is refused by name and the session stays as it
 * was. The state of other numerics cannot be used: then *recompute is true, the text is loaded, and the next submit
 * computes it again. */
DAY0_API DAY0_CHECKED day0_status day0_session_save(const day0_session *session, const char *path, day0_error *error);
DAY0_API DAY0_CHECKED day0_status day0_session_load(day0_session *session, const char *path, bool *recompute,
                                                    day0_error *error);

/* A note of the caller's that snapshots and files carry along (a chat's messages, say): copied; NULL and 0 for none. */
DAY0_API DAY0_CHECKED day0_status day0_session_set_note(day0_session *session, const void *note, size_t bytes,
                                                        day0_error *error);
/* Valid until the note changes; NULL if there is none. */
DAY0_API const void *day0_session_note(const day0_session *session, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
