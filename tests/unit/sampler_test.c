/* Sampling: which tokens may be drawn, against a naive computation; how often, by chi-square; and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "decode/sampler.h"

enum { TOKENS_MAX = 64, DRAWS = 10000 };

static struct error err;

static const struct sampling plain = {.temperature = 1.0f, .top_p = 1.0f};

static struct sampler open_sampler(const struct sampling *sampling, uint32_t vocabulary)
{
    struct sampler sampler;
    if (sampler_init(&sampler, vocabulary, &err) != STATUS_OK || sampler_set(&sampler, sampling, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return sampler;
}

/* The definition: probabilities of all tokens, by one cut after the other. */
static void naive(double *p, const struct sampling *s, const float *logits, uint32_t n)
{
    uint32_t order[TOKENS_MAX], kept = n;
    double total = 0, peak = -INFINITY, reached = 0;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        peak = isnan(logits[i]) ? peak : fmax(peak, logits[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        p[i] = isnan(logits[i]) ? 0 : exp((logits[i] - peak) / s->temperature);
        for (uint32_t k = i; k > 0 && p[order[k]] > p[order[k - 1]]; k--) {
            uint32_t swapped = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swapped;
        }
    }
    if (s->top_k > 0 && s->top_k < n)
        kept = s->top_k;
    for (uint32_t i = 0; i < kept; i++)
        total += p[order[i]];
    if (s->top_p < 1.0f) {
        uint32_t k = 0;
        while (k < kept && reached < s->top_p * total)
            reached += p[order[k++]];
        kept = k;
    }
    for (uint32_t i = 0; i < n; i++)
        if (i >= kept || p[order[i]] < s->min_p * p[order[0]])
            p[order[i]] = 0;
    total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += p[i];
    for (uint32_t i = 0; i < n; i++)
        p[i] /= total;
}

/* Draws and compares with the naive probabilities: nothing else comes, and what comes, comes as often as it should. The
 * bound is 6 standard deviations above the mean of the chi-square distribution; the seed is fixed. */
static void check_distribution(const struct sampling *sampling, const float *logits, uint32_t n)
{
    double p[TOKENS_MAX], statistic = 0;
    uint32_t counts[TOKENS_MAX] = {0}, freedom = 0;
    struct sampler sampler = open_sampler(sampling, n);
    naive(p, sampling, logits, n);
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = sampler_pick(&sampler, logits);
        assert_true(token >= 0 && (uint32_t)token < n);
        counts[token]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (p[i] == 0)
            assert_int_equal(counts[i], 0);
        else if (p[i] * DRAWS >= 5) {
            statistic += (counts[i] - p[i] * DRAWS) * (counts[i] - p[i] * DRAWS) / (p[i] * DRAWS);
            freedom++;
        }
    }
    if (statistic > freedom + 6 * sqrt(2.0 * freedom))
        fail_msg("temperature %g, top-k %u, top-p %g, min-p %g: chi-square %g with %u cells",
                 (double)sampling->temperature, sampling->top_k, (double)sampling->top_p, (double)sampling->min_p,
                 statistic, freedom);
    sampler_fini(&sampler);
    sampler_fini(&sampler);
}

static void cuts_and_frequencies(void **state)
{
    (void)state;
    static const float temperatures[] = {0.3f, 1.0f, 2.5f}, top_ps[] = {1.0f, 0.9f, 0.5f, 0.05f},
                       min_ps[] = {0, 0.1f, 1};
    static const uint32_t top_ks[] = {0, 1, 3, 1000};
    struct rng rng = {77};
    float logits[TOKENS_MAX];
    for (int i = 0; i < 3 * 4 * 3 * 4; i++) {
        struct sampling s = {.temperature = temperatures[i % 3],
                             .top_p = top_ps[i / 3 % 4],
                             .min_p = min_ps[i / 12 % 3],
                             .top_k = top_ks[i / 36],
                             .seed = (uint64_t)i};
        uint32_t n = (uint32_t)rng_below(&rng, TOKENS_MAX) + 1;
        for (uint32_t t = 0; t < n; t++)
            logits[t] = (float)(rng_uniform(&rng) * 6 - 3 + (i % 5 == 0 ? 1e4 : 0));
        check_distribution(&s, logits, n);
    }
}

