/* The model against the specification's float64 answers, and every way of running it against the first, bit for bit.
 *
 * Bounds: relative RMS over all logits 3e-5, over one position 3e-4; the best token equal where the float64 margin is
 * over 1e-3; selections equal. A case whose gaps.txt names another seed than its directory replaced one in which
 * float64 itself is close to a tie (spec/make_golden.py). */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model_help.h"

enum { CASES_MAX = 128 };

static const double bound_all = 3e-5, bound_position = 3e-4, margin_min = 1e-3;

static double sum_squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* The best logit's index and its distance to the second. */
static uint32_t best_of(const float *x, uint32_t n, double *margin)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    *margin = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (i != best && x[best] - x[i] < *margin)
            *margin = x[best] - x[i];
    return best;
}

static void compare_numbers(const struct golden *g, const struct answers *a)
{
    size_t n = (size_t)g->n_tokens * g->vocabulary;
    double scale = sqrt(sum_squares(g->logits, n) / (double)n), total = 0, worst = 0;
    float *difference = malloc(g->vocabulary * sizeof(float));
    for (uint32_t t = 0; t < g->n_tokens; t++) {
        const float *want = g->logits + (size_t)t * g->vocabulary, *got = a->logits + (size_t)t * g->vocabulary;
        for (uint32_t i = 0; i < g->vocabulary; i++)
            difference[i] = got[i] - want[i];
        double squares = sum_squares(difference, g->vocabulary), margin, unused;
        double here = sqrt(squares / g->vocabulary) / scale;
        worst = here > worst ? here : worst;
        total += squares;
        uint32_t best = best_of(want, g->vocabulary, &margin);
        if (margin > margin_min)
            assert_int_equal(best_of(got, g->vocabulary, &unused), best);
    }
    free(difference);
    total = sqrt(total / (double)n) / scale;
    print_message("%s: relative RMS %.2g, worst position %.2g\n", g->directory, total, worst);
    assert_true(total <= bound_all); /* false for NaN */
    assert_true(worst <= bound_position);
}

/* Selections of the run, of tokens below n_tokens in the golden file. */
static void compare_selected(const struct golden *g, const struct answers *a)
{
    char path[PATH_BYTES_MAX], *text, *kept = NULL;
    size_t bytes, kept_bytes;
    struct error err;
    if (snprintf(path, sizeof path, "%s/selected.txt", g->directory) < 0 || !file_exists(path)) {
        assert_int_equal(a->selected_bytes, 0);
        return;
    }
    if (file_read(path, 1 << 28, &text, &bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    FILE *out = open_memstream(&kept, &kept_bytes);
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if ((uint32_t)atoi(strchr(line, ' ')) < g->n_tokens)
            fprintf(out, "%s\n", line);
    fclose(out);
    struct answers want = {
        .logits = a->logits, .n_logits = a->n_logits, .selected = kept, .selected_bytes = kept_bytes};
    assert_same_bits(a, &want, "selections against float64");
    free(kept);
    free(text);
}

/* All tiers, threads, run modes and pieces. Short: each (tier, threads, mode) with one size of pieces, in turn over
 * the cases, so that all cases together see every pair. */
static void compare_variants(const struct golden *g, const struct answers *base, unsigned case_number)
{
    static const uint32_t pieces[] = {0, 1, 2, 3, 7, 16, 17, 64};
    enum { N_PIECES = sizeof pieces / sizeof *pieces };
    const char *tiers[8];
    size_t n_tiers = machine_tiers(tiers, 8);
    struct model_options options = exact_options(g->n_tokens);
    unsigned variant = case_number;
    for (size_t t = 0; t < n_tiers; t++)
        for (unsigned threads = 1; threads <= 2; threads++)
            for (int mode = EXEC_GRAPH; mode <= EXEC_EAGER; mode++, variant += 3) {
                options.cpu = tiers[t];
                options.n_threads = threads;
                options.exec = (enum exec_mode)mode;
                struct model *model = open_or_fail(g->directory, &options);
                for (size_t p = 0; p < N_PIECES; p++) {
                    if (!slow_tests() && p != variant % N_PIECES)
                        continue;
                    char what[512];
                    snprintf(what, sizeof what, "%s, tier %s, %u threads, %s, pieces of %u", g->directory, tiers[t],
                             threads, mode == EXEC_GRAPH ? "graph" : "eager", pieces[p]);
                    struct answers a = feed_pieces(model, g->tokens, g->n_tokens, &pieces[p], pieces[p] > 0);
                    assert_same_bits(&a, base, what);
                    answers_free(&a);
                }
                model_close(model);
            }
}

static void check_case(void **state)
{
    static unsigned case_number;
    const char *name = *state;
    uint32_t lengths[2] = {80, 300};
    for (int i = slow_tests() ? 0 : 1; i < 2; i++) {
        struct golden g = golden_load(name, lengths[i]);
        struct model_options options = exact_options(g.n_tokens);
        struct answers base = run_pieces(g.directory, &options, g.tokens, g.n_tokens, NULL, 0);
        compare_numbers(&g, &base);
        compare_selected(&g, &base);
        g.n_tokens = slow_tests() ? g.n_tokens : 80;
        struct answers shorter = run_pieces(g.directory, &options, g.tokens, g.n_tokens, NULL, 0);
        compare_variants(&g, &shorter, case_number++);
        answers_free(&shorter);
        answers_free(&base);
        golden_free(&g);
    }
}

int main(void)
{
    static struct CMUnitTest tests[CASES_MAX];
    struct dirent **entries;
    int n_tests = 0, n = scandir(golden_root(), &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s/config.json", golden_root(), entries[i]->d_name);
        if (file_exists(path) && n_tests < CASES_MAX) {
            char *name = strdup(entries[i]->d_name);
            tests[n_tests++] = (struct CMUnitTest){name, check_case, NULL, NULL, name};
        }
        free(entries[i]);
    }
    free(entries);
    if (n_tests == 0) {
        fprintf(stderr, "no cases under %s; run from the project's folder\n", golden_root());
        return 1;
    }
    int failed = _cmocka_run_group_tests("golden", tests, (size_t)n_tests, NULL, NULL);
    for (int i = 0; i < n_tests; i++)
        free((void *)(uintptr_t)tests[i].name);
    return failed;
}
