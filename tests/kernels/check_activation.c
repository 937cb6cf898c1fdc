#include "check.h"

/* Units of the last place that math_ref.h promises, in halves (EPS). Subnormal results count as absolute. */
static double units(double n, double value)
{
    return 2.0 * n * EPS * fabs(value) + 0x1p-149 * n;
}

/* Arguments over the whole range in which a function does something, and a little beyond. In a bench the usual ones:
 * subnormal results would time the processor's assists. */
static void fill_wide(struct check *c, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = normal(c) * (c->bench || i % 3 == 0 ? 1.0f : i % 3 == 1 ? 10.0f : 45.0f);
    if (c->specials)
        fill_normal(c, x, n, 30.0f);
}

void check_sigmoid_f32(struct check *c)
{
    for (size_t n = 0; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *x = floats(c, INPUT, n), *y = floats(c, OUTPUT, n);
        fill_wide(c, x, n);
        work(c, 8.0 * (double)n, 20.0 * (double)n);
        while (next_body(c))
            CALL(c, sigmoid_f32)(y, x, n);
        for (size_t i = 0; exact(c) && i < n; i++) {
            double want = sigmoid64(x[i]);
            /* exp(-x) passes float32 above 89, where the exact value is subnormal anyway. */
            if (!near(c, "y", i, reference(c, y)[i], want, units(4, want) + 0x1p-126))
                return;
        }
    }
}

void check_sigmoid_mul_f32(struct check *c)
{
    for (size_t n = 0; next_length(c, &n);) {
        begin(c, "n=%zu%s", n, c->bench ? "" : " y=x"); /* in a bench y would shrink from call to call */
        float *gate = floats(c, INPUT, n), *y = floats(c, UPDATED, n), *x = floats(c, INPUT, n);
        fill_wide(c, gate, n);
        fill_normal(c, y, n, 3.0f);
        for (size_t i = 0; i < n; i++)
            x[i] = y[i];
        work(c, 12.0 * (double)n, 21.0 * (double)n);
        while (next_body(c))
            CALL(c, sigmoid_mul_f32)(y, c->bench ? x : y, gate, n);
        for (size_t i = 0; exact(c) && i < n; i++) {
            double want = x[i] * sigmoid64(gate[i]);
            if (!near(c, "y", i, reference(c, y)[i], want, units(5, want) + 0x1p-120))
                return;
        }
    }
}

void check_silu_mul_f32(struct check *c)
{
    for (size_t n = 0; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *gate = floats(c, INPUT, n), *up = floats(c, INPUT, n), *y = floats(c, OUTPUT, n);
        fill_wide(c, gate, n);
        fill_normal(c, up, n, 3.0f);
        work(c, 12.0 * (double)n, 22.0 * (double)n);
        while (next_body(c))
            CALL(c, silu_mul_f32)(y, gate, up, n);
        for (size_t i = 0; exact(c) && i < n; i++) {
            double want = gate[i] * sigmoid64(gate[i]) * up[i];
            if (!near(c, "y", i, reference(c, y)[i], want, units(6, want) + 0x1p-110))
                return;
        }
    }
}

void check_situ_mul_f32(struct check *c)
{
    static const float linear_betas[] = {0.0f, 25.0f, 1.5f};
    for (size_t n = 0; next_length(c, &n);) {
        for (size_t k = 0; k < COUNT(linear_betas); k++) {
            float beta = 4.0f, linear_beta = linear_betas[k];
            begin(c, "n=%zu linear_beta=%g", n, (double)linear_beta);
            float *gate = floats(c, INPUT, n), *up = floats(c, INPUT, n), *y = floats(c, OUTPUT, n);
            fill_wide(c, gate, n);
            fill_wide(c, up, n);
            work(c, 12.0 * (double)n, 60.0 * (double)n);
            while (next_body(c))
                CALL(c, situ_mul_f32)(y, gate, up, n, beta, linear_beta);
            for (size_t i = 0; exact(c) && i < n; i++) {
                double u = linear_beta > 0.0f ? linear_beta * tanh((double)up[i] / linear_beta) : up[i];
                double want = beta * tanh((double)gate[i] / beta) * sigmoid64(gate[i]) * u;
                if (!near(c, "y", i, reference(c, y)[i], want, units(18, want) + 0x1p-110))
                    return;
            }
        }
    }
}

