/* SplitMix64: small, seedable, the same on every machine. For sampling and tests, not for secrets. */
#ifndef DAY0_BASE_RNG_H
#define DAY0_BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static inline double rng_uniform(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

/* Uniform in [0, bound), bound >= 1. */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)rng_next(rng) * bound) >> 64);
}

#endif
