/* Instruction tiers: realistic bundles of extensions, each including those it builds on.
 *
 * `ref` is plain C and always there. Detection honours what the operating system saves (XCR0). */
#ifndef DAY0_CPU_TIERS_H
#define DAY0_CPU_TIERS_H

#include "base/error.h"

enum tier {
    TIER_REF,
    TIER_AVX2,       /* AVX2, FMA, F16C */
    TIER_AVX512,     /* + AVX-512 F, BW, VL, DQ */
    TIER_AVX512FP16, /* + AVX-512 VNNI, VBMI, FP16 */
    TIER_NEON,
    TIER_COUNT,
};

/* Bit (1 << tier) of every tier that this machine has. */
unsigned tiers_found(void);

/* `name` ("ref", "avx2", ...) to the mask of that tier and what it builds on; NULL gives everything found.
 * Fails if the name is unknown or the machine lacks the tier, and says which it has. */
NEEDS_CHECK enum status tiers_parse(const char *name, unsigned *tiers_out, struct error *err);

/* The strongest tier of a mask, as a name. */
const char *tiers_name(unsigned tiers);

#endif