void check_softmax_f32(struct check *c)
{
    for (size_t n = 1; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *x = floats(c, INPUT, n), *y = floats(c, OUTPUT, n);
        fill_normal(c, x, n, 8.0f);
        work(c, 8.0 * (double)n, 20.0 * (double)n);
        while (next_body(c))
            CALL(c, softmax_f32)(y, x, n);
        if (!exact(c))
            continue;
        double peak = -INFINITY, total = 0.0;
        for (size_t i = 0; i < n; i++)
            peak = fmax(peak, x[i]);
        for (size_t i = 0; i < n; i++)
            total += exp(x[i] - peak);
        for (size_t i = 0; i < n; i++) {
            double want = exp(x[i] - peak) / total;
            /* The rounding of x - peak grows with its size; the total adds n / 16 + 4 roundings. */
            double rounding = 2.0 * fabs(x[i] - peak) + 10.0 + (double)(n / 16 + 4);
            if (!near(c, "y", i, reference(c, y)[i], want, rounding * EPS * want + 0x1p-126))
                return;
        }
    }
}

/* exp(g) of a g that is known to `relative`: what a decay's result may be off. */
static double decay_tolerance(double g, double relative)
{
    return exp(g) * (fabs(g) * relative + 4.0 * EPS) + 0x1p-126;
}

void check_decay_bounded_f32(struct check *c)
{
    const float rate = 1.7f, bound = -5.0f;
    for (size_t n = 0; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *z = floats(c, INPUT, n), *bias = floats(c, INPUT, n), *y = floats(c, OUTPUT, n);
        fill_wide(c, z, n);
        fill_normal(c, bias, n, 2.0f);
        work(c, 12.0 * (double)n, 40.0 * (double)n);
        while (next_body(c))
            CALL(c, decay_bounded_f32)(y, z, bias, n, rate, bound);
        for (size_t i = 0; exact(c) && i < n; i++) {
            double x = (double)rate * ((double)z[i] + bias[i]);
            double g = bound * sigmoid64(x);
            if (!near(c, "y", i, reference(c, y)[i], exp(g), decay_tolerance(g, (10.0 + 2.0 * fabs(x)) * EPS)))
                return;
        }
    }
}

void check_decay_softplus_f32(struct check *c)
{
    const float rate = 2.3f;
    for (size_t n = 0; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *z = floats(c, INPUT, n), *bias = floats(c, INPUT, n), *y = floats(c, OUTPUT, n);
        fill_wide(c, z, n);
        fill_normal(c, bias, n, 2.0f);
        work(c, 12.0 * (double)n, 50.0 * (double)n);
        while (next_body(c))
            CALL(c, decay_softplus_f32)(y, z, bias, n, rate);
        for (size_t i = 0; exact(c) && i < n; i++) {
            double x = (double)z[i] + bias[i];
            double g = -(rate * softplus64(x));
            if (!near(c, "y", i, reference(c, y)[i], exp(g), decay_tolerance(g, (16.0 + 2.0 * fabs(x)) * EPS)))
                return;
        }
    }
}

void check_conv_silu_f32(struct check *c)
{
    static const size_t counts[] = {1, 2, 4};
    for (size_t n = 0; next_length(c, &n);) {
        for (size_t k = 0; k < COUNT(counts); k++) {
            size_t taps = counts[k], w_stride = n + 3;
            if (c->bench && taps < 4)
                continue;
            begin(c, "n=%zu taps=%zu", n, taps);
            /* Only the first n of the last row exist. */
            float *w = floats(c, INPUT, (taps - 1) * w_stride + n), *y = floats(c, UPDATED, n);
            const float *x[4];
            fill_normal(c, w, (taps - 1) * w_stride + n, 0.5f);
            for (size_t j = 0; j < taps; j++) {
                float *row = floats(c, INPUT, n);
                fill_normal(c, row, n, 2.0f);
                x[j] = row;
            }
            float *newest = floats(c, INPUT, n); /* y is the newest input, and this its copy */
            for (size_t i = 0; i < n; i++)
                y[i] = newest[i] = x[taps - 1][i];
            x[taps - 1] = c->bench ? newest : y;
            work(c, 4.0 * (double)(n * (2 * taps + 1)), (double)n * (2.0 * (double)taps + 20.0));
            while (next_body(c))
                CALL(c, conv_silu_f32)(y, x, w, w_stride, taps, n);
            x[taps - 1] = newest;
            for (size_t i = 0; exact(c) && i < n; i++) {
                double sum = 0.0, magnitude = 0.0;
                for (size_t j = 0; j < taps; j++) {
                    double term = (double)w[j * w_stride + i] * x[j][i];
                    sum += term, magnitude += fabs(term);
                }
                double want = sum * sigmoid64(sum);
                /* silu is steep by at most 1.1. */
                if (!near(c, "y", i, reference(c, y)[i], want, 1.1 * 4.0 * EPS * magnitude + units(6, want) + 0x1p-110))
                    return;
            }
        }
    }
}
