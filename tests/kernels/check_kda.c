#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct shape {
    size_t n_tokens, K, V;
};

static const struct shape shapes[] = {
    {1, 1, 1},    {2, 15, 17},  {3, 16, 16},   {1, 128, 128}, {4, 128, 80}, {5, 33, 31},
    {2, 256, 33}, {1, 255, 64}, {2, 100, 256}, {0, 16, 16},   {3, 64, 48},
};
static const struct shape shapes_bench[] = {{1, 128, 128}, {64, 128, 128}};

/* The recurrence of the contract's first lines in float64, with the sum of magnitudes carried along. */
struct exact_state {
    double *S, *size; /* [K][V] */
};

static void step64(struct exact_state *state, double *o, double *o_size, const float *q, const float *k, const float *v,
                   const float *decay, double beta, size_t K, size_t V)
{
    double qk = 0.0, qk_size = 0.0;
    for (size_t i = 0; i < K; i++)
        qk += (double)q[i] * k[i], qk_size += fabs((double)q[i] * k[i]);
    for (size_t j = 0; j < V; j++) {
        double p = 0.0, p_size = 0.0, read = 0.0, read_size = 0.0;
        for (size_t i = 0; i < K; i++) {
            double decayed = state->S[i * V + j] * decay[i], size = state->size[i * V + j] * decay[i];
            p += decayed * k[i], p_size += size * fabs(k[i]);
            read += decayed * q[i], read_size += size * fabs(q[i]);
        }
        double write = beta * (v[j] - p), write_size = beta * (fabs(v[j]) + p_size);
        o[j] = read + qk * write;
        o_size[j] = read_size + qk_size * write_size;
        for (size_t i = 0; i < K; i++) {
            state->S[i * V + j] = decay[i] * state->S[i * V + j] + k[i] * write;
            state->size[i * V + j] = decay[i] * state->size[i * V + j] + fabs(k[i]) * write_size;
        }
    }
}

struct inputs {
    float *q, *k, *v, *decay, *beta, *S;
};

static void compare64(struct check *c, const struct inputs *in, const float *S_before, const float *o, const float *S,
                      const struct shape *shape, size_t stride)
{
    size_t K = shape->K, V = shape->V;
    double *all = calloc(2 * K * V + 2 * V, sizeof *all);
    CHECK(all);
    struct exact_state state = {all, all + K * V};
    double *want = all + 2 * K * V, *size = want + V;
    for (size_t i = 0; i < K; i++)
        for (size_t j = 0; j < V; j++) {
            state.S[i * V + j] = S_before[(j / 16 * K + i) * 16 + j % 16];
            state.size[i * V + j] = fabs(state.S[i * V + j]);
        }
    bool good = true;
    for (size_t t = 0; good && t < shape->n_tokens; t++) {
        size_t at = t * stride;
        double roundings = (double)(t + 1) * (double)(K + 8);
        step64(&state, want, size, in->q + at, in->k + at, in->v + at, in->decay + at, in->beta[t], K, V);
        for (size_t j = 0; good && j < V; j++)
            good = near(c, "o", at + j, reference(c, o)[at + j], want[j], roundings * EPS * size[j] + TINY);
    }
    double roundings = (double)shape->n_tokens * (double)(K + 8);
    for (size_t i = 0; good && i < K; i++)
        for (size_t j = 0; good && j < V; j++) {
            size_t at = (j / 16 * K + i) * 16 + j % 16;
            good = near(c, "S", at, reference(c, S)[at], state.S[i * V + j],
                        roundings * EPS * state.size[i * V + j] + TINY);
        }
    free(all);
}

static void fill_inputs(struct check *c, const struct inputs *in, size_t n, const struct shape *shape)
{
    size_t state_floats = (shape->V + 15) / 16 * shape->K * 16;
    float length = 1.0f / sqrtf((float)shape->K);
    for (size_t i = 0; i < n; i++) {
        in->q[i] = normal(c) * length;
        in->k[i] = normal(c) * length * 0.5f;
        in->decay[i] = rng_below(&c->rng, 16) ? (float)rng_uniform(&c->rng) : (float)rng_below(&c->rng, 2);
    }
    fill_normal(c, in->v, n, 1.0f);
    fill_uniform(c, in->beta, shape->n_tokens, 0.0f, 1.0f);
    fill_normal(c, in->S, state_floats, 0.5f);
}

