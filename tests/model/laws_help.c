#include "laws_help.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

const int32_t *laws_tokens(const struct golden *g, uint32_t s)
{
    return g->tokens + s * 40;
}

void laws_run_mixed(const struct golden *g, const struct model_options *base, uint32_t n_sequences, uint32_t n_tokens,
                    uint64_t seed, float **out)
{
    struct model_options options = *base;
    options.sequences_max = n_sequences;
    struct model *model = open_or_fail(g->directory, &options);
    struct sequence sequences[LAWS_SEQUENCES_MAX];
    uint32_t fed[LAWS_SEQUENCES_MAX] = {0}, left = n_sequences * n_tokens;
    struct rng rng = {seed};
    struct error err;
    float *logits = malloc((size_t)left * g->vocabulary * sizeof(float));
    for (uint32_t s = 0; s < n_sequences; s++)
        assert_int_equal(model_sequence_init(model, &sequences[s], &err), STATUS_OK);
    while (left > 0) {
        struct model_span spans[LAWS_SEQUENCES_MAX];
        uint32_t owner[LAWS_SEQUENCES_MAX];
        uint32_t n_spans = 0;
        for (uint32_t s = 0; s < n_sequences; s++) {
            /* Some decode one token, some bring a piece of a prompt, some sit a step out. */
            uint32_t kind = (uint32_t)rng_below(&rng, 4), n = kind == 0 ? 0 : kind == 1 ? 1 + rng_below(&rng, 50) : 1;
            n = n < n_tokens - fed[s] ? n : n_tokens - fed[s];
            if (n == 0)
                continue;
            owner[n_spans] = s;
            spans[n_spans++] = (struct model_span){&sequences[s], laws_tokens(g, s) + fed[s], n, 0};
        }
        struct model_outputs outputs = {.logits = logits};
        assert_int_equal(model_step(model, spans, n_spans, &outputs, &err), STATUS_OK);
        const float *at = logits;
        for (uint32_t i = 0; i < n_spans; i++) {
            size_t count = (size_t)spans[i].n_tokens * g->vocabulary;
            memcpy(out[owner[i]] + (size_t)fed[owner[i]] * g->vocabulary, at, count * sizeof(float));
            at += count;
            fed[owner[i]] += spans[i].n_tokens;
            left -= spans[i].n_tokens;
        }
    }
    for (uint32_t s = 0; s < n_sequences; s++)
        sequence_fini(&sequences[s]);
    free(logits);
    model_close(model);
}

static uint64_t mixed_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* A hash of all that a sequence keeps: recurrent states, tails, latent rows and index keys of its positions. */
static uint64_t state_hash(const struct sequence *s)
{
    const struct state_layout *l = s->layout;
    uint64_t hash = mixed_bytes(1, s->kda, l->n_kda * l->kda_heads * l->head_state_floats * sizeof(float));
    hash = mixed_bytes(hash, s->conv, l->n_kda * l->conv_floats * sizeof(float));
    if (l->rewinds)
        hash = mixed_bytes(hash, s->kda_base, l->n_kda * l->kda_heads * l->head_state_floats * sizeof(float));
    hash = mixed_bytes(hash, s->ring, l->n_kda * l->ring_floats * sizeof(float));
    for (uint32_t m = 0; m < l->n_mla; m++)
        for (uint32_t p = 0; p < s->length; p++) {
            hash = mixed_bytes(hash, sequence_latent(s, m, p), l->latent_row_bytes);
            if (p % INDEX_BLOCK_KEYS == INDEX_BLOCK_KEYS - 1) /* whole blocks: past the end a block holds anything */
                hash = mixed_bytes(hash, sequence_index_block(s, m, p), l->mla[m].index_block_bytes);
        }
    return hash;
}

