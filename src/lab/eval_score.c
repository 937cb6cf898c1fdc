#include "lab/eval_score.h"

#include <math.h>

struct scoring {
    struct score_row *scores;
    const float *logits;
    const int32_t *targets;
    size_t n_rows, vocabulary;
    const float *reference;
    const struct score_row *reference_scores;
    unsigned n_workers;
};

/* Row by row as p (d + exp(-d) - 1) with d = log p - log q: the added terms sum to zero over the
 * vocabulary, none is negative, and the sum does not cancel where the distributions are close. */
static double divergence(const float *reference, double reference_log_sum, const float *logits, double log_sum,
                         size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double log_p = reference[i] - reference_log_sum, log_q = logits[i] - log_sum, d = log_p - log_q, p = exp(log_p);
        sum += fabs(d) <= 1 ? p * (d + expm1(-d)) : p * d + (exp(log_q) - p);
    }
    return sum;
}

static void score_row(const struct scoring *s, size_t row)
{
    const float *x = s->logits + row * s->vocabulary;
    struct score_row *out = &s->scores[row];
    uint32_t best = 0;
    for (size_t i = 1; i < s->vocabulary; i++)
        best = x[i] > x[best] ? (uint32_t)i : best;
    double sum = 0;
    for (size_t i = 0; i < s->vocabulary; i++)
        sum += exp((double)x[i] - x[best]);
    out->best = best;
    out->log_sum = x[best] + log(sum);
    out->nll = out->log_sum - x[s->targets[row]];
    out->kl = s->reference ? divergence(s->reference + row * s->vocabulary, s->reference_scores[row].log_sum, x,
                                        out->log_sum, s->vocabulary)
                           : 0;
}

static void work(void *context, unsigned worker)
{
    const struct scoring *s = context;
    for (size_t row = worker; row < s->n_rows; row += s->n_workers)
        score_row(s, row);
}

void eval_score_rows(struct team *team, struct score_row *scores, const float *logits, const int32_t *targets,
                     size_t n_rows, size_t vocabulary, const float *reference, const struct score_row *reference_scores)
{
    struct scoring s = {scores, logits, targets, n_rows, vocabulary, reference, reference_scores, team_size(team)};
    team_run(team, work, &s);
}

uint32_t eval_score_shared(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
    uint32_t shared = 0;
    for (uint32_t i = 0, j = 0; i < n_a && j < n_b;) {
        shared += a[i] == b[j];
        uint32_t x = a[i], y = b[j];
        i += x <= y;
        j += y <= x;
    }
    return shared;
}
