#include "check.h"

/* A dot product's rounding: every fma and every halving once. */
static double dot_tolerance(size_t n, double magnitude)
{
    return (double)(n / 16 + 8) * EPS * magnitude + TINY;
}

void check_rms_norm_f32(struct check *c)
{
    for (size_t n = 1; next_length(c, &n);) {
        for (int alias = 0; alias < (c->bench ? 1 : 2); alias++) {
            begin(c, "n=%zu%s", n, alias ? " y=x" : "");
            float *x = floats(c, alias ? UPDATED : INPUT, n), *w = floats(c, INPUT, n);
            float *y = alias ? x : floats(c, OUTPUT, n);
            fill_normal(c, x, n, 3.0f);
            fill_normal(c, w, n, 1.0f);
            work(c, 12.0 * (double)n, 4.0 * (double)n);
            while (next_body(c))
                CALL(c, rms_norm_f32)(y, x, w, n, 1e-5f);
            if (!exact(c) || alias)
                continue;
            double squares = 0.0;
            for (size_t i = 0; i < n; i++)
                squares += (double)x[i] * x[i];
            double r = 1.0 / sqrt(squares / (double)n + (double)1e-5f);
            for (size_t i = 0; i < n; i++) {
                double want = x[i] * r * w[i];
                if (!near(c, "y", i, reference(c, y)[i], want, dot_tolerance(n, fabs(want))))
                    return;
            }
        }
    }
}

void check_layer_norm_f32(struct check *c)
{
    for (size_t n = 1; next_length(c, &n);) {
        for (int alias = 0; alias < (c->bench ? 1 : 2); alias++) {
            begin(c, "n=%zu%s", n, alias ? " y=x" : "");
            float *x = floats(c, alias ? UPDATED : INPUT, n), *w = floats(c, INPUT, n), *b = floats(c, INPUT, n);
            float *y = alias ? x : floats(c, OUTPUT, n);
            fill_normal(c, x, n, 3.0f);
            fill_normal(c, w, n, 1.0f);
            fill_normal(c, b, n, 1.0f);
            work(c, 16.0 * (double)n, 7.0 * (double)n);
            while (next_body(c))
                CALL(c, layer_norm_f32)(y, x, w, b, n, 1e-5f);
            if (!exact(c) || alias)
                continue;
            double sum = 0.0, magnitude = 0.0, squares = 0.0;
            for (size_t i = 0; i < n; i++)
                sum += x[i], magnitude += fabs(x[i]);
            double mean = sum / (double)n;
            for (size_t i = 0; i < n; i++)
                squares += (x[i] - mean) * (x[i] - mean);
            double r = 1.0 / sqrt(squares / (double)n + (double)1e-5f);
            for (size_t i = 0; i < n; i++) {
                double want = (x[i] - mean) * r * w[i] + b[i];
                /* The mean's error shifts every d; r shares the error of the sum of squares. */
                double terms = (fabs(x[i]) + magnitude / (double)n) * r * fabs(w[i]) * (1.0 + fabs(x[i] - mean) * r);
                if (!near(c, "y", i, reference(c, y)[i], want, dot_tolerance(n, terms + fabs(b[i]))))
                    return;
            }
        }
    }
}

void check_l2_norm_f32(struct check *c)
{
    for (size_t n = 1; next_length(c, &n);) {
        for (int alias = 0; alias < (c->bench ? 1 : 2); alias++) {
            begin(c, "n=%zu%s", n, alias ? " y=x" : "");
            float *x = floats(c, alias ? UPDATED : INPUT, n), *y = alias ? x : floats(c, OUTPUT, n);
            fill_normal(c, x, n, 3.0f);
            work(c, 8.0 * (double)n, 4.0 * (double)n);
            while (next_body(c))
                CALL(c, l2_norm_f32)(y, x, n, 1e-6f, 0.0883883461f);
            if (!exact(c) || alias)
                continue;
            double squares = 0.0;
            for (size_t i = 0; i < n; i++)
                squares += (double)x[i] * x[i];
            double r = 1.0 / sqrt(squares + (double)1e-6f);
            for (size_t i = 0; i < n; i++) {
                double want = x[i] * r * (double)0.0883883461f;
                if (!near(c, "y", i, reference(c, y)[i], want, dot_tolerance(n, fabs(want))))
                    return;
            }
        }
    }
}

void check_dot_f32(struct check *c)
{
    for (size_t n = 0; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *x = floats(c, INPUT, n), *y = floats(c, INPUT, n), *result = floats(c, OUTPUT, 1);
        fill_normal(c, x, n, 1.0f);
        fill_normal(c, y, n, 1.0f);
        work(c, 8.0 * (double)n, 2.0 * (double)n);
        while (next_body(c))
            *result = CALL(c, dot_f32)(x, y, n);
        if (!exact(c))
            continue;
        double want = 0.0, magnitude = 0.0;
        for (size_t i = 0; i < n; i++)
            want += (double)x[i] * y[i], magnitude += fabs((double)x[i] * y[i]);
        if (!near(c, "dot", 0, *reference(c, result), want, dot_tolerance(n, magnitude)))
            return;
    }
}

void check_add_f32(struct check *c)
{
    for (size_t n = 0; next_length(c, &n);) {
        begin(c, "n=%zu", n);
        float *y = floats(c, UPDATED, n), *x = floats(c, INPUT, n);
        fill_normal(c, x, n, 1.0f);
        fill_normal(c, y, n, 1.0f);
        float *before = floats(c, INPUT, n);
        for (size_t i = 0; i < n; i++)
            before[i] = y[i];
        work(c, 12.0 * (double)n, (double)n);
        while (next_body(c))
            CALL(c, add_f32)(y, x, n);
        for (size_t i = 0; exact(c) && i < n; i++) {
            double want = (double)before[i] + x[i];
            if (!near(c, "y", i, reference(c, y)[i], want, EPS * fabs(want) + TINY))
                return;
        }
    }
}

void check_weighted_sum_f32(struct check *c)
{
    static const size_t counts[] = {1, 2, 3, 9};
    for (size_t n = 0; next_length(c, &n);) {
        for (size_t k = 0; k < COUNT(counts); k++) {
            size_t n_rows = counts[k];
            if (c->bench && n_rows < 9)
                continue;
            begin(c, "n=%zu rows=%zu", n, n_rows);
            const float *rows[9];
            float *weights = floats(c, INPUT, n_rows), *y = floats(c, OUTPUT, n);
            fill_normal(c, weights, n_rows, 1.0f);
            for (size_t r = 0; r < n_rows; r++) {
                float *row = floats(c, INPUT, n);
                fill_normal(c, row, n, 1.0f);
                rows[r] = row;
            }
            work(c, 4.0 * (double)(n * (n_rows + 1)), 2.0 * (double)(n * n_rows));
            while (next_body(c))
                CALL(c, weighted_sum_f32)(y, rows, weights, n_rows, n);
            for (size_t i = 0; exact(c) && i < n; i++) {
                double want = 0.0, magnitude = 0.0;
                for (size_t r = 0; r < n_rows; r++)
                    want += (double)weights[r] * rows[r][i], magnitude += fabs((double)weights[r] * rows[r][i]);
                if (!near(c, "y", i, reference(c, y)[i], want, (double)n_rows * EPS * magnitude + TINY))
                    return;
            }
        }
    }
}
