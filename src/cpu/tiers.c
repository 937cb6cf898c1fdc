#include "cpu/tiers.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct {
    const char *name;
    unsigned includes;
} tier_table[TIER_COUNT] = {
    [TIER_REF] = {"ref", 1u << TIER_REF},
    [TIER_AVX2] = {"avx2", 1u << TIER_REF | 1u << TIER_AVX2},
    [TIER_AVX512] = {"avx512", 1u << TIER_REF | 1u << TIER_AVX2 | 1u << TIER_AVX512},
    [TIER_AVX512FP16] = {"avx512fp16", 1u << TIER_REF | 1u << TIER_AVX2 | 1u << TIER_AVX512 | 1u << TIER_AVX512FP16},
    [TIER_NEON] = {"neon", 1u << TIER_REF | 1u << TIER_NEON},
};

#if defined(__x86_64__)
/* clang 14 does not know the name "f16c". That the system saves the registers is known from AVX2. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

/* clang 14 does not know "avx512fp16" either. Registers are those of AVX-512. */
static bool has_avx512fp16(void)
{
    enum { VBMI = 1 << 1, VNNI = 1 << 11, FP16 = 1 << 23 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & VBMI && c & VNNI && d & FP16;
}
#endif

unsigned tiers_found(void)
{
    unsigned found = 1u << TIER_REF;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        found |= 1u << TIER_AVX2;
    if (found & 1u << TIER_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        found |= 1u << TIER_AVX512;
    if (found & 1u << TIER_AVX512 && has_avx512fp16())
        found |= 1u << TIER_AVX512FP16;
#elif defined(__aarch64__)
    found |= 1u << TIER_NEON;
#endif
    return found;
}

enum status tiers_parse(const char *name, unsigned *tiers_out, struct error *err)
{
    unsigned found = tiers_found();
    char have[64] = "";
    for (unsigned tier = 0; tier < TIER_COUNT; tier++) {
        if (!(found & 1u << tier))
            continue;
        snprintf(have + strlen(have), sizeof have - strlen(have), " %s", tier_table[tier].name);
        if (name && strcmp(name, tier_table[tier].name) == 0)
            return *tiers_out = tier_table[tier].includes, STATUS_OK;
    }
    if (name)
        return error_set(err, STATUS_ARGUMENT, "no instruction tier '%s' on this machine; it has:%s", name, have);
    *tiers_out = found;
    return STATUS_OK;
}

const char *tiers_name(unsigned tiers)
{
    unsigned best = TIER_REF;
    for (unsigned tier = 0; tier < TIER_COUNT; tier++)
        if (tiers & 1u << tier)
            best = tier;
    return tier_table[best].name;
}
