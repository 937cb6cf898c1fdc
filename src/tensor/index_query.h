/* One token's index queries in fixed point, for bounds of scores (kernels/index.def, where the numbers are defined).
 *
 * A record is flat memory: this struct, then weights [H] float, then codes [H][D rounded up to even] int16. */
#ifndef DAY0_TENSOR_INDEX_QUERY_H
#define DAY0_TENSOR_INDEX_QUERY_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { INDEX_DIMENSIONS_MAX = 256 };

/* |exact - approximate score| <= unit(key) * width + least. */
struct index_query {
    float width; /* infinite: no bound is known, and the record must not be used */
    float least;
};

static inline size_t index_query_columns(size_t D)
{
    return (D + 1) / 2 * 2;
}

static inline size_t index_query_bytes(size_t H, size_t D)
{
    return sizeof(struct index_query) + H * (sizeof(float) + index_query_columns(D) * sizeof(int16_t));
}

static inline float *index_query_weights(const void *query)
{
    return (float *)(void *)((struct index_query *)query + 1);
}

static inline int16_t *index_query_codes(const void *query, size_t H)
{
    return (int16_t *)(void *)(index_query_weights(query) + H);
}

/* The last step of index_query_s16: from the sums of P(wq) and P(ws), m / 8192, the sum of |w| and the largest
 * ratio. */
static inline void index_query_finish(void *out, float loose, float rest_loose, float magnitudes, float total,
                                      float ratio, size_t H, size_t D)
{
    struct index_query *query = out;
    float m = 8192.0f * magnitudes, roundings = (float)(D + 3 * H + 16) * 0x1p-24f;
    float sum = 0.5f * loose + 8192.0f * rest_loose + roundings * m;
    query->width = 1.001f * sum + 0x1p-100f;
    query->least = 0x1p-140f * (1.0f + total);
    if (ratio <= 0x1p20f && m < 0x1p50f && total < 0x1p100f)
        return;
    memset(out, 0, index_query_bytes(H, D));
    query->width = INFINITY;
}

#endif
