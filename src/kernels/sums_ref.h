/* The canonical order of sums: 16 lanes, then halves onto halves (see all.def). */
#ifndef DAY0_KERNELS_SUMS_REF_H
#define DAY0_KERNELS_SUMS_REF_H

#include <math.h>
#include <stddef.h>

enum { LANES = 16 };

static inline float sum_lanes(float *lanes)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

static inline float dot16(const float *x, const float *w, size_t n)
{
    float lanes[LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % LANES] = fmaf(x[i], w[i], lanes[i % LANES]);
    return sum_lanes(lanes);
}

static inline float sum16(const float *x, size_t n)
{
    float lanes[LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % LANES] += x[i];
    return sum_lanes(lanes);
}

#endif
