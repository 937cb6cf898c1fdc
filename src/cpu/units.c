#include "cpu/units.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "cpu/tiers.h"

/* A run of some tenths of a millisecond: long against the start of a team, short against a time slice. */
enum { TURNS = 1 << 17 };

/* TURNS rounds over independent accumulators, which start from different values. There are enough of them to cover an
 * operation's latency, and they fit the registers. */
#define UNIT_LOOP(name, attribute, vector, chains, set, turn, lane0)                                                   \
    attribute static float name(float seed)                                                                            \
    {                                                                                                                  \
        vector sums[chains];                                                                                           \
        const vector a = set(seed), b = set(2 * seed);                                                                 \
        _Pragma("GCC unroll 16") for (int c = 0; c < (chains); c++) sums[c] = set(seed + (float)c);                    \
        for (int i = 0; i < TURNS; i++)                                                                                \
            _Pragma("GCC unroll 16") for (int c = 0; c < (chains); c++) sums[c] = turn(sums[c], a, b);                 \
        float total = 0;                                                                                               \
        _Pragma("GCC unroll 16") for (int c = 0; c < (chains); c++) total += lane0(sums[c]);                           \
        return total;                                                                                                  \
    }

enum {
    FMA_CHAINS = 12,
    BYTE_CHAINS = 8, /* a turn has several more values in registers */
    BYTE_PRODUCTS = 4,
};

#define SELF(x) (x)
#define PLAIN_FMA(x, a, b) ((x) * (a) + (b))
UNIT_LOOP(f32_plain, , float, FMA_CHAINS, SELF, PLAIN_FMA, SELF)

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw")))
#define AVX512FP16 __attribute__((target("avx512f,avx512bw,avx512vnni,avx512fp16")))

UNIT_LOOP(f32_avx2, AVX2, __m256, FMA_CHAINS, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)
UNIT_LOOP(f32_avx512, AVX512, __m512, FMA_CHAINS, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)

/* The running sum stands for one factor of all four products, so that nothing is the same from turn to turn. */
#define SET256(x) _mm256_castps_si256(_mm256_set1_ps(x))
#define LANE256(x) _mm256_cvtss_f32(_mm256_castsi256_ps(x))
AVX2 static inline __m256i bytes_avx2(__m256i sum, __m256i a, __m256i b)
{
    __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(sum, a), _mm256_maddubs_epi16(sum, b));
    __m256i more = _mm256_add_epi16(_mm256_maddubs_epi16(a, sum), _mm256_maddubs_epi16(b, sum));
    pairs = _mm256_add_epi16(pairs, more);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
UNIT_LOOP(int8_avx2, AVX2, __m256i, BYTE_CHAINS, SET256, bytes_avx2, LANE256)

#define SET512(x) _mm512_castps_si512(_mm512_set1_ps(x))
#define LANE512(x) _mm512_cvtss_f32(_mm512_castsi512_ps(x))
AVX512 static inline __m512i bytes_avx512(__m512i sum, __m512i a, __m512i b)
{
    __m512i pairs = _mm512_add_epi16(_mm512_maddubs_epi16(sum, a), _mm512_maddubs_epi16(sum, b));
    __m512i more = _mm512_add_epi16(_mm512_maddubs_epi16(a, sum), _mm512_maddubs_epi16(b, sum));
    pairs = _mm512_add_epi16(pairs, more);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
UNIT_LOOP(int8_avx512, AVX512, __m512i, BYTE_CHAINS, SET512, bytes_avx512, LANE512)
UNIT_LOOP(int8_avx512fp16, AVX512FP16, __m512i, FMA_CHAINS, SET512, _mm512_dpbusd_epi32, LANE512)

/* clang 14 has the intrinsics of halves only where a whole file is compiled for them. */
AVX512FP16 static inline __m512 halves_fma(__m512 x, __m512 a, __m512 b)
{
    __asm__("vfmadd132ph %2, %1, %0" : "+v"(x) : "v"(b), "v"(a));
    return x;
}
UNIT_LOOP(f16_avx512fp16, AVX512FP16, __m512, FMA_CHAINS, _mm512_set1_ps, halves_fma, _mm512_cvtss_f32)
#elif defined(__aarch64__)
#define NEON_FMA(x, a, b) vfmaq_f32(b, x, a)
#define NEON_LANE0(x) vgetq_lane_f32(x, 0)
UNIT_LOOP(f32_neon, , float32x4_t, FMA_CHAINS, vdupq_n_f32, NEON_FMA, NEON_LANE0)
#endif

/* Weakest first. */
static const struct {
    enum unit unit;
    enum tier tier;
    float (*run)(float seed);
    int operations; /* of one turn of one chain */
    int chains;
} loops[] = {
    {UNIT_F32, TIER_REF, f32_plain, 2, FMA_CHAINS},
#if defined(__x86_64__)
    {UNIT_F32, TIER_AVX2, f32_avx2, 2 * 8, FMA_CHAINS},
    {UNIT_F32, TIER_AVX512, f32_avx512, 2 * 16, FMA_CHAINS},
    {UNIT_INT8, TIER_AVX2, int8_avx2, 2 * 32 * BYTE_PRODUCTS, BYTE_CHAINS},
    {UNIT_INT8, TIER_AVX512, int8_avx512, 2 * 64 * BYTE_PRODUCTS, BYTE_CHAINS},
    {UNIT_INT8, TIER_AVX512FP16, int8_avx512fp16, 2 * 64, FMA_CHAINS},
    {UNIT_F16, TIER_AVX512FP16, f16_avx512fp16, 2 * 32, FMA_CHAINS},
#elif defined(__aarch64__)
    {UNIT_F32, TIER_NEON, f32_neon, 2 * 4, FMA_CHAINS},
#endif
};

const char *units_name(enum unit unit)
{
    static const char *const names[UNIT_COUNT] = {"f32", "int8", "f16"};
    return names[unit];
}

struct unit_loop units_loop(enum unit unit, unsigned tiers)
{
    struct unit_loop found = {NULL, 0};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        if (loops[i].unit == unit && tiers & 1u << loops[i].tier)
            found = (struct unit_loop){loops[i].run, (double)TURNS * loops[i].chains * loops[i].operations};
    return found;
}

typedef uint64_t vector __attribute__((vector_size(32)));

uint64_t units_read(const void *data, size_t bytes)
{
    enum { STREAMS = 8 }; /* several places in turn: one stream alone is slower */
    const vector *from = data;
    vector sums[STREAMS] = {{0}}, sum = {0};
    size_t count = bytes / sizeof(vector), n = count / STREAMS;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < STREAMS; k++)
            sums[k] += from[i + k * n];
    for (size_t i = n * STREAMS; i < count; i++)
        sum += from[i];
    for (size_t k = 0; k < STREAMS; k++)
        sum += sums[k];
    return sum[0] + sum[1] + sum[2] + sum[3];
}
