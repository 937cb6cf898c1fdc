/* What the engine tests share: engines and sessions or a failed test, records of what callbacks saw, and cold runs to
 * compare with. */
#ifndef DAY0_TESTS_ENGINE_HELP_H
#define DAY0_TESTS_ENGINE_HELP_H

#include "../model/model_help.h"
#include "day0.h"

#define JARGON "models/jargon-k31"

enum { RECORD_TOKENS_MAX = 600, RECORD_TEXT_BYTES = 1 << 14 };

/* The bundled model, 600 tokens of context, 2 threads (DAY0_TEST_THREADS: other). */
day0_options engine_options(void);

day0_engine *engine_or_fail(const day0_options *options);
day0_session *session_or_fail(day0_engine *engine);

/* Fails the test with the sentence if the call failed. */
void must(day0_status status, const day0_error *error);

/* The status is the wanted one, and its sentence says `part`. */
void assert_refused(day0_status got, day0_status want, const day0_error *error, const char *part);

/* `n` tokens of running text, from token `first` of it on; lives as long as the program. */
const int32_t *some_text(const day0_engine *engine, size_t first, size_t n);

/* What the callbacks of one generation saw. */
struct record {
    int32_t ids[RECORD_TOKENS_MAX];
    float logprobs[RECORD_TOKENS_MAX];
    uint32_t n_tokens;
    char text[RECORD_TEXT_BYTES]; /* of all tokens, and what the end released */
    size_t text_bytes, released_bytes;
    day0_finish finish;
    uint32_t n_finishes;
    uint32_t stop_after;   /* on_token asks to stop after so many; 0: never */
    day0_session *cancels; /* on_token cancels this session */
};

/* Greedy, past the model's end tokens, with log-probabilities; empties the record and writes into it. */
day0_generation recorded(const day0_engine *engine, struct record *record, uint32_t tokens_max);

/* Submits and runs to the end. */
void generate(day0_engine *engine, day0_session *session, const int32_t *tokens, size_t n,
              const day0_generation *generation, day0_reuse *reuse);

/* The same tokens, log-probabilities, text and end. */
void assert_same_record(const struct record *got, const struct record *want, const char *what);

/* The session's logits are those of an engine that knows nothing yet after its first n tokens. `options` as of the
 * session's engine. */
void assert_cold_logits(const day0_session *session, size_t n, const day0_options *options, const char *what);

/* A name for files of this process in the directory for temporary files: "PLACE/day0_engine_PID_NAME". */
void temporary_path(char *out, size_t bytes, const char *name);

#endif
