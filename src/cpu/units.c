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
    FMA_CHAINS = 12, /* with two factors they fit in sixteen registers */
    SUM_CHAINS = 10, /* where a turn has values of its own in registers */
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

/* Integers lie in vectors of floats, as gcc keeps an array of those in registers. The running sum stands for one factor
 * of each product, so that nothing is the same from turn to turn. */
AVX2 static inline __m256 words_avx2(__m256 x, __m256 y, __m256 unused)
{
    (void)unused;
    __m256i sum = _mm256_castps_si256(x), a = _mm256_castps_si256(y);
    return _mm256_castsi256_ps(_mm256_add_epi32(sum, _mm256_madd_epi16(sum, a)));
}
UNIT_LOOP(int16_avx2, AVX2, __m256, SUM_CHAINS, _mm256_set1_ps, words_avx2, _mm256_cvtss_f32)

AVX2 static inline __m256 bytes_avx2(__m256 x, __m256 y, __m256 z)
{
    __m256i sum = _mm256_castps_si256(x), a = _mm256_castps_si256(y), b = _mm256_castps_si256(z);
    __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(sum, a), _mm256_maddubs_epi16(sum, b));
    __m256i more = _mm256_add_epi16(_mm256_maddubs_epi16(a, sum), _mm256_maddubs_epi16(b, sum));
    pairs = _mm256_madd_epi16(_mm256_add_epi16(pairs, more), _mm256_set1_epi16(1));
    return _mm256_castsi256_ps(_mm256_add_epi32(sum, pairs));
}
UNIT_LOOP(int8_avx2, AVX2, __m256, SUM_CHAINS, _mm256_set1_ps, bytes_avx2, _mm256_cvtss_f32)

AVX512 static inline __m512 words_avx512(__m512 x, __m512 y, __m512 unused)
{
    (void)unused;
    __m512i sum = _mm512_castps_si512(x), a = _mm512_castps_si512(y);
    return _mm512_castsi512_ps(_mm512_add_epi32(sum, _mm512_madd_epi16(sum, a)));
}
UNIT_LOOP(int16_avx512, AVX512, __m512, FMA_CHAINS, _mm512_set1_ps, words_avx512, _mm512_cvtss_f32)

AVX512 static inline __m512 bytes_avx512(__m512 x, __m512 y, __m512 z)
{
    __m512i sum = _mm512_castps_si512(x), a = _mm512_castps_si512(y), b = _mm512_castps_si512(z);
    __m512i pairs = _mm512_add_epi16(_mm512_maddubs_epi16(sum, a), _mm512_maddubs_epi16(sum, b));
    __m512i more = _mm512_add_epi16(_mm512_maddubs_epi16(a, sum), _mm512_maddubs_epi16(b, sum));
    pairs = _mm512_madd_epi16(_mm512_add_epi16(pairs, more), _mm512_set1_epi16(1));
    return _mm512_castsi512_ps(_mm512_add_epi32(sum, pairs));
}
UNIT_LOOP(int8_avx512, AVX512, __m512, SUM_CHAINS, _mm512_set1_ps, bytes_avx512, _mm512_cvtss_f32)

#define VNNI(operation, x, a, b)                                                                                       \
    _mm512_castsi512_ps(operation(_mm512_castps_si512(x), _mm512_castps_si512(a), _mm512_castps_si512(b)))
#define DPWSSD(x, a, b) VNNI(_mm512_dpwssd_epi32, x, a, b)
#define DPBUSD(x, a, b) VNNI(_mm512_dpbusd_epi32, x, a, b)
UNIT_LOOP(int16_avx512fp16, AVX512FP16, __m512, FMA_CHAINS, _mm512_set1_ps, DPWSSD, _mm512_cvtss_f32)
UNIT_LOOP(int8_avx512fp16, AVX512FP16, __m512, FMA_CHAINS, _mm512_set1_ps, DPBUSD, _mm512_cvtss_f32)

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
#define NEON_SET(x) vreinterpretq_s32_f32(vdupq_n_f32(x))
#define NEON_LANE(x) vgetq_lane_f32(vreinterpretq_f32_s32(x), 0)
#define NEON_WORDS(x) vget_low_s16(vreinterpretq_s16_s32(x))
#define NEON_MLAL(x, a, b) vmlal_s16(x, NEON_WORDS(x), NEON_WORDS(a))
UNIT_LOOP(int16_neon, , int32x4_t, FMA_CHAINS, NEON_SET, NEON_MLAL, NEON_LANE)
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
    {UNIT_INT16, TIER_AVX2, int16_avx2, 2 * 16, SUM_CHAINS},
    {UNIT_INT16, TIER_AVX512, int16_avx512, 2 * 32, FMA_CHAINS},
    {UNIT_INT16, TIER_AVX512FP16, int16_avx512fp16, 2 * 32, FMA_CHAINS},
    {UNIT_INT8, TIER_AVX2, int8_avx2, 2 * 32 * BYTE_PRODUCTS, SUM_CHAINS},
    {UNIT_INT8, TIER_AVX512, int8_avx512, 2 * 64 * BYTE_PRODUCTS, SUM_CHAINS},
    {UNIT_INT8, TIER_AVX512FP16, int8_avx512fp16, 2 * 64, FMA_CHAINS},
    {UNIT_F16, TIER_AVX512FP16, f16_avx512fp16, 2 * 32, FMA_CHAINS},
#elif defined(__aarch64__)
    {UNIT_INT16, TIER_NEON, int16_neon, 2 * 4, FMA_CHAINS},
    {UNIT_F32, TIER_NEON, f32_neon, 2 * 4, FMA_CHAINS},
#endif
};

const char *units_name(enum unit unit)
{
    static const char *const names[UNIT_COUNT] = {"f32", "int16", "int8", "f16"};
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
