#include "decode/sampler.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/file.h"

enum { GENERATION_CONFIG_BYTES_MAX = 1 << 20 };

struct candidate {
    float weight; /* exp((logit - best) / temperature) */
    int32_t token;
};

enum status sampler_init(struct sampler *sampler, uint32_t vocabulary, struct error *err)
{
    *sampler = (struct sampler){.vocabulary = vocabulary};
    return memory_take(&sampler->candidates, vocabulary, sizeof *sampler->candidates, "sampling", err);
}

enum status sampler_set(struct sampler *sampler, const struct sampling *sampling, struct error *err)
{
    if (!(sampling->temperature >= 0.0f && sampling->temperature <= 100.0f))
        return error_set(err, STATUS_ARGUMENT, "the temperature must lie in 0 to 100, not %g",
                         (double)sampling->temperature);
    if (!(sampling->top_p > 0.0f && sampling->top_p <= 1.0f))
        return error_set(err, STATUS_ARGUMENT, "top-p must lie above 0 and up to 1, not %g", (double)sampling->top_p);
    if (!(sampling->min_p >= 0.0f && sampling->min_p <= 1.0f))
        return error_set(err, STATUS_ARGUMENT, "min-p must lie in 0 to 1, not %g", (double)sampling->min_p);
    sampler->sampling = *sampling;
    sampler->rng.state = sampling->seed;
    return STATUS_OK;
}

void sampler_fini(struct sampler *sampler)
{
    free(sampler->candidates);
    sampler->candidates = NULL;
}

static int32_t best_token(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
            best = i;
    return (int32_t)best; /* all NaN: 0 */
}

static bool more_probable(const struct candidate *a, const struct candidate *b)
{
    return a->weight != b->weight ? a->weight > b->weight : a->token < b->token;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* Moves the candidate at `at` down to its place in a heap whose root is the most probable. */
static void sift_down(struct candidate *heap, size_t n, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && more_probable(&heap[child + 1], &heap[child]);
        if (!more_probable(&heap[child], &heap[at]))
            return;
        swap(&heap[child], &heap[at]);
    }
}

/* Brings the k most probable to the front, best first. By heap: qsort would allocate. */
static void sort_best(struct candidate *candidates, size_t n, size_t k)
{
    for (size_t at = n / 2; at-- > 0;)
        sift_down(candidates, n, at);
    for (size_t i = 0; i < k; i++) {
        swap(&candidates[0], &candidates[n - 1 - i]);
        sift_down(candidates, n - 1 - i, 0);
    }
    for (size_t i = 0; i < n / 2; i++)
        swap(&candidates[i], &candidates[n - 1 - i]);
}

static double total_weight(const struct candidate *candidates, size_t n)
{
    double total = 0.0;
    for (size_t i = 0; i < n; i++)
        total += candidates[i].weight;
    return total;
}

/* All tokens that could be drawn, with their weights; as far as a cut needs them, the best come first. *total is the
 * weight of all. */
static size_t gather(struct sampler *sampler, const float *logits, float best, double *total)
{
    const struct sampling *s = &sampler->sampling;
    size_t n = 0;
    for (uint32_t i = 0; i < sampler->vocabulary; i++) {
        float weight = logits[i] == best ? 1.0f : expf((logits[i] - best) / s->temperature);
        if (weight > 0.0f)
            sampler->candidates[n++] = (struct candidate){weight, (int32_t)i};
    }
    *total = total_weight(sampler->candidates, n);
    if (s->top_k == 0 && s->top_p < 1.0f) {
        /* Tokens this light cannot make up what top-p leaves out, even all together: spare them the sorting. */
        double light = (1.0 - (double)s->top_p) * *total / (double)n;
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (sampler->candidates[i].weight >= light)
                sampler->candidates[kept++] = sampler->candidates[i];
        n = kept;
    }
    if (s->top_k > 0 || s->top_p < 1.0f)
        sort_best(sampler->candidates, n, s->top_k > 0 && s->top_k < n ? s->top_k : n);
    return n;
}

int32_t sampler_pick(struct sampler *sampler, const float *logits)
{
    const struct sampling *s = &sampler->sampling;
    int32_t best = best_token(logits, sampler->vocabulary);
    if (s->temperature == 0.0f || !isfinite(logits[best]))
        return best;
    struct candidate *candidates = sampler->candidates;
    double total;
    size_t n = gather(sampler, logits, logits[best], &total);
    if (s->top_k > 0) {
        n = n < s->top_k ? n : s->top_k;
        total = total_weight(candidates, n);
    }
    if (s->top_p < 1.0f) {
        double reached = 0.0;
        size_t kept = 0;
        while (kept < n && reached < (double)s->top_p * total)
            reached += candidates[kept++].weight;
        n = kept;
    }
    if (s->min_p > 0.0f) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (candidates[i].weight >= s->min_p) /* the best has weight 1 */
                candidates[kept++] = candidates[i];
        n = kept;
    }
    double left = rng_uniform(&sampler->rng) * total_weight(candidates, n);
    for (size_t i = 0; i < n; i++)
        if ((left -= candidates[i].weight) < 0.0)
            return candidates[i].token;
    return candidates[n - 1].token;
}

double sampler_log_total(const float *logits, uint32_t n)
{
    double best = (double)logits[best_token(logits, n)], total = 0.0;
    for (uint32_t i = 0; i < n; i++)
        total += exp((double)logits[i] - best);
    return best + log(total);
}

void sampler_top(const float *logits, uint32_t n, int32_t *top, uint32_t n_top)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = kept;
        while (place > 0 && logits[i] > logits[top[place - 1]])
            place--;
        if (place == n_top)
            continue;
        kept += kept < n_top;
        for (uint32_t j = kept - 1; j > place; j--)
            top[j] = top[j - 1];
        top[place] = (int32_t)i;
    }
}

static enum status number_of(const json_t *root, const char *key, double *out, const char *path, struct error *err)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value))
        return STATUS_OK;
    if (!json_is_number(value))
        return error_set(err, STATUS_FORMAT, "%s: %s must be a number", path, key);
    *out = json_number_value(value);
    return STATUS_OK;
}

enum status sampling_load(struct sampling *sampling, const char *directory, struct error *err)
{
    char path[PATH_BYTES_MAX], *text;
    size_t bytes;
    *sampling = (struct sampling){.temperature = 1.0f, .top_p = 1.0f};
    TRY(file_join(path, directory, "generation_config.json", err));
    if (!file_exists(path))
        return STATUS_OK;
    TRY(file_read(path, GENERATION_CONFIG_BYTES_MAX, &text, &bytes, err));
    json_error_t where;
    json_t *root = json_loadb(text, bytes, 0, &where);
    free(text);
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(err, STATUS_FORMAT, "%s: a JSON object was wanted; %s", path,
                         root ? "found another" : where.text);
    }
    double temperature = 1.0, top_p = 1.0, top_k = 0.0;
    enum status status = number_of(root, "temperature", &temperature, path, err);
    if (status == STATUS_OK)
        status = number_of(root, "top_p", &top_p, path, err);
    if (status == STATUS_OK)
        status = number_of(root, "top_k", &top_k, path, err);
    json_decref(root);
    if (status == STATUS_OK && !(top_k >= 0.0 && top_k <= INT32_MAX))
        status = error_set(err, STATUS_FORMAT, "%s: top_k must be a count, not %g", path, top_k);
    sampling->temperature = (float)temperature;
    sampling->top_p = (float)top_p;
    sampling->top_k = (uint32_t)top_k;
    return status;
}
