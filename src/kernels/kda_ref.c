#include "kernels/kernels.h"
#include "kernels/sums_ref.h"

/* One token, value lane `j` of one slice: S [K][16]. */
static void step_lane(float *o, float *u, float *S, const float *q, const float *k, const float *decay, float v,
                      float beta, float qk, size_t K)
{
    float predicted = 0.0f, read = 0.0f;
    for (size_t i = 0; i < K; i++) {
        predicted = fmaf(S[i * LANES], decay[i] * k[i], predicted);
        read = fmaf(S[i * LANES], decay[i] * q[i], read);
    }
    float write = beta * (v - predicted);
    *u = write;
    *o = fmaf(qk, write, read);
    for (size_t i = 0; i < K; i++)
        S[i * LANES] = fmaf(k[i], write, decay[i] * S[i * LANES]);
}

void kda_f32_ref(float *o, float *u, float *S, const float *q, const float *k, const float *v, const float *decay,
                 const float *beta, size_t n_tokens, size_t stride, size_t K, size_t V)
{
    for (size_t t = 0; t < n_tokens; t++) {
        size_t at = t * stride;
        float qk = dot16(q + at, k + at, K);
        for (size_t j = 0; j < V; j++) {
            float *lane = S + j / LANES * LANES * K + j % LANES;
            step_lane(&o[at + j], &u[at + j], lane, q + at, k + at, decay + at, v[at + j], beta[t], qk, K);
        }
    }
}

void kda_replay_f32_ref(float *S, const float *k, const float *u, const float *decay, size_t n_tokens, size_t stride,
                        size_t K, size_t V)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t j = 0; j < V; j++)
            for (size_t i = 0; i < K; i++) {
                float *at = S + (j / LANES * K + i) * LANES + j % LANES;
                *at = fmaf(k[t * stride + i], u[t * stride + j], decay[t * stride + i] * *at);
            }
}