void check_kda_f32(struct check *c)
{
    const struct shape *list = c->bench ? shapes_bench : shapes;
    size_t n_shapes = c->bench ? COUNT(shapes_bench) : COUNT(shapes);
    for (size_t s = 0; s < 2 * n_shapes; s++) {
        struct shape shape = list[s / 2];
        bool in_place = s & 1; /* o is v */
        if (in_place && c->bench)
            continue;
        size_t widest = shape.K > shape.V ? shape.K : shape.V, stride = widest + 5;
        size_t n = shape.n_tokens ? (shape.n_tokens - 1) * stride + widest : 0;
        size_t state_floats = (shape.V + 15) / 16 * shape.K * 16;
        begin(c, "tokens=%zu K=%zu V=%zu%s", shape.n_tokens, shape.K, shape.V, in_place ? " o=v" : "");
        struct inputs in = {floats(c, INPUT, n),
                            floats(c, INPUT, n),
                            floats(c, in_place ? UPDATED : INPUT, n),
                            floats(c, INPUT, n),
                            floats(c, INPUT, shape.n_tokens),
                            floats(c, UPDATED, state_floats)};
        float *o = in_place ? in.v : floats(c, OUTPUT, n), *u = floats(c, OUTPUT, n);
        float *S_before = floats(c, INPUT, state_floats);
        fill_inputs(c, &in, n, &shape);
        memcpy(S_before, in.S, state_floats * sizeof *S_before);
        double cells = (double)shape.n_tokens * (double)(shape.K * shape.V);
        work(c, 8.0 * (double)state_floats, 8.0 * cells);
        while (next_body(c))
            CALL(c, kda_f32)(o, u, in.S, in.q, in.k, in.v, in.decay, in.beta, shape.n_tokens, stride, shape.K, shape.V);
        if (exact(c) && !in_place && shape.n_tokens)
            compare64(c, &in, S_before, o, in.S, &shape, stride);
    }
}

/* Besides reference against bodies: replaying what kda_f32 recorded leaves the state that kda_f32 left, bit for bit. */
void check_kda_replay_f32(struct check *c)
{
    for (size_t s = 0; s < COUNT(shapes); s++) {
        struct shape shape = c->bench ? shapes_bench[s % COUNT(shapes_bench)] : shapes[s];
        size_t widest = shape.K > shape.V ? shape.K : shape.V, stride = widest + 5;
        size_t n = shape.n_tokens ? (shape.n_tokens - 1) * stride + widest : 0;
        size_t state_floats = (shape.V + 15) / 16 * shape.K * 16;
        begin(c, "tokens=%zu K=%zu V=%zu", shape.n_tokens, shape.K, shape.V);
        struct inputs in = {floats(c, INPUT, n),
                            floats(c, INPUT, n),
                            floats(c, INPUT, n),
                            floats(c, INPUT, n),
                            floats(c, INPUT, shape.n_tokens),
                            floats(c, UPDATED, state_floats)};
        float *u = floats(c, INPUT, n);
        fill_inputs(c, &in, n, &shape);
        float *stepped = calloc(state_floats + n, sizeof *stepped), *o = stepped + state_floats;
        CHECK(stepped);
        memcpy(stepped, in.S, state_floats * sizeof *stepped);
        kda_f32_ref(o, u, stepped, in.q, in.k, in.v, in.decay, in.beta, shape.n_tokens, stride, shape.K, shape.V);
        work(c, 8.0 * (double)state_floats, 3.0 * (double)shape.n_tokens * (double)(shape.K * shape.V));
        while (next_body(c))
            CALL(c, kda_replay_f32)(in.S, in.k, u, in.decay, shape.n_tokens, stride, shape.K, shape.V);
        if (exact(c)) {
            bool good = true;
            for (size_t i = 0; good && i < state_floats; i++)
                good = near(c, "S", i, reference(c, in.S)[i], stepped[i], 0.0);
        }
        free(stepped);
    }
}
