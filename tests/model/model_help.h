/* What the model tests share: golden cases, runs of a model over a prompt cut in pieces, and their comparison. */
#ifndef DAY0_TESTS_MODEL_HELP_H
#define DAY0_TESTS_MODEL_HELP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/model.h"

/* The folder of golden cases: $DAY0_GOLDEN, else tests/golden/model. */
const char *golden_root(void);

struct golden {
    char directory[256];
    int32_t *tokens;
    uint32_t n_tokens, vocabulary;
    float *logits; /* [n_tokens][vocabulary] */
};

/* Loads a case; fails the test if a file is missing. */
struct golden golden_load(const char *name, uint32_t n_tokens_max);
void golden_free(struct golden *golden);

/* The result of a run: logits of all tokens, and per token and indexer layer what was chosen. */
struct answers {
    float *logits;
    size_t n_logits;
    char *selected; /* lines "layer token position ...", in the order they came */
    size_t selected_bytes;
};
void answers_free(struct answers *answers);

/* Options for exact comparison: float32 caches. */
struct model_options exact_options(uint32_t context_max);

/* Opens, feeds the tokens in pieces (the list repeats; none: as one prompt), closes. */
struct answers run_pieces(const char *directory, const struct model_options *options, const int32_t *tokens,
                          uint32_t n_tokens, const uint32_t *pieces, uint32_t n_pieces);

/* The same on an open model, in a new sequence. */
struct answers feed_pieces(struct model *model, const int32_t *tokens, uint32_t n_tokens, const uint32_t *pieces,
                           uint32_t n_pieces);

void assert_same_bits(const struct answers *got, const struct answers *want, const char *what);

/* Opens a model or fails the test with the error's sentence. */
struct model *open_or_fail(const char *directory, const struct model_options *options);

/* Tiers of this machine by name, weakest first, up to `max`; says which it lacks on the first call. */
size_t machine_tiers(const char **names, size_t max);

/* Whether the long forms of the tests are wanted (make check-slow). */
bool slow_tests(void);

#endif
