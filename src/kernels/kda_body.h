/* Kimi Delta Attention: the recurrence over slices of 16 value lanes. */
#include "kernels/kernels.h"

enum { KDA_KEYS_MAX = 256 };

/* All tokens on `slices` neighbouring slices, which stay in the L1 cache meanwhile: 4 slices of 128 keys are 32 KiB.
 * The contract makes p and o' one chain a slice each; several slices side by side keep the fma units busy. `lanes`
 * of each slice are in use. */
INLINE void kda_slices(float *o, float *u, float *S, const float *q, const float *k, const float *v, const float *decay,
                       const float *beta, size_t n_tokens, size_t stride, size_t K, size_t lanes, const int slices)
{
    _Alignas(64) float decayed_k[KDA_KEYS_MAX], decayed_q[KDA_KEYS_MAX];
    for (size_t t = 0; t < n_tokens; t++) {
        size_t at = t * stride;
        for (size_t i = 0; i < K; i += 16) {
            v16 d = v16_load_first(decay + at + i, K - i);
            v16_store(decayed_k + i, v16_mul(d, v16_load_first(k + at + i, K - i)));
            v16_store(decayed_q + i, v16_mul(d, v16_load_first(q + at + i, K - i)));
        }
        v16 qk = v16_set(dot16(q + at, k + at, K));
        v16 predicted[KDA_SLICES], read[KDA_SLICES], write[KDA_SLICES];
        UNROLL for (int s = 0; s < slices; s++)
            predicted[s] = read[s] = v16_zero();
        for (size_t i = 0; i < K; i++) {
            v16 dk = v16_set(decayed_k[i]), dq = v16_set(decayed_q[i]);
            UNROLL for (int s = 0; s < slices; s++) {
                v16 state = v16_load(S + ((size_t)s * K + i) * 16);
                predicted[s] = v16_fma(state, dk, predicted[s]);
                read[s] = v16_fma(state, dq, read[s]);
            }
        }
        UNROLL for (int s = 0; s < slices; s++) {
            v16 value = v16_load_first(v + at + 16 * s, lanes);
            write[s] = v16_mul(v16_set(beta[t]), v16_sub(value, predicted[s]));
            v16_store_first(u + at + 16 * s, write[s], lanes);
            v16_store_first(o + at + 16 * s, v16_fma(qk, write[s], read[s]), lanes);
        }
        for (size_t i = 0; i < K; i++) {
            v16 key = v16_set(k[at + i]), d = v16_set(decay[at + i]);
            UNROLL for (int s = 0; s < slices; s++) {
                float *state = S + ((size_t)s * K + i) * 16;
                v16_store_first(state, v16_fma(key, write[s], v16_mul(d, v16_load(state))), lanes);
            }
        }
    }
}

void BODY(kda_f32)(float *o, float *u, float *S, const float *q, const float *k, const float *v, const float *decay,
                   const float *beta, size_t n_tokens, size_t stride, size_t K, size_t V)
{
    size_t j = 0;
    for (; j + 16 * KDA_SLICES <= V; j += 16 * KDA_SLICES)
        kda_slices(o + j, u + j, S + j * K, q, k, v + j, decay, beta, n_tokens, stride, K, 16, KDA_SLICES);
    for (; j < V; j += 16)
        kda_slices(o + j, u + j, S + j * K, q, k, v + j, decay, beta, n_tokens, stride, K, V - j, 1);
}

void BODY(kda_replay_f32)(float *S, const float *k, const float *u, const float *decay, size_t n_tokens, size_t stride,
                          size_t K, size_t V)
{
    for (size_t j = 0; j < V; j += 16)
        for (size_t t = 0; t < n_tokens; t++) {
            size_t at = t * stride;
            v16 write = v16_load_first(u + at + j, V - j);
            for (size_t i = 0; i < K; i++) {
                float *state = S + (j / 16 * K + i) * 16;
                v16 decayed = v16_mul(v16_set(decay[at + i]), v16_load(state));
                v16_store_first(state, v16_fma(v16_set(k[at + i]), write, decayed), V - j);
            }
        }
}
