#include "exec/probe.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/clock.h"
#include "cpu/tiers.h"

enum {
    FMA_TRIES = 8,
    CHAINS = 12, /* independent accumulators: over latency times units, and they fit the registers of every tier */
    FMA_TURNS = 1 << 20,
};

/* The chains of one tier: FMA_TURNS rounds of CHAINS accumulators. Gives their sum, so that none is optimized away. */
typedef float chains_fn(float scale, float step);

#define FMA_CHAINS(name, attribute, vector, set, fma, lane0)                                                           \
    attribute static float name(float scale, float step)                                                               \
    {                                                                                                                  \
        vector sums[CHAINS], a = set(scale), b = set(step);                                                            \
        _Pragma("GCC unroll 16") for (int c = 0; c < CHAINS; c++) sums[c] = set((float)c);                             \
        for (int turn = 0; turn < FMA_TURNS; turn++)                                                                   \
            _Pragma("GCC unroll 16") for (int c = 0; c < CHAINS; c++) sums[c] = fma(sums[c], a, b);                    \
        float total = 0;                                                                                               \
        _Pragma("GCC unroll 16") for (int c = 0; c < CHAINS; c++) total += lane0(sums[c]);                             \
        return total;                                                                                                  \
    }

#define SELF(x) (x)
#define PLAIN_FMA(x, a, b) ((x) * (a) + (b))
FMA_CHAINS(chains_plain, , float, SELF, PLAIN_FMA, SELF)
#if defined(__x86_64__)
FMA_CHAINS(chains_avx2, __attribute__((target("avx2,fma"))), __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)
FMA_CHAINS(chains_avx512, __attribute__((target("avx512f"))), __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)
#elif defined(__aarch64__)
#define NEON_FMA(x, a, b) vfmaq_f32(b, x, a)
#define NEON_LANE0(x) vgetq_lane_f32(x, 0)
FMA_CHAINS(chains_neon, , float32x4_t, vdupq_n_f32, NEON_FMA, NEON_LANE0)
#endif

struct fma_probe {
    chains_fn *chains;
    volatile float scale, step, sink[TEAM_THREADS_MAX];
};

static void fma_part(void *context, unsigned worker)
{
    struct fma_probe *probe = context;
    probe->sink[worker] = probe->chains(probe->scale, probe->step);
}

double probe_f32_gflop_s(struct team *team)
{
    struct fma_probe probe = {.chains = chains_plain, .scale = 0.5f, .step = 1};
    unsigned tiers = tiers_found();
    double lanes = 1, best = 0;
#if defined(__x86_64__)
    if (tiers & 1u << TIER_AVX512)
        probe.chains = chains_avx512, lanes = 16;
    else if (tiers & 1u << TIER_AVX2)
        probe.chains = chains_avx2, lanes = 8;
#elif defined(__aarch64__)
    if (tiers & 1u << TIER_NEON)
        probe.chains = chains_neon, lanes = 4;
#endif
    for (int i = 0; i < FMA_TRIES; i++) {
        double start = clock_seconds();
        team_run(team, fma_part, &probe);
        double rate = 1e-9 * team_size(team) * FMA_TURNS * CHAINS * 2 * lanes / (clock_seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}