/* Ties at the border of a cut go to the lowest ids. */
static void ties_go_to_the_lowest(void **state)
{
    (void)state;
    float logits[10] = {1, 2, 2, 2, 0, 2, 1, 2, 2, 1};
    struct sampling s = plain;
    s.top_k = 3;
    struct sampler sampler = open_sampler(&s, 10);
    for (int i = 0; i < 200; i++) {
        int32_t token = sampler_pick(&sampler, logits);
        assert_true(token >= 1 && token <= 3);
    }
    sampler_fini(&sampler);
    for (int t = 0; t < 10; t++)
        logits[t] = 5;
    s = plain;
    s.top_p = 0.35f; /* four of ten */
    sampler = open_sampler(&s, 10);
    for (int i = 0; i < 200; i++)
        assert_true(sampler_pick(&sampler, logits) < 4);
    sampler_fini(&sampler);
}

static void greedy(void **state)
{
    (void)state;
    struct sampling s = plain;
    s.temperature = 0;
    s.top_p = 0.5f;
    struct sampler sampler = open_sampler(&s, 6);
    assert_int_equal(sampler_pick(&sampler, (float[]){1, 7, 3, 7, 7, 2}), 1);
    assert_int_equal(sampler_pick(&sampler, (float[]){4, 4, 4, 4, 4, 4}), 0);
    assert_int_equal(sampler_pick(&sampler, (float[]){-9, -8, -7, -8, -9, -7}), 2);
    assert_int_equal(sampler_pick(&sampler, (float[]){-0.0f, 0.0f, -1, 0, 0, 0}), 0);
    sampler_fini(&sampler);
}

/* Logits that are no numbers are not chosen; infinities are taken as they stand. */
static void not_numbers(void **state)
{
    (void)state;
    static const float cases[][4] = {{NAN, 1, NAN, 0},
                                     {INFINITY, 1, 2, 3},
                                     {1, INFINITY, INFINITY, NAN},
                                     {NAN, NAN, NAN, NAN},
                                     {-INFINITY, -INFINITY, 3, -INFINITY},
                                     {NAN, -INFINITY, NAN, -INFINITY},
                                     {3e38f, -3e38f, -3e38f, NAN}};
    static const int32_t best[] = {1, 0, 1, 0, 2, 1, 0};
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 8; k++) {
            struct sampling s = {.temperature = k & 1 ? 0.01f : 0, .top_p = k & 2 ? 0.9f : 1, .top_k = k & 4 ? 2 : 0};
            struct sampler sampler = open_sampler(&s, 4);
            for (int draw = 0; draw < 20; draw++)
                assert_int_equal(sampler_pick(&sampler, cases[i]), best[i]);
            sampler_fini(&sampler);
        }
    struct sampler sampler = open_sampler(&plain, 4);
    for (int draw = 0; draw < 200; draw++) {
        int32_t token = sampler_pick(&sampler, (float[]){NAN, 0, -INFINITY, 0});
        assert_true(token == 1 || token == 3);
    }
    sampler_fini(&sampler);
}

static void seeds_repeat(void **state)
{
    (void)state;
    float logits[TOKENS_MAX];
    struct sampling s = plain;
    int differ = 0;
    for (int t = 0; t < TOKENS_MAX; t++)
        logits[t] = (float)(t % 7);
    for (uint64_t seed = 0; seed < 20; seed++) {
        s.seed = seed;
        struct sampler a = open_sampler(&s, TOKENS_MAX), b = open_sampler(&s, TOKENS_MAX);
        s.seed = seed + 1;
        struct sampler c = open_sampler(&s, TOKENS_MAX);
        for (int i = 0; i < 50; i++) {
            int32_t token = sampler_pick(&a, logits);
            assert_int_equal(token, sampler_pick(&b, logits));
            differ += token != sampler_pick(&c, logits);
        }
        sampler_fini(&a);
        sampler_fini(&b);
        sampler_fini(&c);
    }
    assert_true(differ > 500);
}

