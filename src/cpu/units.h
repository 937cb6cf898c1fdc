/* What a core's arithmetic units can do at best: loops in registers, one for each unit and tier. A kernel that does
 * the same arithmetic on data cannot be faster, so that these rates, beside that of reading memory, are what measured
 * speeds are set against. */
#ifndef DAY0_CPU_UNITS_H
#define DAY0_CPU_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Arithmetic that kernels use, by what their multiply-adds work on. */
enum unit {
    UNIT_F32,   /* fma of float32 */
    UNIT_INT16, /* products of 16-bit integers, summed in 32 bits */
    UNIT_INT8,  /* products of bytes, summed exactly: VNNI, or eight to a 16-bit sum as in kernels/int8_body.h */
    UNIT_F16,   /* fma of halves */
    UNIT_COUNT,
};

/* "f32", "int16", "int8", "f16". */
const char *units_name(enum unit unit);

struct unit_loop {
    float (*run)(float seed); /* does the work; what it gives depends on all of it */
    double operations;        /* of one run, a multiply-add being two */
};

/* The loop of the strongest tier of a mask (cpu/tiers.h); `run` is NULL where no kernel of them uses the unit. */
struct unit_loop units_loop(enum unit unit, unsigned tiers);

/* Reads memory as kernels do that stream several rows; gives a sum, so that the reads are not optimized away. `data`
 * is aligned to 32 bytes. */
uint64_t units_read(const void *data, size_t bytes);

#endif