uint64_t laws_hash_after(const struct golden *g, const struct model_options *options, uint64_t seed)
{
    struct model *model = open_or_fail(g->directory, options);
    struct sequence sequence;
    struct rng rng = {seed};
    struct error err;
    assert_int_equal(model_sequence_init(model, &sequence, &err), STATUS_OK);
    for (uint32_t first = 0; first < g->n_tokens;) {
        uint32_t left = g->n_tokens - first,
                 n = seed == 0 ? left : 1 + (uint32_t)rng_below(&rng, 1 + rng_below(&rng, 64));
        n = n < left ? n : left;
        struct model_span span = {&sequence, g->tokens + first, n, n}; /* no logits: state alone */
        struct model_outputs outputs = {0};
        assert_int_equal(model_step(model, &span, 1, &outputs, &err), STATUS_OK);
        first += n;
    }
    uint64_t hash = state_hash(&sequence);
    sequence_fini(&sequence);
    model_close(model);
    return hash;
}

static void step_or_fail(struct model *model, struct sequence *sequence, const int32_t *tokens, uint32_t n,
                         float *logits)
{
    struct error err;
    struct model_span span = {sequence, tokens, n, 0};
    struct model_outputs outputs = {.logits = logits};
    if (model_step(model, &span, 1, &outputs, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

void laws_feed_with_detours(struct model *model, const struct golden *g, uint64_t seed, float *logits)
{
    struct sequence sequence;
    struct rng rng = {seed};
    struct error err;
    int32_t wrong[REWIND_TOKENS];
    float *unused = malloc((size_t)REWIND_TOKENS * g->vocabulary * sizeof(float));
    assert_int_equal(model_sequence_init(model, &sequence, &err), STATUS_OK);
    while (sequence.length < g->n_tokens) {
        uint32_t at = sequence.length, n = 1 + (uint32_t)rng_below(&rng, 1 + rng_below(&rng, 40));
        uint32_t detour = (uint32_t)rng_below(&rng, REWIND_TOKENS + 1);
        if (detour > g->n_tokens - at)
            detour = g->n_tokens - at;
        for (uint32_t i = 0; i < detour; i++)
            wrong[i] = (int32_t)rng_below(&rng, g->vocabulary);
        if (detour > 0) {
            step_or_fail(model, &sequence, wrong, detour, unused);
            uint32_t kept = (uint32_t)rng_below(&rng, detour + 1); /* undone in two goes */
            assert_int_equal(model_rewind(model, &sequence, detour - kept, &err), STATUS_OK);
            assert_int_equal(model_rewind(model, &sequence, kept, &err), STATUS_OK);
        }
        n = n < g->n_tokens - at ? n : g->n_tokens - at;
        step_or_fail(model, &sequence, g->tokens + at, n, logits + (size_t)at * g->vocabulary);
        if (rng_below(&rng, 3) == 0 && sequence.length < g->n_tokens) {
            uint32_t back = (uint32_t)rng_below(&rng, 1 + sequence_rewindable(&sequence));
            assert_int_equal(model_rewind(model, &sequence, back, &err), STATUS_OK);
        }
    }
    assert_int_equal(model_rewind(model, &sequence, sequence_rewindable(&sequence) + 1, &err), STATUS_ARGUMENT);
    assert_int_equal(sequence.length, g->n_tokens);
    sequence_fini(&sequence);
    assert_int_equal(model->pages.n_free, model->pages.n_pages);
    free(unused);
}

unsigned long laws_allocations(const struct golden *g, const struct model_options *options,
                               const _Atomic unsigned long *counter)
{
    struct model *model = open_or_fail(g->directory, options);
    struct sequence sequence;
    float *logits = malloc((size_t)g->n_tokens * g->vocabulary * sizeof(float));
    struct error err;
    assert_int_equal(model_sequence_init(model, &sequence, &err), STATUS_OK);
    unsigned long before = *counter;
    for (uint32_t first = 0, n = 1; first < g->n_tokens; first += n, n = n % 37 + 1) {
        n = n < g->n_tokens - first ? n : g->n_tokens - first;
        step_or_fail(model, &sequence, g->tokens + first, n, logits);
    }
    unsigned long counted = *counter - before;
    sequence_fini(&sequence);
    model_close(model);
    free(logits);
    return counted;
}
