/* A sequence that looks as if it had a long past, without computing it: random values of sane size in
 * every cache. */
#ifndef DAY0_LAB_BENCH_STATE_H
#define DAY0_LAB_BENCH_STATE_H

#include "base/rng.h"
#include "state/sequence.h"

/* Makes `sequence` `length` tokens long. Latents and index keys are uniform with RMS 1, as norms leave
 * them; KDA state and convolution inputs small. Fails as sequence_reserve does; the sequence is then
 * empty. */
NEEDS_CHECK enum status bench_state_fill(struct sequence *sequence, uint32_t length, struct rng *rng,
                                         struct error *err);

/* Makes it `length` tokens long again, after more were fed; what the recurrent layers keep stays as it is. */
void bench_state_shorten(struct sequence *sequence, uint32_t length);

#endif
