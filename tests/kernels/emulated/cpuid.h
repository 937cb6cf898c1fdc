/* A processor with every feature, in place of the compiler's <cpuid.h>: what cpu/tiers.c finds in make check-emulated,
 * whose bodies need none of them. */
#ifndef DAY0_TESTS_KERNELS_EMULATED_CPUID_H
#define DAY0_TESTS_KERNELS_EMULATED_CPUID_H

#define bit_F16C (1u << 29)
#define __builtin_cpu_supports(feature) 1

static inline int __get_cpuid_count(unsigned leaf, unsigned part, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
    (void)leaf, (void)part;
    *a = *b = *c = *d = ~0u;
    return 1;
}

static inline int __get_cpuid(unsigned leaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
    return __get_cpuid_count(leaf, 0, a, b, c, d);
}

#endif