static void bad_parameters_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct sampling sampling;
        const char *word;
    } bad[] = {
        {{.temperature = -0.1f, .top_p = 1}, "temperature"},
        {{.temperature = NAN, .top_p = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1}, "temperature"},
        {{.temperature = 1, .top_p = 0}, "top-p"},
        {{.temperature = 1, .top_p = 1.1f}, "top-p"},
        {{.temperature = 1, .top_p = NAN}, "top-p"},
        {{.temperature = 1, .top_p = 1, .min_p = -0.1f}, "min-p"},
        {{.temperature = 1, .top_p = 1, .min_p = 1.5f}, "min-p"},
        {{.temperature = 1, .top_p = 1, .min_p = NAN}, "min-p"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sampler sampler = open_sampler(&plain, 10);
        assert_int_equal(sampler_set(&sampler, &bad[i].sampling, &err), STATUS_ARGUMENT);
        assert_true(sampler.sampling.temperature == plain.temperature); /* nothing changed */
        assert_non_null(strstr(err.text, bad[i].word));
        sampler_fini(&sampler);
    }
}

/* ---- generation_config.json ---- */

static enum status load(struct sampling *sampling, const char *text)
{
    char directory[] = "/tmp/day0_sampler_XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/generation_config.json", directory);
    if (text && file_write(path, text, strlen(text), &err) != STATUS_OK)
        fail_msg("%s", err.text);
    memset(sampling, 0x55, sizeof *sampling);
    enum status status = sampling_load(sampling, directory, &err);
    unlink(path);
    rmdir(directory);
    return status;
}

static void generation_configs(void **state)
{
    (void)state;
    static const char *const malformed[] = {"",
                                            "{",
                                            "[1]",
                                            "3",
                                            "{\"temperature\": \"hot\"}",
                                            "{\"top_p\": []}",
                                            "{\"top_k\": true}",
                                            "{\"top_k\": -1}",
                                            "{\"top_k\": 1e30}",
                                            "\xff\xfe"};
    struct sampling s;
    assert_int_equal(load(&s, NULL), STATUS_OK);
    assert_true(s.temperature == 1.0f && s.top_p == 1.0f && s.top_k == 0 && s.min_p == 0.0f && s.seed == 0);
    assert_int_equal(load(&s, "{\"eos_token_id\": 5, \"top_k\": null}"), STATUS_OK);
    assert_true(s.temperature == 1.0f && s.top_p == 1.0f && s.top_k == 0);
    assert_int_equal(load(&s, "{\"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20}"), STATUS_OK);
    assert_true(s.temperature == 0.6f && s.top_p == 0.95f && s.top_k == 20);
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        memset(err.text, 0, sizeof err.text);
        if (load(&s, malformed[i]) != STATUS_FORMAT)
            fail_msg("'%s' is taken", malformed[i]);
        assert_non_null(strstr(err.text, "generation_config.json"));
    }
    /* Numbers out of range are said where they are used. */
    struct sampler sampler = open_sampler(&plain, 10);
    assert_int_equal(load(&s, "{\"temperature\": -1}"), STATUS_OK);
    assert_int_equal(sampler_set(&sampler, &s, &err), STATUS_ARGUMENT);
    assert_int_equal(load(&s, "{\"top_p\": 1e300}"), STATUS_OK);
    assert_int_equal(sampler_set(&sampler, &s, &err), STATUS_ARGUMENT);
    sampler_fini(&sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_and_frequencies),
        cmocka_unit_test(ties_go_to_the_lowest),
        cmocka_unit_test(greedy),
        cmocka_unit_test(not_numbers),
        cmocka_unit_test(seeds_repeat),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(generation_configs),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
