/* What the laws of docs/ARCHITECTURE.md have a model do: the same text among others, in pieces, with detours. */
#ifndef DAY0_TESTS_LAWS_HELP_H
#define DAY0_TESTS_LAWS_HELP_H

#include "model_help.h"

enum { LAWS_SEQUENCES_MAX = 8 };

/* Sequence s of a case: another part of its tokens. */
const int32_t *laws_tokens(const struct golden *g, uint32_t s);

/* Law 2. Feeds `n_tokens` of each sequence in random ragged steps; out[s] gets the logits of sequence s. */
void laws_run_mixed(const struct golden *g, const struct model_options *base, uint32_t n_sequences, uint32_t n_tokens,
                    uint64_t seed, float **out);

/* Law 3. A hash of all that a sequence keeps after the case's tokens came in random pieces; seed 0: as a whole. */
uint64_t laws_hash_after(const struct golden *g, const struct model_options *options, uint64_t seed);

/* Law 4. Feeds the text in random pieces; between them feeds tokens that do not belong to it, or some of the text too
 * early, and undoes them; and undoes and feeds again some of the text itself. */
void laws_feed_with_detours(struct model *model, const struct golden *g, uint64_t seed, float *logits);

/* Law 9. Feeds the text in pieces of many sizes; how far `counter` went meanwhile (count_allocations.h). */
unsigned long laws_allocations(const struct golden *g, const struct model_options *options,
                               const _Atomic unsigned long *counter);

#endif
