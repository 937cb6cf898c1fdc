/* day0 eval: likelihoods against the float64 goldens of the bundled model, the figures of a policy against
 * itself, the order that roundings of index keys must keep, policies that cannot be read, and exit
 * statuses. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "command_help.h"
#include "lab/commands.h"
#include "lab/eval_report.h"
#include "lab/eval_run.h"
#include "lab/eval_score.h"
#include "model_help.h"

#define MODEL "models/jargon-k31"
#define GOLDEN "tests/golden/jargon/"

static const char *const li_compare[] = {"kv=f32,li=f32", "li=bf16", "li=mxfp8", "li=mxfp8,li-scale=ceil"};
enum { N_LI = sizeof li_compare / sizeof *li_compare, BOS = 1984, SHORT_TOKENS = 512 };

/* The ids of eval.txt, [BOS] first. Gives the memory to the caller. */
static int32_t *golden_tokens(size_t *n)
{
    char *text;
    size_t bytes;
    struct error err;
    if (file_read(GOLDEN "eval_tokens.txt", 1 << 24, &text, &bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    int32_t *tokens = calloc(bytes, sizeof *tokens);
    *n = 0;
    for (char *save, *at = strtok_r(text, " \n", &save); at; at = strtok_r(NULL, " \n", &save))
        tokens[(*n)++] = atoi(at);
    free(text);
    assert_int_equal(tokens[0], BOS);
    return tokens;
}

/* A figure of nll.txt. */
static double golden_nll(const char *cache, const char *li, const char *rule, size_t n_tokens)
{
    char line_cache[16], line_li[16], line_rule[16];
    size_t tokens, predictions;
    double nll;
    FILE *file = fopen(GOLDEN "nll.txt", "r");
    assert_non_null(file);
    while (fscanf(file, "%15s %15s %15s %zu %zu %lf", line_cache, line_li, line_rule, &tokens, &predictions, &nll) == 6)
        if (strcmp(cache, line_cache) == 0 && strcmp(li, line_li) == 0 && strcmp(rule, line_rule) == 0 &&
            tokens == n_tokens)
            return fclose(file), nll;
    fail_msg("no figure for %s %s %s %zu", cache, li, rule, n_tokens);
    return 0;
}

static struct policy policy_or_fail(const char *text)
{
    struct policy policy;
    struct error err;
    struct model_options base = model_options_default();
    base.act = ACT_EXACT; /* what a policy does not say */
    base.n_threads = 2;
    if (policy_parse(&policy, text, &base, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return policy;
}

static struct eval_result run_or_fail(const char *directory, const char *const *texts, uint32_t n,
                                      const int32_t *tokens, size_t n_tokens, int32_t bos, uint32_t context)
{
    struct policy policies[POLICIES_MAX];
    for (uint32_t p = 0; p < n; p++)
        policies[p] = policy_or_fail(texts[p]);
    struct eval_request request = {.directory = directory,
                                   .policies = policies,
                                   .n_policies = n,
                                   .tokens = tokens,
                                   .n_tokens = n_tokens,
                                   .bos = bos,
                                   .context = context};
    struct eval_result result;
    struct error err;
    if (eval_run(&request, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return result;
}

static void likelihoods_are_the_goldens(void **state)
{
    (void)state;
    size_t n;
    int32_t *tokens = golden_tokens(&n);
    size_t lengths[2] = {SHORT_TOKENS, n};
    for (int i = 0; i < (slow_tests() ? 2 : 1); i++) {
        struct eval_result r = run_or_fail(MODEL, li_compare, N_LI, tokens + 1, lengths[i] - 1, BOS, 0);
        double want[N_LI] = {
            golden_nll("f32", "f32", "floor", lengths[i]), golden_nll("bf16", "bf16", "floor", lengths[i]),
            golden_nll("bf16", "mxfp8", "floor", lengths[i]), golden_nll("bf16", "mxfp8", "ceil", lengths[i])};
        assert_int_equal(r.n_predictions, lengths[i] - 1);
        assert_int_equal(r.context, lengths[i]);
        for (int p = 0; p < N_LI; p++) {
            print_message("%s: nll %.7f, float64 %.7f\n", li_compare[p], r.figures[p].nll, want[p]);
            assert_true(fabs(r.figures[p].nll - want[p]) <= 1e-3 * want[p]);
        }
        assert_true(fabs(r.figures[0].nll - want[0]) <=
                    1e-6); /* float32 against float64: nothing is rounded on purpose */
        eval_result_fini(&r);
    }
    free(tokens);
}

static void index_roundings_rank_as_they_must(void **state)
{
    (void)state;
    size_t n;
    int32_t *tokens = golden_tokens(&n);
    struct eval_result r = run_or_fail(MODEL, li_compare, N_LI, tokens + 1, SHORT_TOKENS - 1, BOS, 0);
    assert_int_equal(r.topk, 64);
    assert_int_equal(r.n_index_layers, 2);
    for (int p = 0; p < N_LI; p++) {
        const struct eval_figures *f = &r.figures[p];
        assert_true(f->kl_mean >= 0 && f->kl_mean <= f->kl_max && f->kl_max < 1);
        assert_true(f->agreement > 0.95 && f->agreement <= 1);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(f->recall[i].layer, i == 0 ? 3 : 7);
            assert_int_equal(f->recall[i].rows, SHORT_TOKENS - 1 - 64);
            assert_true(f->recall[i].lowest <= f->recall[i].mean && f->recall[i].mean <= 1 && f->recall[i].lowest >= 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_true(r.figures[1].recall[i].mean > r.figures[2].recall[i].mean); /* BF16 keeps more than MXFP8 */
        assert_true(r.figures[2].recall[i].mean > 0.9 && r.figures[2].recall[i].mean < 1);
    }
    assert_true(r.figures[1].kl_mean > 0 && r.figures[1].kl_mean < r.figures[2].kl_mean);
    eval_result_fini(&r);
    free(tokens);
}

/* Policies that may not change a bit, on every kind of model. */
static void a_policy_equals_itself(void **state)
{
    (void)state;
    static const char *const names[] = {"k31-s1", "k31-small-s1", "linear-s1"};
    static const char *const same[] = {"li=bf16", "li=bf16", "li=bf16,exec=eager", "threads=1", "cpu=ref"};
    enum { N_SAME = sizeof same / sizeof *same };
    for (size_t c = 0; c < sizeof names / sizeof *names; c++) {
        struct golden g = golden_load(names[c], 150);
        struct eval_result r = run_or_fail(g.directory, same, N_SAME, g.tokens, g.n_tokens, -1, 0);
        assert_int_equal(r.n_predictions, g.n_tokens - 1);
        for (uint32_t p = 1; p < N_SAME; p++) {
            const struct eval_figures *f = &r.figures[p];
            assert_true(f->nll == r.figures[0].nll && f->kl_mean == 0 && f->kl_max == 0 && f->agreement == 1);
            for (uint32_t i = 0; i < r.n_index_layers; i++)
                assert_true(f->recall[i].mean == 1 && f->recall[i].lowest == 1 &&
                            f->recall[i].rows == r.figures[0].recall[i].rows);
        }
        eval_result_fini(&r);
        golden_free(&g);
    }
}

/* The golden logits hold what each figure should be. */
static void figures_follow_from_logits(void **state)
{
    (void)state;
    struct golden g = golden_load("k31-s1", 100);
    const char *exact = "kv=f32,li=f32";
    struct eval_result r = run_or_fail(g.directory, &exact, 1, g.tokens, g.n_tokens, -1, 0);
    double sum = 0;
    for (uint32_t t = 0; t + 1 < g.n_tokens; t++) {
        const float *x = g.logits + (size_t)t * g.vocabulary;
        double norm = 0;
        for (uint32_t i = 0; i < g.vocabulary; i++)
            norm += exp(x[i]);
        sum += log(norm) - x[g.tokens[t + 1]];
    }
    assert_true(fabs(r.figures[0].nll - sum / (g.n_tokens - 1)) < 1e-4);
    eval_result_fini(&r);
    golden_free(&g);
}

/* Every token is predicted once under a start mark; without one, all but the first of each window. */
static void windows_cut_the_text(void **state)
{
    (void)state;
    struct golden g = golden_load("k31-s1", 100);
    const char *policy = "kv=f32,li=f32";
    struct eval_result marked = run_or_fail(g.directory, &policy, 1, g.tokens + 1, 99, g.tokens[0], 34);
    assert_int_equal(marked.n_windows, 3);
    assert_int_equal(marked.n_predictions, 99);
    struct eval_result first = run_or_fail(g.directory, &policy, 1, g.tokens + 1, 33, g.tokens[0], 0);
    struct eval_result second = run_or_fail(g.directory, &policy, 1, g.tokens + 34, 33, g.tokens[0], 34);
    struct eval_result third = run_or_fail(g.directory, &policy, 1, g.tokens + 67, 33, g.tokens[0], 50);
    assert_true(fabs(marked.figures[0].nll -
                     (first.figures[0].nll + second.figures[0].nll + third.figures[0].nll) / 3) < 1e-12);
    struct eval_result bare = run_or_fail(g.directory, &policy, 1, g.tokens, 100, -1, 33);
    assert_int_equal(bare.n_windows, 4); /* of 33, 33, 33 and 1: the last predicts nothing */
    assert_int_equal(bare.n_predictions, 96);
    eval_result_fini(&marked);
    eval_result_fini(&first);
    eval_result_fini(&second);
    eval_result_fini(&third);
    eval_result_fini(&bare);
    golden_free(&g);
}

static void rows_are_scored_carefully(void **state)
{
    (void)state;
    struct team *team;
    struct error err;
    assert_int_equal(team_open(&team, 2, &err), STATUS_OK);
    /* Logits far outside of what exp holds, a distribution of one token, and two that differ in the last
     * bit. */
    float p[5][3] = {{5000, 4999, -5000}, {0, -800, -900}, {1, 1, 1}, {0, 1, 2}, {0, 0, 2.5f}};
    float q[5][3] = {{4000, 3999, -6000}, {-800, 0, -900}, {1, 1, nextafterf(1, 2)}, {2, 1, 0}, {0, 0, 0}};
    const int32_t targets[5] = {1, 0, 2, 0, 2};
    struct score_row a[5], b[5];
    eval_score_rows(team, a, p[0], targets, 5, 3, NULL, NULL);
    eval_score_rows(team, b, q[0], targets, 5, 3, p[0], a);
    assert_true(fabs(a[0].nll - log1p(exp(1))) < 1e-12 && a[0].best == 0 && b[0].kl == 0);
    assert_true(a[1].nll == 0 && b[1].best == 1 && fabs(b[1].kl - 800) < 1e-9);
    double e = (double)nextafterf(1, 2) - 1, second_order = e * e / 9; /* variance 2/9 of a uniform third, halved */
    assert_true(a[2].best == 0 && b[2].best == 2 && b[2].kl > 0.9 * second_order && b[2].kl < 1.1 * second_order);
    double z = exp(0) + exp(1) + exp(2), want = (2 * exp(2) - 2) / z;
    assert_true(fabs(b[3].kl - want) < 1e-12);
    z = 2 + exp(2.5); /* terms on both sides of where the formula changes */
    want = (2 * log(3 / z) + exp(2.5) * (2.5 + log(3 / z))) / z;
    assert_true(fabs(b[4].kl - want) < 1e-12);
    team_close(team);
    const uint32_t x[] = {1, 3, 5, 9}, y[] = {0, 3, 4, 5, 10};
    assert_int_equal(eval_score_shared(x, 4, y, 5), 2);
    assert_int_equal(eval_score_shared(x, 4, x, 4), 4);
    assert_int_equal(eval_score_shared(x, 4, y, 0), 0);
}

static void policies_that_cannot_be_read(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "kv",
        "kv=",
        "kv=f64",
        "li=int8",
        "li-scale=up",
        "li-scan=int8",
        "kw=f32",
        "kv=f32,",
        "kv=f32,kv=bf16",
        ",kv=f32",
        "threads=0",
        "threads=two",
        "cpu=mmx",
        "act=fast",
        "exec=lazy",
        "kv=f32 li=f32",
        "kv=bf16,li=bf16,li-scale=floor,exec=graph,threads=1,act=exact,kv=bf16,li=bf16,li-scale=floor,k"};
    struct model_options base = model_options_default();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct policy policy;
        struct error err;
        assert_int_equal(policy_parse(&policy, wrong[i], &base, &err), STATUS_ARGUMENT);
        assert_non_null(strstr(err.text, "policy '"));
    }
    struct policy p =
        policy_or_fail("kv=f32,li=mxfp8,li-scale=ceil,exec=eager,threads=3,act=exact,streams=off,cpu=ref");
    assert_int_equal(p.options.latent_dtype, DTYPE_F32);
    assert_int_equal(p.options.index_dtype, DTYPE_MXFP8);
    assert_int_equal(p.options.index_rule, MX_CEIL);
    assert_int_equal(p.options.exec, EXEC_EAGER);
    assert_int_equal(p.options.n_threads, 3);
    assert_false(p.options.streams);
    assert_string_equal(p.options.cpu, "ref");
    policy_of(&p, &p.options);
    assert_string_equal(p.name, "kv=f32,li=mxfp8,li-scale=ceil");
}

static int command(const char *line, char **output)
{
    return command_run(lab_eval, "eval", line, output);
}

static void exit_statuses(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int status;
    } cases[] = {
        {"-m " MODEL " --text " MODEL "/eval.txt -n 200 --compare li=f32 li=mxfp8 --max-kl 1", LAB_OK},
        {"-m " MODEL " --text " MODEL "/eval.txt -n 200 --compare li=f32 --compare li=mxfp8 --max-kl 1e-12",
         LAB_FAILED},
        {"-m " MODEL " --text " MODEL "/eval.txt -n 200 --compare li=f32 li=f32,exec=eager --max-kl 0", LAB_OK},
        {"-m " MODEL " --text no-such-file", LAB_FAILED},
        {"-m no-such-model --text " MODEL "/eval.txt", LAB_FAILED},
        {"-m " MODEL " --text /dev/null --li-compare", LAB_FAILED},
        {"-m " MODEL, LAB_USAGE},
        {"-m " MODEL " " MODEL "/eval.txt", LAB_USAGE},
        {"-m " MODEL " --text x --max-kl 1", LAB_USAGE},
        {"-m " MODEL " --text x --li-compare --max-kl -1", LAB_USAGE},
        {"-m " MODEL " --text x --compare li=f65", LAB_USAGE},
        {"-m " MODEL " --text x --compare li=f32 --li-compare", LAB_USAGE},
        {"-m " MODEL " --text x --ctx 1", LAB_USAGE},
        {"-m " MODEL " --no-such-flag", LAB_USAGE},
        {"--help", LAB_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *output;
        print_message("eval %s\n", cases[i].line);
        assert_int_equal(command(cases[i].line, &output), cases[i].status);
        free(output);
    }
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void json_has_the_documented_keys(void **state)
{
    (void)state;
    char *output;
    assert_int_equal(command("-m " MODEL " --text " MODEL "/eval.txt -n 512 --li-compare --json", &output), LAB_OK);
    json_error_t at;
    json_t *report = json_loads(output, 0, &at);
    assert_non_null(report);
    assert_string_equal(json_string_value(json_object_get(report, "model")), MODEL);
    assert_string_equal(json_string_value(json_object_get(report, "text")), MODEL "/eval.txt");
    assert_true(number(report, "tokens") == 511 && number(report, "predictions") == 511 &&
                number(report, "windows") == 1);
    assert_true(number(report, "context") == 512 && number(report, "bos") == BOS && number(report, "topk") == 64);
    json_t *policies = json_object_get(report, "policies");
    assert_int_equal(json_array_size(policies), 4);
    for (size_t p = 0; p < 4; p++) {
        const json_t *policy = json_array_get(policies, p);
        assert_true(json_is_string(json_object_get(policy, "policy")));
        assert_int_equal(json_is_true(json_object_get(policy, "reference")), p == 0);
        assert_true(fabs(log(number(policy, "perplexity")) - number(policy, "nll")) < 1e-6);
        assert_true(number(policy, "kl_mean") <= number(policy, "kl_max") && number(policy, "agreement") <= 1);
        assert_true(number(policy, "kl_max_token") < 511 && number(policy, "seconds") > 0);
        assert_int_equal(json_array_size(json_object_get(policy, "recall")), 2);
        const json_t *layer = json_array_get(json_object_get(policy, "recall"), 0);
        assert_true(number(layer, "layer") == 4 && number(layer, "rows") == 447);
        assert_true(number(layer, "lowest") <= number(layer, "mean"));
    }
    json_decref(report);
    free(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_scored_carefully),    cmocka_unit_test(policies_that_cannot_be_read),
        cmocka_unit_test(likelihoods_are_the_goldens),  cmocka_unit_test(index_roundings_rank_as_they_must),
        cmocka_unit_test(a_policy_equals_itself),       cmocka_unit_test(figures_follow_from_logits),
        cmocka_unit_test(windows_cut_the_text),         cmocka_unit_test(exit_statuses),
        cmocka_unit_test(json_has_the_documented_keys),
    };
    return cmocka_run_group_tests_name("eval", tests, NULL, NULL);
}
