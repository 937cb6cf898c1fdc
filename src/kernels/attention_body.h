/* Attention over one chunk of cache rows: scores are dots of heads with rows, the sum of values a mix of the same
 * rows. */
#include "kernels/kernels.h"

INLINE void mask_scores(float *scores, const float *mask, size_t n)
{
    for (size_t i = 0; mask && i < n; i += 16)
        v16_store_first(scores + i, v16_add(v16_load_first(scores + i, n - i), v16_load_first(mask + i, n - i)), n - i);
}

INLINE void attend(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *each,
                   const float *mask, size_t n_heads, size_t n_rows, size_t width, size_t latent,
                   const enum dtype dtype)
{
    struct rows rows = {NULL, 0, each, NULL, dtype};
    for (size_t first = 0; first < n_heads; first += PANEL_GROUP) {
        size_t n = n_heads - first < PANEL_GROUP ? n_heads - first : PANEL_GROUP;
        const float *query[PANEL_GROUP], *weight[PANEL_GROUP];
        float *score[PANEL_GROUP], *out[PANEL_GROUP];
        for (size_t h = 0; h < n; h++) {
            query[h] = q + (first + h) * width;
            weight[h] = score[h] = scores + (first + h) * n_rows;
            out[h] = acc + (first + h) * latent;
        }
        dots(score, query, &rows, n_rows, width, n, dtype);
        for (size_t h = 0; h < n; h++) {
            mask_scores(score[h], mask, n_rows);
            peak[first + h] = peak_of(score[h], n_rows);
            total[first + h] = exp_and_sum(score[h], score[h], n_rows, peak[first + h]);
        }
        mix(out, weight, &rows, n_rows, latent, n, dtype);
    }
}

void BODY(attend_f32)(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                      const float *mask, size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    attend(acc, peak, total, scores, q, rows, mask, n_heads, n_rows, width, latent, DTYPE_F32);
}

void BODY(attend_bf16)(float *acc, float *peak, float *total, float *scores, const float *q, const void *const *rows,
                       const float *mask, size_t n_heads, size_t n_rows, size_t width, size_t latent)
{
    attend(acc, peak, total, scores, q, rows, mask, n_heads, n_rows, width, latent, DTYPE_BF16);
}

void BODY(attend_merge_f32)(float *acc, float *peak, float *total, const float *acc2, const float *peak2,
                            const float *total2, size_t n_heads, size_t latent)
{
    for (size_t first = 0; first < n_heads; first += 16) {
        size_t n = n_heads - first < 16 ? n_heads - first : 16;
        float a[16], b[16];
        v16 old = v16_load_first(peak + first, n), new = v16_load_first(peak2 + first, n);
        v16 top = v16_max(new, old);
        v16 old_factor = v16_exp(v16_sub(old, top)), new_factor = v16_exp(v16_sub(new, top));
        v16 kept = v16_mul(v16_load_first(total + first, n), old_factor);
        v16_store_first(total + first, v16_fma(v16_load_first(total2 + first, n), new_factor, kept), n);
        v16_store_first(peak + first, top, n);
        v16_store(a, old_factor);
        v16_store(b, new_factor);
        for (size_t h = 0; h < n; h++) {
            float *to = acc + (first + h) * latent;
            const float *from = acc2 + (first + h) * latent;
            for (size_t c = 0; c < latent; c += 16) {
                v16 scaled = v16_mul(v16_load_first(to + c, latent - c), v16_set(a[h]));
                v16 joined = v16_fma(v16_load_first(from + c, latent - c), v16_set(b[h]), scaled);
                v16_store_first(to + c, joined, latent - c);
            }
        }
    }
}
